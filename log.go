package honker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/worker"
)

// LogOptions configures Log. The zero value of a field means its default.
type LogOptions struct {
	// Level returns the level for attempts with the given outcome. nil means Warn for OutcomeRetried and OutcomeLost,
	// Error for OutcomeDied, and Info for all others.
	Level func(Outcome) slog.Level
	// OneIn logs a random sample of acked attempts, 1 in OneIn; default 1: all. Other attempts are always logged.
	OneIn int
	// Slow logs every acked attempt that ran for at least this long, regardless of OneIn. 0 disables it.
	Slow time.Duration
	// Attrs returns attributes to add to each line, such as a trace id. ctx is the handler's context. nil adds none.
	Attrs func(ctx context.Context) []slog.Attr
}

// Log returns a Middleware that logs a line for each attempt when it ends. The message is "honker: attempt". The
// attributes are queue, job, attempt, outcome, wait (how long the job could have started before it did), ran and, after a
// failure, error. The arguments are never logged. A nil l means slog.Default(), and nil opts means defaults. Install Log
// first, so that it sees the errors returned by other middleware.
//
// The outcome is [OutcomeAcked] or another Outcome that follows from the handler's return. The line is logged before the
// commit that settles the job, which may still find the claim lost; use [Observer.Settled] for the final outcome. An
// attempt that was killed together with its process is not logged.
//
// A panic of the handler counts as a failed attempt, and Options.Logger logs its stack. A panic in a function of opts does
// not affect the job. Options.Logger also logs failures in its own way, after the commit.
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

// levelOf is the default LogOptions.Level.
func levelOf(o Outcome) slog.Level {
	switch o {
	case OutcomeRetried, OutcomeLost:
		return slog.LevelWarn
	case OutcomeDied:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// attemptLog implements the Middleware of Log.
type attemptLog struct {
	LogOptions
	logger *slog.Logger
}

// errNotReturned is the error of an attempt that did not return. The pool recovers the panic itself.
var errNotReturned = errors.New("the handler panicked or called runtime.Goexit")

func (a *attemptLog) run(ctx context.Context, job *JobInfo, next WorkFunc) (err error) {
	began := time.Now()
	err = errNotReturned
	defer func() { a.log(ctx, job, err, time.Since(began)) }()
	err = next(ctx, job)
	return err
}

// log writes the line. If the application's code panics here, the job does not fail.
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

// logsAck reports whether to log an acked attempt that ran for the given time.
func (a *attemptLog) logsAck(ran time.Duration) bool {
	return a.OneIn <= 1 || a.Slow > 0 && ran >= a.Slow || rand.IntN(a.OneIn) == 0
}

// wait returns how long the job could have started before its handler was called; the handler has run for ran. Without a
// claim, as in a test of a middleware, the wait is counted from RunAt.
func (j *JobInfo) wait(ran time.Duration) time.Duration {
	if j.claim != nil {
		return j.claim.Wait
	}
	if j.RunAt.IsZero() {
		return 0
	}
	return max(0, time.Since(j.RunAt)-ran)
}

// outcome returns the outcome of an attempt, following the rules by which the pool settles the job.
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

// settled returns the outcome that the handler itself has given the job, or "" for none. The outcome is final if it has
// been committed.
func (j *JobInfo) settled() (outcome Outcome, final bool) {
	if j.claim == nil {
		return "", false
	}
	if became := j.claim.Became.Load(); became != nil {
		outcome = Outcome(*became)
	}
	final = j.claim.Settled.Load()
	if final && outcome == "" {
		outcome = OutcomeAcked // settled by WorkTx
	}
	return outcome, final
}
