package relay

import (
	"errors"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// outcome is the result of a batch. It is computed before the transaction that saves it: an error's
// Error method is application code and must not run in a shared transaction.
type outcome struct {
	progress row.RelayProgress
	err      error // why the batch failed
	died     []Died
}

// outcomeOf returns the outcome of a batch whose handler returned err.
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

// finish records that the first n messages are finished.
func (o *outcome) finish(a *active, n int) {
	o.progress.Finished = int64(n)
	o.progress.Cursor = a.ids[n-1]
}

// deadLetter records that the message at index becomes a dead letter.
func (o *outcome) deadLetter(a *active, index int, reason string, rejected bool) {
	t, id := a.taken, a.ids[index]
	seq := t.Processed + 1 + int64(index)
	o.progress.Dead = append(o.progress.Dead, row.RelayDeath{ID: id, Seq: seq, Attempts: a.attempts(index), Reason: reason})
	o.died = append(o.died, Died{
		Queue: t.Queue, Partition: int(t.Partition), Seq: seq, ID: id, Rejected: rejected, Reason: worker.Reason(errors.New(reason)),
	})
}

// attempts returns the number of attempts at the message at index, including the current attempt.
func (a *active) attempts(index int) int64 {
	if index == 0 {
		return a.taken.Attempts
	}
	return 1
}

// decideRest decides whether the first unfinished message is retried, becomes a dead letter, or
// does not count as attempted.
func (a *active) decideRest(o *outcome, b *Batch) {
	rest := b.finished
	if o.err == nil {
		// If the lease ended before the first message could start, no attempt is counted.
		if rest == 0 {
			a.putOff(o)
		}
		return
	}
	// A batch handler may fail before it calls Next.
	if b.handed > rest || rest == 0 {
		o.progress.Attempts = a.attempts(rest)
	}
	// If several messages were handed out, it is unknown which of them failed. Smaller batches
	// isolate the failing message before it can become a dead letter.
	alone := b.handed == rest+1 || len(a.ids) == 1
	if most := a.handler.maxAttempts; most > 0 && alone && o.progress.Attempts >= int64(most) {
		o.finish(a, rest+1)
		o.progress.Attempts = 0
		o.deadLetter(a, rest, engine.Describe(o.err), false)
		o.progress.LastError = engine.Describe(o.err) // the partition's last attempt still counts as failed
	} else {
		o.progress.LastError = engine.Describe(o.err)
		o.progress.RetryAt = wholeMillis(a.now().Add(a.pause(o)))
	}
	// A stuck handler may keep running until its lease expires. The next message of the partition
	// must not start earlier.
	if is(o.err, ErrStuck) {
		if lapses := wholeMillis(a.lapses); lapses.After(o.progress.RetryAt) {
			o.progress.RetryAt = lapses
		}
	}
}

// putOff records that no message of the batch was attempted. It undoes the attempt that was counted
// when the batch was taken.
func (a *active) putOff(o *outcome) {
	o.progress.Attempts = a.taken.Attempts - 1
	o.progress.RetryAt = wholeMillis(a.now().Add(a.handler.tuning.retryBase))
	if o.err == nil {
		o.err = errLease
	}
	o.progress.LastError = engine.Describe(o.err)
}

// wholeMillis rounds t up to the database's precision, because the time of a retry is also
// reported, and a wake-up before that time would find nothing to do.
func wholeMillis(t time.Time) time.Time {
	return time.UnixMilli(t.Add(time.Millisecond - 1).UnixMilli())
}

// pause returns how long the partition waits after a failure.
func (a *active) pause(o *outcome) time.Duration {
	if d := directiveOf(o.err); d != nil {
		return max(0, d.Delay)
	}
	backoff := honker.Exponential(a.handler.tuning.retryBase, a.handler.tuning.retryMax)
	return backoff(max(1, int(o.progress.Attempts)), o.err)
}
