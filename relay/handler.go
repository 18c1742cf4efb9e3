package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// HandleOption configures a queue's handler.
type HandleOption func(*handler)

// Lease sets the maximum time for a batch; the default is 30s with a headroom of 2s. The handler's
// ctx ends after duration minus headroom, measured from just before the batch was taken. The
// headroom is left for saving the finished messages. If the process dies, another process can take
// the partition once duration has passed. duration and headroom must be positive, and headroom must
// be less than duration; otherwise [Relay.Run] returns [honker.ErrInvalid].
func Lease(duration, headroom time.Duration) HandleOption {
	return func(h *handler) { h.lease, h.headroom = duration, headroom }
}

// MaxAttempts limits the number of attempts per message: after n failures the message becomes a
// dead letter. An attempt counts as a failure if the process dies during it. The default 0 means no
// limit, so the partition waits until its first message is handled or rejected. If n is negative,
// [Relay.Run] returns [honker.ErrInvalid].
func MaxAttempts(n int) HandleOption {
	return func(h *handler) { h.maxAttempts = n }
}

// BatchSize sets the maximum number of messages in this queue's batches. If n is 0, Options.Batch
// applies. If n is negative, [Relay.Run] returns [honker.ErrInvalid].
func BatchSize(n int) HandleOption {
	return func(h *handler) { h.tuning.batch = n }
}

// RetryBase sets the pause after the first failure in this queue, which doubles with each
// consecutive failure. If d is 0, Options.RetryBase applies. If d exceeds Options.RetryMax, it also
// raises the maximum for this queue. If d is negative, or greater than the [RetryMax] of the same
// handler, [Relay.Run] returns [honker.ErrInvalid].
func RetryBase(d time.Duration) HandleOption {
	return func(h *handler) { h.tuning.retryBase = d }
}

// RetryMax sets the maximum pause after failures in this queue. If d is 0, Options.RetryMax
// applies. If d is less than Options.RetryBase, it also lowers the first pause for this queue. If d
// is negative, [Relay.Run] returns [honker.ErrInvalid].
func RetryMax(d time.Duration) HandleOption {
	return func(h *handler) { h.tuning.retryMax = d }
}

// TxTimeout limits the transaction of a [Queue.HandleTx]; the default is 2s. When the time is up,
// the handler's ctx ends and the transaction is rolled back, because all other writers to the
// database are waiting. If d is zero or negative, [Relay.Run] returns [honker.ErrInvalid].
func TxTimeout(d time.Duration) HandleOption {
	return func(h *handler) { h.txTimeout = d }
}

// handler is a queue's registered handler. Exactly one of the three functions is set, unless isNil
// is true.
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

// Handle registers h as the queue's handler. h is called for each message in order, one at a time
// per partition. If h returns nil, the message is finished. [Reject] turns it into a dead letter,
// and the partition continues with the next message. Any other error, or a panic, is a failure: the
// partition pauses, longer with each consecutive failure, and then tries the message again.
// [RetryAfter] sets the pause explicitly.
//
// h's ctx carries the values of the ctx passed to [Relay.Run] and ends with the lease (see
// [Lease]). It does not end with Run's ctx, so batches in progress are completed. If a process
// dies, the progress within its current batch is lost. The messages are then delivered again, with
// the same IdempotencyKey.
//
// A queue can have only one handler, and it must be registered before Run is called. Run returns an
// error if a queue has two handlers.
func (q *Queue) Handle(h func(context.Context, *Message) error, opts ...HandleOption) {
	q.handle(&handler{one: h, isNil: h == nil}, opts)
}

// HandleBatch registers h as the queue's handler. h is called with a batch of messages from a
// single partition and finishes them itself (see [Batch]). If h returns nil, unfinished messages
// are delivered again: immediately if any message of the batch was finished, and otherwise as after
// a failure. If h returns an error, the finished messages stay finished, and the next batches are
// smaller. In all other respects HandleBatch is like [Queue.Handle].
func (q *Queue) HandleBatch(h func(context.Context, *Batch) error, opts ...HandleOption) {
	q.handle(&handler{batch: h, isNil: h == nil}, opts)
}

// HandleTx registers h as the queue's handler. h is called for each message in a transaction that
// also saves the progress, so h's writes through tx take effect exactly once. Each batch runs in
// one transaction with a savepoint for each message. An error, a panic or [Reject] undoes h's
// writes for that message only.
//
// All other writers to the database wait while the transaction is open, so h must not wait or use
// the network; see [TxTimeout]. h must neither commit nor roll back tx; if it does, the batch
// fails. Call the Tx form of honker's methods with ctx and tx. In all other respects HandleTx is
// like [Queue.Handle].
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

// check validates the handler's options.
func (h *handler) check() error {
	if h.isNil {
		return fmt.Errorf("%w: nil function", engine.ErrInvalid)
	}
	err := errors.Join(h.queue.err, h.badTuning,
		engine.Positive("lease", h.lease), engine.Positive("headroom", h.headroom),
		engine.Positive("TxTimeout", h.txTimeout), notNegative("MaxAttempts", h.maxAttempts))
	if err == nil && h.headroom >= h.lease {
		err = fmt.Errorf("%w: headroom %v must be shorter than the lease %v", engine.ErrInvalid, h.headroom, h.lease)
	}
	return err
}
