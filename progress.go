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
	Note        string    // description of the current activity
	At          time.Time // time of the report, to the millisecond
}

func progressOf(text string) *Progress {
	if text == "" {
		return nil
	}
	var p row.Progress
	if json.Unmarshal([]byte(text), &p) != nil {
		return nil // another program wrote text that is not a valid Progress
	}
	return &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: p.At}
}

// maxProgressNote is the maximum length of Progress.Note in bytes.
const maxProgressNote = 512

// SetProgress reports the progress of the handler, which other processes can read from JobInfo.Progress: done
// out of total, in any unit, and a note of up to 512 bytes. It never blocks and does not write to the file, so
// it may be called in a tight loop. The last call wins.
//
// In Work, progress is written when leases are next renewed, in a single statement for all jobs in the process, every
// third of the Lease but at most once per second. Outside Work, [Job.Extend] writes it. Settling the job writes any
// progress that hasn't been written yet. A job that fails or dies therefore keeps its last progress, as does a done
// job that is retained; see [Queue.SetRetention].
//
// The progress stays until another attempt reports its own. SetProgress has no effect after the handler
// has returned or has settled the job.
func (j *Job[T]) SetProgress(done, total int64, note string) {
	if j.claim == nil {
		return
	}
	note = engine.CutText(note, maxProgressNote)
	j.claim.SetProgress(row.Progress{Done: done, Total: total, Note: note, At: j.q.db.engine.Now()})
}

// Checkpoint stores v as JSON with the job, so that the next attempt can read it with [Job.Checkpointed]. The
// last call wins. A long-running handler that fails, or whose process is killed, can then continue from the
// checkpoint. Checkpoint writes in its own transaction. It waits for the writer until ctx ends or BusyTimeout
// has passed, and shares commits with concurrent calls.
//
// Like the settle verbs, Checkpoint returns [ErrClaimLost] and changes nothing if the claim is no longer valid.
// The checkpoint is deleted with the job when the job is done. A dead job keeps its checkpoint when it is
// requeued. An enqueue that replaces the job's arguments (see [ReplaceWaiting]) deletes the checkpoint. As with
// payloads, Options.MaxPayload limits the size of v.
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

// CheckpointTx is like [Job.Checkpoint] but runs within tx, so that the handler's other writes in tx and the
// checkpoint are committed together.
func (j *Job[T]) CheckpointTx(ctx context.Context, tx Tx, v any) error {
	text, err := j.checkpointOf(v)
	if err != nil {
		return failID("checkpoint of job", j.ID, err)
	}
	on, err := j.q.db.engine.Join(ctx, tx)
	if err == nil {
		err = j.saveCheckpoint(ctx, on, text, j.q.db.engine.Now())
	}
	return failID("checkpoint of job", j.ID, err)
}

func (j *Job[T]) checkpointOf(v any) (string, error) {
	if err := j.unsettled(); err != nil {
		return "", err
	}
	return j.q.db.encode(v)
}

// saveCheckpoint saves text as the checkpoint. If the claim is lost it changes nothing, so the caller need not
// undo anything.
func (j *Job[T]) saveCheckpoint(ctx context.Context, q engine.Querier, text string, now time.Time) error {
	held, err := j.q.db.engine.Stores.Jobs.Checkpoint(ctx, q, j.claim.Claim, text, now)
	if err == nil && !held {
		return ErrClaimLost
	}
	return err
}

// Checkpointed decodes the last checkpoint of an earlier attempt into v. If there is none, it returns false and
// leaves v unchanged. It does not return checkpoints of the current attempt, which are meant for the next
// attempt. Checkpointed does not read the file. It returns an error if the checkpoint does not decode into v.
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

// Logger returns a logger for this attempt, which helps to explain failures. If the attempt ends with an error, the
// last 64 KiB of its log are saved in the commit that settles it, and can be read with Attempts in package admin or
// the command honker job logs. Otherwise the log is discarded. It is also lost if the process is killed, so it's no
// substitute for an audit log. Lines at all levels are kept. The logger writes nowhere else; to write to another log
// as well, combine the handlers with [slog.NewMultiHandler].
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
	// OneIn logs a random sample of acked attempts, 1 in OneIn; default 1, which logs all. Other attempts are
	// always logged.
	OneIn int
	// Slow logs every acked attempt that ran for at least this long, regardless of OneIn. 0 disables this.
	Slow time.Duration
	// Attrs returns attributes to add to each line, such as a trace ID. ctx is the handler's context. nil adds no
	// attributes.
	Attrs func(ctx context.Context) []slog.Attr
}

// Log returns a Middleware that logs a line at the end of each attempt. The message is "honker: attempt". The
// attributes are queue, job, attempt, outcome, wait (the time between the job becoming ready and its start), ran
// and, after a failure, error. The arguments are never logged. A nil l means slog.Default(), and a nil opts
// means defaults. Install Log first, so that it sees the errors returned by other middleware.
//
// The outcome is [OutcomeAcked] or another Outcome, as determined by the handler's return value. The line is
// logged before the commit that settles the job, which may still find that the claim was lost; use
// [observe.Observer.Settled] for the final outcome. If the process is killed, its running attempts are not
// logged.
//
// A panic in the handler counts as a failed attempt, and its stack trace is logged to Options.Logger. A panic in a
// function of opts does not affect the job. Failures are also logged to Options.Logger as usual, after the commit.
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

// levelOf is the default for LogOptions.Level.
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

// errNotReturned is the error logged for an attempt that did not return. The worker pool recovers the panic
// itself.
var errNotReturned = errors.New("the handler panicked or called runtime.Goexit")

func (a *attemptLog) run(ctx context.Context, job *JobInfo, next WorkFunc) (err error) {
	began := time.Now()
	err = errNotReturned
	defer func() { a.log(ctx, job, err, time.Since(began)) }()
	err = next(ctx, job)
	return err
}

// log writes the line. If application code called by log panics, the job does not fail.
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

// wait returns the time between the job becoming ready and its handler being called. The handler has run for ran.
// Without a claim, as in a test of a middleware, the wait is counted from RunAt.
func (j *JobInfo) wait(ran time.Duration) time.Duration {
	if j.claim != nil {
		return j.claim.Wait
	}
	if j.RunAt.IsZero() {
		return 0
	}
	return max(0, time.Since(j.RunAt)-ran)
}

// outcome returns the outcome of an attempt according to the rules by which the worker pool settles jobs.
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

// settled returns the outcome of a job that the handler has settled itself, or "" if it has not. The outcome is
// final if it has been committed.
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
