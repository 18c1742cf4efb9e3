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
	Key       string // "" if the event has none
	CreatedAt time.Time
	Payload   json.RawMessage // as stored; other bindings may store text that is not JSON
	Data      E

	sub *subscription // the consumer's subscription that yielded the event; nil if there is none
}

// newEvent converts a row. If it returns an error, the event has no Data.
func newEvent[E any](row *row.Event) (*Event[E], error) {
	e := &Event[E]{
		Offset:    row.Offset,
		Topic:     row.Topic,
		Key:       row.Key,
		CreatedAt: row.CreatedAt,
		Payload:   json.RawMessage(row.Payload), // a copy, which the application may change
	}
	return e, decodeEvent(e.Payload, &e.Data)
}

// readError returns the error for an event whose payload could not be decoded.
func readError(offset int64, err error) error { return failID("read event", offset, err) }

func decodeEvent(payload json.RawMessage, data any) error {
	if raw, ok := data.(*json.RawMessage); ok && json.Valid(payload) {
		*raw = payload // avoids a copy
		return nil
	}
	if err := json.Unmarshal(payload, data); err != nil {
		return fmt.Errorf("cannot decode payload: %w", err)
	}
	return nil
}

var errNoConsumer = fmt.Errorf("%w: the event does not come from Subscribe or Consume, so no consumer can save its offset", ErrInvalid)

// Ack saves this event's offset for the consumer of the [Stream.Subscribe] or [Stream.Consume] that yielded it.
// All events up to this one then count as handled. The offset never moves backward. Ack waits for the writer
// until ctx ends or BusyTimeout has passed. It returns [ErrInvalid] for an event from another source, such as
// [Stream.Read].
func (e *Event[E]) Ack(ctx context.Context) error {
	if e.sub == nil {
		return failID("ack event", e.Offset, errNoConsumer)
	}
	_, err := e.sub.s.saveOffset(ctx, "AckTx", e.sub.consumer, e.Offset)
	return failID("ack event", e.Offset, err)
}

// AckTx is like [Event.Ack] but runs within tx, so that other writes in tx take effect exactly once, together with
// the ack. If another loop has already advanced the consumer to this offset, AckTx returns [ErrClaimLost], and tx
// must be rolled back.
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

// Delivery is an event leased to a member of a group. Ack and Nack settle it. Settling is fenced: once the lease has
// expired or the event has been given to another member, Ack and Nack return [ErrClaimLost] and change nothing, even
// in the caller's own transaction.
//
// Inside [Group.Work], the event is settled when the handler returns.
type Delivery[E any] struct {
	Event[E]
	Attempts int   // number of deliveries of the event, including this one
	Token    int64 // increases with every claim of the group; use it to fence writes to other systems

	*heldEvent
}

// newDelivery converts a claimed row. If it returns an error, the delivery has no Data but can still be settled.
func newDelivery[E any](m *member, r row.Delivery) (*Delivery[E], error) {
	e, err := newEvent[E](&r.Event)
	h := &heldEvent{
		member: m, attempts: int(r.Attempts),
		claim: row.Holding{Group: m.id, Offset: r.Offset, Token: r.Token},
	}
	return &Delivery[E]{Event: *e, Attempts: h.attempts, Token: r.Token, heldEvent: h}, readError(r.Offset, err)
}

// heldEvent is the claim of a Delivery. Copies of the Delivery share it.
type heldEvent struct {
	member    *member
	claim     row.Holding
	attempts  int
	settled   atomic.Bool // by a plain verb
	settledTx atomic.Bool // by a Tx verb, whose transaction may still fail
}

// settleOp ends or extends an event's claim if the claim is still valid. It implements engine.Op.
type settleOp struct {
	h      *heldEvent
	settle row.GroupSettlement
	rest   time.Duration // delay before a returned event can be claimed again
	extend time.Duration // length of the new lease; 0 ends the claim
	cause  error         // reason why the event was returned
	out    row.GroupSettled
}

// Single implements engine.Op.
func (o *settleOp) Single() bool { return o.extend == 0 && !o.settle.Back }

// Run implements engine.Op.
func (o *settleOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	groups, begun := o.h.member.db.engine.Stores.Groups, now.Truncate(time.Millisecond)
	if o.extend > 0 {
		o.out.Held, err = groups.Extend(ctx, q, o.h.claim, begun.Add(o.extend), now)
		return err
	}
	o.settle.Ready = begun.Add(o.rest)
	o.out, err = groups.Settle(ctx, q, o.settle, now)
	return err
}

func (h *heldEvent) ackOp() *settleOp {
	return &settleOp{h: h, settle: row.GroupSettlement{Holding: h.claim}}
}

// nackOp returns the event to the group, to be delivered again after rest. If the event has already been delivered
// maxAttempts times, it is dead-lettered instead. A maxAttempts of 0 means no limit.
func (h *heldEvent) nackOp(rest time.Duration, maxAttempts int, cause error) *settleOp {
	return &settleOp{h: h, rest: rest, cause: cause, settle: row.GroupSettlement{
		Holding: h.claim, Back: true, MaxAttempts: maxAttempts, Cause: engine.Describe(cause),
	}}
}

func (h *heldEvent) extendOp(by time.Duration) *settleOp { return &settleOp{h: h, extend: by} }

// write commits op. txForm is the name of the verb's Tx form.
func (h *heldEvent) write(ctx context.Context, txForm string, op *settleOp) error {
	if err := h.member.db.engine.Write(ctx, txForm, op); err != nil {
		return err
	}
	if !op.out.Held {
		return ErrClaimLost
	}
	return nil
}

// end commits op, which ends the claim. It sets settled first, so that a concurrent renewal does not report the
// claim as lost.
func (h *heldEvent) end(ctx context.Context, txForm string, op *settleOp) error {
	h.settled.Store(true)
	err := h.write(ctx, txForm, op)
	if err != nil && !errors.Is(err, ErrClaimLost) {
		h.settled.Store(false)
	}
	if err == nil {
		h.report(op)
	}
	return err
}

// report reports the event's death if op caused it.
func (h *heldEvent) report(op *settleOp) {
	if op.out.Died {
		h.member.group.reportDeath(h.claim.Offset, h.attempts, op.cause)
	}
}

// endTx runs op, which ends the claim, within tx.
func (h *heldEvent) endTx(ctx context.Context, tx Tx, op *settleOp) error {
	report := func() { h.report(op) }
	var changes []wake.Change
	if op.settle.Back {
		changes = append(changes, wake.Group(groupKey(h.claim.Group)))
	}
	q, seen, err := h.member.db.engine.JoinThen(ctx, tx, report, changes...)
	if err != nil {
		return err
	}
	if err := op.Run(ctx, q, h.member.db.engine.Now()); err != nil {
		return err
	}
	if !op.out.Held {
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

// deadLetter makes the event dead, even if it has attempts left.
func (h *heldEvent) deadLetter(ctx context.Context, cause error) error {
	return h.giveBack(ctx, h.nackOp(0, 1, cause))
}

// giveBack commits op and wakes members in this process that are waiting for returned events.
func (h *heldEvent) giveBack(ctx context.Context, op *settleOp) error {
	if err := h.end(ctx, "NackTx", op); err != nil {
		return err
	}
	h.member.db.engine.Notifier.Wake(wake.Group(groupKey(h.claim.Group)))
	return nil
}

// backoff returns how long to wait before redelivering an event that was nacked with cause.
func (h *heldEvent) backoff(cause error) time.Duration {
	b := h.member.group.opts.Backoff
	if b == nil {
		return 0
	}
	return max(0, b(h.attempts, cause))
}

// Ack marks the event as handled by the group. It waits for the writer until ctx ends or BusyTimeout has passed,
// and shares commits with concurrent calls.
func (d *Delivery[E]) Ack(ctx context.Context) error {
	return failID("ack event", d.Offset, d.ack(ctx))
}

// AckTx is like [Delivery.Ack] but runs within tx, so that other writes in tx take effect exactly once, together with
// the ack.
func (d *Delivery[E]) AckTx(ctx context.Context, tx Tx) error {
	return failID("ack event", d.Offset, d.endTx(ctx, tx, d.ackOp()))
}

// Nack returns the event to the group. It is delivered again after the group's Backoff, or dead-lettered if no
// attempts are left; see [Group.Dead]. cause is stored as LastError and may be nil. Like [Delivery.Ack], Nack waits
// for the writer.
func (d *Delivery[E]) Nack(ctx context.Context, cause error) error {
	return failID("nack event", d.Offset, d.nack(ctx, d.backoff(cause), cause))
}

// NackTx is like [Delivery.Nack] but runs within tx. The event is returned when tx commits, and stays leased if tx
// rolls back. The Backoff starts at the time of the call.
func (d *Delivery[E]) NackTx(ctx context.Context, tx Tx, cause error) error {
	op := d.nackOp(d.backoff(cause), d.member.group.opts.MaxAttempts, cause)
	return failID("nack event", d.Offset, d.endTx(ctx, tx, op))
}

// Extend sets the lease to expire by from now, rounded up to milliseconds, which may be earlier or later than before.
// It returns [ErrInvalid] if by is not positive. Like [Delivery.Ack], it waits for the writer. Inside [Group.Work],
// leases are renewed automatically.
func (d *Delivery[E]) Extend(ctx context.Context, by time.Duration) error {
	if err := engine.Positive("extension", by); err != nil {
		return failID("extend event", d.Offset, err)
	}
	return failID("extend event", d.Offset, d.write(ctx, "", d.extendOp(by)))
}

// Filter selects events by their keys. An event without a key has the key "". Filters are built with [KeyIs],
// [KeyPrefix], [And] and [Or]. They are evaluated inside SQLite, so excluded events are not decoded.
//
// A key in a filter may begin with the topic and a colon: on a stream of "orders", both "created" and "orders:created"
// match the key "created". This does not apply to a pattern of topics. If a Filter has more than 1,000 parts or is
// nested more than 32 levels deep, any call that uses it returns [ErrInvalid].
type Filter interface{ filter() *row.Filter }

type filter row.Filter

func (f filter) filter() *row.Filter { return (*row.Filter)(&f) }

// KeyIs selects the events with exactly the given key.
func KeyIs(key string) Filter { return filter{Op: row.KeyIs, Key: key} }

// KeyPrefix selects the events whose key begins with p. The comparison is byte by byte: there are no wildcards, and
// case matters. An empty p selects all events.
func KeyPrefix(p string) Filter { return filter{Op: row.KeyPrefix, Key: p} }

// And selects the events that match all filters in f. With no arguments it selects all events. A nil Filter matches
// every event.
func And(f ...Filter) Filter { return filter{Op: row.And, Of: filterParts(f)} }

// Or selects the events that match any filter in f. With no arguments it selects no events. A nil Filter matches
// every event.
func Or(f ...Filter) Filter { return filter{Op: row.Or, Of: filterParts(f)} }

func filterParts(fs []Filter) []row.Filter {
	out := make([]row.Filter, len(fs))
	for i, f := range fs {
		if f == nil {
			f = And() // a nil Filter selects all events, here as elsewhere
		}
		out[i] = *f.filter()
	}
	return out
}

// Limits on the size of a filter, because SQLite limits the size of a statement.
const (
	maxFilterDepth = 32
	maxFilterParts = 1000
)

// filterOf validates f for s. It returns nil for a nil f.
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

// withoutTopic lets each key in f that begins with topic also match without it.
func withoutTopic(f row.Filter, topic string) row.Filter {
	if key, ok := strings.CutPrefix(f.Key, topic); ok {
		return row.Filter{Op: row.Or, Of: []row.Filter{f, {Op: f.Op, Key: key}}}
	}
	f.Of = slices.Clone(f.Of) // the caller may use the filter for other streams
	for i, part := range f.Of {
		f.Of[i] = withoutTopic(part, topic)
	}
	return f
}

func checkFilter(f row.Filter, depth int, count *int) error {
	*count++
	if depth > maxFilterDepth {
		return fmt.Errorf("%w: the filter is nested deeper than %d levels", ErrInvalid, maxFilterDepth)
	}
	if *count > maxFilterParts {
		return fmt.Errorf("%w: the filter has more than %d parts", ErrInvalid, maxFilterParts)
	}
	if f.Key != "" {
		if err := engine.CheckName("filter key", f.Key); err != nil {
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
