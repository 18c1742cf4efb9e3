package honkertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// HandleFlow returns f's runs for [DrainAll], so that runs and jobs are drained together. A run that
// is suspended counts as snoozed. With DrainOptions.Scheduled or Retries, a bubble's clock advances to
// the end of a sleep, to the time limit of a wait and to the next retry. A wait without a limit lasts
// until its signal. Outside a bubble, sleeps do not pass.
func HandleFlow[In, Out any](f *flow.Flow[In, Out]) Handled {
	return handledFlow(f, func(*honker.JobInfo) engine.StepProbe { return nil })
}

// CrashFlow is like [HandleFlow], but at each step of each run the process seems to die twice: before
// the result of the step is committed and, in a later attempt, right after the commit. It also dies
// before a suspension and before the end of the run are committed. A run must have the same effects as
// without the crashes. So a test proves that all steps are idempotent:
//
//	orders.Start(t.Context(), "17", order)
//	honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.CrashFlow(orders)}, nil)
//	// The bank has seen a single charge, although charge has run twice.
//
// A crash ends the attempt and spends none of MaxAttempts. [DrainAll] counts it as snoozed. From there
// on, the calls of package flow return an error, which the flow's function must return. Unlike in a
// real crash, deferred functions run.
func CrashFlow[In, Out any](f *flow.Flow[In, Out]) Handled {
	type place struct {
		job   int64
		step  string
		seq   int  // tells the ends of attempts apart
		ended bool // a call is committed at its start and at its end
		at    engine.StepPoint
	}
	var mu sync.Mutex
	crashed := make(map[place]bool)
	return handledFlow(f, func(job *honker.JobInfo) engine.StepProbe {
		return func(s row.FlowStepRow, at engine.StepPoint) error {
			mu.Lock()
			defer mu.Unlock()
			p := place{job.ID, s.Name, s.Seq, !s.Ended.IsZero(), at}
			if at == engine.StepReached || crashed[p] {
				return nil
			}
			crashed[p] = true
			return errCrashed
		}
	})
}

// StepPoint is a moment in a step of a flow, for [StopFlow].
type StepPoint int

// The points of a step.
const (
	StepReached     = StepPoint(engine.StepReached)     // the step has not begun
	StepUncommitted = StepPoint(engine.StepUncommitted) // its function has returned, and its result is not committed
	StepCommitted   = StepPoint(engine.StepCommitted)   // its result is committed, and the run has not gone on
)

// StopFlow runs f's due runs until the run with the given ID comes to a point of the given step. The
// attempt ends there as if its process had died, but it does not count. StopFlow returns the run as it
// is then. A later [DrainAll] or StopFlow goes on. A step that is recorded is not reached again. The
// step of an [flow.Undo] is "undo:" and its name, and has no StepReached.
//
// StopFlow calls t.Fatal if no run is due before the point is reached, for example because the run waits
// for a signal.
func StopFlow[In, Out any](t testing.TB, f *flow.Flow[In, Out], id, step string, at StepPoint) flow.Detail {
	t.Helper()
	run, stopped := getRun(t, f, id), false
	probe := func(job *honker.JobInfo) engine.StepProbe {
		if job.ID != run.Job {
			return nil
		}
		return func(s row.FlowStepRow, now engine.StepPoint) error {
			if s.Name != step || now != engine.StepPoint(at) {
				return nil
			}
			stopped = true
			return errCrashed
		}
	}
	for !stopped {
		if attemptFlow(t, f, probe) == nil {
			run = getRun(t, f, id)
			t.Fatalf("honkertest: run %q of flow %q has not come to step %q: it is %s after %d steps, last error %.200q", id, f.Name(), step, run.State, run.Steps, run.LastError)
		}
	}
	return getRun(t, f, id)
}

func getRun[In, Out any](t testing.TB, f *flow.Flow[In, Out], id string) flow.Detail {
	t.Helper()
	run, err := flow.Get(t.Context(), f.DB(), f.Name(), id)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return run
}

// errCrashed ends an attempt as if its process had died.
var errCrashed = errors.New("honkertest: the process dies here; return this error")

func handledFlow[In, Out any](f *flow.Flow[In, Out], probe func(*honker.JobInfo) engine.StepProbe) Handled {
	return Handled{db: f.DB(), queue: flow.QueuePrefix + f.Name(), flow: true, next: func(t testing.TB) *attempt { t.Helper(); return attemptFlow(t, f, probe) }}
}

// attemptFlow runs the next due run of f. It returns nil if no run is due.
func attemptFlow[In, Out any](t testing.TB, f *flow.Flow[In, Out], probe func(*honker.JobInfo) engine.StepProbe) *attempt {
	t.Helper()
	dies := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error {
			err := next(engine.WithStepProbe(ctx, probe(job)), job)
			if errors.Is(err, errCrashed) {
				err = honker.Snooze(0)
			}
			return err
		}
	}
	return attemptOnce(t, f.DB(), false, func(ctx context.Context, opts *honker.WorkOptions) (int, error) {
		opts.Middleware = append(opts.Middleware, dies)
		return f.WorkDue(ctx, opts)
	})
}

// unbounded is less than the time for which a run without a time limit is suspended.
const unbounded = 50 * 365 * 24 * time.Hour

// passes reports whether the time of a run that was suspended comes by waiting.
func passes(j *honker.JobInfo, suspended bool) bool {
	return time.Until(j.RunAt) < unbounded && (inBubble() || !suspended)
}
