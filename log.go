package honker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/worker"
)

// LogOptions of one Log. The zero value of a field means its default.
type LogOptions struct {
	// Level says at which level an attempt is logged. nil: one that was retried or lost is a Warn, one that died an
	// Error, and any other Info.
	Level func(Outcome) slog.Level
	// OneIn logs one of so many acked attempts, chosen at random; default 1: each. All others are logged always.
	OneIn int
	// Slow logs each acked attempt that ran for so long, whatever OneIn says; default 0: none for that.
	Slow time.Duration
	// Attrs are added to each line, such as the id of a trace. It is given the handler's ctx; nil: none.
	Attrs func(ctx context.Context) []slog.Attr
}

// Log is a Middleware that logs a line for each attempt, when it ends: "honker: attempt" with the attributes queue, job,
// attempt, outcome, wait (for how long the job could have begun), ran and, after a failure, error. The
// arguments are never logged. l nil means slog.Default(), nil opts means defaults. Put it first, so that it sees what other
// middleware returns.
//
// The outcome is what the end of the handler leads to: [OutcomeAcked] and the others. It is logged before the commit that settles the
// job, which may yet find the claim lost; [Observer.Settled] tells of what has become of it. An attempt
// that was killed with its process has no line. A panic is an attempt that failed, of which Options.Logger has the
// stack; one of the functions of opts changes nothing else. Options.Logger goes on to tell of failures in its own way,
// after the commit.
func Log(l *slog.Logger, opts *LogOptions) Middleware {
	if l == nil {
		l = slog.Default()
	}
	a := &attemptLog{logger: l}
	if opts != nil {
		a.LogOptions = *opts
	}
	if a.Level == nil {
		a.Level = levelOf
	}
	return func(next WorkFunc) WorkFunc {
		return func(ctx context.Context, job *JobInfo) error { return a.run(ctx, job, next) }
	}
}

// levelOf is the default of LogOptions.Level.
func levelOf(o Outcome) slog.Level {
	switch o {
	case OutcomeRetried, OutcomeLost:
		return slog.LevelWarn
	case OutcomeDied:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// attemptLog is one Log.
type attemptLog struct {
	LogOptions
	logger *slog.Logger
}

// errNotReturned is the error of an attempt that did not return. The pool recovers the panic.
var errNotReturned = errors.New("the handler panicked, or ended its goroutine")

func (a *attemptLog) run(ctx context.Context, job *JobInfo, next WorkFunc) (err error) {
	began := time.Now()
	err = errNotReturned
	defer func() { a.log(ctx, job, err, time.Since(began)) }()
	err = next(ctx, job)
	return err
}

// log writes the line. A panic of the application's code there is no failure of the job.
func (a *attemptLog) log(ctx context.Context, job *JobInfo, err error, ran time.Duration) {
	defer func() {
		if p := recover(); p != nil {
			slog.Default().ErrorContext(ctx, "honker: Log panicked", "queue", job.Queue, "job", job.ID, "panic", p)
		}
	}()
	outcome := job.outcome(ctx, err)
	level := a.Level(outcome)
	if outcome == OutcomeAcked && !a.logsAck(ran) || !a.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("queue", job.Queue), slog.Int64("job", job.ID), slog.Int("attempt", job.Attempts),
		slog.String("outcome", string(outcome)), slog.Duration("wait", job.wait(ran)), slog.Duration("ran", ran),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", worker.Reason(err)))
	}
	if a.Attrs != nil {
		attrs = append(attrs, a.Attrs(ctx)...)
	}
	a.logger.LogAttrs(ctx, level, "honker: attempt", attrs...)
}

// logsAck says whether an attempt that was acked is one of those to be logged.
func (a *attemptLog) logsAck(ran time.Duration) bool {
	return a.OneIn <= 1 || a.Slow > 0 && ran >= a.Slow || rand.IntN(a.OneIn) == 0
}

// wait is for how long the job could have begun before its handler, which has run for ran, was called. The claim
// knows; without one, as in a test of a middleware, it is counted from RunAt.
func (j *JobInfo) wait(ran time.Duration) time.Duration {
	if j.claim != nil {
		return j.claim.Wait
	}
	if j.RunAt.IsZero() {
		return 0
	}
	return max(0, time.Since(j.RunAt)-ran)
}

// outcome is how the attempt ends, by the rules of the pool that settles the job.
func (j *JobInfo) outcome(ctx context.Context, err error) Outcome {
	settled, final := j.settled()
	cause := context.Cause(ctx)
	var d *worker.Directive
	switch directed := errors.As(err, &d); {
	case final:
		return settled
	case errors.Is(cause, ErrCancelled):
		return OutcomeCancelled
	case errors.Is(cause, ErrClaimLost), errors.Is(err, ErrClaimLost):
		return OutcomeLost
	case err == nil && settled != "":
		return settled
	case err == nil:
		return OutcomeAcked
	case directed && d.Outcome != worker.Retried:
		return Outcome(d.Outcome)
	case !directed && errors.Is(cause, worker.ErrEnded):
		return OutcomeReleased
	case j.Attempts >= j.MaxAttempts:
		return OutcomeDied
	}
	return OutcomeRetried
}

// settled is what the handler has made of the job itself: "" for nothing. It is final if that is committed.
func (j *JobInfo) settled() (outcome Outcome, final bool) {
	if j.claim == nil {
		return "", false
	}
	if became := j.claim.Became.Load(); became != nil {
		outcome = Outcome(*became)
	}
	final = j.claim.Settled.Load()
	if final && outcome == "" {
		outcome = OutcomeAcked // by WorkTx
	}
	return outcome, final
}
