package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// Claim is one claim of a job, shared by all copies of the job's handle: a handler may pass its
// job on by value, and settling one copy settles all.
type Claim struct {
	row.Claim
	Queue     string                  // of the job
	Headers   string                  // of the job, as the file has them
	Settled   atomic.Bool             // by a plain verb of the handler
	SettledTx atomic.Bool             // by a Tx verb: its transaction may still fail
	SnoozedTx atomic.Bool             // by SnoozeTx: the worker's next claim of the job has the same fence
	Became    atomic.Pointer[Outcome] // by the last verb of the handler that settled the job
	Result    atomic.Pointer[string]
	log       atomic.Pointer[Log] // nil: nothing was logged
	progress  atomic.Pointer[row.Progress]
	saved     atomic.Pointer[row.Progress] // what of it is in the file
	returned  atomic.Bool                  // the handler has

	// Pooled claims are told of by their pool, once, when their job was cancelled.
	Pooled    bool
	cancelled atomic.Bool // the job was, as a settle has found

	settling atomic.Int32 // settles of the handler that may be committed already
	until    atomic.Int64 // unix seconds: the end of the lease, as far as is known

	Wait  time.Duration // from when the job could have begun to its handler; set before that is called
	Began time.Time     // when it was; the zero time outside of a pool
	Made  time.Time     // outside of a pool: when the caller was given the job
}

// Ran is how long the handler has run: 0 where there is none.
func (c *Claim) Ran() time.Duration {
	if c.Began.IsZero() {
		return 0
	}
	return time.Since(c.Began)
}

// ClaimOf is the claim by which row is held.
func ClaimOf(r *row.Job) *Claim {
	c := &Claim{Claim: row.Claim{ID: r.ID, Worker: r.WorkerID, Attempt: r.Attempts}, Queue: r.Queue, Headers: r.Headers}
	c.HoldUntil(r.ClaimExpiresAt)
	return c
}

// HoldUntil notes that the lease has been extended.
func (c *Claim) HoldUntil(unix int64) { c.until.Store(unix) }

// holds reports that no other worker can have claimed the job until now.
func (c *Claim) holds(now int64) bool { return now <= c.until.Load() }

// Settling counts the settles of the handler that run: by 1 before one begins, and by -1 when
// its outcome is noted. Meanwhile a job without a row is not taken for a cancelled one.
func (c *Claim) Settling(by int32) { c.settling.Add(by) }

// ended reports that the handler has settled the job, or may have.
func (c *Claim) ended() bool {
	return c.settling.Load() > 0 || c.Settled.Load() || c.SettledTx.Load()
}

// Outcome is how a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	Acked    Outcome = "acked"
	Retried  Outcome = "retried"
	Died     Outcome = "died"     // went to the dead letters
	Snoozed  Outcome = "snoozed"  // attempt unspent
	Released Outcome = "released" // not finished when Work ended; attempt unspent
	Lost     Outcome = "lost"     // the claim was no longer the worker's

	Cancelled Outcome = "cancelled" // the job was, while the claim held
)

// SettleOp ends one claim. Run may be called again, after a commit that has failed.
type SettleOp struct {
	Claim   *Claim
	Outcome Outcome // intended
	Became  Outcome // after Run: the same, Lost, Cancelled, or Died for a last attempt
	Delay   time.Duration
	Cause   error
	RunAt   time.Time // after Run: when a job that is retried runs again
	At      time.Time // after Run, where the claim held: when it ended

	SlowDown bool // of a job that is snoozed: as in Directive

	source    *Source
	text      string        // of Cause, for the file
	ran       time.Duration // of a handler that has returned; 0: until the settle
	resultTTL time.Duration

	// mayBeSettled says that the handler may have settled the job in a transaction of its
	// own: a claim that is gone is no loss then.
	mayBeSettled bool
}

// Ack ends a claim of a job that is done. Its result, if there is one, is kept for ttl.
func (s *Source) Ack(c *Claim, ttl time.Duration) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Acked, resultTTL: ttl}
}

// Retry lets the job run again after delay, or dead-letters it when its attempts are spent.
func (s *Source) Retry(c *Claim, delay time.Duration, cause error) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Retried, Delay: delay, Cause: cause, text: engine.Describe(cause)}
}

// DeadLetter moves the job to the dead letters.
func (s *Source) DeadLetter(c *Claim, cause error) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Died, Cause: cause, text: engine.Describe(cause)}
}

// Snooze lets the job run again after d, this attempt unspent.
func (s *Source) Snooze(c *Claim, d time.Duration) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Snoozed, Delay: d}
}

// release gives the job back at once, this attempt unspent: the job has not run, or the process
// is ending, neither of which is the job's fault.
func (s *Source) release(c *Claim) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Released}
}

// cancelled ends a claim of which the job is gone.
func (s *Source) cancelled(c *Claim) *SettleOp {
	return &SettleOp{source: s, Claim: c, Outcome: Cancelled, Became: Cancelled}
}

// single reports that the settle of a job that none waits for is one statement.
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

// Commit runs s in a transaction of its own, which is a single statement if it may be.
func (s *SettleOp) Commit(ctx context.Context, txForm string) error {
	write := s.source.Engine.Write
	if !s.single() {
		return write(ctx, txForm, engine.OpFunc(s.Run))
	}
	err := write(ctx, txForm, engine.SingleOp(s.runAlone))
	if errors.Is(err, store.ErrAwaited) {
		return write(ctx, txForm, engine.OpFunc(s.Run))
	}
	return err
}

// ackFunc is an ack of store.Jobs.
type ackFunc = func(ctx context.Context, q engine.Querier, c row.Claim, now int64) (bool, error)

// Held says, after Run, that the claim was the worker's, and has ended.
func (s *SettleOp) Held() bool {
	return s.Became != "" && s.Became != Lost && s.Became != Cancelled
}

// Run ends the claim, in a transaction. Every statement is fenced by (id, worker, attempt), so a claim
// that was lost changes nothing.
func (s *SettleOp) Run(ctx context.Context, q engine.Querier, at time.Time) error {
	if err := s.source.saveProgress(ctx, q, []*SettleOp{s}, at); err != nil {
		return err
	}
	if err := s.settle(ctx, q, at, s.source.Jobs.Ack); err != nil {
		return err
	}
	return s.source.Jobs.AddAttempts(ctx, q, s.failed(nil))
}

// runAlone is Run without a transaction around it, of an attempt that has not failed. It is store.ErrAwaited, and
// changes nothing, where that is not enough.
func (s *SettleOp) runAlone(ctx context.Context, q engine.Querier, at time.Time) error {
	return s.settle(ctx, q, at, s.source.Jobs.AckAlone)
}

// failed adds the attempt to those that have failed, if it has: it was ended with an error, or by the death of the
// job.
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

// settle is Run without a note of the attempt.
func (s *SettleOp) settle(ctx context.Context, q engine.Querier, at time.Time, ack ackFunc) (err error) {
	if s.Outcome == Cancelled {
		return s.freePlace(ctx, q)
	}
	now, jobs := at.Unix(), s.source.Jobs
	held, died := false, false
	// Each says whether the claim held. Of a retry the file knows better whether an attempt is
	// left: it is stamped on the job and may be another's than this queue's option.
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

// snooze gives the attempt back, and pauses what is to slow down.
func (s *SettleOp) snooze(ctx context.Context, q engine.Querier, at time.Time) (held bool, err error) {
	until, now := engine.UnixAfter(at, s.Delay), at.Unix()
	held, err = s.source.Jobs.PutBack(ctx, q, s.Claim.Claim, until, now)
	if err != nil || !held || !s.SlowDown || until <= now {
		return held, err
	}
	p := row.Pause{SinceMS: at.UnixMilli(), UntilMS: until * 1000, Reason: s.text}
	return held, s.source.Jobs.SlowDown(ctx, q, s.Claim.Queue, s.Claim.ID, p, now)
}

// maxReason bounds the reason of a pause.
const maxReason = 1024

// slowDown is Snooze with a pause for as long.
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

// finish notes what the claim has become, and saves the result of a job that is done.
func (s *SettleOp) finish(ctx context.Context, q engine.Querier, now time.Time, held, died bool) error {
	if !held {
		return s.missed(ctx, q, now)
	}
	s.Became, s.At = s.Outcome, now
	if died {
		s.Became = Died
	}
	// In the transaction of the ack, so that a result exists if and only if the job is done.
	result := s.Claim.Result.Load()
	if s.Outcome != Acked || result == nil {
		return nil
	}
	err := s.source.Results.Save(ctx, q, s.Claim.ID, *result, now.Unix(), engine.Expiry(now, s.resultTTL))
	if errors.Is(err, store.ErrNotInserted) {
		return nil // a trigger wants no result: the job is done all the same, and must not run again
	}
	return err
}

// Reason is the text of Cause for a log.
func (s *SettleOp) Reason() string { return withoutStack(s.text) }

// Reason is the text of a handler's error for a log.
func Reason(err error) string { return withoutStack(engine.Describe(err)) }

// withoutStack cuts off the stack of a panic, which was logged when it happened.
func withoutStack(text string) string {
	text, _, _ = strings.Cut(text, stackFollows)
	return text
}

// RolledBack forgets that a settle has found the job cancelled, in a transaction that is not committed: it may have been the
// one that has cancelled the job.
func (c *Claim) RolledBack() { c.cancelled.Store(false) }

// missed finds out why the claim did not hold. A job that has no row, while no other worker can
// have claimed it, was cancelled.
func (s *SettleOp) missed(ctx context.Context, q engine.Querier, now time.Time) error {
	gone, err := s.source.Jobs.Gone(ctx, q, []int64{s.Claim.ID})
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

// freePlace gives up the place that a cancelled job has kept in a queue with limits, unless its handler still runs: it
// may have tried to settle the job itself, or go on after the drain.
func (s *SettleOp) freePlace(ctx context.Context, q engine.Querier) error {
	c := s.Claim
	if c.Pooled && !c.Began.IsZero() && !c.returned.Load() {
		return nil
	}
	return s.source.Jobs.FreePlace(ctx, q, c.Claim)
}

// Directive is what a handler returns to say how its job goes on. It is an error, so that a
// handler has one return value, and may be wrapped like any other.
type Directive struct {
	Outcome Outcome // Retried, Snoozed or Died
	Delay   time.Duration
	Err     error

	SlowDown bool // and Snoozed: nothing more of the job's key, or queue, starts before Delay is over
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

// Unwrap returns the error that the handler gave as the reason.
func (d *Directive) Unwrap() error { return d.Err }
