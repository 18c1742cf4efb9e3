package honker

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
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
	return &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: engine.InstantMS(p.AtMS)}
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
	j.claim.SetProgress(row.Progress{Done: done, Total: total, Note: note, AtMS: time.Now().UnixMilli()})
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
