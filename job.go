package honker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/internal/worker"
	"github.com/honker-go/honker/observe"
)

// State is the stored state of a job.
type State string

// The states of a job. A job that was cancelled, or was done and not kept, no longer exists.
const (
	StatePending    State = "pending"    // waiting to be claimed
	StateProcessing State = "processing" // claimed by a worker
	StateDead       State = "dead"       // a dead letter, which will not run again
	StateDone       State = "done"       // acked and kept; see Queue.SetRetention
)

// Phase is the condition of a job at a given moment. Unlike a [State], which is stored in the file, it also
// depends on the time.
type Phase string

// The phases of a job.
const (
	PhaseReady     Phase = "ready"     // can be claimed now
	PhaseScheduled Phase = "scheduled" // waiting for its start time, because of a delay or between two attempts
	PhaseRunning   Phase = "running"   // held by a valid claim
	PhaseLapsed    Phase = "lapsed"    // its claim has lapsed; can be claimed now
	PhaseHeld      Phase = "held"      // waiting for other jobs (see [After] and [RunAgain]), or for room under its key's limits (see [Limits])
	PhaseExpired   Phase = "expired"   // can no longer run, because its start deadline has passed or no attempts are left; a claim or a sweep will dead-letter it
	PhaseDead      Phase = "dead"      // a dead letter
	PhaseDone      Phase = "done"      // acked and kept; see Queue.SetRetention
)

// JobInfo is a snapshot of a job. Times are in whole seconds; a zero time means none.
type JobInfo struct {
	ID             int64
	Queue          string
	State          State
	Phase          Phase           // at the time of the read; in a handler, at the time of the claim
	Payload        json.RawMessage // as stored by Options.Codec; other bindings may store text that is not JSON
	Priority       int
	Attempts       int // number of claims so far, including the current claim
	MaxAttempts    int
	WorkerID       string // worker that holds the job or, for a done job, the worker that acked it
	LastError      string // error from the last failed attempt, even if before a requeue, or the reason the job died
	CreatedAt      time.Time
	RunAt          time.Time // earliest start time
	ExpiresAt      time.Time // a job that has not started by this time never starts
	ClaimExpiresAt time.Time // the claim is valid through the end of this second
	DiedAt         time.Time
	DoneAt         time.Time         // set for a done job that was kept
	Unique         string            // unique key (see [Unique]); "" for none
	Key            string            // key for shared limits (see [Key]); "" for none
	Batch          int64             // ID of the job's batch (see [InBatch]); 0 for none
	Headers        map[string]string // see [Headers]; nil for none
	Progress       *Progress         // see [Job.SetProgress]; nil if none was set, and always nil in handlers

	// StartedAt is the time at which the handler of a running job was called or, for [Queue.Claim], at which the job was
	// claimed. It is set in results of [Queue.Get] and package admin. It is zero if the job does not run, if the attempt
	// is younger than about two seconds, or if it is unknown, because another binding has claimed the job, or
	// Queue.Claim has and the claim was never extended.
	StartedAt time.Time

	codec Codec         // codec of the DB from which the job was read; nil for none
	claim *worker.Claim // set for a JobInfo passed to a Middleware
}

// stateOf converts a stored state. A held job is reported as pending.
func stateOf(stored string) State {
	if stored == row.Held {
		return StatePending
	}
	return State(stored)
}

func infoOf(r *row.Job, now time.Time, c Codec) JobInfo {
	return JobInfo{
		ID:             r.ID,
		Queue:          r.Queue,
		State:          stateOf(r.State),
		Phase:          Phase(r.Phase(now)),
		Payload:        engine.PayloadText(r.Payload),
		Priority:       int(r.Priority),
		Attempts:       int(r.Attempts),
		MaxAttempts:    int(r.MaxAttempts),
		WorkerID:       r.WorkerID,
		LastError:      r.LastError,
		CreatedAt:      r.CreatedAt,
		RunAt:          r.RunAt,
		ExpiresAt:      r.ExpiresAt,
		ClaimExpiresAt: r.ClaimExpiresAt,
		DiedAt:         r.DiedAt,
		DoneAt:         r.DoneAt,
		Unique:         r.Unique,
		Key:            r.Key,
		Headers:        row.DecodeHeaders(r.Headers),
		codec:          c,
		Batch:          r.Batch,
		Progress:       progressOf(r.Progress),
		StartedAt:      r.StartedAt,
	}
}

// Job reads a job of any queue. The job may be pending, processing, dead, or done and kept (see
// [Queue.SetRetention]). Job returns [ErrNotFound] if the job was cancelled, was done and not kept, or never
// existed. It never waits for the writer.
func (db *DB) Job(ctx context.Context, id int64) (*JobInfo, error) {
	info, err := db.findJob(ctx, id, "")
	return info, failID("read job", id, err)
}

// findJob reads a job of the given queue, or of any queue if queue is "".
func (db *DB) findJob(ctx context.Context, id int64, queue string) (info *JobInfo, err error) {
	err = db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, found, err := db.engine.Stores.Jobs.Find(ctx, q, id, queue)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("job %d: %w", id, ErrNotFound)
		}
		i := infoOf(&row, db.engine.Now(), db.opts.Codec)
		info = &i
		return nil
	})
	return info, err
}

// Args decodes the arguments of a job that was read or listed rather than claimed. It uses the codec of the DB
// from which the job was read. Args returns an error if the payload does not decode into T, and [ErrInvalid] if
// j is nil.
func Args[T any](j *JobInfo) (args T, err error) {
	if j == nil {
		return args, fail("read arguments", "", fmt.Errorf("%w: nil *JobInfo", ErrInvalid))
	}
	err = j.decode(context.Background(), string(j.Payload), &args)
	return args, failID("read arguments of job", j.ID, err)
}

// Job is a claimed job. Ack, Retry, Reject and Snooze settle the job, which ends the claim. They are fenced by job
// ID, worker and attempt: once the claim has lapsed or the job has been claimed again, they return [ErrClaimLost] and
// change nothing, even in the caller's own transaction.
//
// Inside Work, the job is settled when the handler returns.
//
// A Job constructed by hand, for example in a test, has no claim: its verbs return [ErrInvalid], SetProgress and
// Logger have no effect, and After returns nil. Use Perform of package honkertest to run a handler with a
// claimed job.
type Job[T any] struct {
	JobInfo
	Args T

	q          *queue
	claim      *worker.Claim
	checkpoint string          // saved by an earlier attempt
	inTx       context.Context // ctx of WorkTx's transaction, which may hold the only connection
}

// newJob returns a job for a row held by claim. It does not set Args.
func newJob[T any](q *queue, row *row.Job, claim *worker.Claim) *Job[T] {
	return &Job[T]{JobInfo: infoOf(row, q.db.engine.Now(), q.db.opts.Codec), q: q, claim: claim, checkpoint: row.Checkpoint}
}

// settle commits a settle verb in a new transaction. It calls makeEnd with the source of the job's queue.
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

// settleTx runs a settle verb within tx.
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
	on, seen, err := j.q.db.engine.JoinThen(ctx, tx, committed, wake.Job(j.ID), wake.Queue(j.q.name))
	if err != nil {
		return failID(verb, j.ID, err)
	}
	if err := end.Run(ctx, on, j.q.db.engine.Now()); err != nil {
		return failID(verb, j.ID, err)
	}
	if end.Became == worker.Snoozed {
		j.claim.SnoozedTx.Store(true)
	}
	return failID(verb, j.ID, j.q.settled(end, &j.claim.SettledTx, seen))
}

// started notifies the observer that a handler is about to run.
func (q *queue) started(c *worker.Claim) {
	q.db.opts.Observer.Started(observe.Started{Queue: q.name, ID: c.ID, Worker: c.Worker, Attempt: int(c.Attempt), Wait: c.Wait})
}

// returned notifies the observer that a handler has returned.
func (q *queue) returned(c *worker.Claim) {
	q.db.opts.Observer.Returned(observe.Returned{Queue: q.name, ID: c.ID, Worker: c.Worker, Attempt: int(c.Attempt), Ran: c.Ran()})
}

// errNoClaim is returned by the verbs of a Job constructed by hand.
var errNoClaim = fmt.Errorf("%w: the job was not claimed; use honkertest.Perform to test a handler", ErrInvalid)

// unsettled returns an error for a job without a claim, or with a claim that this handle has already ended. The fence
// alone is not enough: after a Snooze, the same worker may claim the job again with the same attempt number.
func (j *Job[T]) unsettled() error {
	if j.claim == nil {
		return errNoClaim
	}
	if j.claim.Settled.Load() {
		return ErrClaimLost
	}
	return nil
}

// settled records the end of a claim. It also reports the outcome to the observer, unless it will be reported at
// the commit.
func (q *queue) settled(end *worker.SettleOp, note *atomic.Bool, atCommit bool) error {
	if end.Became == worker.Cancelled && end.Claim.Pooled {
		return ErrClaimLost // the pool reports it
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

// wakeSettled wakes goroutines affected by the commit of a settle. An ack without a result wakes none of them:
// goroutines waiting for the job can wait for the next read of the file.
func (q *queue) wakeSettled(end *worker.SettleOp) {
	if end.SlowDown {
		q.db.running.Release(q.name) // gives back jobs claimed ahead
	}
	switch {
	case end.SlowDown || q.source.Limited(), end.Became == worker.Released, end.Became == worker.Retried && !end.RunAt.After(q.db.engine.Now()):
		q.db.engine.Notifier.Wake(wake.Queue(q.name))
	case end.Became == worker.Retried, end.Became == worker.Snoozed:
		q.db.engine.Notifier.Announce(end.RunsAt(), wake.Queue(q.name))
	case end.Became == worker.Died, end.Became == worker.Acked && end.Claim.Result.Load() != nil:
		q.db.engine.Notifier.Wake(wake.Job(end.Claim.ID))
	}
}

// observeSettled logs a failed attempt, counts the outcome and reports it to the observer.
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
	q.db.opts.Observer.Settled(observe.Settled{
		Queue:      q.name,
		ID:         end.Claim.ID,
		Worker:     end.Claim.Worker,
		Attempt:    int(end.Claim.Attempt),
		Outcome:    Outcome(end.Became),
		Err:        end.Cause,
		Wait:       end.Claim.Wait,
		Ran:        ran,
		At:         end.At,
		RawHeaders: end.Claim.Headers,
	})
}

// settles returns the traffic counts for a claim that ended with the given outcome.
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

// ack returns the SettleOp for a job that has succeeded.
func (j *Job[T]) ack(s *worker.Source) *worker.SettleOp {
	return s.Ack(j.claim, j.q.opts.ResultTTL)
}

// Ack marks the job as done and removes it, unless the queue keeps done jobs. A result set with SetResult is
// saved in the same transaction. Ack waits for the writer and shares commits with concurrent calls.
func (j *Job[T]) Ack(ctx context.Context) error {
	return j.settle(ctx, "ack job", "AckTx", j.ack)
}

// AckTx is like [Job.Ack] but runs within tx, so that other writes in tx take effect exactly once, together with the
// ack.
func (j *Job[T]) AckTx(ctx context.Context, tx Tx) error {
	return j.settleTx(ctx, tx, "ack job", j.ack)
}

// Retry makes the job run again after delay, or up to a second later, and stores cause as its LastError. If cause is
// nil, LastError is unchanged. If no attempts are left, the job becomes a dead letter with cause as its error.
func (j *Job[T]) Retry(ctx context.Context, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settle(ctx, "retry job", "RetryTx", func(s *worker.Source) *worker.SettleOp { return s.Retry(j.claim, delay, cause) })
}

// RetryTx is like [Job.Retry] but runs within tx.
func (j *Job[T]) RetryTx(ctx context.Context, tx Tx, delay time.Duration, cause error) error {
	if err := engine.NotNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "retry job", func(s *worker.Source) *worker.SettleOp { return s.Retry(j.claim, delay, cause) })
}

// Reject dead-letters the job immediately, with cause as its error, even if attempts are left.
func (j *Job[T]) Reject(ctx context.Context, cause error) error {
	return j.settle(ctx, "reject job", "RejectTx", func(s *worker.Source) *worker.SettleOp { return s.DeadLetter(j.claim, cause) })
}

// RejectTx is like [Job.Reject] but runs within tx.
func (j *Job[T]) RejectTx(ctx context.Context, tx Tx, cause error) error {
	return j.settleTx(ctx, tx, "reject job", func(s *worker.Source) *worker.SettleOp { return s.DeadLetter(j.claim, cause) })
}

// Snooze makes the job run again after d, or up to a second later, without using up an attempt.
func (j *Job[T]) Snooze(ctx context.Context, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settle(ctx, "snooze job", "SnoozeTx", func(s *worker.Source) *worker.SettleOp { return s.Snooze(j.claim, d) })
}

// SnoozeTx is like [Job.Snooze] but runs within tx.
func (j *Job[T]) SnoozeTx(ctx context.Context, tx Tx, d time.Duration) error {
	if err := engine.NotNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settleTx(ctx, tx, "snooze job", func(s *worker.Source) *worker.SettleOp { return s.Snooze(j.claim, d) })
}

// Extend sets the lease to expire by from now, rounded up to seconds, which may be earlier or later than before.
// Inside Work, leases are renewed automatically.
func (j *Job[T]) Extend(ctx context.Context, by time.Duration) error {
	if err := engine.Positive("extension", by); err != nil {
		return failID("extend job", j.ID, err)
	}
	if err := j.unsettled(); err != nil {
		return failID("extend job", j.ID, err)
	}
	err := j.q.db.engine.Write(ctx, "", j.q.source.Extend(j.claim, by))
	if err == nil {
		j.q.db.engine.Notifier.Announce(j.q.db.engine.Now().Add(by), wake.Queue(j.q.name)) // the lease may lapse earlier than before
	}
	return failID("extend job", j.ID, err)
}

// SetResult sets v, encoded as JSON, as the result to be saved with the job's ack. The last call wins. The
// result can be read with [Result] and [WaitResult] for the queue's ResultTTL. If an application's trigger drops
// the result, the ack still succeeds and the job has no result.
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

// Codec transforms job payloads when they are written to the file and read back, for example to encrypt or
// compress them. See [Options.Codec]; package seal provides an encrypting Codec. All processes that enqueue to a
// queue or process its jobs must use compatible codecs. A Codec must be safe for concurrent use and must not
// retain the slices passed to it.
type Codec interface {
	// Encode returns the stored form of payload, which contains the JSON arguments of a job in queue. The stored
	// form must also be JSON, of at most Options.MaxPayload bytes. If Encode returns an error, the enqueue fails
	// with that error and writes nothing.
	Encode(ctx context.Context, queue string, payload json.RawMessage) (json.RawMessage, error)

	// Decode returns the payload for the stored form of a job in queue. The stored form may not have been
	// produced by Encode: the job may be older than the codec, or may have been enqueued by an SQL function or a
	// program in another language.
	//
	// An error fails the attempt, as if a handler had returned it. The job is retried after the queue's Backoff until
	// no attempts are left, because another process may have a key that this process lacks. [Reject] dead-letters the
	// job immediately; [RetryAfter] and [Snooze] set the time of the next attempt. No job is lost: a dead job keeps
	// its payload and can be requeued.
	Decode(ctx context.Context, queue string, stored json.RawMessage) (json.RawMessage, error)
}

// decode reads the arguments from stored, the payload in its stored form, which is usually text. If the text doesn't
// decode into T, the error is a [Reject], because a retry would fail too. An error from the codec may be temporary
// and is returned unchanged.
func (j *JobInfo) decode(ctx context.Context, stored any, args any) error {
	text := j.Payload
	if _, isText := stored.(string); isText && j.codec != nil {
		var err error
		if text, err = j.codec.Decode(ctx, j.Queue, j.Payload); err != nil {
			return fmt.Errorf("codec: %w", err)
		}
	}
	if err := engine.Decode(stored, text, args); err != nil {
		return Reject(err)
	}
	return nil
}

// unreadable settles a claimed job with unreadable arguments the same way Work does after a handler returns an error.
func (j *Job[T]) unreadable(ctx context.Context, cause error) error {
	var d *worker.Directive
	switch {
	case !errors.As(cause, &d):
		return j.Retry(ctx, max(0, j.q.opts.Backoff(j.Attempts, cause)), cause)
	case d.Outcome == worker.Died:
		return j.Reject(ctx, cause)
	case d.Outcome == worker.Snoozed:
		return j.Snooze(ctx, d.Delay)
	}
	return j.Retry(ctx, d.Delay, cause)
}
