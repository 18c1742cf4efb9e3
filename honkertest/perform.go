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
	"github.com/honker-go/honker/internal/engine"
)

// Handler is a job handler, as passed to [honker.Queue.Work].
type Handler[T any] = func(context.Context, *honker.Job[T]) error

// HandlerTx is a job handler, as passed to [honker.Queue.WorkTx].
type HandlerTx[T any] = func(context.Context, *sql.Tx, *honker.Job[T]) error

// handler is a Handler or a HandlerTx.
type handler[T any] struct {
	fn   HandlerTx[T] // tx is nil unless inTx is set
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

// workDue runs h for q's due jobs.
func (h handler[T]) workDue(ctx context.Context, q *honker.Queue[T], opts *honker.WorkOptions) (int, error) {
	if h.inTx {
		return q.WorkDueTx(ctx, h.fn, opts)
	}
	return q.WorkDue(ctx, func(ctx context.Context, job *honker.Job[T]) error { return h.fn(ctx, nil, job) }, opts)
}

// Wrap returns fn wrapped in middleware, as [honker.WorkOptions] does in production. The first
// middleware is the outermost.
func Wrap[T any](fn Handler[T], middleware ...honker.Middleware) Handler[T] {
	return func(ctx context.Context, job *honker.Job[T]) error {
		run := func(ctx context.Context, _ *honker.JobInfo) error { return fn(ctx, job) }
		for _, wrap := range slices.Backward(middleware) {
			run = wrap(run)
		}
		return run(ctx, &job.JobInfo)
	}
}

// Performed is the result of an attempt at a job.
type Performed struct {
	ID       int64
	Outcome  honker.Outcome
	Err      error            // why the attempt failed: the handler's error, a panic with its stack trace, a timeout, or ErrClaimLost
	NextAt   time.Time        // time of the next attempt; zero if there is none
	Result   json.RawMessage  // result saved by SetResult; nil if there is none
	Enqueued []honker.JobInfo // live jobs that were added to any queue during the attempt
}

// Perform enqueues a job and runs fn for it immediately, even if the job has a delay or q has other
// jobs. It makes a single attempt with the semantics of [honker.Queue.Work]: arguments are decoded
// from JSON, the queue's Timeout applies, panics are recovered, and the job is settled according to
// the error, using the queue's Backoff. If the job has to run again or is dead, it remains in the
// database.
//
// The handler runs in the test's goroutine and may end the test. Perform calls t.Fatal if the job
// cannot be run because its queue is paused or a worker has claimed it.
func Perform[T any](t testing.TB, q *honker.Queue[T], args T, fn Handler[T], opts ...honker.EnqueueOption) Performed {
	t.Helper()
	h := handlerOf(t, fn)
	return perform(t, q, enqueue(t, q, args, opts), h)
}

// PerformTx is like [Perform] but takes a handler for [honker.Queue.WorkTx]. As in production, the
// handler runs in a transaction that either also acks the job or is rolled back.
func PerformTx[T any](t testing.TB, q *honker.Queue[T], args T, fn HandlerTx[T], opts ...honker.EnqueueOption) Performed {
	t.Helper()
	h := handlerTxOf(t, fn)
	return perform(t, q, enqueue(t, q, args, opts), h)
}

// requireHandler fails the test if the handler is nil. The nil dereference would otherwise look
// like a panic in the handler.
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

// perform makes a single attempt at job id.
func perform[T any](t testing.TB, q *honker.Queue[T], id int64, h handler[T]) Performed {
	t.Helper()
	ctx, db := t.Context(), q.DB()
	before, err := readState(ctx, db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	asked, moved, err := moveFirst(ctx, db, id, before.live)
	if err != nil {
		t.Fatalf("honkertest: job %d of %q cannot be performed: %v", id, q.Name(), err)
	}
	a := attemptNext(t, q, handler[T]{inTx: h.inTx, fn: func(ctx context.Context, tx *sql.Tx, job *honker.Job[T]) error {
		if job.ID != id {
			return honker.Snooze(0) // another job has since moved ahead
		}
		job.Priority, job.RunAt = asked.Priority, asked.RunAt
		return h.fn(ctx, tx, job)
	}})
	if err := moveBack(ctx, db, asked, moved); err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	if a == nil || a.job.ID != id {
		t.Fatalf("honkertest: not performed, because no claim returned it: %s", describe(asked))
	}
	p, err := a.performed(ctx, db, before)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return p
}

// moveFirst makes job id the next to be claimed of the live jobs. The order of claims is by priority, time and ID.
// moveFirst returns the job as it was enqueued, and its new time.
func moveFirst(ctx context.Context, db *honker.DB, id int64, live []honker.JobInfo) (asked *honker.JobInfo, moved time.Time, err error) {
	if asked, err = db.Job(ctx, id); err != nil {
		return nil, moved, err
	}
	if asked.Phase == honker.PhaseRunning {
		return nil, moved, fmt.Errorf("worker %s has claimed it", asked.WorkerID)
	}
	priority, first := asked.Priority, engine.Of(db).Now()
	for _, j := range live {
		if j.Queue == asked.Queue {
			priority = max(priority, j.Priority)
			first = earlier(first, j.RunAt)
		}
	}
	moved = first.Add(-time.Second).Truncate(time.Second)
	return asked, moved, place(ctx, db, asked, priority, asked.RunAt, moved)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// moveBack undoes moveFirst, whether the job is live or dead. A time that its settle has set remains.
func moveBack(ctx context.Context, db *honker.DB, asked *honker.JobInfo, moved time.Time) error {
	return place(ctx, db, asked, asked.Priority, moved, asked.RunAt)
}

// place sets the priority of a live or dead job, and its time from was to at. If its time is not was,
// it remains.
func place(ctx context.Context, db *honker.DB, j *honker.JobInfo, priority int, was, at time.Time) error {
	names, err := tablesOf(ctx, db)
	if err != nil {
		return err
	}
	for _, table := range []string{names.live, names.dead} {
		_, err := db.SQL().ExecContext(ctx, `UPDATE `+table+` SET priority = $2, run_at = CASE run_at WHEN $3 THEN $4 ELSE run_at END WHERE id = $1`,
			j.ID, priority, names.time(was), names.time(at))
		if err != nil {
			return err
		}
	}
	return nil
}

// attempt records what happens during an attempt at a job.
type attempt struct {
	job       honker.JobInfo // as claimed
	inTx      bool           // the handler is for WorkTx, where losing the claim before the ack counts as a failed attempt
	returned  error          // error of the handler
	errs      []error        // reported by Work
	cancelled bool           // the handler's context was canceled because the job was cancelled
	after     *honker.JobInfo
}

// attemptNext runs h for the next due job in q. It returns nil if no job is due.
func attemptNext[T any](t testing.TB, q *honker.Queue[T], h handler[T]) *attempt {
	t.Helper()
	return attemptOnce(t, q.DB(), h.inTx, func(ctx context.Context, opts *honker.WorkOptions) (int, error) { return h.workDue(ctx, q, opts) })
}

// attemptOnce stops workDue after the first job. It returns nil if no job is due.
func attemptOnce(t testing.TB, db *honker.DB, inTx bool, workDue func(context.Context, *honker.WorkOptions) (int, error)) *attempt {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var a *attempt
	once := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error {
			a = &attempt{job: *job, inTx: inTx}
			defer stop()
			a.returned = next(ctx, job)
			a.cancelled = errors.Is(context.Cause(ctx), honker.ErrCancelled)
			return a.returned
		}
	}
	onError := func(_ context.Context, job *honker.JobInfo, err error) {
		if a == nil { // no handler was called
			a = &attempt{job: *job, returned: err}
			stop()
		}
		a.errs = append(a.errs, err)
	}
	_, err := workDue(ctx, &honker.WorkOptions{OnError: onError, Middleware: []honker.Middleware{once}})
	if a == nil && err == nil {
		return nil
	}
	if err == nil || errors.Is(err, context.Canceled) && a != nil && t.Context().Err() == nil {
		a.after, err = findJob(t.Context(), db, a.job.ID)
	}
	if err != nil {
		t.Fatalf("honkertest: %v", explain(err))
	}
	return a
}

// outcome derives the attempt's outcome from the job's state in the database.
func (a *attempt) outcome() honker.Outcome {
	switch {
	case a.lost():
		return honker.OutcomeLost
	case a.cancelled && a.after == nil:
		return honker.OutcomeCancelled
	case a.after == nil, a.after.Phase == honker.PhaseDone: // if the queue retains done jobs
		return honker.OutcomeAcked
	case a.after.State == honker.StateDead:
		return honker.OutcomeDied
	case a.after.State == honker.StateProcessing:
		return honker.OutcomeLost // claimed by another worker
	case a.after.Attempts < a.job.Attempts:
		return honker.OutcomeSnoozed
	}
	return honker.OutcomeRetried
}

// lost reports whether the claim was gone when the job was settled. In this case, Work reports
// ErrClaimLost in addition to the handler's error.
func (a *attempt) lost() bool {
	n := len(a.errs)
	return n > 0 && a.errs[n-1] == honker.ErrClaimLost && (n > 1 || !a.inTx && a.returned != honker.ErrClaimLost)
}

// performed returns the attempt's result, along with the jobs added since before.
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

// TwicePerform is like [Perform] but simulates a crash after the handler has done its work but
// before the ack, so the handler runs twice. It fails the test if the second run changes anything
// except its own job: rows in the application's tables, jobs, stream events or relay messages. The
// failure message shows these rows.
//
// TwicePerform compares only the contents of the database. The test must check other effects
// itself. Rows that contain the current time always differ; job.CreatedAt is the same in both runs.
// A handler that acks its job in its own transaction with AckTx runs only once, since a crash
// cannot separate its work from the ack. The same is true for a WorkTx handler, so [PerformTx] is
// sufficient for it. TwicePerform calls t.Fatal if a run fails.
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
		t.Fatalf("honkertest: the first run failed: %s: %v", first.Outcome, first.Err)
	}
	second := perform(t, q, id, h)
	if second.Outcome != honker.OutcomeAcked {
		t.Fatalf("honkertest: the second run failed: %s: %v", second.Outcome, second.Err)
	}
	if changed := lineDiff(once, contents(t, db, id)); changed != "" {
		t.Errorf("honkertest: the second run of job %d of %q made further changes (-before +after):\n%s", id, q.Name(), changed)
	}
	return second
}

// explain adds a hint to an error that is probably caused by a mistake in the test.
func explain(err error) error {
	if errors.Is(err, honker.ErrBusy) {
		return fmt.Errorf("%w (inside DB.Tx it would wait for its own caller; call it after the commit)", err)
	}
	return err
}
