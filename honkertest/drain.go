package honkertest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Drain runs q's due jobs sequentially in the test's goroutine and returns the number of attempts.
// Drain runs and settles jobs as [honker.Queue.Work] does, including the queue's Timeout and
// Backoff, and panic handling. A failed job becomes due again after its backoff, so Drain runs it
// again only if the backoff is zero.
func Drain[T any](t testing.TB, q *honker.Queue[T], fn Handler[T]) int {
	t.Helper()
	return work(t, q, handlerOf(t, fn))
}

// DrainTx is like [Drain] but takes a handler for [honker.Queue.WorkTx].
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

// Handlers lists the queues that [DrainAll] processes, with their handlers.
type Handlers []Handled

// Handled is a queue with its handler. Use [Handle] or [HandleTx] to create it.
type Handled struct {
	db    *honker.DB
	queue string
	flow  bool // its jobs are runs
	next  func(t testing.TB) *attempt
}

// Handle returns q with its handler fn, for [DrainAll].
func Handle[T any](q *honker.Queue[T], fn Handler[T]) Handled {
	return handled(q, func(t testing.TB) handler[T] { t.Helper(); return handlerOf(t, fn) })
}

// HandleTx is like [Handle] but takes a handler for [honker.Queue.WorkTx].
func HandleTx[T any](q *honker.Queue[T], fn HandlerTx[T]) Handled {
	return handled(q, func(t testing.TB) handler[T] { t.Helper(); return handlerTxOf(t, fn) })
}

func handled[T any](q *honker.Queue[T], of func(t testing.TB) handler[T]) Handled {
	return Handled{db: q.DB(), queue: q.Name(), next: func(t testing.TB) *attempt { t.Helper(); return attemptNext(t, q, of(t)) }}
}

// DrainOptions configures DrainAll. The zero value of each field selects its default.
type DrainOptions struct {
	Scheduled bool // also run jobs scheduled for later, earliest first
	Retries   bool // also run jobs that wait for a retry or were snoozed
	Limit     int  // number of handler calls after which the test fails; default 10,000
}

// DrainResult counts DrainAll's attempts by outcome.
type DrainResult struct {
	Acked, Retried, Snoozed, Dead int

	Left int // number of live jobs left in all queues
}

// DrainAll runs the due jobs in h's queues, including jobs enqueued by the handlers, until no job
// is due. Like [Drain], it runs them sequentially in the test's goroutine. If opts is nil, the
// defaults are used.
//
// With Scheduled or Retries set, DrainAll does not wait for jobs that become due later. In a
// testing/synctest bubble it advances the clock, which affects all jobs, leases and schedules.
// Outside a bubble it changes the job's run time instead.
func DrainAll(t testing.TB, db *honker.DB, h Handlers, opts *DrainOptions) DrainResult {
	t.Helper()
	d := &drain{handlers: h, ran: make(map[int64]honker.Outcome)}
	if opts != nil {
		d.DrainOptions = *opts
	}
	d.Limit = cmp.Or(d.Limit, 10_000)
	for _, handled := range h {
		if handled.db != db {
			t.Fatalf("honkertest: queue %q belongs to another DB", handled.queue)
		}
	}
	for d.due(t) || d.advance(t, db) {
	}
	s, err := readState(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	d.result.Left = len(s.live)
	return d.result
}

// drain is the state of a running DrainAll.
type drain struct {
	DrainOptions
	handlers Handlers
	ran      map[int64]honker.Outcome // last outcome by job
	calls    int
	result   DrainResult
}

// due runs all due jobs and reports whether there were any.
func (d *drain) due(t testing.TB) (found bool) {
	t.Helper()
	for _, handled := range d.handlers {
		for a := handled.next(t); a != nil; a = handled.next(t) {
			found = true
			d.count(a)
			if d.calls++; d.calls >= d.Limit {
				t.Fatalf("honkertest: limit of %d handler calls reached; the last: %s, %s", d.calls, describe(&a.job), a.outcome())
			}
		}
	}
	return found
}

func (d *drain) count(a *attempt) {
	outcome := a.outcome()
	d.ran[a.job.ID] = outcome
	switch outcome {
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

// advance makes the next job selected by the options due. It reports whether there is such a job.
func (d *drain) advance(t testing.TB, db *honker.DB) bool {
	t.Helper()
	if !d.Scheduled && !d.Retries {
		return false
	}
	s, err := readState(t.Context(), db)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	jobs := slices.DeleteFunc(s.live, func(j honker.JobInfo) bool { return !d.wants(&j) })
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
	i := slices.IndexFunc(d.handlers, func(h Handled) bool { return h.queue == j.Queue })
	if j.Phase != honker.PhaseScheduled || i < 0 {
		return false
	}
	outcome, ran := d.ran[j.ID]
	switch {
	case d.handlers[i].flow:
		return passes(j, outcome == honker.OutcomeSnoozed)
	case ran || j.Attempts > 0:
		return d.Retries
	}
	return d.Scheduled
}

// until advances a bubble's clock to the time when j is due. Outside a bubble it makes j due now.
func until(ctx context.Context, db *honker.DB, j *honker.JobInfo) error {
	if inBubble() {
		time.Sleep(time.Until(j.RunAt))
		return nil
	}
	e := engine.Of(db)
	return e.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := e.Stores.Operators.RunNow(ctx, q, []int64{j.ID}, now)
		return err
	}))
}
