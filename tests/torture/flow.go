//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/internal/testkit"
)

// Flows checks the guarantees of package flow for processes that are killed. Each effect of a StepTx happens exactly
// once. Each Step runs at least once, and not after its result was committed. Each run ends. The ledgers contain the runs
// that were started, and the calls of steps and undos.
func Flows(ctx context.Context, r *Round) error {
	for _, name := range []string{"acked_lost", "phantoms", "duplicates", "late_steps", "lost_steps", "not_undone", "stuck"} {
		r.Add(name, 0)
	}
	s := &storm{Round: r, few: true, pause: 300 * time.Millisecond, span: 2 * time.Minute, parts: [][]string{{"starter"}, {"runner"}, {"runner"}, {"runner"}}, rest: [][]string{{"runner", "signaller"}}}
	s.prepare, s.left, s.check = s.beginFlows, s.flowed, s.checkFlows
	return s.run(ctx)
}

// Kinds of notes in the ledgers, besides those of roles.go: runs started, calls of a step, calls of a step whose result was
// committed, steps that lost their claim, and calls of an undo. Steps have the number of their run and their index, see
// stepNumber.
const (
	runMeant, runAcked = "run?", "run"
	stepRan            = "ran"
	stepLate           = "late"
	claimLost          = "claimlost"
	undoRan            = "undo"
)

// Shapes of runs. A wide run has many steps under way at the same time.
const (
	wide = 4 // shapes below are wide
	long = iota + 3
	signalled
	calling
	undone
	shapes
)

const (
	width    = 128 // steps of a wide run
	perRun   = 256 // more than the steps of any run
	inFlight = 600

	flowLease = 3 * time.Second // a shorter lease lapses on a busy machine, with so many steps under way
)

func shapeOf(n int64) int64 { return n % shapes }

func stepNumber(n int64, i int) int64 { return n*perRun + int64(i) }

// effectsOf returns the number of effects of a run, with the effects of the run that it calls.
func effectsOf(n int64) int {
	switch shapeOf(n) {
	case long, signalled, calling, undone:
		return 4
	}
	return 1
}

// stepsOf returns the number of steps of a run that note their calls.
func stepsOf(n int64) int {
	switch shapeOf(n) {
	case signalled, calling, undone:
		return 0
	case long:
		return 4
	}
	return width
}

func (s *storm) beginFlows(ctx context.Context) error {
	_, err := s.db.SQL().ExecContext(ctx, `CREATE TABLE flow_effects (run BIGINT NOT NULL, step BIGINT NOT NULL)`)
	return err
}

// flows are the flows of a process.
type flows struct {
	*actor
	outer, inner *flow.Flow[int64, int64]
	reading      sync.Mutex // thousands of steps would open as many connections
}

func (a *actor) flows() *flows {
	f := &flows{actor: a}
	o := &flow.Options{Keep: -1, Queue: honker.QueueOptions{MaxAttempts: 1 << 20, Backoff: honker.Constant(0)}}
	f.inner = flow.New(a.db, "inner", f.runInner, o)
	f.outer = flow.New(a.db, "outer", f.runOuter, o)
	return f
}

// runFlows works on both flows.
func (a *actor) runFlows(ctx context.Context) error {
	f := a.flows()
	w := honker.NewWorkers(a.db, nil)
	flow.Handle(w, f.outer)
	flow.Handle(w, f.inner)
	return w.Work(ctx, &honker.WorkOptions{Workers: 32, Lease: flowLease})
}

// start keeps many runs under way.
func (a *actor) start(ctx context.Context) error {
	f := a.flows()
	for ctx.Err() == nil {
		live, err := one[int](ctx, a.db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue = 'flow:outer'`)
		if err == nil && live < inFlight {
			err = f.startSome(ctx)
		}
		if err == nil {
			err = f.signal(ctx)
		}
		if err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (f *flows) startSome(ctx context.Context) error {
	ns := make([]int64, 40)
	for i := range ns {
		ns[i] = f.number()
	}
	return f.write(ns, func() error {
		return f.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, n := range ns {
				started, err := f.outer.StartTx(ctx, tx, fmt.Sprint(n), n)
				if err == nil && !started {
					err = fmt.Errorf("run %d exists already", n)
				}
				if err == nil && shapeOf(n) == signalled && n%3 == 0 { // a signal that comes before the wait
					err = flow.SignalTx(ctx, tx, f.db, "outer", fmt.Sprint(n), "go", n)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}, runAcked)
}

// signalFlows sends signals to runs until the child ends.
func (a *actor) signalFlows(ctx context.Context) error {
	f := a.flows()
	for ctx.Err() == nil {
		if err := f.signal(ctx); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// signal signals some of the runs that wait.
func (f *flows) signal(ctx context.Context) error {
	waiting, err := column[string](ctx, f.db.SQL(), testkit.Either(
		`SELECT r.id FROM _honkerx_flow_steps AS s JOIN _honkerx_flow_runs AS r ON r.job_id = s.job_id
WHERE s.kind = 2 AND r.ended_ms IS NULL AND NOT EXISTS (SELECT 1 FROM _honkerx_flow_signals AS g WHERE g.flow = 'outer' AND g.id = r.id) LIMIT 20`,
		`SELECT r.id FROM flow_step s JOIN flow_run r ON r.job_id = s.job_id
WHERE s.kind = 2 AND r.ended_at IS NULL AND NOT EXISTS (SELECT FROM flow_signal g WHERE g.flow = 'outer' AND g.id = r.id) LIMIT 20`))
	for _, id := range waiting {
		if err == nil {
			err = flow.Signal(ctx, f.db, "outer", id, "go", 1)
		}
		if errors.Is(err, flow.ErrSignalled) || errors.Is(err, honker.ErrNotFound) {
			err = nil
		}
	}
	return err
}

func (f *flows) runOuter(ctx context.Context, n int64) (int64, error) {
	switch shapeOf(n) {
	case long:
		return f.runLong(ctx, n)
	case signalled:
		return f.runSignalled(ctx, n)
	case calling:
		if err := f.effects(ctx, n, 0, 2); err != nil {
			return 0, err
		}
		return flow.Call(ctx, "call", f.inner, n)
	case undone:
		return f.runUndone(ctx, n)
	}
	return f.runWide(ctx, n)
}

// runInner is the function of the runs that are called.
func (f *flows) runInner(ctx context.Context, n int64) (int64, error) {
	return n, f.effects(ctx, n, 2, 4)
}

// runWide has many steps under way at the same time, most of which last longer than their process.
func (f *flows) runWide(ctx context.Context, n int64) (int64, error) {
	errs := make([]error, width)
	var all sync.WaitGroup
	for i := range width {
		all.Go(func() { errs[i] = f.step(ctx, n, i, time.Duration(rand.IntN(1500))*time.Millisecond) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return n, f.effects(ctx, n, 0, 1)
}

// runLong alternates steps and effects, and sleeps in between.
func (f *flows) runLong(ctx context.Context, n int64) (int64, error) {
	for i := range 4 {
		if err := f.step(ctx, n, i, time.Duration(rand.IntN(20))*time.Millisecond); err != nil {
			return 0, err
		}
		if err := f.effects(ctx, n, i, i+1); err != nil {
			return 0, err
		}
		if i == 1 {
			if err := flow.Sleep(ctx, "sleep", 2*time.Second); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (f *flows) runSignalled(ctx context.Context, n int64) (int64, error) {
	if err := f.effects(ctx, n, 0, 2); err != nil {
		return 0, err
	}
	if _, err := flow.Wait[int64](ctx, "go", 0); err != nil {
		return 0, err
	}
	return n, f.effects(ctx, n, 2, 4)
}

func (f *flows) runUndone(ctx context.Context, n int64) (int64, error) {
	if err := f.effects(ctx, n, 0, 4); err != nil {
		return 0, err
	}
	flow.Undo(ctx, "all", func(context.Context) error { f.note(undoRan, n); return nil })
	return 0, honker.Reject(errOnPurpose)
}

// effects inserts the effects from, from+1, ... of a run, each in a step.
func (f *flows) effects(ctx context.Context, n int64, from, to int) error {
	for i := from; i < to; i++ {
		_, err := flow.StepTx(ctx, fmt.Sprint("effect", i), func(ctx context.Context, tx *sql.Tx) (int, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO flow_effects VALUES ($1, $2)`, n, i)
			return i, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// step notes its call, and whether the result of the step was there already.
func (f *flows) step(ctx context.Context, n int64, i int, d time.Duration) error {
	name, number := fmt.Sprint("step", i), stepNumber(n, i)
	_, err := flow.Step(ctx, name, func(ctx context.Context) (int64, error) {
		f.note(stepRan, number)
		f.reading.Lock()
		late, err := one[bool](ctx, f.db.SQL(), testkit.Either(
			`SELECT EXISTS (SELECT 1 FROM _honkerx_flow_runs AS r JOIN _honkerx_flow_steps AS s ON s.job_id = r.job_id
WHERE r.flow = 'outer' AND r.id = $1 AND s.name = $2 AND s.ended_ms IS NOT NULL)`,
			`SELECT EXISTS (SELECT FROM flow_run r JOIN flow_step s ON s.job_id = r.job_id
WHERE r.flow = 'outer' AND r.id = $1 AND s.name = $2 AND s.ended_at IS NOT NULL)`), fmt.Sprint(n), name)
		f.reading.Unlock()
		if late {
			f.note(stepLate, number)
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return number, ctx.Err()
		}
		return number, err
	})
	if errors.Is(err, honker.ErrClaimLost) {
		f.note(claimLost, number)
	}
	return err
}

// flowed describes the runs that are left, or returns "".
func (s *storm) flowed(ctx context.Context) (string, error) {
	left, err := one[int](ctx, s.db.SQL(), `SELECT count(*) FROM _honker_live`)
	if err != nil || left > 0 {
		return fmt.Sprint(left, " runs are left"), err
	}
	return "", nil
}

// checkFlows compares the runs with the ledgers.
func (s *storm) checkFlows() error {
	r := &reckoning{storm: s, noted: map[string]map[int64]int{}}
	ctx := context.Background()
	if err := r.readLedgers(); err != nil {
		return err
	}
	r.countLost()
	r.faults = append(r.faults, r.startedRuns(ctx), r.flowEffects(ctx), r.flowSteps(), s.db.Check(ctx))
	return errors.Join(r.faults...)
}

// startedRuns checks that the runs of the ledgers exist, and ended as they should.
func (r *reckoning) startedRuns(ctx context.Context) error {
	runs := testkit.Either(`_honkerx_flow_runs`, `flow_run`)
	found, err := r.tally(ctx, `SELECT CAST(id AS BIGINT) FROM `+runs+` WHERE flow = 'outer'`)
	if err != nil {
		return err
	}
	done, err := r.tally(ctx, fmt.Sprintf(`SELECT CAST(id AS BIGINT) FROM %s WHERE flow = 'outer'
  AND coalesce(outcome, '') = CASE WHEN CAST(id AS BIGINT) %% %d = %d THEN '' ELSE 'done' END`, runs, shapes, undone))
	if err != nil {
		return err
	}
	r.Add("runs", int64(len(found)))
	for n := range found {
		if done[n] == 0 {
			r.Add("stuck", 1)
			err = fmt.Errorf("run %d has not ended as it should", n)
		}
		if shapeOf(n) == undone && r.noted[undoRan][n] == 0 {
			r.Add("not_undone", 1)
			err = fmt.Errorf("run %d was not undone", n)
		}
	}
	return errors.Join(err, r.compare("run", r.noted[runAcked], r.noted[runMeant], found, true))
}

// flowEffects checks that each effect happened exactly once.
func (r *reckoning) flowEffects(ctx context.Context) error {
	rows, err := r.tally(ctx, `SELECT run FROM flow_effects`)
	if err != nil {
		return err
	}
	twice, err := column[int64](ctx, r.db.SQL(), `SELECT run FROM flow_effects GROUP BY run, step HAVING count(*) > 1`)
	r.Add("duplicates", int64(len(twice)))
	r.Add("effects", 0)
	if err == nil && len(twice) > 0 {
		err = fmt.Errorf("run %d has an effect twice", twice[0])
	}
	for n, times := range rows {
		r.Add("effects", int64(times))
		if times != effectsOf(n) {
			err = errors.Join(err, fmt.Errorf("run %d has %d effects, not %d", n, times, effectsOf(n)))
		}
	}
	return err
}

// flowSteps checks that each step ran, and did not run after its end unless its process had lost the claim. A step that ran
// again was killed.
func (r *reckoning) flowSteps() (err error) {
	for n := range r.noted[runAcked] {
		for i := range stepsOf(n) {
			times := r.noted[stepRan][stepNumber(n, i)]
			if times == 0 {
				r.Add("lost_steps", 1)
				err = fmt.Errorf("step %d of run %d did not run", i, n)
			}
			r.Add("steps", 1)
			r.Add("killed_steps", max(0, int64(times-1-r.noted[claimLost][stepNumber(n, i)])))
		}
	}
	for number := range r.noted[stepLate] {
		if r.noted[claimLost][number] == 0 {
			r.Add("late_steps", 1)
			err = fmt.Errorf("step %d of run %d ran after its end", number%perRun, number/perRun)
		}
	}
	r.Add("claims_lost", int64(len(r.noted[claimLost])))
	return err
}
