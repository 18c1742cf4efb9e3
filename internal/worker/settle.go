package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Claim is a claim of a job. All copies of the job's handle share it: a handler may pass its job by
// value, and settling one copy settles all.
type Claim struct {
	row.Claim
	Queue     string                  // of the job
	Headers   string                  // of the job, as stored
	Settled   atomic.Bool             // the handler has settled the job with a plain verb
	SettledTx atomic.Bool             // the handler has called a Tx verb, whose transaction may still fail
	SnoozedTx atomic.Bool             // by SnoozeTx; the worker's next claim of the job has the same fence
	Became    atomic.Pointer[Outcome] // outcome of the last verb with which the handler settled the job
	Result    atomic.Pointer[string]
	log       atomic.Pointer[Log] // nil if nothing was logged
	progress  atomic.Pointer[row.Progress]
	saved     atomic.Pointer[row.Progress] // progress that is in the file
	returned  atomic.Bool                  // the handler has returned

	// Pooled is set if the claim belongs to a pool, which then reports a cancellation of the job
	// once.
	Pooled    bool
	cancelled atomic.Bool // a settle found that the job was cancelled

	settling atomic.Int32 // the handler's settles that may be committed already
	until    atomic.Int64 // end of the lease as last known, in Unix seconds

	Wait  time.Duration // time that the job was ready before its handler started
	Began time.Time     // start of the handler; zero outside a pool
	Made  time.Time     // outside a pool: when the caller received the job
}

// Ran returns how long the handler has run. It is 0 if there is no handler.
func (c *Claim) Ran() time.Duration {
	if c.Began.IsZero() {
		return 0
	}
	return time.Since(c.Began)
}

// ClaimOf returns the claim that holds r.
func ClaimOf(r *row.Job) *Claim {
	c := &Claim{Claim: row.Claim{ID: r.ID, Worker: r.WorkerID, Attempt: r.Attempts}, Queue: r.Queue, Headers: r.Headers}
	c.HoldUntil(r.ClaimExpiresAt)
	return c
}

// HoldUntil records a new end of the lease, in Unix seconds.
func (c *Claim) HoldUntil(unix int64) { c.until.Store(unix) }

// holds reports whether the lease has not expired at now, so that no other worker can have claimed
// the job.
func (c *Claim) holds(now int64) bool { return now <= c.until.Load() }

// Settling adds by to the number of the handler's running settles. Call it with 1 before a settle
// begins, and with -1 when its outcome is recorded. In between, a missing row does not mean that
// the job was cancelled.
func (c *Claim) Settling(by int32) { c.settling.Add(by) }

// ended reports whether the handler has settled the job, or may have.
func (c *Claim) ended() bool {
	return c.settling.Load() > 0 || c.Settled.Load() || c.SettledTx.Load()
}

// Outcome is the way in which a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	Acked    Outcome = "acked"
	Retried  Outcome = "retried"
	Died     Outcome = "died"     // moved to the dead letters
	Snoozed  Outcome = "snoozed"  // the attempt does not count
	Released Outcome = "released" // given back by the pool; the attempt does not count
	Lost     Outcome = "lost"     // the worker no longer held the claim

	Cancelled Outcome = "cancelled" // the job was cancelled while the claim held
)

// SettleOp ends a claim. Run may be called again after a failed commit.
type SettleOp struct {
	Claim   *Claim
	Outcome Outcome // intended
	Became  Outcome // after Run: Outcome, Lost, Cancelled, or Died for a last attempt
	Delay   time.Duration
	Cause   error
	RunAt   time.Time // after Run: when a retried job runs again
	At      time.Time // after Run: when the claim ended; zero if it did not hold

	SlowDown bool // of a snoozed job, see Directive

	source    *Source
	text      string        // text of Cause as stored
	ran       time.Duration // run time of a handler that has returned; 0 means until the settle
	resultTTL time.Duration

	// mayBeSettled is set if the handler may have settled the job in a transaction of its own. A
	// missing claim is then expected.
	mayBeSettled bool
}

// Ack settles a job that is done. Its result, if any, is kept for ttl.
func (s *Source) Ack(c *Claim, ttl time.Duration) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Acked, resultTTL: ttl}
}

// Retry makes the job available again after delay, or moves it to the dead letters if its attempts
// are spent.
func (s *Source) Retry(c *Claim, delay time.Duration, cause error) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Retried, Delay: delay, Cause: cause, text: engine.Describe(cause)}
}

// DeadLetter moves the job to the dead letters.
func (s *Source) DeadLetter(c *Claim, cause error) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Died, Cause: cause, text: engine.Describe(cause)}
}

// Snooze makes the job available again after d. The attempt does not count.
func (s *Source) Snooze(c *Claim, d time.Duration) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Snoozed, Delay: d}
}

// release makes the job available again at once. The attempt does not count, because the job has
// not run or the process is shutting down.
func (s *Source) release(c *Claim) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Released}
}

// cancelled ends the claim of a deleted job.
func (s *Source) cancelled(c *Claim) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Cancelled, Became: Cancelled}
}

// single reports whether the settle takes a single statement if nobody waits for the job.
func (s *SettleOp) single() bool {
	if s.Claim.unsaved() != nil {
		return false
	}
	switch s.Outcome {
	case Acked:
		return s.Claim.Result.Load() == nil
	case Snoozed, Released:
		return !s.SlowDown
	}
	return false
}

// Commit runs s in its own transaction, as a single statement if possible. txForm is the verb to
// use inside a transaction, for the error.
func (s *SettleOp) Commit(ctx context.Context, txForm string) error {
	write := s.source.Engine.Write
	if !s.single() {
		return write(ctx, txForm, engine.OpFunc(s.Run))
	}
	err := write(ctx, txForm, engine.SingleOp(s.runAlone))
	if errors.Is(err, row.ErrAwaited) {
		return write(ctx, txForm, engine.OpFunc(s.Run))
	}
	return err
}

// ackFunc is the type of the ack methods of store.Jobs.
type ackFunc = func(ctx context.Context, q engine.Querier, c row.Claim, now int64) (bool, error)

// Held reports, after Run, whether the worker held the claim, which has now ended.
func (s *SettleOp) Held() bool {
	return s.Became != "" && s.Became != Lost && s.Became != Cancelled
}

// Run ends the claim. It must be called in a transaction. Every statement is fenced by (id, worker,
// attempt), so a lost claim changes nothing.
func (s *SettleOp) Run(ctx context.Context, q engine.Querier, at time.Time) error {
	if err := s.source.saveProgress(ctx, q, []*SettleOp{s}, at); err != nil {
		return err
	}
	if err := s.settle(ctx, q, at, s.source.Engine.Stores.Jobs.Ack); err != nil {
		return err
	}
	return s.source.Engine.Stores.Jobs.AddAttempts(ctx, q, s.failed(nil))
}

// runAlone is Run without a surrounding transaction, for an attempt that has not failed. If that is
// not enough, it changes nothing and returns store.ErrAwaited.
func (s *SettleOp) runAlone(ctx context.Context, q engine.Querier, at time.Time) error {
	return s.settle(ctx, q, at, s.source.Engine.Stores.Jobs.AckAlone)
}

// failed appends the attempt to all if it ended with an error or the job died.
func (s *SettleOp) failed(all []row.Attempt) []row.Attempt {
	if s.Became != Died && (s.Became != Retried || s.text == "") {
		return all
	}
	c, start, ran := s.Claim, s.Claim.Began, s.ran
	if start.IsZero() {
		start = c.Made
	}
	if ran == 0 {
		ran = max(0, s.At.Sub(start))
	}
	return append(all, row.Attempt{
		Job: c.ID, N: c.Attempt, Worker: c.Worker, Error: s.text, Log: c.log.Load().String(),
		StartMS: start.UnixMilli(), RanMS: ran.Milliseconds(),
	})
}

// settle is Run without the record of the attempt.
func (s *SettleOp) settle(ctx context.Context, q engine.Querier, at time.Time, ack ackFunc) (err error) {
	if s.Outcome == Cancelled {
		return s.freePlace(ctx, q)
	}
	now, jobs := at.Unix(), s.source.Engine.Stores.Jobs
	held, died := false, false
	// Each statement reports whether the claim held. Only the file knows whether a retried job has
	// attempts left: the limit is stored with the job and may differ from this queue's option.
	switch s.Outcome {
	case Acked:
		held, err = ack(ctx, q, s.Claim.Claim, now)
	case Retried:
		due := engine.UnixAfter(at, s.Delay)
		s.RunAt = engine.Instant(due)
		held, died, err = jobs.Retry(ctx, q, s.Claim.Claim, due, s.text, now)
	case Died:
		held, err = jobs.DeadLetter(ctx, q, s.Claim.Claim, s.text, now)
	case Snoozed:
		held, err = s.snooze(ctx, q, at)
	case Released:
		held, err = jobs.PutBack(ctx, q, s.Claim.Claim, 0, now)
	}
	if err != nil {
		return err
	}
	return s.finish(ctx, q, at, held, died)
}

// snooze gives the attempt back. With SlowDown it also pauses the job's key or queue.
func (s *SettleOp) snooze(ctx context.Context, q engine.Querier, at time.Time) (held bool, err error) {
	until, now := engine.UnixAfter(at, s.Delay), at.Unix()
	held, err = s.source.Engine.Stores.Jobs.PutBack(ctx, q, s.Claim.Claim, until, now)
	if err != nil || !held || !s.SlowDown || until <= now {
		return held, err
	}
	p := row.Pause{SinceMS: at.UnixMilli(), UntilMS: until * 1000, Reason: s.text}
	return held, s.source.Engine.Stores.Jobs.SlowDown(ctx, q, s.Claim.Queue, s.Claim.ID, p, now)
}

// maxReason is the maximum length of a pause's reason in bytes.
const maxReason = 1024

// slowDown is Snooze with a pause of the same length.
func (s *Source) slowDown(c *Claim, d *Directive) *SettleOp {
	end := s.Snooze(c, d.Delay)
	end.SlowDown, end.Cause = true, d.Err
	text := "slow down"
	if d.Err != nil {
		text += ": " + Reason(d.Err)
	}
	end.text = engine.CutText(text, maxReason)
	return end
}

// finish records the outcome of the claim and saves the result of a job that is done.
func (s *SettleOp) finish(ctx context.Context, q engine.Querier, now time.Time, held, died bool) error {
	if !held {
		return s.missed(ctx, q, now)
	}
	s.Became, s.At = s.Outcome, now
	if died {
		s.Became = Died
	}
	// Save it in the transaction of the ack, so that a result exists if and only if the job is
	// done.
	result := s.Claim.Result.Load()
	if s.Outcome != Acked || result == nil {
		return nil
	}
	err := s.source.Engine.Stores.Results.Save(ctx, q, s.Claim.ID, *result, now.Unix(), engine.Expiry(now, s.resultTTL))
	if errors.Is(err, row.ErrNotInserted) {
		return nil // a trigger refused the result; the job is done all the same and must not run again
	}
	return err
}

// Reason returns the text of Cause without the stack of a panic, for log messages.
func (s *SettleOp) Reason() string { return withoutStack(s.text) }

// Reason returns the text of a handler's error without the stack of a panic, for log messages.
func Reason(err error) string { return withoutStack(engine.Describe(err)) }

// withoutStack removes the stack of a panic, which was logged when it happened.
func withoutStack(text string) string {
	text, _, _ = strings.Cut(text, stackFollows)
	return text
}

// RolledBack clears the cancellation that a settle found in a transaction that was rolled back.
// That transaction may itself have cancelled the job.
func (c *Claim) RolledBack() { c.cancelled.Store(false) }

// missed determines why the claim did not hold. If the job has no row and no other worker can have
// claimed it, the job was cancelled.
func (s *SettleOp) missed(ctx context.Context, q engine.Querier, now time.Time) error {
	gone, err := s.source.Engine.Stores.Jobs.Gone(ctx, q, []int64{s.Claim.ID})
	s.Became = Lost
	if len(gone) > 0 {
		err = s.freePlace(ctx, q)
	}
	if len(gone) > 0 && s.Claim.holds(now.Unix()) && !s.mayBeSettled {
		s.Became = Cancelled
		s.Claim.cancelled.Store(true)
	}
	return err
}

// freePlace gives up the place of a cancelled job in a queue with limits. It keeps the place while
// the handler is running: the handler may have tried to settle the job itself, or may go on after
// the drain.
func (s *SettleOp) freePlace(ctx context.Context, q engine.Querier) error {
	c := s.Claim
	if c.Pooled && !c.Began.IsZero() && !c.returned.Load() {
		return nil
	}
	return s.source.Engine.Stores.Jobs.FreePlace(ctx, q, c.Claim)
}

// Directive is the error with which a handler decides how its job continues. It may be wrapped like
// any other error.
type Directive struct {
	Outcome Outcome // Retried, Snoozed or Died
	Delay   time.Duration
	Err     error

	SlowDown bool // with Snoozed: start no other job of the job's key, or queue, until Delay has passed
}

// Error implements error.
func (d *Directive) Error() string {
	switch {
	case d.Outcome == Snoozed:
		return "snooze for " + d.Delay.String()
	case d.Err == nil:
		return "no reason given"
	}
	return d.Err.Error()
}

// Unwrap returns the handler's reason.
func (d *Directive) Unwrap() error { return d.Err }
