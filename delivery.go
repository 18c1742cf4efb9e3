package honker

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Delivery is an event that a member of a group holds. Ack or Nack ends that; each settle
// is fenced: once the lease has run out, or the event was given to somebody else, it
// returns [ErrClaimLost] and changes nothing, also inside a transaction of the caller's.
type Delivery[E any] struct {
	Event[E]
	Attempts int   // how often the event was given out, this time included
	Token    int64 // grows with every claim of the group: fences effects outside of the file

	m *member
}

func newDelivery[E any](m *member, row store.Delivery) (*Delivery[E], error) {
	e, err := newEvent[E](&row.Event)
	return &Delivery[E]{Event: *e, Attempts: int(row.Attempts), Token: row.Token, m: m}, err
}

func (d *Delivery[E]) holding() store.Holding {
	return store.Holding{Group: d.m.id, Offset: d.Offset, Token: d.Token}
}

// settle runs one of the verbs, which reports whether the lease held.
func (d *Delivery[E]) settle(ctx context.Context, verb, twin string, run func(ctx context.Context, q store.Querier, nowMS int64) (bool, error)) error {
	held := false
	err := d.m.g.s.db.do(ctx, twin, write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		held, err = run(ctx, q, now.UnixMilli())
		return err
	}))
	if err == nil && !held {
		err = ErrClaimLost
	}
	return failID(verb+" event", d.Offset, err)
}

// Ack ends the delivery: the group is done with the event. It waits for its turn to
// write, sharing commits with others.
func (d *Delivery[E]) Ack(ctx context.Context) error {
	held := false
	err := d.m.g.s.db.do(ctx, "AckTx", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		held, err = store.Groups{}.Ack(ctx, q, d.holding(), now.UnixMilli())
		return err
	}))
	if err == nil && !held {
		err = ErrClaimLost
	}
	return failID("ack event", d.Offset, err)
}

// AckTx is like [Delivery.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack.
func (d *Delivery[E]) AckTx(ctx context.Context, tx Tx) error {
	tx, err := d.m.g.s.db.in(ctx, tx)
	if err == nil {
		var held bool
		if held, err = (store.Groups{}).Ack(ctx, tx, d.holding(), time.Now().UnixMilli()); err == nil && !held {
			err = ErrClaimLost
		}
	}
	return failID("ack event", d.Offset, err)
}

// Nack gives the event back, with cause, to be given out again after the group's Backoff;
// when its attempts are spent it is dead.
func (d *Delivery[E]) Nack(ctx context.Context, cause error) error {
	rest := time.Duration(0)
	if b := d.m.g.opts.Backoff; b != nil {
		rest = max(0, b(d.Attempts, cause))
	}
	return d.nack(ctx, rest, int64(d.m.g.opts.MaxAttempts), cause)
}

// bury gives the event up, whatever attempts it has left.
func (d *Delivery[E]) bury(ctx context.Context, cause error) error { return d.nack(ctx, 0, 1, cause) }

func (d *Delivery[E]) nack(ctx context.Context, rest time.Duration, maxAttempts int64, cause error) error {
	text := describe(cause)
	err := d.settle(ctx, "nack", "", func(ctx context.Context, q store.Querier, nowMS int64) (bool, error) {
		ready := deadlineMS(time.UnixMilli(nowMS), rest)
		return store.Groups{}.Nack(ctx, q, d.holding(), ready, maxAttempts, text, nowMS)
	})
	if err == nil {
		d.m.g.s.db.hub.hint(groupReturn, groupKey(d.m.id))
	}
	return err
}

// Extend makes the lease last for by, rounded up to milliseconds, from now: longer or
// shorter than it did.
func (d *Delivery[E]) Extend(ctx context.Context, by time.Duration) error {
	if err := positive("extension", by); err != nil {
		return failID("extend event", d.Offset, err)
	}
	return d.settle(ctx, "extend", "", func(ctx context.Context, q store.Querier, nowMS int64) (bool, error) {
		return store.Groups{}.Extend(ctx, q, d.holding(), deadlineMS(time.UnixMilli(nowMS), by), nowMS)
	})
}
