package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Event is an event of a stream.
type Event[E any] struct {
	Offset    int64
	Topic     string
	Key       string // "" also for none
	CreatedAt time.Time
	Payload   json.RawMessage // as stored; other bindings may store text that is no JSON
	Data      E

	sub *subscription // that yielded it for a consumer; nil: none
}

// newEvent makes an event of a row. With an error, the event has no Data.
func newEvent[E any](row *row.Event) (*Event[E], error) {
	e := &Event[E]{
		Offset:    row.Offset,
		Topic:     row.Topic,
		Key:       row.Key,
		CreatedAt: engine.Instant(row.CreatedAt),
		Payload:   row.Payload,
	}
	return e, decodeEvent(row.Payload, &e.Data)
}

// readError is the error of an event that does not decode.
func readError(offset int64, err error) error { return failID("read event", offset, err) }

func decodeEvent(payload json.RawMessage, data any) error {
	if raw, ok := data.(*json.RawMessage); ok && json.Valid(payload) {
		*raw = payload // spares a copy
		return nil
	}
	if err := json.Unmarshal(payload, data); err != nil {
		return fmt.Errorf("payload does not decode: %w", err)
	}
	return nil
}

var errNoConsumer = fmt.Errorf("%w: no consumer has subscribed to it", ErrInvalid)

// Ack saves the offset of this event now, for the consumer of the [Stream.Subscribe] or
// [Stream.Consume] that it came from: everything up to it counts as handled. The offset
// never goes back. Ack waits for the writer until ctx ends or BusyTimeout has passed. An
// event from elsewhere, such as [Stream.Read], is [ErrInvalid].
func (e *Event[E]) Ack(ctx context.Context) error {
	if e.sub == nil {
		return failID("ack event", e.Offset, errNoConsumer)
	}
	_, err := e.sub.s.saveOffset(ctx, "AckTx", e.sub.consumer, e.Offset)
	return failID("ack event", e.Offset, err)
}

// AckTx is like [Event.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack. [ErrClaimLost]: the consumer is that far already, by another loop
// that runs for it; let tx roll back.
func (e *Event[E]) AckTx(ctx context.Context, tx Tx) error {
	if e.sub == nil {
		return failID("ack event", e.Offset, errNoConsumer)
	}
	moved, err := e.sub.s.saveOffsetTx(ctx, tx, e.sub.consumer, e.Offset)
	if err != nil {
		return failID("ack event", e.Offset, err)
	}
	if !moved {
		return failID("ack event", e.Offset, ErrClaimLost)
	}
	return nil
}

// Delivery is an event that a member of a group holds. Ack or Nack ends that; each settle
// is fenced: once the lease has run out, or the event was given to another member, it
// returns [ErrClaimLost] and changes nothing, also inside a transaction of the caller's.
//
// Inside [Group.Work], returning from the handler settles the event.
type Delivery[E any] struct {
	Event[E]
	Attempts int   // how often the event was given out, this time included
	Token    int64 // grows with every claim of the group: fences effects outside of the file

	*heldEvent
}

// newDelivery makes a delivery of a claimed row. With an error it has no Data, and can only
// be settled.
func newDelivery[E any](m *member, r row.Delivery) (*Delivery[E], error) {
	e, err := newEvent[E](&r.Event)
	h := &heldEvent{
		member: m, attempts: int(r.Attempts),
		claim: row.Holding{Group: m.id, Offset: r.Offset, Token: r.Token},
	}
	return &Delivery[E]{Event: *e, Attempts: h.attempts, Token: r.Token, heldEvent: h}, readError(r.Offset, err)
}

// heldEvent is the claim of a Delivery, which its copies share.
type heldEvent struct {
	member    *member
	claim     row.Holding
	attempts  int
	settled   atomic.Bool // by a plain verb
	settledTx atomic.Bool // by a Tx verb: its transaction may still fail
}

// settleOp ends the claim of an event, or extends it, if it still holds. It is an
// engine.Op.
type settleOp struct {
	single bool // one statement
	run    func(ctx context.Context, q engine.Querier, nowMS int64) (held bool, err error)
	cause  error // of a nack
	held   bool  // after Run
	died   bool  // after Run
}

// Single implements engine.Op.
func (o *settleOp) Single() bool { return o.single }

// Run implements engine.Op.
func (o *settleOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	o.held, err = o.run(ctx, q, now.UnixMilli())
	return err
}

func (h *heldEvent) ackOp() *settleOp {
	return &settleOp{single: true, run: func(ctx context.Context, q engine.Querier, nowMS int64) (bool, error) {
		return h.member.db.groups.Ack(ctx, q, h.claim, nowMS)
	}}
}

// nackOp gives the event back to rest for a while, or to the dead when it was given out
// maxAttempts times; 0 is no bound.
func (h *heldEvent) nackOp(rest time.Duration, maxAttempts int, cause error) *settleOp {
	op, text := &settleOp{cause: cause}, engine.Describe(cause)
	op.run = func(ctx context.Context, q engine.Querier, nowMS int64) (held bool, err error) {
		ready := engine.DeadlineMS(time.UnixMilli(nowMS), rest)
		held, op.died, err = h.member.db.groups.Nack(ctx, q, h.claim, ready, int64(maxAttempts), text, nowMS)
		return held, err
	}
	return op
}

func (h *heldEvent) extendOp(by time.Duration) *settleOp {
	return &settleOp{run: func(ctx context.Context, q engine.Querier, nowMS int64) (bool, error) {
		return h.member.db.groups.Extend(ctx, q, h.claim, engine.DeadlineMS(time.UnixMilli(nowMS), by), nowMS)
	}}
}

// write commits op. txForm is the Tx form of the verb.
func (h *heldEvent) write(ctx context.Context, txForm string, op *settleOp) error {
	if err := h.member.db.engine.Write(ctx, txForm, op); err != nil {
		return err
	}
	if !op.held {
		return ErrClaimLost
	}
	return nil
}

// end commits op, which ends the claim. settled is set before, so that a renewal that finds
// the claim gone does not take it for lost.
func (h *heldEvent) end(ctx context.Context, txForm string, op *settleOp) error {
	h.settled.Store(true)
	err := h.write(ctx, txForm, op)
	if err != nil && !errors.Is(err, ErrClaimLost) {
		h.settled.Store(false)
	}
	if err == nil && op.died {
		h.member.group.reportDeath(h.claim.Offset, h.attempts, op.cause)
	}
	return err
}

// endTx runs op, which ends the claim, within tx.
func (h *heldEvent) endTx(ctx context.Context, tx Tx, op *settleOp) error {
	report := func() {
		if op.died {
			h.member.group.reportDeath(h.claim.Offset, h.attempts, op.cause)
		}
	}
	q, seen, err := h.member.db.engine.JoinThen(ctx, tx, report)
	if err != nil {
		return err
	}
	if err := op.Run(ctx, q, time.Now()); err != nil {
		return err
	}
	if !op.held {
		return ErrClaimLost
	}
	h.settledTx.Store(true)
	if !seen {
		report()
	}
	return nil
}

func (h *heldEvent) ack(ctx context.Context) error { return h.end(ctx, "AckTx", h.ackOp()) }

func (h *heldEvent) nack(ctx context.Context, rest time.Duration, cause error) error {
	return h.giveBack(ctx, h.nackOp(rest, h.member.group.opts.MaxAttempts, cause))
}

// deadLetter ends the claim for good, whatever attempts are left.
func (h *heldEvent) deadLetter(ctx context.Context, cause error) error {
	return h.giveBack(ctx, h.nackOp(0, 1, cause))
}

// giveBack commits op and wakes the members of this process that wait for such an event.
func (h *heldEvent) giveBack(ctx context.Context, op *settleOp) error {
	if err := h.end(ctx, "NackTx", op); err != nil {
		return err
	}
	h.member.db.engine.Notifier.Wake(wake.Change{Kind: wake.GroupReturn, Name: groupKey(h.claim.Group)})
	return nil
}

// backoff is how long the event rests that was nacked with cause.
func (h *heldEvent) backoff(cause error) time.Duration {
	b := h.member.group.opts.Backoff
	if b == nil {
		return 0
	}
	return max(0, b(h.attempts, cause))
}

// Ack ends the delivery: the group is done with the event. It waits for the writer until
// ctx ends or BusyTimeout has passed, and shares commits with others.
func (d *Delivery[E]) Ack(ctx context.Context) error {
	return failID("ack event", d.Offset, d.ack(ctx))
}

// AckTx is like [Delivery.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack.
func (d *Delivery[E]) AckTx(ctx context.Context, tx Tx) error {
	return failID("ack event", d.Offset, d.endTx(ctx, tx, d.ackOp()))
}

// Nack gives the event back, to be given out again after the group's Backoff; when its
// attempts are spent it is dead-lettered, see [Group.Dead]. cause is kept as its LastError
// and may be nil. Nack waits for the writer as [Delivery.Ack] does.
func (d *Delivery[E]) Nack(ctx context.Context, cause error) error {
	return failID("nack event", d.Offset, d.nack(ctx, d.backoff(cause), cause))
}

// NackTx is like [Delivery.Nack], within tx: the event is given back when tx commits, and
// stays held when it rolls back. The Backoff counts from the call.
func (d *Delivery[E]) NackTx(ctx context.Context, tx Tx, cause error) error {
	op := d.nackOp(d.backoff(cause), d.member.group.opts.MaxAttempts, cause)
	return failID("nack event", d.Offset, d.endTx(ctx, tx, op))
}

// Extend makes the lease last for by, rounded up to milliseconds, from now: longer or
// shorter than it did. A by that is not positive is [ErrInvalid]. Extend waits for the
// writer as [Delivery.Ack] does. Inside [Group.Work] leases are renewed without it.
func (d *Delivery[E]) Extend(ctx context.Context, by time.Duration) error {
	if err := engine.Positive("extension", by); err != nil {
		return failID("extend event", d.Offset, err)
	}
	return failID("extend event", d.Offset, d.write(ctx, "", d.extendOp(by)))
}

// Filter picks events by their keys; an event without a key counts as one with "". It is
// made of [KeyIs], [KeyPrefix], [And] and [Or], and evaluated inside SQLite, so that what
// it leaves out is not decoded. A name in a filter may begin with the topic and a colon: on a stream of
// "orders" both "created" and "orders:created" name the key "created". A pattern of topics has no such names. A Filter of more than 1,000 parts, or deeper than 32, is
// [ErrInvalid] where it is used.
type Filter interface{ filter() *row.Filter }

type filter row.Filter

func (f filter) filter() *row.Filter { return (*row.Filter)(&f) }

// KeyIs picks the events with exactly that key.
func KeyIs(key string) Filter { return filter{Op: row.KeyIs, Key: key} }

// KeyPrefix picks the events with a key that begins with p, byte by byte: there are no
// wildcards, and case matters. "" picks all.
func KeyPrefix(p string) Filter { return filter{Op: row.KeyPrefix, Key: p} }

// And picks the events that every one of f picks: all, when there is none. A nil in f
// picks all.
func And(f ...Filter) Filter { return filter{Op: row.And, Of: filterParts(f)} }

// Or picks the events that one of f picks: none, when there is none. A nil in f picks all.
func Or(f ...Filter) Filter { return filter{Op: row.Or, Of: filterParts(f)} }

func filterParts(fs []Filter) []row.Filter {
	out := make([]row.Filter, len(fs))
	for i, f := range fs {
		if f == nil {
			f = And() // nil means all events wherever a Filter is taken
		}
		out[i] = *f.filter()
	}
	return out
}

// SQLite bounds what one statement may hold.
const (
	maxFilterDepth = 32
	maxFilterParts = 1000
)

// filterOf checks f for use on s; nil is nil.
func (s *stream) filterOf(f Filter) (*row.Filter, error) {
	if f == nil {
		return nil, nil
	}
	out, count := f.filter(), 0
	if err := checkFilter(*out, 1, &count); err != nil {
		return nil, err
	}
	if !s.selection(nil).Pattern() {
		*out = withoutTopic(*out, s.name+":")
	}
	return out, nil
}

// withoutTopic lets each name of f that begins with topic also stand for the rest of it.
func withoutTopic(f row.Filter, topic string) row.Filter {
	if key, ok := strings.CutPrefix(f.Key, topic); ok {
		return row.Filter{Op: row.Or, Of: []row.Filter{f, {Op: f.Op, Key: key}}}
	}
	f.Of = slices.Clone(f.Of) // the caller's filter is used by other streams too
	for i, part := range f.Of {
		f.Of[i] = withoutTopic(part, topic)
	}
	return f
}

func checkFilter(f row.Filter, depth int, count *int) error {
	*count++
	if depth > maxFilterDepth {
		return fmt.Errorf("%w: filter deeper than %d", ErrInvalid, maxFilterDepth)
	}
	if *count > maxFilterParts {
		return fmt.Errorf("%w: filter of more than %d parts", ErrInvalid, maxFilterParts)
	}
	if f.Key != "" {
		if err := engine.CheckName("key of a filter", f.Key); err != nil {
			return err
		}
	}
	for _, part := range f.Of {
		if err := checkFilter(part, depth+1, count); err != nil {
			return err
		}
	}
	return nil
}
