package honker

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// State is where a job is.
type State string

// The states of a job. A job that was done or cancelled is gone.
const (
	Pending    State = "pending"    // waits to be claimed
	Processing State = "processing" // some worker holds it
	Dead       State = "dead"       // will not run again
)

// JobInfo is a job as it was when it was read. Times are whole seconds; the zero time
// means none.
type JobInfo struct {
	ID             int64
	Queue          string
	State          State
	Payload        json.RawMessage // as stored; other bindings may store text that is no JSON
	Priority       int
	Attempts       int // claims so far, this one included
	MaxAttempts    int
	WorkerID       string // who holds it
	LastError      string // of the last attempt that failed, or the reason of death
	CreatedAt      time.Time
	RunAt          time.Time // not before
	ExpiresAt      time.Time // not started by then: never started
	ClaimExpiresAt time.Time // the claim is valid through this second
	DiedAt         time.Time
}

func infoOf(row store.Job) JobInfo {
	return JobInfo{
		ID:             row.ID,
		Queue:          row.Queue,
		State:          State(row.State),
		Payload:        payloadText(row.Payload),
		Priority:       int(row.Priority),
		Attempts:       int(row.Attempts),
		MaxAttempts:    int(row.MaxAttempts),
		WorkerID:       row.WorkerID,
		LastError:      row.LastError,
		CreatedAt:      instant(row.CreatedAt),
		RunAt:          instant(row.RunAt),
		ExpiresAt:      instant(row.ExpiresAt),
		ClaimExpiresAt: instant(row.ClaimExpiresAt),
		DiedAt:         instant(row.DiedAt),
	}
}

// Job is a claimed job. One of its settle verbs ends the claim: Ack, Retry, Fail or
// Snooze. Each is fenced by (id, worker, attempt): once the claim has lapsed, or the
// job was given to somebody else, it returns [ErrClaimLost] and changes nothing, also
// inside a transaction of the caller's.
//
// Inside Work, returning from the handler settles the job.
type Job[T any] struct {
	JobInfo
	Args T

	q     *queue
	claim *claim
}

// claim is the part of a Job that its copies share.
type claim struct {
	store.Claim
	settled   atomic.Bool // by a plain verb of the handler's own
	settledTx atomic.Bool // by a Tx verb, whose transaction may still fail
	result    atomic.Pointer[string]
}

func claimOf(row store.Job) *claim {
	return &claim{Claim: store.Claim{ID: row.ID, Worker: row.WorkerID, Attempt: row.Attempts}}
}

// newJob makes a job of a claimed row. With an error, the job has no Args, and can
// only be settled.
func newJob[T any](q *queue, row store.Job) (*Job[T], error) {
	job := &Job[T]{
		JobInfo: infoOf(row),
		q:       q,
		claim:   claimOf(row),
	}
	return job, decode(row.Payload, &job.Args)
}

// settle runs one of the verbs.
func (j *Job[T]) settle(ctx context.Context, verb, twin string, end *settlement) error {
	end.claim = j.claim
	err := j.open()
	if err == nil {
		err = j.q.db.do(ctx, twin, end)
	}
	if err == nil {
		err = j.ended(end, &j.claim.settled)
	}
	return failID(verb, j.ID, err)
}

func (j *Job[T]) settleTx(ctx context.Context, tx Tx, verb string, end *settlement) error {
	end.claim = j.claim
	err := j.open()
	if err == nil {
		tx, err = j.q.db.in(ctx, tx)
	}
	if err == nil {
		err = end.Run(ctx, tx, time.Now())
	}
	if err == nil {
		err = j.ended(end, &j.claim.settledTx)
	}
	return failID(verb, j.ID, err)
}

// open refuses a claim that this handle has ended. The fence alone would not: after a
// Snooze the worker's next claim of the job has the same attempt.
func (j *Job[T]) open() error {
	if j.claim.settled.Load() {
		return ErrClaimLost
	}
	return nil
}

// ended notes what became of the claim and tells the observer.
func (j *Job[T]) ended(end *settlement, note *atomic.Bool) error {
	end.observe(j.q, 0)
	if end.became == Lost {
		return ErrClaimLost
	}
	note.Store(true)
	return nil
}

// Ack ends the job: it is done and gone. A result set with SetResult is saved with it.
// It waits for its turn to write, sharing commits with others.
func (j *Job[T]) Ack(ctx context.Context) error {
	return j.settle(ctx, "ack job", "AckTx", j.ack())
}

// AckTx is like [Job.Ack], within tx: whatever else tx writes happens exactly once,
// together with the ack.
func (j *Job[T]) AckTx(ctx context.Context, tx Tx) error {
	return j.settleTx(ctx, tx, "ack job", j.ack())
}

func (j *Job[T]) ack() *settlement {
	return &settlement{outcome: Acked, resultTTL: j.q.opts.ResultTTL}
}

// Retry lets the job run again after delay, rounded up to seconds, and keeps cause as
// its LastError; nil keeps the one before. When its attempts are spent it goes to the dead
// letters with cause.
func (j *Job[T]) Retry(ctx context.Context, delay time.Duration, cause error) error {
	if err := notNegative("delay", delay); err != nil {
		return failID("retry job", j.ID, err)
	}
	return j.settle(ctx, "retry job", "", &settlement{outcome: Retried, delay: delay, cause: cause, text: describe(cause)})
}

// Fail sends the job to the dead letters now, with cause, whatever attempts it has
// left.
func (j *Job[T]) Fail(ctx context.Context, cause error) error {
	return j.settle(ctx, "fail job", "FailTx", died(cause))
}

// FailTx is like [Job.Fail], within tx.
func (j *Job[T]) FailTx(ctx context.Context, tx Tx, cause error) error {
	return j.settleTx(ctx, tx, "fail job", died(cause))
}

func died(cause error) *settlement {
	return &settlement{outcome: Died, cause: cause, text: describe(cause)}
}

// Snooze lets the job run again after d, rounded up to seconds, as if this attempt had
// not been.
func (j *Job[T]) Snooze(ctx context.Context, d time.Duration) error {
	if err := notNegative("snooze", d); err != nil {
		return failID("snooze job", j.ID, err)
	}
	return j.settle(ctx, "snooze job", "", &settlement{outcome: Snoozed, delay: d})
}

// Heartbeat makes the claim last for extend, rounded up to seconds, from now: longer
// or shorter than it did. Inside Work leases are renewed without it.
func (j *Job[T]) Heartbeat(ctx context.Context, extend time.Duration) error {
	if err := positive("extension", extend); err != nil {
		return failID("heartbeat job", j.ID, err)
	}
	if err := j.open(); err != nil {
		return failID("heartbeat job", j.ID, err)
	}
	held := false
	err := j.q.db.do(ctx, "", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		held, err = store.Jobs{}.Extend(ctx, q, j.claim.Claim, now.Unix()+seconds(extend), now.Unix())
		return err
	}))
	if err == nil && !held {
		err = ErrClaimLost
	}
	return failID("heartbeat job", j.ID, err)
}

// SetResult keeps v, as JSON, to be saved with the ack; the last one wins. It is read
// with [Result] and [WaitResult] for the queue's ResultTTL.
func (j *Job[T]) SetResult(v any) error {
	text, err := encode(v, j.q.db.opts.MaxPayload)
	if err != nil {
		return failID("set result of job", j.ID, err)
	}
	j.claim.result.Store(&text)
	return nil
}

// settlement is one way to end a claim: what is to be done, and after Run, what was.
type settlement struct {
	claim     *claim
	outcome   Outcome       // intended
	became    Outcome       // after Run: the same, Lost, or Died for a last attempt
	delay     time.Duration // Retried, Snoozed
	cause     error         // Retried, Died
	text      string        // of cause, for the file
	quiet     bool          // a Tx verb may have settled it: finding that so is no loss
	resultTTL time.Duration // Acked
}

// Single implements sqlite.Op: a plain ack is one statement.
func (s *settlement) Single() bool {
	return s.outcome == Acked && s.claim.result.Load() == nil || s.outcome == Snoozed || s.outcome == Released
}

// Run implements sqlite.Op. It may run again, after a commit that failed.
func (s *settlement) Run(ctx context.Context, q store.Querier, at time.Time) (err error) {
	now := at.Unix()
	held, died := false, false
	switch s.outcome {
	case Acked:
		if held, err = (store.Jobs{}).Ack(ctx, q, s.claim.Claim, now); held && err == nil {
			s.became = Acked
			err = s.saveResult(ctx, q, now)
		}
	case Retried:
		held, died, err = store.Jobs{}.Retry(ctx, q, s.claim.Claim, now+seconds(s.delay), s.text, now)
	case Died:
		held, err = store.Jobs{}.DeadLetter(ctx, q, s.claim.Claim, s.text, now)
	case Snoozed:
		held, err = store.Jobs{}.PutBack(ctx, q, s.claim.Claim, now+seconds(s.delay), now)
	default: // Released
		held, err = store.Jobs{}.PutBack(ctx, q, s.claim.Claim, 0, now)
	}
	s.ended(held, died)
	return err
}

func (s *settlement) ended(held, died bool) {
	switch {
	case !held:
		s.became = Lost
	case died:
		s.became = Died
	default:
		s.became = s.outcome
	}
}

// together says that a crew acks it with others, in one statement.
func (s *settlement) together() bool { return s.outcome == Acked && !s.quiet }

func (s *settlement) saveResult(ctx context.Context, q store.Querier, now int64) error {
	text := s.claim.result.Load()
	if text == nil || s.became == Lost {
		return nil
	}
	return store.Results{}.Save(ctx, q, s.claim.ID, *text, now, expiry(now, s.resultTTL))
}

// expiry is the second at which a result ends: never (0) for a ttl that is not
// positive.
func expiry(now int64, ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return now + seconds(ttl)
}

func (s *settlement) observe(q *queue, ran time.Duration) {
	q.db.opts.Observer.settled(Settled{
		Queue:   q.name,
		ID:      s.claim.ID,
		Worker:  s.claim.Worker,
		Attempt: int(s.claim.Attempt),
		Outcome: s.became,
		Err:     s.cause,
		Ran:     ran,
	})
}
