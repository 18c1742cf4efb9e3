package relay

import (
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// outcome is what has become of a batch. It is made before the transaction that saves it: texts of
// errors are the application's code, which must not run in a transaction that others share.
type outcome struct {
	progress row.RelayProgress
	err      error // why the batch has failed
	died     []Died
}

// outcomeOf decides what is saved for a batch with a handler that has returned err.
func (a *active) outcomeOf(err error) *outcome {
	b := a.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &outcome{err: err, progress: row.RelayProgress{After: a.taken.Cursor}}
	if b.misused != nil {
		o.err = errors.Join(b.misused, err)
	}
	if b.finished > 0 {
		o.finish(a, b.finished)
	}
	for _, rejected := range b.rejected {
		o.deadLetter(a, rejected.index, engine.Describe(rejected.cause), true)
	}
	a.decideRest(o, b)
	return o
}

// finish notes that n messages are finished.
func (o *outcome) finish(a *active, n int) {
	o.progress.Finished = int64(n)
	o.progress.Cursor = a.ids[n-1]
}

// deadLetter adds the message at index to the dead letters.
func (o *outcome) deadLetter(a *active, index int, reason string, rejected bool) {
	t, id := a.taken, a.ids[index]
	seq := t.Processed + 1 + int64(index)
	o.progress.Dead = append(o.progress.Dead, row.RelayDeath{ID: id, Seq: seq, Attempts: a.attempts(index), Reason: reason})
	o.died = append(o.died, Died{
		Queue: t.Queue, Partition: int(t.Partition), Seq: seq, ID: id, Rejected: rejected, Reason: worker.Reason(errors.New(reason)),
	})
}

// attempts is how often the message at index was begun, this time included.
func (a *active) attempts(index int) int64 {
	if index == 0 {
		return a.taken.Attempts
	}
	return 1
}

// decideRest decides what becomes of the first message that is not finished.
func (a *active) decideRest(o *outcome, b *Batch) {
	rest := b.finished
	if o.err == nil {
		// A lease that was over before the first message could start has spent no attempt.
		if rest == 0 {
			a.putOff(o)
		}
		return
	}
	// A handler of batches may fail before it asks for the first message.
	if b.handed > rest || rest == 0 {
		o.progress.Attempts = a.attempts(rest)
	}
	// Of several messages that were handed out, it is not known which has failed: the next
	// batch is smaller.
	alone := b.handed == rest+1 || len(a.ids) == 1
	if most := a.handler.maxAttempts; most > 0 && alone && o.progress.Attempts >= int64(most) {
		o.finish(a, rest+1)
		o.progress.Attempts = 0
		o.deadLetter(a, rest, engine.Describe(o.err), false)
		o.progress.LastError = engine.Describe(o.err) // the partition is no healthier for it
	} else {
		o.progress.LastError = engine.Describe(o.err)
		o.progress.RetryAtMS = engine.DeadlineMS(time.Now(), a.pause(o))
	}
	// The handler may still do what its lease allows, beside no other message of its partition.
	if is(o.err, ErrStuck) {
		o.progress.RetryAtMS = max(o.progress.RetryAtMS, engine.DeadlineMS(a.lapses, 0))
	}
}

// putOff is for a batch of which nothing was tried: its attempt is not spent.
func (a *active) putOff(o *outcome) {
	o.progress.Attempts = a.taken.Attempts - 1
	o.progress.RetryAtMS = engine.DeadlineMS(time.Now(), a.handler.tuning.retryBase)
	if o.err == nil {
		o.err = errLease
	}
	o.progress.LastError = engine.Describe(o.err)
}

// pause is how long the partition waits after a failure.
func (a *active) pause(o *outcome) time.Duration {
	if d := directiveOf(o.err); d != nil {
		return max(0, d.Delay)
	}
	backoff := honker.Exponential(a.handler.tuning.retryBase, a.handler.tuning.retryMax)
	return backoff(max(1, int(o.progress.Attempts)), o.err)
}
