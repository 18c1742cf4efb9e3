package relay

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// stepOp is a processor's transaction. It saves the progress of a completed batch and takes the
// next batch. Both share a transaction because the commit is more expensive than the statements.
type stepOp struct {
	run   *run
	slot  *slot
	done  *active  // completed batch; nil if none
	ended *outcome // outcome of done
	want  bool     // take the next batch
	alone bool     // the coordinator has seen a ready partition, so failing to take one must be explained

	held      bool // the lease for done was still held
	found     bool
	busy      row.RelayPartition // if nothing was found: a partition that seemed free, but that another transaction had locked
	taken     row.RelayTaken
	rows      []row.RelayMessage
	size      int       // maximum number of messages in the batch
	at        time.Time // time of the transaction
	exhausted []Died
}

// Run implements engine.Op.
func (op *stepOp) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	op.held, op.found, op.exhausted, op.at = false, false, nil, now
	if op.done != nil {
		op.held, err = op.run.relay.store.Save(ctx, q, op.done.taken.RelayLease, op.ended.progress, now)
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

// take takes a partition and reads its batch. If crashed processes have exhausted the attempts of
// the first message, take makes it a dead letter instead and leaves rows nil.
func (op *stepOp) take(ctx context.Context, q engine.Querier, now time.Time) error {
	r, s := op.run, op.run.relay.store
	b, err := op.lease(ctx, q, now)
	if err != nil || !op.found {
		return err
	}
	t := b.RelayTaken
	if !r.handlers[t.Queue].spent(t.Attempts - 1) {
		op.rows = b.Messages
		return nil
	}
	first := b.Messages[0]
	died := Died{Queue: t.Queue, Partition: int(t.Partition), Seq: t.Processed + 1, ID: first.ID, Reason: row.ReasonExhausted}
	op.exhausted = append(op.exhausted, died)
	_, err = s.Save(ctx, q, t.RelayLease, row.RelayProgress{
		Finished: 1, After: t.Cursor, Cursor: first.ID,
		Dead: []row.RelayDeath{{ID: died.ID, Seq: died.Seq, Attempts: t.Attempts - 1, Reason: died.Reason}},
	}, now)
	return err
}

// takeTries bounds the attempts of a coordinator to take a partition.
const takeTries = 10

// lease takes a partition. A coordinator that takes nothing looks for the reason. Usually another
// process was faster. If a partition can be taken after all, another transaction may have freed it
// since, so the coordinator tries again. If it still takes nothing, an application trigger must have
// prevented it. This is an error, because the coordinator would otherwise retry forever without a
// pause.
func (op *stepOp) lease(ctx context.Context, q engine.Querier, now time.Time) (b row.RelayBatch, err error) {
	r, w := op.run, op.run.wanted(op.slot)
	for range takeTries {
		if b, op.found, err = r.relay.store.Take(ctx, q, w, r.owner, now); err != nil {
			return b, err
		}
		op.taken, op.size, op.busy = b.RelayTaken, b.Size, b.Busy
		op.slot.hold(op.found && b.Failing)
		if op.found || op.busy.Queue != "" || !op.alone {
			return b, nil
		}
		if ready, err := r.ready(ctx, q, w, now); err != nil || !ready {
			return b, err
		}
	}
	return b, row.ErrStuck
}

// spent reports whether a message has used up its attempts by crashing the process this many times.
// A single crash is never enough: the batch may have had several messages, and any of them may have
// caused the crash. Later attempts are for a single message.
func (h *handler) spent(attempts int64) bool {
	return h.maxAttempts > 0 && attempts >= int64(max(h.maxAttempts, 2))
}

// smaller returns the partitions whose next batch must be smaller than the handler's batch size.
func (r *run) smaller() (all []row.RelaySize) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, n := range r.sizes {
		all = append(all, row.RelaySize{RelayPartition: p, Messages: n})
	}
	return all
}

// resize sets the size of the partition's next batch. After a failure or a rejected message, the
// size is the number of finished messages; otherwise it doubles. resize must be called before the
// step that may take the next batch.
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

// stepped reports a committed step to the observer and returns the batch that the step took.
func (r *run) stepped(op *stepOp) *active {
	for _, died := range op.exhausted {
		r.reportDeath(died)
	}
	if op.done != nil {
		r.reportEnd(op)
	}
	if !op.found {
		if op.busy.Queue != "" && !op.alone {
			r.relay.engine.Notifier.WakeAt(op.at) // the coordinator must look again
		}
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

// reportEnd reports the batch whose progress was saved by the step.
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
	if !ended.progress.RetryAt.IsZero() {
		r.reportRetry(t, ended)
		return
	}
	// The partition may have more messages. Wake idle processors, here and in other processes, unless
	// this step has already looked for more.
	if !op.want || op.found && op.taken.RelayPartition != t.RelayPartition {
		r.relay.engine.Notifier.Wake(op.done.handler.queue.change())
	}
}

func (r *run) reportRetry(t row.RelayTaken, ended *outcome) {
	at := ended.progress.RetryAt
	r.relay.engine.Notifier.WakeAt(at)
	r.relay.engine.Logger.Warn("honker: relay: batch failed, its partition pauses before the next attempt", "queue", t.Queue, "partition", t.Partition,
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
	r.relay.engine.Logger.Warn("honker: relay: lease lost, the progress of its batch was not saved",
		"queue", t.Queue, "partition", t.Partition, "epoch", t.Epoch)
	r.relay.opts.Observer.LeaseLost(LeaseLost{Queue: t.Queue, Partition: int(t.Partition), Epoch: t.Epoch})
}
