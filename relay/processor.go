package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// active is a batch that is being handled by a processor.
type active struct {
	handler  *handler
	taken    row.RelayTaken
	size     int // maximum number of messages requested
	batch    *Batch
	ids      []int64   // IDs of the messages; kept separately because the handler may modify the messages
	deadline time.Time // end of the handler's ctx, by the clock of the process
	lapses   time.Time // latest possible end of the lease, by the clock of the backend
	began    time.Time
	took     time.Duration
	returned bool // the handler has returned; guarded by Relay.mu
}

func newActive(h *handler, op *stepOp) *active {
	t := op.taken
	messages, ids := make([]Message, len(op.rows)), make([]int64, len(op.rows))
	for i, row := range op.rows {
		ids[i] = row.ID
		messages[i] = Message{
			Queue: t.Queue, Partition: int(t.Partition), Seq: t.Processed + 1 + int64(i), ID: row.ID, Epoch: t.Epoch,
			Key: row.Key, Type: row.Type, Payload: row.Payload, CreatedAt: row.CreatedAt,
		}
	}
	messages[0].Attempt = int(t.Attempts) - 1                               // Attempts already counts this batch
	deadline := h.queue.relay.engine.Local(op.at.Add(h.lease - h.headroom)) // op.at was read before the lease was written
	return &active{
		handler: h, taken: t, size: op.size, ids: ids,
		batch:    &Batch{messages: messages, deadline: deadline},
		deadline: deadline, lapses: op.at.Add(h.lease),
	}
}

// now returns the time by the clock of the backend.
func (a *active) now() time.Time { return a.handler.queue.relay.engine.Now() }

var (
	errLease        = errors.New("the lease has ended")
	errNothingAcked = errors.New("the handler has returned without finishing a message")
	errLeaseLost    = errors.New("lease lost")
)

// process handles first and every batch that the following steps take. It returns when a step finds no
// more batches, or when the slot has given up its place and all places are taken.
func (r *run) process(s *slot, first *active) {
	defer s.close()
	for a := first; a != nil; {
		if a.handler.tx != nil {
			a = r.handleTx(s, a)
			continue
		}
		end := s.begin(a)
		err := r.handle(a)
		more := end()
		a = r.settle(s, a, a.outcomeOf(err), more)
	}
}

// handle calls the handler for a batch.
func (r *run) handle(a *active) error {
	ctx, cancel := context.WithDeadlineCause(r.lasting, a.deadline, errLease)
	defer cancel()
	err := r.watched(a, a.deadline.Add(min(a.handler.headroom/2, worker.CancelGrace)), func() error {
		if a.handler.batch != nil {
			return r.batchHandler(ctx, a)
		}
		return a.each(func(m *Message) error { return r.attempt(a, m, func() error { return a.handler.one(ctx, m) }) })
	})
	if err != nil && context.Cause(ctx) == errLease {
		err = fmt.Errorf("%w: %w", errLease, err)
	}
	return err
}

// batchHandler calls a handler registered by HandleBatch.
func (r *run) batchHandler(ctx context.Context, a *active) error {
	first := &a.batch.messages[0]
	err := r.attempt(a, first, func() error { return a.handler.batch(ctx, a.batch) })
	if d := directiveOf(err); d != nil && d.Outcome == worker.Died {
		a.batch.Reject(d)
		return nil
	}
	if err == nil && a.batch.Processed() == 0 {
		return errNothingAcked
	}
	return err
}

// attempt calls the application's handler and converts a panic to an error that includes the stack trace.
func (r *run) attempt(a *active, m *Message, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = worker.Panicked(r.relay.engine.Logger, p, "relay", a.taken.Queue, "partition", m.Partition, "seq", m.Seq, "attempt", m.Attempt)
		}
	}()
	return call()
}

// each calls f for the batch's messages until f fails or the handler's time is up.
func (a *active) each(f func(m *Message) error) error {
	for a.batch.Remaining() > 0 {
		m, ok := a.batch.Next()
		if !ok {
			return nil
		}
		err := f(m)
		d := directiveOf(err)
		switch {
		case err == nil:
			a.batch.Ack()
		case d != nil && d.Outcome == worker.Died:
			a.batch.Reject(d)
		default:
			return err
		}
	}
	return nil
}

// directiveOf returns the Reject or RetryAfter in err, or nil. err's methods are application code,
// so directiveOf recovers from panics in them.
func directiveOf(err error) (d *worker.Directive) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	if errors.As(err, &d) {
		return d
	}
	return nil
}

// is is like errors.Is but recovers from panics in err's methods.
func is(err, target error) (found bool) {
	defer func() {
		if recover() != nil {
			found = false
		}
	}()
	return errors.Is(err, target)
}

// watched runs f in a goroutine and waits for it until limit. If f is still running at limit,
// watched abandons it, closes the batch and returns ErrStuck. If the lease has already ended, f is
// not run.
func (r *run) watched(a *active, limit time.Time, f func() error) error {
	if a.batch.Remaining() == 0 {
		return nil
	}
	a.began = time.Now()
	defer func() {
		a.took = time.Since(a.began)
		a.batch.close()
	}()
	result := make(chan error, 1)
	go func() {
		err := worker.ErrGoexit // the result if f calls runtime.Goexit
		defer func() {
			r.handlerReturned(a)
			result <- err
		}()
		err = f()
	}()
	over := time.NewTimer(time.Until(limit))
	defer over.Stop()
	select {
	case err := <-result:
		return err
	case <-over.C:
	}
	if !r.leaveBehind(a) {
		return <-result // the handler has returned after all
	}
	r.relay.engine.Logger.Error("honker: relay: a handler is still running after its context was cancelled; this process does not take its partition until it returns",
		"queue", a.taken.Queue, "partition", a.taken.Partition, "seq", a.taken.Processed+1)
	return ErrStuck
}

// leaveBehind marks a's handler as abandoned. It returns false if the handler has returned.
func (r *run) leaveBehind(a *active) bool {
	r.relay.mu.Lock()
	defer r.relay.mu.Unlock()
	if a.returned {
		return false
	}
	r.relay.stuck[a.taken.RelayPartition] = a
	return true
}

// handlerReturned records the return of a handler. If it was abandoned, its partition can be taken again.
func (r *run) handlerReturned(a *active) {
	r.relay.mu.Lock()
	a.returned = true
	behind := r.relay.stuck[a.taken.RelayPartition] == a
	if behind {
		delete(r.relay.stuck, a.taken.RelayPartition)
	}
	r.relay.mu.Unlock()
	if behind {
		r.relay.engine.Notifier.Wake(a.handler.queue.change())
	}
}

// settle saves the outcome of a batch. If more is set and Run is not ending, it also takes the next
// batch in the same transaction. If that transaction fails, settle retries the save alone, because
// a failure to take the next batch must not prevent the save. If the outcome cannot be saved, the
// lease expires and the messages are delivered again.
func (r *run) settle(s *slot, a *active, ended *outcome, more bool) (next *active) {
	ctx, cancel := context.WithDeadline(r.lasting, r.relay.engine.Local(a.lapses.Add(worker.CancelGrace)))
	defer cancel()
	r.resize(a, ended)
	op := &stepOp{run: r, slot: s, done: a, ended: ended}
	retry := r.retry("progress not saved, retrying", "queue", a.taken.Queue, "partition", a.taken.Partition)
	for {
		op.want = more && !r.draining.Load() && retry.Failures() == 0
		err := r.relay.engine.Write(ctx, "", op)
		if err == nil {
			return r.stepped(op)
		}
		if retry.After(ctx, err) != nil {
			r.relay.engine.Logger.Error("honker: relay: progress could not be saved; the lease will lapse",
				"queue", a.taken.Queue, "partition", a.taken.Partition, "error", err)
			return nil
		}
	}
}
