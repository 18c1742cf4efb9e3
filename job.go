package honker

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/worker"
)

// State is where a job is.
type State string

// The states of a job. A job that was done or cancelled is gone.
const (
	StatePending    State = "pending"    // waits to be claimed
	StateProcessing State = "processing" // a worker holds it
	StateDead       State = "dead"       // will not run again
)

// JobInfo is a job as it was when it was read. Times are whole seconds; the zero time
// means none.
type JobInfo struct {
	ID             int64
	Queue          string
	State          State
	Payload        json.RawMessage // as stored; other bindings may store text that is not JSON
	Priority       int
	Attempts       int // claims so far, this one included
	MaxAttempts    int
	WorkerID       string // that holds it
	LastError      string // of the last attempt that failed, or the reason of death
	CreatedAt      time.Time
	RunAt          time.Time // not before
	ExpiresAt      time.Time // not started by then: never started
	ClaimExpiresAt time.Time // the claim is valid through this second
	DiedAt         time.Time
	Unique         string // the key it was enqueued with, see [Unique]; not in handlers, which are not given it
}

// stateOf shows a job that is held for another one as one that waits.
func stateOf(stored string) State {
	if stored == store.Held {
		return StatePending
	}
	return State(stored)
}

func infoOf(row store.Job) JobInfo {
	return JobInfo{
		ID:             row.ID,
		Queue:          row.Queue,
		State:          stateOf(row.State),
		Payload:        engine.PayloadText(row.Payload),
		Priority:       int(row.Priority),
		Attempts:       int(row.Attempts),
		MaxAttempts:    int(row.MaxAttempts),
		WorkerID:       row.WorkerID,
		LastError:      row.LastError,
		CreatedAt:      engine.Instant(row.CreatedAt),
		RunAt:          engine.Instant(row.RunAt),
		ExpiresAt:      engine.Instant(row.ExpiresAt),
		ClaimExpiresAt: engine.Instant(row.ClaimExpiresAt),
		DiedAt:         engine.Instant(row.DiedAt),
		Unique:         row.Unique,
	}
}

// Job is a claimed job. One of its settle verbs ends the claim: Ack, Retry, Reject or
// Snooze. Each is fenced by (id, worker, attempt): once the claim has lapsed, or the
// job was claimed again, it returns [ErrClaimLost] and changes nothing, also
// inside a transaction of the caller's.
//
// Inside Work, returning from the handler settles the job.
type Job[T any] struct {
	JobInfo
	Args T

	q     *queue
	claim *worker.Claim
}

// newJob makes a job of a claimed row. With an error, the job has no Args, and can
// only be settled.
func newJob[T any](q *queue, row store.Job) (*Job[T], error) {
	job := &Job[T]{JobInfo: infoOf(row), q: q, claim: worker.ClaimOf(row)}
	return job, engine.Decode(row.Payload, job.Payload, &job.Args)
}

// settle runs one of the verbs in a transaction of its own.
func (j *Job[T]) settle(ctx context.Context, verb, txForm string, end *worker.SettleOp) error {
	if err := j.unsettled(); err != nil {
		return failID(verb, j.ID, err)
	}
	j.claim.Settling(1)
	defer j.claim.Settling(-1)
	if err := j.q.db.engine.Write(ctx, txForm, end); err != nil {
		return failID(verb, j.ID, err)
	}
	j.q.wakeSettled(end)
	return failID(verb, j.ID, j.q.settled(end, &j.claim.Settled, false))
}

// settleTx runs one of the verbs within tx.
func (j *Job[T]) settleTx(ctx context.Context, tx Tx, verb string, end *worker.SettleOp) error {
	if err := j.unsettled(); err != nil {
		return failID(verb, j.ID, err)
	}
	committed := func() {
		if end.Held() {
			j.q.observeSettled(end, end.Claim.Ran())
		}
	}
	on, seen, err := j.q.db.engine.JoinThen(ctx, tx, committed, decided(j.ID), j.q.ready())
	if err != nil {
		return failID(verb, j.ID, err)
	}
	if err := end.Run(ctx, on, time.Now()); err != nil {
		return failID(verb, j.ID, err)
	}
	if end.Became == worker.Snoozed {
		j.claim.SnoozedTx.Store(true)
	}
	return failID(verb, j.ID, j.q.settled(end, &j.claim.SettledTx, seen))
}

// started tells the observer of a handler that is about to run.
func (q *queue) started(c *worker.Claim) {
	q.db.opts.Observer.Started(Started{Queue: q.name, ID: c.ID, Worker: c.Worker, Attempt: int(c.Attempt), Wait: c.Wait})
}

// unsettled refuses a claim that this handle has ended. The fence alone would not: after a
// Snooze the worker's next claim of the job has the same attempt.
func (j *Job[T]) unsettled() error {
	if j.claim.Settled.Load() {
		return ErrClaimLost
	}
	return nil
}

// settled notes that a claim has ended, and tells the observer what became of it, unless the
// commit will.
func (q *queue) settled(end *worker.SettleOp, note *atomic.Bool, atCommit bool) error {
	if end.Became == worker.Cancelled && end.Claim.Pooled {
		return ErrClaimLost // the pool tells of it
	}
	if end.Held() {
		note.Store(true)
		if atCommit {
			return nil
		}
	}
	q.observeSettled(end, end.Claim.Ran())
	if !end.Held() {
		return ErrClaimLost
	}
	return nil
}

// wakeSettled wakes the waiters that the commit of a settle concerns. A job without a result
// that is done concerns none that could not wait for the next look.
func (q *queue) wakeSettled(end *worker.SettleOp) {
	switch {
	case end.Became == worker.Released, end.Became == worker.Retried && !end.RunAt.After(time.Now()):
		q.db.engine.Notifier.Wake(q.ready())
	case end.Became == worker.Died, end.Became == worker.Acked && end.Claim.Result.Load() != nil:
		q.db.engine.Notifier.Wake(decided(end.Claim.ID))
	}
}

// observeSettled tells the log of a failure, and the observer of any outcome.
func (q *queue) observeSettled(end *worker.SettleOp, ran time.Duration) {
	switch end.Became {
	case worker.Retried:
		q.db.opts.Logger.Info("honker: attempt failed", "queue", q.name, "job", end.Claim.ID,
			"attempt", end.Claim.Attempt, "next", end.RunAt, "error", end.Reason())
	case worker.Died:
		q.db.opts.Logger.Warn("honker: job dead-lettered", "queue", q.name, "job", end.Claim.ID,
			"attempt", end.Claim.Attempt, "worker", end.Claim.Worker, "error", end.Reason())
	}
	q.db.opts.Observer.Settled(Settled{
		Queue:   q.name,
		ID:      end.Claim.ID,
		Worker:  end.Claim.Worker,
		Attempt: int(end.Claim.Attempt),
		Outcome: Outcome(end.Became),
		Err:     end.Cause,
		Wait:    end.Claim.Wait,
		Ran:     ran,
	})
}

// Ack ends the job: it is done and gone. A result set with SetResult is saved with it.
// It waits for the writer, sharing commits with other calls.
func (j *Job[T]) Ack(ctx context.Context) error {
	return j.settle(ctx, "ack job", "AckTx", j.q.source.Ack(j.claim, j.q.opts.ResultTTL))
}

// AckTx is like [Job.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack.
func (j *Job[T]) AckTx(ctx context.Context, tx Tx) error {
	return j.settleTx(ctx, tx, "ack job", j.q.source.Ack(j.claim, j.q.opts.ResultTTL))
}

// Retry lets the job run again after delay, or up to a second later, and keeps cause as
// its LastError; nil keeps the one before. When its attempts are spent it goes to the dead
// letters with cause.
func (j *Job[T]) Retry(ctx context.Context, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settle(ctx, "retry job", "RetryTx", j.q.source.Retry(j.claim, delay, cause))
}

// RetryTx is like [Job.Retry], within tx.
func (j *Job[T]) RetryTx(ctx context.Context, tx Tx, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "retry job", j.q.source.Retry(j.claim, delay, cause))
}

// Reject sends the job to the dead letters now, with cause, whatever attempts it has
// left.
func (j *Job[T]) Reject(ctx context.Context, cause error) error {
	return j.settle(ctx, "reject job", "RejectTx", j.q.source.DeadLetter(j.claim, cause))
}

// RejectTx is like [Job.Reject], within tx.
func (j *Job[T]) RejectTx(ctx context.Context, tx Tx, cause error) error {
	return j.settleTx(ctx, tx, "reject job", j.q.source.DeadLetter(j.claim, cause))
}

// Snooze lets the job run again after d, or up to a second later, without using up an
// attempt.
func (j *Job[T]) Snooze(ctx context.Context, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settle(ctx, "snooze job", "SnoozeTx", j.q.source.Snooze(j.claim, d))
}

// SnoozeTx is like [Job.Snooze], within tx.
func (j *Job[T]) SnoozeTx(ctx context.Context, tx Tx, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "snooze job", j.q.source.Snooze(j.claim, d))
}

// Extend makes the claim last for by, rounded up to seconds, from now: longer
// or shorter than it did. Inside Work leases are renewed without it.
func (j *Job[T]) Extend(ctx context.Context, by time.Duration) error {
	if err := engine.Positive("extension", by); err != nil {
		return failID("extend job", j.ID, err)
	}
	if err := j.unsettled(); err != nil {
		return failID("extend job", j.ID, err)
	}
	err := j.q.db.engine.Write(ctx, "", engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) error {
		until := now.Unix() + engine.Seconds(by)
		held, err := j.q.db.jobs.Extend(ctx, q, j.claim.Claim, until, now.Unix())
		if err == nil && !held {
			return ErrClaimLost // nothing was changed, so that failing undoes nothing
		}
		if err == nil {
			j.claim.HoldUntil(until)
		}
		return err
	}))
	return failID("extend job", j.ID, err)
}

// SetResult keeps v, as JSON, to be saved with the ack; the last one wins. It is read
// with [Result] and [WaitResult] for the queue's ResultTTL. A trigger of the application that
// drops it leaves the job without one, and does not fail the ack.
func (j *Job[T]) SetResult(v any) error {
	text, err := j.q.db.encode(v)
	if err != nil {
		return failID("set result of job", j.ID, err)
	}
	j.claim.Result.Store(&text)
	return nil
}
