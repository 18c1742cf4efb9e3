package honkertest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// Handler is a handler of jobs, as [honker.Queue.Work] takes it.
type Handler[T any] = func(context.Context, *honker.Job[T]) error

// HandlerTx is a handler of jobs, as [honker.Queue.WorkTx] takes it.
type HandlerTx[T any] = func(context.Context, *sql.Tx, *honker.Job[T]) error

// handler is either of them.
type handler[T any] struct {
	fn   HandlerTx[T] // with a nil tx outside of WorkTx
	inTx bool
}

func handlerOf[T any](t testing.TB, fn Handler[T]) handler[T] {
	t.Helper()
	requireHandler(t, fn != nil)
	return handler[T]{fn: func(ctx context.Context, _ *sql.Tx, job *honker.Job[T]) error { return fn(ctx, job) }}
}

func handlerTxOf[T any](t testing.TB, fn HandlerTx[T]) handler[T] {
	t.Helper()
	requireHandler(t, fn != nil)
	return handler[T]{fn, true}
}

// workDue runs h for what is due on q.
func (h handler[T]) workDue(ctx context.Context, q *honker.Queue[T], opts *honker.WorkOptions) (int, error) {
	if h.inTx {
		return q.WorkDueTx(ctx, h.fn, opts)
	}
	return q.WorkDue(ctx, func(ctx context.Context, job *honker.Job[T]) error { return h.fn(ctx, nil, job) }, opts)
}

// Wrap returns fn in the middleware that production has in its [honker.WorkOptions]. The first is the
// outermost.
func Wrap[T any](fn Handler[T], middleware ...honker.Middleware) Handler[T] {
	return func(ctx context.Context, job *honker.Job[T]) error {
		run := func(ctx context.Context, _ *honker.JobInfo) error { return fn(ctx, job) }
		for _, wrap := range slices.Backward(middleware) {
			run = wrap(run)
		}
		return run(ctx, &job.JobInfo)
	}
}

// Performed is what became of one attempt at a job.
type Performed struct {
	ID       int64
	Outcome  honker.Outcome
	Err      error            // of an attempt that failed: what the handler returned, with the stack of a panic, or the timeout; ErrClaimLost
	NextAt   time.Time        // of a job that waits again
	Result   json.RawMessage  // what SetResult has saved; nil: nothing
	Enqueued []honker.JobInfo // jobs of any queue that were added meanwhile, and are not done
}

// Perform enqueues a job and has fn handle it at once, before all others of q and however long it was
// to wait: once, as by [honker.Queue.Work], with the arguments as they come back from JSON, the
// Timeout of the queue, panics contained, and settled by what fn returns, with the queue's
// Backoff. A job that is to run again, or is dead, stays in the file.
//
// The handler runs in the test's goroutine, so it may end the test. The test fails now if the job
// cannot be run: its queue is paused, or a worker has taken it.
func Perform[T any](t testing.TB, q *honker.Queue[T], args T, fn Handler[T], opts ...honker.EnqueueOption) Performed {
	t.Helper()
	h := handlerOf(t, fn)
	return perform(t, q, enqueue(t, q, args, opts), h)
}

// PerformTx is [Perform] of a handler of [honker.Queue.WorkTx]: it runs in a transaction in which the job is acked, as in
// production, or which is rolled back.
func PerformTx[T any](t testing.TB, q *honker.Queue[T], args T, fn HandlerTx[T], opts ...honker.EnqueueOption) Performed {
	t.Helper()
	h := handlerTxOf(t, fn)
	return perform(t, q, enqueue(t, q, args, opts), h)
}

// requireHandler tells a nil handler from one that panics.
func requireHandler(t testing.TB, given bool) {
	t.Helper()
	if !given {
		t.Fatalf("honkertest: nil handler")
	}
}

func enqueue[T any](t testing.TB, q *honker.Queue[T], args T, opts []honker.EnqueueOption) int64 {
	t.Helper()
	id, err := q.Enqueue(t.Context(), args, opts...)
	if err != nil {
		t.Fatalf("honkertest: %v", explain(err))
	}
	return id
}

// perform runs one attempt at job id.
func perform[T any](t testing.TB, q *honker.Queue[T], id int64, h handler[T]) Performed {
	t.Helper()
	ctx, db := t.Context(), q.DB()
	asked, moved, err := moveFirst(ctx, db, id)
	if err != nil {
		t.Fatalf("honkertest: job %d of %q is not there to be performed: %v", id, q.Name(), err)
	}
	before, err := readState(ctx, db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	a := attemptNext(t, q, handler[T]{inTx: h.inTx, fn: func(ctx context.Context, tx *sql.Tx, job *honker.Job[T]) error {
		if job.ID != id {
			return honker.Snooze(0) // another one was put before it meanwhile
		}
		job.Priority, job.RunAt = asked.Priority, asked.RunAt
		return h.fn(ctx, tx, job)
	}})
	if err := moveBack(ctx, db, asked, moved); err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	if a == nil || a.job.ID != id {
		t.Fatalf("honkertest: not performed, because no claim has found it: %s", describe(asked))
	}
	p, err := a.performed(ctx, db, before)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return p
}

// The first in the order of claims: priority, time, id.
const sqlMoveFirst = `UPDATE _honker_live SET priority = (SELECT max(priority) FROM _honker_live WHERE queue = ?2),
  run_at = min(?3, (SELECT min(run_at) FROM _honker_live WHERE queue = ?2) - 1)
WHERE id = ?1 RETURNING run_at`

// moveFirst lets the next claim find job id. It returns the job as it was asked for.
func moveFirst(ctx context.Context, db *honker.DB, id int64) (asked *honker.JobInfo, moved int64, err error) {
	if asked, err = db.Job(ctx, id); err != nil {
		return nil, 0, err
	}
	if asked.Phase == honker.PhaseRunning {
		return nil, 0, fmt.Errorf("the worker %s has taken it", asked.WorkerID)
	}
	err = each(ctx, db.SQL(), sqlMoveFirst, func(rows *sql.Rows) error { return rows.Scan(&moved) }, id, asked.Queue, time.Now().Unix())
	return asked, moved, err
}

// moveBack undoes moveFirst, wherever the job is now.
func moveBack(ctx context.Context, db *honker.DB, asked *honker.JobInfo, moved int64) error {
	for _, table := range []string{"_honker_live", "_honker_dead"} {
		_, err := db.SQL().ExecContext(ctx, `UPDATE `+table+` SET priority = ?2, run_at = iif(run_at = ?3, ?4, run_at) WHERE id = ?1`,
			asked.ID, asked.Priority, moved, asked.RunAt.Unix())
		if err != nil {
			return err
		}
	}
	return nil
}

// attempt is what a test sees of one attempt at a job.
type attempt struct {
	job       honker.JobInfo // as it was claimed
	inTx      bool           // in which an ack that finds the claim gone is a failure of the handler
	returned  error          // by the handler
	errs      []error        // that Work has reported
	cancelled bool           // the handler was told so
	after     *honker.JobInfo
}

// attemptNext has h handle the job of q that a claim finds; nil: none is due.
func attemptNext[T any](t testing.TB, q *honker.Queue[T], h handler[T]) *attempt {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var a *attempt
	once := handler[T]{inTx: h.inTx, fn: func(ctx context.Context, tx *sql.Tx, job *honker.Job[T]) error {
		a = &attempt{job: job.JobInfo, inTx: h.inTx}
		defer stop() // no second one
		a.returned = h.fn(ctx, tx, job)
		a.cancelled = errors.Is(context.Cause(ctx), honker.ErrCancelled)
		return a.returned
	}}
	onError := func(_ context.Context, job *honker.JobInfo, err error) {
		if a == nil { // its payload does not decode
			a = &attempt{job: *job, returned: err}
			stop()
		}
		a.errs = append(a.errs, err)
	}
	_, err := once.workDue(ctx, q, &honker.WorkOptions{OnError: onError})
	if a == nil && err == nil {
		return nil
	}
	if err == nil || errors.Is(err, context.Canceled) && a != nil && t.Context().Err() == nil {
		a.after, err = findJob(t.Context(), q.DB(), a.job.ID)
	}
	if err != nil {
		t.Fatalf("honkertest: %v", explain(err))
	}
	return a
}

// outcome is how the claim has ended, by what is in the file.
func (a *attempt) outcome() honker.Outcome {
	switch {
	case a.lost():
		return honker.OutcomeLost
	case a.cancelled && a.after == nil:
		return honker.OutcomeCancelled
	case a.after == nil, a.after.Phase == honker.PhaseDone: // where done jobs are kept
		return honker.OutcomeAcked
	case a.after.State == honker.StateDead:
		return honker.OutcomeDied
	case a.after.State == honker.StateProcessing:
		return honker.OutcomeLost // another one has it
	case a.after.Attempts < a.job.Attempts:
		return honker.OutcomeSnoozed
	}
	return honker.OutcomeRetried
}

// lost reports that the settle has found the claim gone: then Work reports that, beside what the
// handler has returned.
func (a *attempt) lost() bool {
	n := len(a.errs)
	return n > 0 && a.errs[n-1] == honker.ErrClaimLost && (n > 1 || !a.inTx && a.returned != honker.ErrClaimLost)
}

// performed is what became of the attempt, and what was added since before.
func (a *attempt) performed(ctx context.Context, db *honker.DB, before *state) (Performed, error) {
	p := Performed{ID: a.job.ID, Outcome: a.outcome()}
	if len(a.errs) > 0 {
		p.Err = a.errs[0]
	}
	if a.after != nil && a.after.State == honker.StatePending {
		p.NextAt = a.after.RunAt
	}
	var err error
	if p.Result, err = honker.Result[json.RawMessage](ctx, db, p.ID); err != nil && !errors.Is(err, honker.ErrNotFound) {
		return p, err
	}
	after, err := readState(ctx, db)
	if err != nil {
		return p, err
	}
	p.Enqueued = added(before.live, after.live)
	return p, nil
}

// TwicePerform is [Perform] of a handler that is interrupted by a crash after its work and before its
// ack, and so runs twice. The test fails if the second run has changed more than its own job: rows
// of the application's tables, jobs, events of streams, messages of a relay. The failure tells of
// the rows.
//
// It shows what a handler writes to this file. What it does elsewhere the test counts itself. A row
// that is written again with another time is a change: job.CreatedAt is the same in both runs. A
// handler that acks its job in a transaction of its own, by AckTx, runs once: no crash comes
// between the two, nor does one in a handler of WorkTx, for which [PerformTx] will do. The test fails now when a run fails.
func TwicePerform[T any](t testing.TB, q *honker.Queue[T], args T, fn Handler[T], opts ...honker.EnqueueOption) Performed {
	t.Helper()
	h := handlerOf(t, fn)
	db, id := q.DB(), enqueue(t, q, args, opts)
	var once []string
	first := perform(t, q, id, handlerOf(t, func(ctx context.Context, job *honker.Job[T]) error {
		if err := fn(ctx, job); err != nil {
			return err
		}
		once = contents(t, db, id)
		_, err := lapse(t.Context(), db, id)
		return err
	}))
	if first.Outcome == honker.OutcomeAcked {
		return first
	}
	if first.Outcome != honker.OutcomeLost {
		t.Fatalf("honkertest: the first run has not succeeded: %s: %v", first.Outcome, first.Err)
	}
	second := perform(t, q, id, h)
	if second.Outcome != honker.OutcomeAcked {
		t.Fatalf("honkertest: the second run has not succeeded: %s: %v", second.Outcome, second.Err)
	}
	if changed := lineDiff(once, contents(t, db, id)); changed != "" {
		t.Errorf("honkertest: the second run of job %d of %q has changed more (-before +after):\n%s", id, q.Name(), changed)
	}
	return second
}

// explain adds to an error what a test can do about it.
func explain(err error) error {
	if errors.Is(err, honker.ErrBusy) {
		return fmt.Errorf("%w (inside of DB.Tx it waits for its own caller: call it after the commit)", err)
	}
	return err
}
