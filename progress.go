package honker

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Progress is how far a handler has come, in a unit of its own, as it has told by [Job.SetProgress].
type Progress struct {
	Done, Total int64     // Total 0: not known
	Note        string    // what it is at
	At          time.Time // when it said so, to the millisecond
}

func progressOf(text string) *Progress {
	if text == "" {
		return nil
	}
	var p row.Progress
	if json.Unmarshal([]byte(text), &p) != nil {
		return nil // another program has written what is none
	}
	return &Progress{Done: p.Done, Total: p.Total, Note: p.Note, At: engine.InstantMS(p.AtMS)}
}

// maxProgressNote bounds the note of a progress.
const maxProgressNote = 512

// SetProgress tells how far the handler is, for JobInfo.Progress in other processes: done of total, in any unit, and what
// it is at, up to 512 bytes. It never blocks and never writes by itself, so it may be called in a loop of a million: the
// last call counts. In Work it is written with the next renewal of the leases, of all jobs of the process by one
// statement, at a third of the Lease and at most once a second; outside of Work by [Job.Extend]. A settle writes
// what was not written yet, so a job that fails or dies keeps the last one, and so does one that is done and is kept, see
// [Queue.SetRetention].
//
// It stays until another attempt tells of its own. From a handler that has returned, or has settled the job, it has no
// effect.
func (j *Job[T]) SetProgress(done, total int64, note string) {
	if j.claim == nil {
		return
	}
	note = engine.CutText(note, maxProgressNote)
	j.claim.SetProgress(row.Progress{Done: done, Total: total, Note: note, AtMS: time.Now().UnixMilli()})
}

// Checkpoint keeps v with the job, as JSON, for its next attempt, which reads it by [Job.Checkpointed]; the last one
// counts. So a long handler that fails, or a process that is killed, goes on where it was. It writes in a transaction of its
// own and waits for the writer, until ctx ends or BusyTimeout has passed, sharing commits with other calls.
//
// It is fenced as the settle verbs are: [ErrClaimLost] when the claim is no longer this one, and nothing is changed. It goes
// with the job when that is done; a dead one has it again when it is requeued. An enqueue that changes the arguments of
// a job, see [ReplaceWaiting], drops it. v may be as large as a payload, see Options.MaxPayload.
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

// CheckpointTx is like [Job.Checkpoint], within tx: what the handler has done in tx and how far it is are committed together.
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

// saveCheckpoint changes nothing where the claim is lost, so that its error has nothing to undo.
func (j *Job[T]) saveCheckpoint(ctx context.Context, q engine.Querier, text string, now time.Time) error {
	held, err := j.q.db.jobs.Checkpoint(ctx, q, j.claim.Claim, text, now.Unix())
	if err == nil && !held {
		return ErrClaimLost
	}
	return err
}

// Checkpointed decodes into v what the last attempt that kept something has kept by [Job.Checkpoint]; false, and v is as it
// was, where none has. It tells of attempts before this one: what this one keeps is for the next. It reads nothing from
// the file. An error is that of a value that does not decode into v.
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

// Logger returns a logger of this attempt: what it was doing when it failed. If the attempt ends with an error, the last
// 64 KiB of its lines are saved in the commit that settles it, for Attempts of package admin and honker job logs; otherwise
// they are dropped, as they are when the process is killed: they are for reading, not evidence. All levels are
// kept. It writes nowhere else: for a log of yours as well, join their handlers by [slog.NewMultiHandler].
//
// It never blocks on the file, and is safe for concurrent use. A job on which it is not called pays nothing.
func (j *Job[T]) Logger() *slog.Logger {
	if j.claim == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(j.claim.Log(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
