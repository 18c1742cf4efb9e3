package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// QueueReportOptions configures QueueReport. The zero value of a field selects its default.
type QueueReportOptions struct {
	Jobs    int           // maximum length of each job list; default 20, at most 1000
	Waiting bool          // Next also lists scheduled and expired jobs
	Since   time.Time     // beginning of Traffic; default one hour ago
	Step    time.Duration // length of a Traffic step in whole minutes; default one minute
}

func (o *QueueReportOptions) withDefaults(now time.Time) (QueueReportOptions, error) {
	var out QueueReportOptions
	if o != nil {
		out = *o
	}
	if out.Jobs == 0 {
		out.Jobs = 20
	}
	if out.Since.IsZero() {
		out.Since = now.Add(-time.Hour)
	}
	if out.Step == 0 {
		out.Step = time.Minute
	}
	if out.Jobs < 0 || out.Jobs > maxLimit {
		return out, fmt.Errorf("%w: Jobs must be from 0 to %d, but is %d", honker.ErrInvalid, maxLimit, out.Jobs)
	}
	return out, nil
}

// QueueDetails is the state of a queue at a single moment.
type QueueDetails struct {
	honker.QueueStats
	Retention honker.QueueRetention
	Keys      []honker.KeyStats     // as returned by [honker.Queue.Keys]
	Next      []honker.JobInfo      // first ready jobs, in claim order
	Running   []honker.JobInfo      // first running and lapsed jobs, sorted by ID
	Dead      *DeadReport           // up to 2000 jobs that died in the last hour, grouped by error
	Retries   *RetryReport          // jobs that wait for another attempt, grouped by error; a sample if there are many
	Attempts  map[int]int64         // number of the jobs in Retries by attempts
	Schedules []honker.ScheduleInfo // schedules that add jobs to the queue, sorted by name
	Workers   []WorkerInfo          // sorted by ID
	Why       *Explanation          // as returned by [ExplainQueue]
	Traffic   []Minute              // as returned by [TrafficSteps]
}

// sampledRetries is the maximum number of waiting jobs that a report examines on either side of now, for each of the first
// five priorities.
const sampledRetries = 100

// Limits on the number of dead jobs in a report and on the time spent finding them. They are small because a
// page that shows a report may be reloaded after every commit.
const (
	reportDead   = 2000
	reportBudget = 30 * time.Millisecond
)

// QueueReport returns the state of a queue. All parts are read from the same snapshot and compare with the same
// time, so a job that is moving from one part of the report to another appears in exactly one of them. The exception is counts
// above 10,000 jobs, which may be cached as in [honker.Queue.Stats]; AsOf is the time of the cached counts.
// An empty queue is not an error.
//
// QueueReport costs as much as the calls that it replaces. It waits for running [ListJobs] searches until
// ctx is done, but never for the writer. It returns [honker.ErrInvalid] if the name or an option is invalid
// or if db is nil. A nil opts selects the defaults.
func QueueReport(ctx context.Context, db *honker.DB, queue string, opts *QueueReportOptions) (*QueueDetails, error) {
	d, err := queueReport(ctx, db, queue, opts)
	return d, engine.Wrap("report on queue", queue, err)
}

func queueReport(ctx context.Context, db *honker.DB, queue string, opts *QueueReportOptions) (d *QueueDetails, err error) {
	e, noDB := engineOf(db)
	if noDB != nil {
		return nil, noDB
	}
	o, bad := opts.withDefaults(e.Now())
	if err := errors.Join(engine.CheckContext(ctx), bad, engine.CheckName("queue name", queue)); err != nil {
		return nil, err
	}
	err = e.Search(ctx, func(ctx context.Context) error {
		return e.AtOnce(ctx, func(moment context.Context) error {
			r := &queueReader{db: db, queue: queue, QueueReportOptions: o, now: e.NowAt(moment), d: new(QueueDetails)}
			d = r.d
			return r.all(ctx, moment)
		})
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// queueReader reads the parts of a report.
type queueReader struct {
	db    *honker.DB
	queue string
	QueueReportOptions
	now time.Time
	d   *QueueDetails
}

// all reads all parts of the report from moment's snapshot. Unlike ctx, moment is not canceled, so all
// checks ctx itself.
func (r *queueReader) all(ctx, moment context.Context) error {
	q := honker.NewQueue[any](r.db, r.queue, nil)
	d := r.d
	for _, read := range []func(ctx context.Context) error{
		func(ctx context.Context) (err error) { d.QueueStats, err = q.Stats(ctx); return err },
		func(ctx context.Context) (err error) { d.Retention, err = q.Retention(ctx); return err },
		func(ctx context.Context) (err error) { d.Keys, err = q.Keys(ctx); return err },
		r.next, r.running, r.dead, r.retries, r.schedules, r.workers,
		func(ctx context.Context) (err error) { d.Why, err = ExplainQueue(ctx, r.db, r.queue); return err },
		func(ctx context.Context) (err error) {
			d.Traffic, err = TrafficSteps(ctx, r.db, r.queue, r.Since, r.Step)
			return err
		},
	} {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := read(moment); err != nil {
			return err
		}
	}
	return nil
}

func (r *queueReader) next(ctx context.Context) (err error) {
	phases := []honker.Phase{honker.PhaseReady}
	if r.Waiting {
		phases = nil // all phases of ClaimOrder
	}
	r.d.Next, err = r.list(ctx, ClaimOrder, phases...)
	return err
}

func (r *queueReader) running(ctx context.Context) (err error) {
	r.d.Running, err = r.list(ctx, OldestFirst, honker.PhaseRunning, honker.PhaseLapsed)
	return err
}

// list returns the queue's first jobs in the given phases.
func (r *queueReader) list(ctx context.Context, order Order, phases ...honker.Phase) ([]honker.JobInfo, error) {
	page, err := ListJobs(ctx, r.db, JobFilter{Queues: []string{r.queue}, Phases: phases}, &PageOptions{Order: order, Limit: r.Jobs})
	if err != nil {
		return nil, err
	}
	return page.Jobs, nil
}

func (r *queueReader) dead(ctx context.Context) (err error) {
	f := JobFilter{Queues: []string{r.queue}, DiedSince: r.now.Add(-time.Hour)}
	r.d.Dead, err = DeadGroupsWithin(ctx, r.db, f, reportDead, reportBudget)
	return err
}

func (r *queueReader) retries(ctx context.Context) error {
	var failed []row.FailedJob
	err := read(ctx, r.db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		failed, err = s.Problems.Errors(ctx, q, r.queue, r.now, sampledRetries, r.now)
		return err
	})
	failed = slices.DeleteFunc(failed, func(f row.FailedJob) bool { return f.Dead })
	slices.SortFunc(failed, func(a, b row.FailedJob) int { return cmp.Compare(b.ID, a.ID) })
	g := newGrouping(r.now)
	r.d.Attempts = make(map[int]int64)
	for _, f := range failed {
		g.add(JobFilter{}, []row.SelectedJob{{ID: f.ID, Queue: r.queue, LastError: f.Error}})
		r.d.Attempts[int(f.Attempts)]++
	}
	r.d.Retries = g.retries(r.d.Ready.N+r.d.Scheduled.N > sampledRetries)
	return err
}

func (r *queueReader) schedules(ctx context.Context) error {
	all, err := r.db.Scheduler().List(ctx)
	for _, s := range all {
		if s.Queue == r.queue {
			r.d.Schedules = append(r.d.Schedules, s)
		}
	}
	return err
}

func (r *queueReader) workers(ctx context.Context) error {
	return read(ctx, r.db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		r.d.Workers, err = workersOf(ctx, q, s.Workers, r.queue, r.now)
		return err
	})
}
