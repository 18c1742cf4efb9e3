//go:build unix

package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/internal/testkit"
)

// Dispatches checks the guarantees of package dispatch. Each job ends exactly once, whichever
// queues have a copy of it, and no job gets stuck. Stopped jobs do not end, and effects of FinishTx
// happen once. Rounds kill or suspend processes and crash the server, cut the power, or let the disk
// fail.
func Dispatches(ctx context.Context, r *Round) error {
	for _, name := range []string{"acked_lost", "phantoms", "duplicates", "stopped_ran", "hung"} {
		r.Add(name, 0)
	}
	switch kind := r.Seed % 3; {
	case kind == 0 || !testkit.OnFile():
		return dispatchKills(ctx, r)
	case kind == 1:
		return dispatchCuts(ctx, r)
	default:
		return dispatchFaults(ctx, r)
	}
}

// dispatchParts returns the processes of a round of kills. The workers use only the old queue. A server
// has no other bindings.
func dispatchParts() [][]string {
	all := [][]string{{"supervisor", "actor"}, {"actor"}, {"supervisor", "old worker"}}
	if testkit.OnFile() {
		all = append(all, []string{"foreign worker"})
	}
	return all
}

const (
	dispatchLease = time.Second
	dispatchTTL   = time.Second // the minimum
)

// dispatchKills kills the processes, or suspends them for longer than a lease. Their ledgers
// contain each supervisor's intended and acknowledged operations.
func dispatchKills(ctx context.Context, r *Round) error {
	s := &storm{Round: r, parts: dispatchParts(), pause: 120 * time.Millisecond, span: 5 * time.Second, freeze: dispatchLease, rest: [][]string{{"actor"}, {"old worker"}}}
	s.left, s.check = s.dispatched, s.checkDispatch
	return s.run(ctx)
}

// dispatched describes the jobs that are left, or returns "".
func (s *storm) dispatched(ctx context.Context) (string, error) {
	left, err := one[int](ctx, s.db.SQL(), `SELECT count(*) FROM _honker_live WHERE queue <> 'replies'`)
	if err != nil || left > 0 {
		return fmt.Sprint(left, " jobs are left"), err
	}
	return s.pending(ctx)
}

// Kinds of notes in the ledgers, besides those of roles.go: jobs to be stopped and jobs stopped,
// tasks begun and tasks known to have ended, actors told to end, and names already taken.
const (
	stopMeant, stopDone   = "stop?", "stop"
	taskBegun, taskEnded  = "begun", "ended"
	actorEnded, nameTaken = "actor", "taken"
)

// pinned is the instance to which some jobs are sent by name. Each process with actors tries to
// take this name.
const pinned = "0"

const oldQueue = "hero:job:actor_queue:osis"

// Some jobs end in a transaction with an effect, and some request a reply.
func hasEffect(n int64) bool  { return n%2 == 1 }
func wantsReply(n int64) bool { return n%8 == 5 }

func (a *actor) dispatcher(p dispatch.AbsentPolicy) *dispatch.Dispatcher {
	return dispatch.New(a.db, &dispatch.Options{Prios: 2, Legacy: dispatch.LegacyDualPush, IfAbsent: p, Log: true, TTL: dispatchTTL})
}

// supervisor is an actor in the role of a supervisor, with its random source.
type supervisor struct {
	*actor
	d    *dispatch.Dispatcher
	luck *rand.Rand
}

// supervise sends jobs in all supported ways, each after the previous commit, and controls the
// actors.
func (a *actor) supervise(ctx context.Context) error {
	luck := rand.New(rand.NewPCG(uint64(a.Number), 7))
	s := &supervisor{a, a.dispatcher(dispatch.AbsentPolicy(luck.IntN(2))), luck}
	ways := []func(context.Context) error{s.dispatchOne, s.dispatchOne, s.dispatchOne, s.dispatchInTx, s.dispatchInTx, s.dispatchDoomed, s.stopOne, s.stopOne, s.change}
	for ctx.Err() == nil {
		if err := ways[luck.IntN(len(ways))](ctx); err != nil {
			return err
		}
		time.Sleep(time.Duration(luck.IntN(6000)) * time.Microsecond)
	}
	return nil
}

func (s *supervisor) options(n int64) []dispatch.SendOption {
	all := []dispatch.SendOption{dispatch.With(honker.MaxAttempts(1 << 20))}
	if wantsReply(n) {
		all = append(all, dispatch.ReplyTo("replies"))
	}
	return all
}

// target returns the type, the group, or the pinned instance.
func (s *supervisor) target() dispatch.Target {
	t := dispatch.Target{Type: "osis", Prio: s.luck.IntN(2)}
	switch s.luck.IntN(6) {
	case 0:
		t.Group = dispatch.DefaultGroup
	case 1:
		t.Instance = pinned
	}
	return t
}

func (s *supervisor) dispatch(ctx context.Context) (id, n int64, err error) {
	n = s.number()
	err = s.write([]int64{n}, func() error { id, err = s.d.Send(ctx, s.target(), n, s.options(n)...); return err }, jobAcked)
	return id, n, err
}

func (s *supervisor) dispatchOne(ctx context.Context) error {
	_, _, err := s.dispatch(ctx)
	return err
}

// dispatchInTx sends a job in a transaction that also inserts a row of the application.
func (s *supervisor) dispatchInTx(ctx context.Context) error {
	n := s.number()
	return s.write([]int64{n}, func() error { return s.dispatchWithRow(ctx, n, nil) }, jobAcked)
}

func (s *supervisor) dispatchDoomed(ctx context.Context) error {
	n := s.number()
	s.note(doomed, n)
	return ignore(s.dispatchWithRow(ctx, n, errOnPurpose), errOnPurpose)
}

func (s *supervisor) dispatchWithRow(ctx context.Context, n int64, end error) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, n); err != nil {
			return err
		}
		_, err := s.d.SendTx(ctx, tx, s.target(), n, s.options(n)...)
		return errors.Join(err, end)
	})
}

// stopOne sends a job and stops it before it begins, while it runs, or after it has ended.
func (s *supervisor) stopOne(ctx context.Context) error {
	id, n, err := s.dispatch(ctx)
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(s.luck.IntN(12_000)) * time.Microsecond)
	s.note(stopMeant, n)
	stopped, err := s.d.StopJob(ctx, id)
	if stopped {
		s.note(stopDone, n)
	}
	return err
}

// change controls the actors, or changes whether the old queue is written.
func (s *supervisor) change(ctx context.Context) (err error) {
	to := dispatch.Target{Type: "osis"}
	switch s.luck.IntN(12) {
	case 0:
		_, err = s.d.Stop(ctx, to)
	case 1:
		if _, err = s.d.Pause(ctx, to); err == nil {
			_, err = s.d.Resume(ctx, to)
		}
	case 2:
		answer, end := context.WithTimeout(ctx, 50*time.Millisecond)
		defer end()
		_, err = s.d.Ping(answer, to) // actors that are dead do not answer
		err = ignore(err, context.DeadlineExceeded)
	case 3, 4:
		err = s.d.SetLegacy(dispatch.LegacyMode(s.luck.IntN(3)))
	case 5, 6, 7, 8:
		err = s.d.SetLegacy(dispatch.LegacyDualPush)
	}
	return err
}

// perform runs an actor with a unique name and an actor that tries to take the pinned name.
func (a *actor) perform(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, instance := range []string{strconv.Itoa(a.Number), pinned} {
		all.Go(func() { errs[i] = a.performAs(ctx, instance) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// performAs runs an actor, and restarts it when it was told to end.
func (a *actor) performAs(ctx context.Context, instance string) error {
	id := dispatch.Identity{Type: "osis", Group: dispatch.DefaultGroup, Instance: instance}
	o := &dispatch.ActorOptions{Workers: 2, Lease: dispatchLease, Backoff: honker.Constant(0)}
	d := a.dispatcher(dispatch.Wait)
	for ctx.Err() == nil {
		err := dispatch.NewActor(d, id, a.runTask(id), o).Run(ctx)
		switch {
		case errors.Is(err, dispatch.ErrInstanceTaken):
			a.note(nameTaken, 1)
			time.Sleep(20 * time.Millisecond)
		case err != nil:
			if err := a.survive(err); err != nil {
				return err
			}
		case ctx.Err() == nil:
			a.note(actorEnded, 1)
		}
	}
	return nil
}

// runTask returns the handler of an actor. A few tasks fail at first and a few are rejected.
func (a *actor) runTask(id dispatch.Identity) func(context.Context, *dispatch.Task[int64]) (any, error) {
	return func(ctx context.Context, t *dispatch.Task[int64]) (any, error) {
		n, to := t.Args, t.Target
		if to.Instance != "" && to.Instance != id.Instance || to.Group != "" && to.Group != id.Group {
			testkit.Must(fmt.Errorf("%v received a task for %v", id, to))
		}
		if err := a.begin(n, t.Attempt); err != nil || !hasEffect(n) {
			return n, err
		}
		err := a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, n)
			return errors.Join(err, t.FinishTx(ctx, tx, n))
		})
		if err == nil {
			a.note(taskEnded, n)
		}
		return nil, err
	}
}

// begin notes the start of a task, and returns the error with which it ends.
func (a *actor) begin(n int64, attempt int) error {
	a.note(taskBegun, n)
	switch {
	case isRejected(n):
		return honker.Reject(errOnPurpose)
	case failsFirst(n) && attempt == 1:
		return errOnPurpose
	case n%4 == 0:
		time.Sleep(5 * time.Millisecond) // makes it likely that the process is suspended or killed here
	}
	return nil
}

// workOld runs a worker of the old queue that does not use dispatch.
func (a *actor) workOld(ctx context.Context) error {
	q := honker.NewQueue[int64](a.db, oldQueue, &honker.QueueOptions{Backoff: honker.Constant(0)})
	return q.Work(ctx, func(ctx context.Context, job *honker.Job[int64]) error {
		n := job.Args
		if err := errors.Join(a.begin(n, job.Attempts), job.SetResult(n)); err != nil || !hasEffect(n) {
			return err
		}
		err := a.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, n)
			return errors.Join(err, job.AckTx(ctx, tx))
		})
		if err == nil {
			a.note(taskEnded, n)
		}
		return err
	}, &honker.WorkOptions{Workers: 2, Lease: dispatchLease})
}

// workForeign runs a worker of another binding on the old queue. It polls with honker's own SQL.
func (a *actor) workForeign(ctx context.Context) error {
	pool, err := testkit.BindingPool(a.Path)
	if err != nil {
		return err
	}
	defer pool.Close()
	name := fmt.Sprint("python", a.Number)
	for ctx.Err() == nil {
		jobs, err := testkit.ClaimAs(ctx, pool, oldQueue, name, 3, int(dispatchLease/time.Second))
		if err != nil {
			return err
		}
		for _, job := range jobs {
			if err := a.runForeign(ctx, pool, name, job); err != nil {
				return err
			}
		}
		time.Sleep(3 * time.Millisecond)
	}
	return nil
}

func (a *actor) runForeign(ctx context.Context, pool *sql.DB, worker string, job testkit.BindingJob) error {
	n, err := strconv.ParseInt(job.Payload, 10, 64)
	if err != nil {
		return err
	}
	fate := a.begin(n, 2) // as a second attempt, which does not fail: a retry of the binding would come too late
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	held, err := a.endForeign(ctx, tx, worker, job.ID, n, fate)
	if err != nil || !held {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if fate == nil {
		a.note(taskEnded, n)
	}
	return nil
}

// endForeign ends a job with its result and its effect if the worker still holds it.
func (a *actor) endForeign(ctx context.Context, tx *sql.Tx, worker string, id, n int64, fate error) (held bool, err error) {
	if fate != nil {
		return testkit.FailAs(ctx, tx, id, worker, fate.Error())
	}
	if held, err = testkit.AckAs(ctx, tx, id, worker); err != nil || !held {
		return false, err
	}
	if hasEffect(n) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, n); err != nil {
			return false, err
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO _honker_results (job_id, value) VALUES (?, ?)`, id, strconv.FormatInt(n, 10))
	return true, err
}
