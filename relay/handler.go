package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// HandleOption configures the handler of a queue.
type HandleOption func(*handler)

// Lease says how long a batch may take: default 30s, with a headroom of 2s. The ctx of the
// handler ends at duration less headroom, counted from before the batch was taken, so that the
// headroom is there to save what it has finished. Another process takes the partition of one that
// died when duration has passed. A duration or headroom that is not positive, and a headroom that
// is not below the duration, is [honker.ErrInvalid] from [Relay.Run].
func Lease(duration, headroom time.Duration) HandleOption {
	return func(h *handler) { h.lease, h.headroom = duration, headroom }
}

// MaxAttempts makes a message a dead letter when it has failed n times, those of processes that
// died while they handled it included. The default 0 is no bound: the partition waits until its
// first message is handled or rejected. A negative n is [honker.ErrInvalid] from [Relay.Run].
func MaxAttempts(n int) HandleOption {
	return func(h *handler) { h.maxAttempts = n }
}

// BatchSize is the most messages of a batch of this queue: default Options.Batch, also for 0. A
// negative n is [honker.ErrInvalid] from [Relay.Run].
func BatchSize(n int) HandleOption {
	return func(h *handler) { h.tuning.batch = n }
}

// RetryBase is the pause after a first failure in this queue, doubled by each other in a row: default
// Options.RetryBase, also for 0. Above Options.RetryMax it raises that for the queue. A negative d, and
// a d above the [RetryMax] of the same handler, is [honker.ErrInvalid] from [Relay.Run].
func RetryBase(d time.Duration) HandleOption {
	return func(h *handler) { h.tuning.retryBase = d }
}

// RetryMax is the longest pause after failures in this queue: default Options.RetryMax, also for 0.
// Below Options.RetryBase it lowers that for the queue. A negative d is [honker.ErrInvalid] from
// [Relay.Run].
func RetryMax(d time.Duration) HandleOption {
	return func(h *handler) { h.tuning.retryMax = d }
}

// TxTimeout bounds the transaction of a [Queue.HandleTx]: default 2s. Its ctx ends then, and it
// is rolled back, because all other writers of the file wait meanwhile. A d that is not positive is
// [honker.ErrInvalid] from [Relay.Run].
func TxTimeout(d time.Duration) HandleOption {
	return func(h *handler) { h.txTimeout = d }
}

// handler is the handler of a queue: one of the three functions.
type handler struct {
	queue *Queue
	one   func(context.Context, *Message) error
	batch func(context.Context, *Batch) error
	tx    func(context.Context, *sql.Tx, *Message) error
	isNil bool
	lease time.Duration
	headroom,
	txTimeout time.Duration
	maxAttempts int
	tuning      tuning
	badTuning   error
}

// Handle has h called for each message of the queue, one at a time in each partition, in order.
// nil finishes the message. [Reject] makes it a dead letter, and the next one follows. Any other
// error, and a panic, is a failure: the partition waits, longer with each failure in a row, and
// tries the message again; [RetryAfter] says how long.
//
// h's ctx carries the values of that of [Relay.Run], and ends with the lease, see [Lease]; it
// does not end with the ctx of Run, so a batch that has begun is completed. A process that dies
// has not saved what it has finished of the batch: those messages are delivered again, with the
// same IdempotencyKey.
//
// A queue has at most one handler, set before Run; another one is an error of Run.
func (q *Queue) Handle(h func(context.Context, *Message) error, opts ...HandleOption) {
	q.handle(&handler{one: h, isNil: h == nil}, opts)
}

// HandleBatch has h called with a batch of messages of one partition. h says itself which it has
// finished, see [Batch]. When it returns nil, what it has not finished is delivered again: at once
// if it has finished some, and otherwise as after a failure. After an error too, what it has finished
// stays finished. A batch that has failed is followed by smaller ones. Otherwise it is as Handle.
func (q *Queue) HandleBatch(h func(context.Context, *Batch) error, opts ...HandleOption) {
	q.handle(&handler{batch: h, isNil: h == nil}, opts)
}

// HandleTx has h called for each message within a transaction that also saves the progress: what
// h writes through tx happens exactly once. A batch is one transaction, in which each message has
// a savepoint: an error, a panic or [Reject] undoes what h has written for that message and no
// other.
//
// All other writers of the file wait while the transaction is open, so h must not wait, nor use
// the network; see [TxTimeout]. It must not end tx: a batch that has lost its transaction is
// a failure. Use the Tx form of honker's verbs with ctx and tx. Otherwise it is as Handle.
func (q *Queue) HandleTx(h func(context.Context, *sql.Tx, *Message) error, opts ...HandleOption) {
	q.handle(&handler{tx: h, isNil: h == nil}, opts)
}

func (q *Queue) handle(h *handler, opts []HandleOption) {
	h.queue, h.lease, h.headroom, h.txTimeout = q, 30*time.Second, 2*time.Second, 2*time.Second
	for _, set := range opts {
		set(h)
	}
	h.tuning, h.badTuning = h.tuning.over(q.relay.opts.tuning())
	q.relay.mu.Lock()
	defer q.relay.mu.Unlock()
	q.relay.handlers = append(q.relay.handlers, h)
}

// check returns what is wrong with the handler's options.
func (h *handler) check() error {
	if h.isNil {
		return fmt.Errorf("%w: nil function", engine.ErrInvalid)
	}
	err := errors.Join(h.queue.err, h.badTuning,
		engine.Positive("lease", h.lease), engine.Positive("headroom", h.headroom),
		engine.Positive("TxTimeout", h.txTimeout), notNegative("MaxAttempts", h.maxAttempts))
	if err == nil && h.headroom >= h.lease {
		err = fmt.Errorf("%w: headroom %v is not below the lease of %v", engine.ErrInvalid, h.headroom, h.lease)
	}
	return err
}
