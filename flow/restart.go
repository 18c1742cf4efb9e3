package flow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// ErrRunning is returned by [RestartFrom] if a worker runs the run.
var ErrRunning = errors.New("a worker runs the run; cancel it or wait until it is suspended")

// RestartFrom makes a suspended or failed run forget the step with the given name and all later steps, and run again. An
// empty step stands for the first. The order of steps is that in which the run came to them. Signals stay, and so do the
// runs that it has called: restart these before, unless their results are to be used again.
//
// It returns [honker.ErrNotFound] if there is no such step, or no such run, or if the run is over; [ErrRunning] if a
// worker runs it; and [honker.ErrInvalid] for an undo, and for a step other than the first of a run that was undone.
// Nothing has changed then. RestartFrom waits for the writer until ctx ends or BusyTimeout has passed.
func RestartFrom(ctx context.Context, db *honker.DB, flow, id, step string) error {
	e := engine.Of(db)
	target := []string{"flow", flow, "run", id}
	if step != "" {
		target = append(target, "step", step)
	}
	audit := e.AuditActor(ctx, "restart flow", target...)
	err := e.TxAgain(ctx, func(ctx context.Context, tx *sql.Tx) error {
		on, err := e.Join(ctx, tx, wake.Queue(QueuePrefix+flow))
		if err != nil {
			return err
		}
		if err := restart(ctx, on, e, flow, id, step); err != nil {
			return err
		}
		return audit.NoteOne(ctx, on, e.Now())
	})
	return failRun("restart", flow, id, err)
}

func restart(ctx context.Context, q engine.Querier, e *engine.Engine, flow, id, step string) error {
	r, found, err := e.Stores.Flows.Hold(ctx, q, flow, id)
	switch {
	case err != nil:
		return err
	case !found:
		return honker.ErrNotFound
	case !r.EndedAt.IsZero():
		return fmt.Errorf("%w: the run is over", honker.ErrNotFound)
	}
	h, _, err := e.Stores.Flows.History(ctx, q, r.Job)
	if err != nil {
		return err
	}
	seq, err := seqOf(h.Steps, step)
	if err != nil {
		return err
	}
	free, err := e.Stores.Flows.Restart(ctx, q, r.Job, seq, e.Now())
	if err == nil && !free {
		err = ErrRunning
	}
	if err != nil {
		return err
	}
	out, err := e.Stores.Operators.Requeue(ctx, q, row.Requeue{ID: r.Job}, e.Now())
	switch {
	case err != nil:
		return err
	case out.TakenBy != 0:
		return fmt.Errorf("%w: job %d has taken the ID of the run", honker.ErrInvalid, out.TakenBy)
	case out.Done:
		return nil
	}
	_, err = e.Stores.Flows.Resume(ctx, q, r.Job, e.Now())
	return err
}

// seqOf returns the position of the step from which a run may restart.
func seqOf(steps []row.FlowStepRow, name string) (seq int, err error) {
	first, undone := maxSteps+1, false
	for _, s := range steps {
		if s.Name == name {
			seq = s.Seq
		}
		first = min(first, s.Seq)
		undone = undone || s.Kind == row.FlowUndo
	}
	switch {
	case name == "":
		return 0, nil
	case strings.HasPrefix(name, undoPrefix):
		return 0, fmt.Errorf("%w: a run cannot restart from an undo", honker.ErrInvalid)
	case seq == 0:
		return 0, fmt.Errorf("%w: the run has no step %q", honker.ErrNotFound, name)
	case undone && seq > first:
		return 0, fmt.Errorf("%w: the run was undone, so it can restart from its first step only", honker.ErrInvalid)
	}
	return seq, nil
}
