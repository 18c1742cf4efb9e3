package honker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// OutboxOptions of a handle. They live in this process, not in the file. The zero value
// of a field means its default.
type OutboxOptions struct {
	MaxAttempts int           // deliveries tried before a message is dead; default 5, stamped on each message when it is sent
	BaseBackoff time.Duration // after the first failure, then doubled with each; default 5s: 5s, 10s, 20s, 40s
	Lease       time.Duration // how long Run holds a message, renewed while it is delivered; default 60s
}

func (o *OutboxOptions) withDefaults() (OutboxOptions, error) {
	var out OutboxOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("BaseBackoff", out.BaseBackoff), engine.NotNegative("Lease", out.Lease),
		checkMaxAttempts(out.MaxAttempts))
	if out.MaxAttempts == 0 {
		out.MaxAttempts = 5
	}
	if out.BaseBackoff == 0 {
		out.BaseBackoff = 5 * time.Second
	}
	if out.Lease == 0 {
		out.Lease = time.Minute
	}
	return out, err
}

// Outbox carries messages that are a T to somewhere outside the file: sent in the
// transaction that makes them true, delivered after it by each [Outbox.Run], at
// least once, in no promised order. It is honker's outbox: the queue "_outbox:<name>" with
// the message as JSON for its payload, and the same attempts and delays, so workers in
// other languages can share it.
//
// It is a cheap handle: make it where you need it.
type Outbox[T any] struct {
	q       *Queue[T]
	name    string
	deliver func(context.Context, T) error
	opts    OutboxOptions
	err     error // a bad name or option: returned by the first verb
}

const outboxPrefix = "_outbox:"

// NewOutbox returns a handle. It touches nothing; a bad name or option, or a T of []byte,
// is [ErrInvalid] from its first verb. A name has at most 1016 bytes. nil opts means
// defaults. deliver may be nil where messages are only sent.
func NewOutbox[T any](db *DB, name string, deliver func(context.Context, T) error, opts *OutboxOptions) *Outbox[T] {
	o, err := opts.withDefaults()
	q := NewQueue[T](db, outboxPrefix+name, &QueueOptions{
		MaxAttempts: max(o.MaxAttempts, 0),
		Lease:       max(o.Lease, 0),
		Backoff:     doubling(o.BaseBackoff),
	})
	err = errors.Join(err, engine.CheckName("outbox name", name), q.err)
	return &Outbox[T]{q: q, name: name, deliver: deliver, opts: o, err: err}
}

// doubling is base·2^(attempt-1), as honker's outbox waits.
func doubling(base time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration { return doubled(base, math.MaxInt64, attempt) }
}

// Name returns the name of the outbox.
func (o *Outbox[T]) Name() string { return o.name }

// Queue returns the queue behind the outbox: to look at its messages, or to cancel one.
func (o *Outbox[T]) Queue() *Queue[T] { return o.q }

// Send adds a message, to be delivered from now on, and returns its id when it is
// committed. See [Queue.Enqueue].
func (o *Outbox[T]) Send(ctx context.Context, v T, opts ...EnqueueOption) (int64, error) {
	if o.err != nil {
		return 0, fail("send", o.name, o.err)
	}
	if err := o.q.db.engine.RefuseInTx(ctx, "SendTx"); err != nil {
		return 0, fail("send", o.name, err)
	}
	id, err := o.q.enqueue(ctx, v, opts)
	return id, fail("send", o.name, err)
}

// SendTx is like [Outbox.Send], within tx: the message is delivered when tx commits, and
// never when it rolls back.
func (o *Outbox[T]) SendTx(ctx context.Context, tx Tx, v T, opts ...EnqueueOption) (int64, error) {
	if o.err != nil {
		return 0, fail("send", o.name, o.err)
	}
	id, err := o.q.enqueueTx(ctx, tx, v, opts)
	return id, fail("send", o.name, err)
}

// Run delivers messages, several at once, until ctx ends and what has begun is done; then
// it returns nil. It returns an error as [Queue.Work] does.
//
// A message is gone when deliver returns nil. An error or a panic lets it be tried again
// after the backoff; when its attempts are spent it goes to the dead letters with the
// error. deliver may return [RetryAfter], [Snooze] and [Reject] to say otherwise. A process
// that dies after the delivery and before the message is gone delivers it again: what
// receives it must bear that.
//
// nil opts means the defaults of [WorkOptions], except that Lease is the outbox's
// Lease.
func (o *Outbox[T]) Run(ctx context.Context, opts *WorkOptions) error {
	err := o.err
	if o.deliver == nil {
		err = errors.Join(err, fmt.Errorf("%w: no function to deliver", ErrInvalid))
	}
	if err != nil {
		return fail("run outbox", o.name, err)
	}
	var w WorkOptions
	if opts != nil {
		w = *opts
	}
	if w.Lease == 0 {
		w.Lease = o.opts.Lease
	}
	return o.q.Work(ctx, func(ctx context.Context, job *Job[T]) error { return o.deliver(ctx, job.Args) }, &w)
}
