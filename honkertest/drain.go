package honkertest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// Drain works off what is due on q now, one job at a time in the test's goroutine, and returns
// the number of attempts. Jobs are handled and settled as by [honker.Queue.Work]: what fn
// returns, its panics, the queue's Timeout and Backoff mean the same. A job that fn fails is due
// again by Backoff, so not in this Drain unless there is no delay.
func Drain[T any](t testing.TB, q *honker.Queue[T], fn Handler[T]) int {
	t.Helper()
	return work(t, q, handlerOf(t, fn))
}

// DrainTx is [Drain] with a handler of [honker.Queue.WorkTx].
func DrainTx[T any](t testing.TB, q *honker.Queue[T], fn HandlerTx[T]) int {
	t.Helper()
	return work(t, q, handlerTxOf(t, fn))
}

func work[T any](t testing.TB, q *honker.Queue[T], h handler[T]) int {
	t.Helper()
	ran, err := h.workDue(t.Context(), q, nil)
	if err != nil {
		t.Fatalf("honkertest: %v", explain(err))
	}
	return ran
}

// Handlers are the queues that [DrainAll] works off, each with its handler.
type Handlers []Handled

// Handled is a queue with its handler; see [Handle] and [HandleTx].
type Handled struct {
	db    *honker.DB
	queue string
	next  func(t testing.TB) *attempt
}

// Handle makes fn the handler of q, for [DrainAll].
func Handle[T any](q *honker.Queue[T], fn Handler[T]) Handled {
	return handled(q, func(t testing.TB) handler[T] { t.Helper(); return handlerOf(t, fn) })
}

// HandleTx makes fn the handler of q, for [DrainAll], as one of [honker.Queue.WorkTx].
func HandleTx[T any](q *honker.Queue[T], fn HandlerTx[T]) Handled {
	return handled(q, func(t testing.TB) handler[T] { t.Helper(); return handlerTxOf(t, fn) })
}

func handled[T any](q *honker.Queue[T], of func(t testing.TB) handler[T]) Handled {
	return Handled{db: q.DB(), queue: q.Name(), next: func(t testing.TB) *attempt { t.Helper(); return attemptNext(t, q, of(t)) }}
}

// DrainOptions of one DrainAll. The zero value of a field means its default.
type DrainOptions struct {
	Scheduled bool // also jobs that wait for their time, the earliest first
	Retries   bool // also jobs that wait between two attempts, or were snoozed
	Limit     int  // of calls of handlers, beyond which the test fails now; default 10,000
}

// DrainResult counts what became of the attempts of a DrainAll.
type DrainResult struct {
	Acked, Retried, Snoozed, Dead int

	Left int // jobs of the file that are live afterwards, of any queue
}

// DrainAll works off the queues of h until nothing is due on any of them, one job at a time in the
// test's goroutine, as [Drain] does: also what the handlers enqueue. nil opts means defaults.
//
// With Scheduled and Retries it goes on with what is due next, without waiting for it. In a bubble
// of testing/synctest time passes until then, for all jobs, leases and schedules; outside of one
// the job alone is made due.
func DrainAll(t testing.TB, db *honker.DB, h Handlers, opts *DrainOptions) DrainResult {
	t.Helper()
	d := &drain{handlers: h, ran: make(map[int64]bool)}
	if opts != nil {
		d.DrainOptions = *opts
	}
	d.Limit = cmp.Or(d.Limit, 10_000)
	for _, handled := range h {
		if handled.db != db {
			t.Fatalf("honkertest: queue %q is of another DB", handled.queue)
		}
	}
	for d.due(t) || d.advance(t, db) {
	}
	left, err := readJobs(t.Context(), db.SQL(), allLive)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	d.result.Left = len(left)
	return d.result
}

// drain is a running DrainAll.
type drain struct {
	DrainOptions
	handlers Handlers
	ran      map[int64]bool // jobs that were handled
	calls    int
	result   DrainResult
}

// due handles what is due, and returns whether there was any.
func (d *drain) due(t testing.TB) (found bool) {
	t.Helper()
	for _, handled := range d.handlers {
		for a := handled.next(t); a != nil; a = handled.next(t) {
			found = true
			d.count(a)
			if d.calls++; d.calls >= d.Limit {
				t.Fatalf("honkertest: %d jobs were handled, and it is not quiet yet; the last: %s, %s", d.calls, describe(&a.job), a.outcome())
			}
		}
	}
	return found
}

func (d *drain) count(a *attempt) {
	d.ran[a.job.ID] = true
	switch a.outcome() {
	case honker.OutcomeAcked:
		d.result.Acked++
	case honker.OutcomeRetried:
		d.result.Retried++
	case honker.OutcomeSnoozed:
		d.result.Snoozed++
	case honker.OutcomeDied:
		d.result.Dead++
	}
}

// advance lets the next job that the options want be due, and returns whether there is one.
func (d *drain) advance(t testing.TB, db *honker.DB) bool {
	t.Helper()
	if !d.Scheduled && !d.Retries {
		return false
	}
	jobs, err := readJobs(t.Context(), db.SQL(), allWaiting)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	jobs = slices.DeleteFunc(jobs, func(j honker.JobInfo) bool { return !d.wants(&j) })
	if len(jobs) == 0 {
		return false
	}
	next := slices.MinFunc(jobs, func(a, b honker.JobInfo) int { return a.RunAt.Compare(b.RunAt) })
	if err := until(t.Context(), db, &next); err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return true
}

func (d *drain) wants(j *honker.JobInfo) bool {
	if j.Phase != honker.PhaseScheduled || !slices.ContainsFunc(d.handlers, func(h Handled) bool { return h.queue == j.Queue }) {
		return false
	}
	if j.Attempts > 0 || d.ran[j.ID] {
		return d.Retries
	}
	return d.Scheduled
}

// until lets time pass until a job is due, or where it does not, makes it due.
func until(ctx context.Context, db *honker.DB, j *honker.JobInfo) error {
	if inBubble() {
		time.Sleep(time.Until(j.RunAt))
		return nil
	}
	_, err := db.SQL().ExecContext(ctx, `UPDATE _honker_live SET run_at = ?2 WHERE id = ?1`, j.ID, time.Now().Unix())
	return err
}
