package honker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// OutboxOptions configures an [Outbox] handle. The options apply to the handle in this process and are not
// stored in the file. Zero fields select the defaults.
type OutboxOptions struct {
	MaxAttempts int           // number of deliveries after which a message is dead; default 5; stored with each message when it is sent
	BaseBackoff time.Duration // delay after the first failure, doubled after each further failure; default 5s: 5s, 10s, 20s, 40s
	Lease       time.Duration // how long Run leases a message; renewed while the message is delivered; default 60s
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

// Outbox delivers messages of type T to a destination outside the file. A message is sent in the same
// transaction as the change that it describes. After the commit it is delivered by a process that calls
// [Outbox.Run]. Delivery is at least once and in no particular order.
//
// The format is the same as honker's outbox: the messages are JSON payloads in the queue "_outbox:<name>", with the
// same attempts and delays. Workers in other languages can therefore share an outbox.
//
// Handles are cheap and may be created where they are needed.
type Outbox[T any] struct {
	q       *Queue[T]
	name    string
	deliver func(context.Context, T) error
	opts    OutboxOptions
	err     error // invalid name or option, returned by the first verb
}

const outboxPrefix = "_outbox:"

// NewOutbox returns a handle for the outbox called name, which may have at most 1016 bytes. It does not access
// the file. The first verb returns [ErrInvalid] for an invalid name or option or a T of []byte. deliver may be
// nil if the handle is only used to send messages. A nil opts means defaults.
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

// doubling returns a Backoff of base·2^(attempt-1), as in honker's outbox.
func doubling(base time.Duration) Backoff {
	return func(attempt int, _ error) time.Duration { return doubled(base, math.MaxInt64, attempt) }
}

// Name returns the name of the outbox.
func (o *Outbox[T]) Name() string { return o.name }

// Queue returns the queue of the outbox. Use it to inspect or cancel messages.
func (o *Outbox[T]) Queue() *Queue[T] { return o.q }

// Send adds a message and returns its ID after the commit. The message may be delivered immediately. See
// [Queue.Enqueue].
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

// SendTx is like [Outbox.Send] but runs within tx. The message is delivered after tx commits, and never if tx rolls
// back.
func (o *Outbox[T]) SendTx(ctx context.Context, tx Tx, v T, opts ...EnqueueOption) (int64, error) {
	if o.err != nil {
		return 0, fail("send", o.name, o.err)
	}
	id, err := o.q.enqueueTx(ctx, tx, v, opts)
	return id, fail("send", o.name, err)
}

// Run delivers messages, several at a time. It blocks until ctx ends and the running deliveries have finished, and
// then returns nil. It returns the same errors as [Queue.Work].
//
// A message is removed when deliver returns nil. After an error or a panic, delivery is retried after the
// backoff, and the message is dead-lettered with the error when no attempts are left. deliver may return
// [RetryAfter], [Snooze] or [Reject] to override this. If the process dies between the delivery and the removal,
// the message is delivered again, so receivers must tolerate duplicates.
//
// A nil opts means the defaults of [WorkOptions], except that Lease is the Lease of the outbox.
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
