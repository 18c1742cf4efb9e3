package honker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/worker"
)

// State is where a job is.
type State string

// The states of a job. A job that was cancelled, or was done and is not kept, is gone.
const (
	StatePending    State = "pending"    // waits to be claimed
	StateProcessing State = "processing" // a worker holds it
	StateDead       State = "dead"       // will not run again
	StateDone       State = "done"       // was acked, and is kept: see Queue.SetRetention
)

// Phase is where a job is at a moment. [State] is what the file says; the phase also
// depends on the clock.
type Phase string

// The phases of a job.
const (
	PhaseReady     Phase = "ready"     // can be claimed now
	PhaseScheduled Phase = "scheduled" // waits for its time: delayed, or between two attempts
	PhaseRunning   Phase = "running"   // held by a valid claim
	PhaseLapsed    Phase = "lapsed"    // its claim has run out; can be claimed now
	PhaseHeld      Phase = "held"      // waits for other jobs, see [After] and [RunAgain], or until its key has room, see [Limits]
	PhaseExpired   Phase = "expired"   // can run no more: its time to start has passed, or its attempts are spent; a claim or a sweep dead-letters it
	PhaseDead      Phase = "dead"      // among the dead letters
	PhaseDone      Phase = "done"      // acked, and kept: see Queue.SetRetention
)

// JobInfo is a job as it was when it was read. Times are whole seconds; the zero time
// means none.
type JobInfo struct {
	ID             int64
	Queue          string
	State          State
	Phase          Phase           // when it was read; in a handler: when it was given the job
	Payload        json.RawMessage // as stored: what Options.Codec has made of it; other bindings may store text that is not JSON
	Priority       int
	Attempts       int // claims so far, this one included
	MaxAttempts    int
	WorkerID       string // that holds it; of a job that is done, that acked it
	LastError      string // of the last attempt that failed, be it before a requeue, or the reason of death
	CreatedAt      time.Time
	RunAt          time.Time // not before
	ExpiresAt      time.Time // not started by then: never started
	ClaimExpiresAt time.Time // the claim is valid through this second
	DiedAt         time.Time
	DoneAt         time.Time         // of a job that is done and was kept
	Unique         string            // the key it was enqueued with, see [Unique]; "": none
	Key            string            // what it shares limits by, see [Key]; "": none
	Batch          int64             // that it is a member of, see [In]; 0: none
	Headers        map[string]string // see [Headers]; nil: none
	Progress       *Progress         // see [Job.SetProgress]; nil: it has told of none; not in handlers

	codec Codec         // by which the Payload was stored; nil: none
	claim *worker.Claim // in a Middleware
}

// stateOf shows a job that is held as one that waits.
func stateOf(stored string) State {
	if stored == row.Held {
		return StatePending
	}
	return State(stored)
}

func infoOf(row *row.Job, now time.Time, c Codec) JobInfo {
	return JobInfo{
		ID:             row.ID,
		Queue:          row.Queue,
		State:          stateOf(row.State),
		Phase:          Phase(row.Phase(now.Unix())),
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
		DoneAt:         engine.InstantMS(row.DoneMS),
		Unique:         row.Unique,
		Key:            row.Key,
		Headers:        engine.DecodeHeaders(row.Headers),
		codec:          c,
		Batch:          row.Batch,
		Progress:       progressOf(row.Progress),
	}
}

// Job reads a job of any queue that waits, runs, is dead, or is done and was kept: see
// [Queue.SetRetention]. [ErrNotFound]: it was done, was cancelled, or never existed. It never waits for
// the writer.
func (db *DB) Job(ctx context.Context, id int64) (*JobInfo, error) {
	info, err := db.findJob(ctx, id, db.jobs.Find, db.jobs.FindDead, db.jobs.FindDone)
	return info, failID("read job", id, err)
}

// finder reads a job by its id, where it may be.
type finder func(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)

// findJob looks among the live jobs first and then among the dead and the done, the direction in
// which jobs move: one that moves in between is found. The last look is for one that was requeued.
func (db *DB) findJob(ctx context.Context, id int64, live, dead, done finder) (info *JobInfo, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, r engine.Querier) error {
		for _, find := range []finder{live, dead, done, live} {
			row, found, err := find(ctx, r, id)
			if err != nil {
				return err
			}
			if found {
				i := infoOf(&row, time.Now(), db.opts.Codec)
				info = &i
				return nil
			}
		}
		return fmt.Errorf("job %d: %w", id, ErrNotFound)
	})
	return info, err
}

// Args reads the arguments of a job that was read or listed, rather than claimed, by the codec of the DB that it
// came from. An error is that of a payload that does not decode into T; a nil j is [ErrInvalid].
func Args[T any](j *JobInfo) (args T, err error) {
	if j == nil {
		return args, fail("arguments", "", fmt.Errorf("%w: nil *JobInfo", ErrInvalid))
	}
	err = j.decode(context.Background(), string(j.Payload), &args)
	return args, failID("arguments of job", j.ID, err)
}

// Job is a claimed job. One of its settle verbs ends the claim: Ack, Retry, Reject or
// Snooze. Each is fenced by (id, worker, attempt): once the claim has lapsed, or the
// job was claimed again, it returns [ErrClaimLost] and changes nothing, also
// inside a transaction of the caller's.
//
// Inside Work, returning from the handler settles the job.
//
// The verbs of a Job that was made by hand, as a test may, are [ErrInvalid], since it has no claim; SetProgress and
// Logger have no effect, and After is nil. Perform of package honkertest runs a handler on a claimed one.
type Job[T any] struct {
	JobInfo
	Args T

	q          *queue
	claim      *worker.Claim
	checkpoint string          // of an attempt before
	inTx       context.Context // that of the transaction of WorkTx, which may have the only connection
}

// newJob makes a job of a row that is held by claim, without its Args.
func newJob[T any](q *queue, row *row.Job, claim *worker.Claim) *Job[T] {
	return &Job[T]{JobInfo: infoOf(row, time.Now(), q.db.opts.Codec), q: q, claim: claim, checkpoint: row.Checkpoint}
}

// settle runs one of the verbs in a transaction of its own. makeEnd is called with the source of the job's queue.
func (j *Job[T]) settle(ctx context.Context, verb, txForm string, makeEnd func(*worker.Source) *worker.SettleOp) error {
	if err := j.unsettled(); err != nil {
		return failID(verb, j.ID, err)
	}
	end := makeEnd(j.q.source)
	j.claim.Settling(1)
	defer j.claim.Settling(-1)
	if err := end.Commit(ctx, txForm); err != nil {
		return failID(verb, j.ID, err)
	}
	j.q.wakeSettled(end)
	return failID(verb, j.ID, j.q.settled(end, &j.claim.Settled, false))
}

// settleTx runs one of the verbs within tx.
func (j *Job[T]) settleTx(ctx context.Context, tx Tx, verb string, makeEnd func(*worker.Source) *worker.SettleOp) error {
	if err := j.unsettled(); err != nil {
		return failID(verb, j.ID, err)
	}
	end := makeEnd(j.q.source)
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

// returned tells the observer of a handler that has ended.
func (q *queue) returned(c *worker.Claim) {
	q.db.opts.Observer.Returned(Returned{Queue: q.name, ID: c.ID, Worker: c.Worker, Attempt: int(c.Attempt), Ran: c.Ran()})
}

// errNoClaim refuses a Job that was made by hand.
var errNoClaim = fmt.Errorf("%w: the job belongs to no claim; use honkertest.Perform", ErrInvalid)

// unsettled refuses a job without a claim, and a claim that this handle has ended. The fence alone would not:
// after a Snooze the worker's next claim of the job has the same attempt.
func (j *Job[T]) unsettled() error {
	if j.claim == nil {
		return errNoClaim
	}
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
		became := end.Became
		end.Claim.Became.Store(&became)
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
	if end.SlowDown {
		q.db.running.Release(q.name) // what is claimed ahead
	}
	switch {
	case end.SlowDown || q.source.Limited(), end.Became == worker.Released, end.Became == worker.Retried && !end.RunAt.After(time.Now()):
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
	q.db.traffic.Add(end.At, q.name, settles(end.Became, ran))
	q.db.opts.Observer.Settled(Settled{
		Queue:   q.name,
		ID:      end.Claim.ID,
		Worker:  end.Claim.Worker,
		Attempt: int(end.Claim.Attempt),
		Outcome: Outcome(end.Became),
		Err:     end.Cause,
		Wait:    end.Claim.Wait,
		Ran:     ran,
		At:      end.At,
		headers: end.Claim.Headers,
	})
}

// settles counts a claim that has ended.
func settles(became worker.Outcome, ran time.Duration) traffic.Counts {
	switch became {
	case worker.Acked:
		return traffic.Counts{Acked: 1, Ran: ran}
	case worker.Retried:
		return traffic.Counts{Retried: 1, Ran: ran}
	case worker.Died:
		return traffic.Counts{Died: 1, Ran: ran}
	case worker.Snoozed:
		return traffic.Counts{Snoozed: 1}
	}
	return traffic.Counts{}
}

// ack returns the settle of a job that has succeeded.
func (j *Job[T]) ack(s *worker.Source) *worker.SettleOp {
	return s.Ack(j.claim, j.q.opts.ResultTTL)
}

// Ack ends the job: it is done and gone. A result set with SetResult is saved with it.
// It waits for the writer, sharing commits with other calls.
func (j *Job[T]) Ack(ctx context.Context) error {
	return j.settle(ctx, "ack job", "AckTx", j.ack)
}

// AckTx is like [Job.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack.
func (j *Job[T]) AckTx(ctx context.Context, tx Tx) error {
	return j.settleTx(ctx, tx, "ack job", j.ack)
}

// Retry lets the job run again after delay, or up to a second later, and keeps cause as
// its LastError; nil keeps the one before. When its attempts are spent it goes to the dead
// letters with cause.
func (j *Job[T]) Retry(ctx context.Context, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settle(ctx, "retry job", "RetryTx", func(s *worker.Source) *worker.SettleOp { return s.Retry(j.claim, delay, cause) })
}

// RetryTx is like [Job.Retry], within tx.
func (j *Job[T]) RetryTx(ctx context.Context, tx Tx, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "retry job", func(s *worker.Source) *worker.SettleOp { return s.Retry(j.claim, delay, cause) })
}

// Reject sends the job to the dead letters now, with cause, whatever attempts it has
// left.
func (j *Job[T]) Reject(ctx context.Context, cause error) error {
	return j.settle(ctx, "reject job", "RejectTx", func(s *worker.Source) *worker.SettleOp { return s.DeadLetter(j.claim, cause) })
}

// RejectTx is like [Job.Reject], within tx.
func (j *Job[T]) RejectTx(ctx context.Context, tx Tx, cause error) error {
	return j.settleTx(ctx, tx, "reject job", func(s *worker.Source) *worker.SettleOp { return s.DeadLetter(j.claim, cause) })
}

// Snooze lets the job run again after d, or up to a second later, without using up an
// attempt.
func (j *Job[T]) Snooze(ctx context.Context, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settle(ctx, "snooze job", "SnoozeTx", func(s *worker.Source) *worker.SettleOp { return s.Snooze(j.claim, d) })
}

// SnoozeTx is like [Job.Snooze], within tx.
func (j *Job[T]) SnoozeTx(ctx context.Context, tx Tx, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "snooze job", func(s *worker.Source) *worker.SettleOp { return s.Snooze(j.claim, d) })
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
	err := j.q.db.engine.Write(ctx, "", j.q.source.WithProgress(j.claim, func(ctx context.Context, q engine.Querier, now time.Time) error {
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
	if j.claim == nil {
		return failID("set result of job", j.ID, errNoClaim)
	}
	text, err := j.q.db.encode(v)
	if err != nil {
		return failID("set result of job", j.ID, err)
	}
	j.claim.Result.Store(&text)
	return nil
}
