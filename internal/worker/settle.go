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
	started   atomic.Bool                  // the handler was called
	returned  atomic.Bool                  // the handler has returned

	startSaved atomic.Bool // the start of the attempt is in the file

	// Pooled is set if the claim belongs to a pool, which then reports a cancellation of the job
	// once.
	Pooled    bool
	cancelled atomic.Bool // a settle found that the job was cancelled

	settling atomic.Int32 // the handler's settles that may be committed already
	until    atomic.Int64 // end of the lease as last known, in Unix seconds

	Wait  time.Duration // time that the job was ready before its handler started
	Began time.Time     // start of the handler by the clock of the process; zero outside a pool
	Made  time.Time     // by the clock of the backend: start of the handler, or outside a pool when the caller received the job
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
	c.HoldUntil(row.Unix(r.ClaimExpiresAt))
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
type Outcome = row.Outcome

// The outcomes of a claim.
const (
	Acked     = row.Acked
	Retried   = row.Retried
	Died      = row.Died
	Snoozed   = row.Snoozed
	Released  = row.Released
	Lost      = row.Lost
	Cancelled = row.Cancelled
)

// SettleOp ends a claim. Run may be called again after a failed commit. After Run, Became is also
// Cancelled if the job was cancelled while the claim held.
type SettleOp struct {
	row.Settlement
	Claim *Claim // sets Settlement.Claim and more, see prepare
	Cause error
	At    time.Time // after Run: when the claim ended; zero if it did not hold

	source   *Source
	one      [1]*row.Settlement // backing array for a step that settles only s
	repeated bool               // an earlier run may have been committed
}

// settle returns an op with the given outcome.
func (s *Source) settle(c *Claim, outcome Outcome) *SettleOp {
	return &SettleOp{
		Settlement: row.Settlement{Claim: c.Claim, Queue: c.Queue, Outcome: outcome},
		Claim:      c,
		source:     s,
	}
}

// Ack settles a job that is done. Its result, if any, is kept for ttl.
func (s *Source) Ack(c *Claim, ttl time.Duration) *SettleOp {
	end := s.settle(c, Acked)
	end.ResultTTL = ttl
	return end
}

// Retry makes the job available again after delay, or moves it to the dead letters if its attempts
// are spent.
func (s *Source) Retry(c *Claim, delay time.Duration, cause error) *SettleOp {
	end := s.settle(c, Retried)
	end.Delay, end.Cause, end.Error = delay, cause, engine.Describe(cause)
	return end
}

// DeadLetter moves the job to the dead letters.
func (s *Source) DeadLetter(c *Claim, cause error) *SettleOp {
	end := s.settle(c, Died)
	end.Cause, end.Error = cause, engine.Describe(cause)
	return end
}

// Snooze makes the job available again after d. The attempt does not count.
func (s *Source) Snooze(c *Claim, d time.Duration) *SettleOp {
	end := s.settle(c, Snoozed)
	end.Delay = d
	return end
}

// release makes the job available again at once. The attempt does not count, because the job has
// not run or the process is shutting down.
func (s *Source) release(c *Claim) *SettleOp { return s.settle(c, Released) }

// cancelled ends the claim of a deleted job.
func (s *Source) cancelled(c *Claim) *SettleOp {
	end := s.settle(c, Cancelled)
	end.Became = Cancelled
	return end
}

// Commit runs s in its own transaction, as a single statement if possible. txForm is the verb to
// use inside a transaction, for the error.
func (s *SettleOp) Commit(ctx context.Context, txForm string) error {
	write := s.source.Engine.Write
	if s.prepare(); s.source.Engine.Stores.Single {
		return write(ctx, txForm, fencedSettle{engine.SingleOp(s.Run), s})
	}
	if !s.Plain() {
		return write(ctx, txForm, fencedSettle{engine.OpFunc(s.Run), s})
	}
	err := write(ctx, txForm, fencedSettle{engine.SingleOp(s.runAlone), s})
	if errors.Is(err, row.ErrAwaited) {
		return write(ctx, txForm, fencedSettle{engine.OpFunc(s.Run), s})
	}
	return err
}

// fencedSettle is an engine.Fenced that ends a claim.
type fencedSettle struct {
	engine.Op
	settle *SettleOp
}

// Again implements engine.Fenced.
func (f fencedSettle) Again() { f.settle.repeated = true }

// Held reports, after Run, whether the worker held the claim, which has now ended.
func (s *SettleOp) Held() bool {
	return s.Became != "" && s.Became != Lost && s.Became != Cancelled
}

// RunsAt returns, after Run, when a job that was retried or snoozed may run again.
func (s *SettleOp) RunsAt() time.Time { return s.At.Add(s.Delay) }

// Run ends the claim. It must be called in a transaction, unless a Step of the stores is a single statement.
func (s *SettleOp) Run(ctx context.Context, q engine.Querier, now time.Time) error {
	return s.run(ctx, q, false, now)
}

// runAlone is Run without a surrounding transaction. If other jobs may wait for the job, it changes
// nothing and returns row.ErrAwaited.
func (s *SettleOp) runAlone(ctx context.Context, q engine.Querier, now time.Time) error {
	return s.run(ctx, q, true, now)
}

func (s *SettleOp) run(ctx context.Context, q engine.Querier, alone bool, now time.Time) error {
	s.one[0] = s.prepare()
	if _, err := s.source.Engine.Stores.Jobs.Step(ctx, q, row.Step{Settle: s.one[:], Alone: alone}, now); err != nil {
		return err
	}
	s.settled(now)
	return nil
}

// prepare completes the settlement with the claim's result, progress and log.
func (s *SettleOp) prepare() *row.Settlement {
	c := s.Claim
	s.Result = c.Result.Load()
	s.Progress = c.unsaved()
	s.Running = c.Pooled && c.started.Load() && !c.returned.Load()
	if s.Outcome == Retried || s.Outcome == Died {
		s.Log = c.log.Load().String()
		s.Start = c.Made
	}
	return &s.Settlement
}

// settled must be called after a step with s. It determines why a claim did not hold. If an earlier run may have been
// committed and no other worker can have claimed the job, that run has ended the claim. If the job has no row and no
// other worker can have claimed it, the job was cancelled.
func (s *SettleOp) settled(now time.Time) {
	if s.repeated && s.Became == Lost && s.Claim.holds(now.Unix()) {
		s.Became, s.Gone = s.Outcome, false
	}
	if s.At = (time.Time{}); s.Held() {
		s.At = now
	}
	if s.Gone && s.Claim.holds(now.Unix()) && !s.Ended {
		s.Became = Cancelled
		s.Claim.cancelled.Store(true)
	}
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
	end.Error = engine.CutText(text, maxReason)
	return end
}

// Reason returns the text of Cause without the stack of a panic, for log messages.
func (s *SettleOp) Reason() string { return withoutStack(s.Error) }

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
