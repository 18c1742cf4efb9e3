package honker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// Progress is the progress of a handler, as reported by [Job.SetProgress].
type Progress struct {
	Done, Total int64     // in any unit; a Total of 0 means unknown
	Note        string    // current activity
	At          time.Time // time of the report, in milliseconds
}

func progressOf(text string) *Progress {
	if text == "" {
		return nil
	}
	var p row.Progress
	if json.Unmarshal([]byte(text), &p) != nil {
		return nil // another program has written text that is not a progress
	}
	return &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: p.At}
}

// maxProgressNote is the maximum length in bytes of the note of a progress.
const maxProgressNote = 512

// SetProgress reports the progress of the handler for JobInfo.Progress in other processes: done of total,
// in any unit, and a note of up to 512 bytes. It never blocks and does not write, so it may be called in a
// tight loop. The last call counts.
//
// In Work the progress is written with the next renewal of leases, for all jobs of the process in a single
// statement, at a third of the Lease and at most once a second. Outside of Work, [Job.Extend] writes it. A
// settle writes progress that was not yet written. A job that fails or dies therefore keeps its last
// progress, and so does a done job that is retained; see [Queue.SetRetention].
//
// The progress stays until another attempt reports its own. SetProgress has no effect after the handler
// has returned or has settled the job.
func (j *Job[T]) SetProgress(done, total int64, note string) {
	if j.claim == nil {
		return
	}
	note = engine.CutText(note, maxProgressNote)
	j.claim.SetProgress(row.Progress{Done: done, Total: total, Note: note, At: time.Now()})
}

// Checkpoint stores v as JSON with the job, for [Job.Checkpointed] in its next attempt. The last call counts. A long
// handler that fails, or whose process is killed, can then continue where it stopped. Checkpoint writes in its own
// transaction. It waits for the writer until ctx ends or BusyTimeout has passed, and shares commits with other calls.
//
// Like the settle verbs, it returns [ErrClaimLost] and changes nothing if the claim is no longer valid.
// The checkpoint is deleted with the job when the job is done. A dead job that is requeued has it again.
// An enqueue that changes the arguments of the job (see [ReplaceWaiting]) deletes it. The size of v is
// limited by Options.MaxPayload, as for a payload.
func (j *Job[T]) Checkpoint(ctx context.Context, v any) error {
	text, err := j.checkpointOf(v)
	if err != nil {
		return failID("checkpoint of job", j.ID, err)
	}
	op := engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		return j.saveCheckpoint(ctx, q, text, now)
	})
	return failID("checkpoint of job", j.ID, j.q.db.engine.Write(ctx, "CheckpointTx", op))
}

// CheckpointTx is like [Job.Checkpoint], within tx. The handler's writes in tx and its checkpoint are
// committed together.
func (j *Job[T]) CheckpointTx(ctx context.Context, tx Tx, v any) error {
	text, err := j.checkpointOf(v)
	if err != nil {
		return failID("checkpoint of job", j.ID, err)
	}
	on, err := j.q.db.engine.Join(ctx, tx)
	if err == nil {
		err = j.saveCheckpoint(ctx, on, text, time.Now())
	}
	return failID("checkpoint of job", j.ID, err)
}

func (j *Job[T]) checkpointOf(v any) (string, error) {
	if err := j.unsettled(); err != nil {
		return "", err
	}
	return j.q.db.encode(v)
}

// saveCheckpoint changes nothing if the claim is lost, so its error leaves nothing to undo.
func (j *Job[T]) saveCheckpoint(ctx context.Context, q engine.Querier, text string, now time.Time) error {
	held, err := j.q.db.engine.Stores.Jobs.Checkpoint(ctx, q, j.claim.Claim, text, now)
	if err == nil && !held {
		return ErrClaimLost
	}
	return err
}

// Checkpointed decodes the last checkpoint of earlier attempts into v. It returns false, and leaves v
// unchanged, if there is none. Checkpoints of this attempt are not visible to it; they are for the next
// attempt. Checkpointed does not read the file. It returns an error if the checkpoint does not decode into
// v.
func (j *Job[T]) Checkpointed(v any) (bool, error) {
	if j.claim == nil {
		return false, failID("checkpoint of job", j.ID, errNoClaim)
	}
	if j.checkpoint == "" {
		return false, nil
	}
	err := json.Unmarshal([]byte(j.checkpoint), v)
	return err == nil, failID("checkpoint of job", j.ID, err)
}

// Logger returns a logger for this attempt, which helps to explain a failure. If the attempt ends with an
// error, the last 64 KiB of its lines are saved in the commit that settles it, for Attempts of package
// admin and honker job logs. Otherwise the lines are dropped. They are also lost if the process is killed,
// so they do not replace an audit log. All levels are kept. Nothing is written elsewhere; to write to
// another log too, join the handlers with [slog.NewMultiHandler].
//
// The logger never blocks on the file and is safe for concurrent use. Jobs that do not call Logger have no overhead.
func (j *Job[T]) Logger() *slog.Logger {
	if j.claim == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(j.claim.Log(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

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
// commit that settles the job, which may still find the claim lost; use [observe.Observer.Settled] for the final outcome. An
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
