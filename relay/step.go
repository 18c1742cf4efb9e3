package relay

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/worker"
)

// stepOp is the transaction of a processor: it saves the progress of the batch that has ended, and
// takes the next one. A commit costs more than its statements, so the two share one.
type stepOp struct {
	run   *run
	slot  *slot
	done  *active  // nil: none has ended
	ended *outcome // of done
	want  bool     // take a batch
	alone bool     // the look before has found something: that there is nothing is to be explained

	held      bool // done's lease
	found     bool
	taken     row.RelayTaken
	rows      []row.RelayMessage
	size      int       // the most messages of the batch
	at        time.Time // of the transaction
	exhausted []Died
}

// Run implements engine.Op.
func (op *stepOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	op.held, op.found, op.exhausted, op.at = false, false, nil, now
	if op.done != nil {
		op.held, err = op.run.relay.store.Save(ctx, q, op.done.taken.RelayLease, op.ended.progress, now.UnixMilli())
	}
	if err != nil || !op.want {
		return err
	}
	for op.rows = nil; op.rows == nil; {
		if err := op.take(ctx, q, now); err != nil || !op.found {
			return err
		}
	}
	return nil
}

// Single implements engine.Op.
func (*stepOp) Single() bool { return false }

// take takes a partition and reads its batch. Without rows its first message was dead-lettered,
// since its attempts were spent by processes that have died.
func (op *stepOp) take(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	r, s, w := op.run, op.run.relay.store, op.run.wanted(op.slot)
	op.taken, op.found, err = s.Take(ctx, q, w, r.owner, now.UnixMilli())
	if err != nil {
		return err
	}
	op.slot.hold(op.found && op.taken.Failing)
	if !op.found {
		return op.explain(ctx, q, w, now)
	}
	t := op.taken
	spent := r.handlers[t.Queue].spent(t.Attempts - 1)
	op.size = r.size(t)
	rows, err := s.Read(ctx, q, t.RelayPartition, t.Cursor, op.size)
	if err == nil && len(rows) == 0 {
		err = store.ErrStuck
	}
	if err != nil || !spent {
		op.rows = rows
		return err
	}
	first := rows[0]
	died := Died{Queue: t.Queue, Partition: int(t.Partition), Seq: t.Processed + 1, ID: first.ID, Reason: store.ReasonExhausted}
	op.exhausted = append(op.exhausted, died)
	_, err = s.Save(ctx, q, t.RelayLease, row.RelayProgress{
		Finished: 1, After: t.Cursor, Cursor: first.ID,
		Dead: []row.RelayDeath{{ID: died.ID, Seq: died.Seq, Attempts: t.Attempts - 1, Reason: died.Reason}},
	}, now.UnixMilli())
	return err
}

// explain is for a coordinator that has taken nothing: as a rule another process was faster. A
// partition that can be taken and was not, because of a trigger of the application's, is an error:
// without one the coordinator would try again at once, for ever.
func (op *stepOp) explain(ctx context.Context, q engine.Querier, w row.RelayWanted, now time.Time) error {
	if !op.alone {
		return nil
	}
	ready, err := op.run.ready(ctx, q, w, now)
	if ready {
		return store.ErrStuck
	}
	return err
}

// spent tells whether attempts that ended with the process are enough. The first may have been
// that of a batch of several messages, of which another one is to blame; all later ones are of
// batches of one. So one attempt alone is never enough.
func (h *handler) spent(attempts int64) bool {
	return h.maxAttempts > 0 && attempts >= int64(max(h.maxAttempts, 2))
}

// size is how many messages a batch may have: one when the last take has made no progress, so
// that a message that fails is alone from then on.
func (r *run) size(t row.RelayTaken) int {
	if t.Attempts > 1 {
		return 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return or(r.sizes[t.RelayPartition], r.handlers[t.Queue].tuning.batch)
}

// resize sets the size of the partition's next batch: that which was finished after a failure or a
// reject, and otherwise the double of the last one. It comes before the step, which may take that
// batch.
func (r *run) resize(a *active, ended *outcome) {
	size := 2 * a.size
	if ended.err != nil || len(ended.died) > 0 {
		size = max(1, int(ended.progress.Finished))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if size >= a.handler.tuning.batch {
		delete(r.sizes, a.taken.RelayPartition)
		return
	}
	r.sizes[a.taken.RelayPartition] = size
}

// stepped tells of a step that was committed, and returns the batch that it has taken.
func (r *run) stepped(op *stepOp) *active {
	for _, died := range op.exhausted {
		r.reportDeath(died)
	}
	if op.done != nil {
		r.reportEnd(op)
	}
	if !op.found {
		return nil
	}
	a := newActive(r.handlers[op.taken.Queue], op)
	r.relay.opts.Observer.Taken(Taken{
		Queue: op.taken.Queue, Partition: int(op.taken.Partition), Epoch: op.taken.Epoch,
		Messages: len(op.rows), Attempt: int(op.taken.Attempts) - 1,
		Wait: max(0, op.at.Sub(a.batch.messages[0].CreatedAt)),
	})
	return a
}

// reportEnd tells of the batch that a step has saved.
func (r *run) reportEnd(op *stepOp) {
	t, ended := op.done.taken, op.ended
	if !op.held {
		r.reportLost(t)
		return
	}
	for _, died := range ended.died {
		r.reportDeath(died)
	}
	r.relay.opts.Observer.Finished(Finished{
		Queue: t.Queue, Partition: int(t.Partition), Epoch: t.Epoch,
		Processed: int(ended.progress.Finished), Took: op.done.took,
	})
	if ended.progress.RetryAtMS > 0 {
		r.reportRetry(t, ended)
		return
	}
	// The partition may have more messages, for an idle processor here or in another process,
	// unless this step has looked for itself.
	if !op.want || op.found && op.taken.RelayPartition != t.RelayPartition {
		r.relay.engine.Notifier.Wake(op.done.handler.queue.change())
	}
}

func (r *run) reportRetry(t row.RelayTaken, ended *outcome) {
	at := engine.InstantMS(ended.progress.RetryAtMS)
	r.relay.engine.Notifier.WakeAt(at)
	r.relay.engine.Logger.Warn("honker: relay: batch failed, its partition waits", "queue", t.Queue, "partition", t.Partition,
		"seq", t.Processed+ended.progress.Finished+1, "attempts", ended.progress.Attempts, "next", at, "error", worker.Reason(ended.err))
	r.relay.opts.Observer.Retried(Retried{
		Queue: t.Queue, Partition: int(t.Partition), Epoch: t.Epoch,
		Attempt: int(ended.progress.Attempts), At: at, Err: ended.err,
	})
}

func (r *run) reportDeath(d Died) {
	r.relay.engine.Logger.Error("honker: relay: message dead-lettered", "queue", d.Queue, "partition", d.Partition,
		"seq", d.Seq, "id", d.ID, "rejected", d.Rejected, "error", d.Reason)
	r.relay.opts.Observer.Dead(d)
}

func (r *run) reportLost(t row.RelayTaken) {
	r.relay.engine.Logger.Warn("honker: relay: lease lost, nothing of its batch was saved",
		"queue", t.Queue, "partition", t.Partition, "epoch", t.Epoch)
	r.relay.opts.Observer.LeaseLost(LeaseLost{Queue: t.Queue, Partition: int(t.Partition), Epoch: t.Epoch})
}
