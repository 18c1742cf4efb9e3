package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Explanation describes why a job or a whole queue is not running.
type Explanation struct {
	Job     *honker.JobInfo // nil for a queue or if the job is not in the file
	Text    string          // first of Reasons, as a sentence
	Reasons []Reason        // all reasons that apply, longest lasting first
	NextAt  time.Time       // earliest time the job can be claimed; zero if it can be claimed now or if that doesn't depend on time
	Ahead   honker.Count    // claimable jobs that precede this job
}

// Reason is a condition that keeps a job from running, or the state of a job that isn't waiting.
type Reason struct {
	Code  ReasonCode
	Text  string
	Until time.Time // when the condition ends on its own; zero if never, or if it depends on other jobs
	Jobs  []int64   // first 100 jobs that this job is waiting for or that block it
	Who   string    // worker that holds the job, or a pause's By
	Do    []string  // Actions as instructions, such as "requeue job 7"
	// Actions lists suggested steps, for programs that offer them to the user.
	Actions []Action
}

// Explain describes why the job with the given ID isn't running, or how it ended. It reads a single
// snapshot of the file and applies the same rules as a claim: a job reported as next is the next job that
// a worker gets, and claims skip jobs with a blocking reason. Explain considers the workers that [Workers]
// lists. Times are predictions based on this machine's clock and on the current state of the file.
//
// Explain never waits for the writer. It examines at most a few thousand jobs. If there are more, Ahead is
// a lower bound. An unknown or deleted ID is not an error. Explain returns [honker.ErrInvalid] if db is
// nil.
func Explain(ctx context.Context, db *honker.DB, id int64) (ex *Explanation, err error) {
	err = explain(ctx, db, func(ctx context.Context, x *explainer) (err error) {
		ex, err = x.job(ctx, id)
		return err
	})
	return ex, engine.WrapID("explain job", id, err)
}

// ExplainQueue describes why no job in queue is running, or which jobs are. If most of its attempts fail,
// that is the first reason. In the result, Job is nil and
// Ahead is the number of claimable jobs. An empty queue is not an error. ExplainQueue costs as much as
// [Explain]. It returns [honker.ErrInvalid] if the name is invalid or db is nil.
func ExplainQueue(ctx context.Context, db *honker.DB, queue string) (ex *Explanation, err error) {
	if err := engine.CheckName("queue name", queue); err != nil {
		return nil, engine.Wrap("explain queue", queue, err)
	}
	err = explain(ctx, db, func(ctx context.Context, x *explainer) (err error) {
		ex, err = x.queue(ctx, queue)
		return err
	})
	return ex, engine.Wrap("explain queue", queue, err)
}

// explainer explains jobs within a single read transaction.
type explainer struct {
	stores  *engine.Stores
	codec   engine.Codec // the DB's codec
	q       engine.Querier
	now     time.Time
	brief   bool                    // count Ahead only up to briefAhead, for pages with many jobs
	workers map[string][]WorkerInfo // cache by queue
}

// explain calls f with an explainer that reads from a single snapshot. If f fails, explain may call
// it again.
func explain(ctx context.Context, db *honker.DB, f func(ctx context.Context, x *explainer) error) error {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckContext(ctx)); err != nil {
		return err
	}
	return e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		return f(ctx, newExplainer(e, q, e.NowAt(ctx)))
	})
}

func newExplainer(e *engine.Engine, q engine.Querier, now time.Time) *explainer {
	return &explainer{stores: &e.Stores, q: q, codec: e.Codec, now: now, workers: make(map[string][]WorkerInfo)}
}

// firstReasons returns the first reason of each job.
func firstReasons(ctx context.Context, e *engine.Engine, jobs []honker.JobInfo) (reasons []Reason, err error) {
	ids := make([]int64, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	err = e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		x := newExplainer(e, q, e.NowAt(ctx))
		x.brief = true
		all, err := x.jobs(ctx, ids)
		if err != nil {
			return err
		}
		reasons = make([]Reason, len(jobs))
		for i, ex := range all {
			reasons[i] = ex.Reasons[0]
		}
		return nil
	})
	return reasons, err
}

const (
	maxReasonJobs = 100    // maximum length of Reason.Jobs
	maxAhead      = 10_000 // maximum value of Ahead
	briefAhead    = 1000   // maximum Ahead in brief explanations
)

// request returns the bounds for reading an explanation from the store.
func (x *explainer) request() row.ExplainRequest {
	if x.brief {
		return row.ExplainRequest{MaxAhead: briefAhead, MaxJobs: maxReasonJobs}
	}
	return row.ExplainRequest{MaxAhead: maxAhead, MaxJobs: maxReasonJobs}
}

// job explains a live, dead or done job.
func (x *explainer) job(ctx context.Context, id int64) (*Explanation, error) {
	all, err := x.jobs(ctx, []int64{id})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// jobs explains the live, dead or done jobs with the given IDs.
func (x *explainer) jobs(ctx context.Context, ids []int64) ([]*Explanation, error) {
	found, err := x.stores.Operators.Explain(ctx, x.q, ids, x.request(), x.now)
	if err != nil {
		return nil, err
	}
	all := make([]*Explanation, len(found))
	for i := range found {
		if all[i], err = x.of(ctx, ids[i], &found[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// of explains the job with the given ID.
func (x *explainer) of(ctx context.Context, id int64, found *row.Explained) (*Explanation, error) {
	ex := &Explanation{}
	if !found.Found {
		ex.add(goneReason(id, found.Highest))
		ex.conclude()
		return ex, nil
	}
	job := engine.View().Job(found.Job, x.now, x.codec).(honker.JobInfo)
	ex.Job = &job
	switch job.Phase {
	case honker.PhaseRunning:
		ex.add(x.running(&job))
	case honker.PhaseDead:
		ex.add(x.dead(&job))
	case honker.PhaseDone:
		ex.add(x.done(&job))
	default:
		if err := x.waiting(ctx, ex, found); err != nil {
			return nil, err
		}
	}
	ex.conclude()
	return ex, nil
}

func (ex *Explanation) add(all ...Reason) {
	for _, r := range all {
		r.Do = instructions(r.Actions)
		ex.Reasons = append(ex.Reasons, r)
	}
}

// waiting explains a job that has not been claimed.
func (x *explainer) waiting(ctx context.Context, ex *Explanation, found *row.Explained) error {
	if over := x.over(ex.Job); over != nil {
		ex.add(*over)
		return nil
	}
	if found.Job.State == row.Held && !found.Freed {
		ex.waitsFor(found)
	}
	if found.Job.RunAt.After(x.now) {
		ex.add(x.notDue(ex.Job, found)...)
	} else {
		ex.Ahead = honker.Count(found.Forecast.Ahead)
	}
	x.held(ex, found)
	ex.NextAt = ex.start()
	if expires := ex.Job.ExpiresAt; !ex.NextAt.IsZero() && !expires.IsZero() && !ex.NextAt.Before(expires) {
		ex.add(x.expiresBefore(ex.Job, ex.NextAt))
		ex.NextAt = time.Time{}
	}
	if !slices.ContainsFunc(ex.Reasons, Reason.blocks) {
		if err := x.ready(ctx, ex); err != nil {
			return err
		}
	}
	ex.add(x.odd(ex.Job, found.Job.Payload)...)
	return nil
}

// waitsFor adds the jobs and batches that a held job waits for.
func (ex *Explanation) waitsFor(found *row.Explained) {
	ex.add(edgeReasons(found.Edges)...)
	batches := found.Batches
	for _, e := range found.Edges {
		if e.Job == 0 {
			ex.add(waitsForBatch(batches[0].Batch, e, batches[0].Jobs))
			batches = batches[1:]
		}
	}
	side := found.Side
	if side.After != 0 {
		ex.add(successorReason(ex.Job, side.After))
	}
	if side.After == 0 && !side.Held && len(found.Edges) == 0 {
		ex.add(Reason{Code: ReasonWaitsFor, Text: "is held, but the file records no reason; check the file", Actions: []Action{{Verb: ActionCheckFile}}})
	}
}

// all returns up to 100 of the jobs that count against a limit.
func all(by row.Occupants) []int64 {
	all := slices.Concat(by.Running, by.Cancelled)
	return all[:min(len(all), maxReasonJobs)]
}

// held adds the pauses, limits and rates that prevent the job from being claimed.
func (x *explainer) held(ex *Explanation, found *row.Explained) {
	queue, key, o, s := ex.Job.Queue, ex.Job.Key, &found.Queue, &found.Forecast
	if o.Pause != nil {
		ex.add(x.paused(queue, "", o.Pause))
	}
	if s.KeyPause != nil {
		ex.add(x.paused(queue, key, s.KeyPause))
	}
	if s.QueueFull {
		ex.add(queueLimit(o, s, found.Running))
	}
	if s.KeyFull {
		ex.add(keyLimit(o, key, s, found.OfKey))
	}
	if s.First != 0 && !s.KeyFull {
		ex.add(keyOrder(key, s.First))
	}
	if s.RateSpent {
		ex.add(x.queueRate(o, s))
	}
	if !s.KeyStart.IsZero() {
		ex.add(x.keyRate(o, key, s.KeyStart))
	}
}

// blocks reports whether claims skip a job for this reason.
func (r Reason) blocks() bool { return reasonRank[r.Code] >= 0 && reasonRank[r.Code] < rankReady }

// start returns the time at which the last blocking reason ends. It returns the zero time if a blocking
// reason has no end or if no reason is blocking.
func (ex *Explanation) start() (at time.Time) {
	for _, r := range ex.Reasons {
		switch {
		case !r.blocks():
		case r.Until.IsZero():
			return time.Time{}
		case r.Until.After(at):
			at = r.Until
		}
	}
	return at
}

// conclude sorts the reasons by end time, latest first, and sets Text.
func (ex *Explanation) conclude() {
	slices.SortStableFunc(ex.Reasons, func(a, b Reason) int {
		if a.blocks() && b.blocks() {
			if c := compareEnds(a.Until, b.Until); c != 0 {
				return c
			}
		}
		return cmp.Compare(reasonRank[a.Code], reasonRank[b.Code])
	})
	if len(ex.Reasons) > 0 {
		ex.Text = ex.Reasons[0].Text
	}
	if others := len(ex.Reasons) - 1; others > 0 && ex.Reasons[1].blocks() {
		ex.Text += fmt.Sprintf(" (and %s)", plural(int64(others), "more reason"))
	}
}

// compareEnds orders end times from latest to earliest. The zero time means no end and sorts first.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	}
	return b.Compare(a)
}

// queue explains a queue by its first job.
func (x *explainer) queue(ctx context.Context, name string) (*Explanation, error) {
	found, err := x.stores.Operators.ExplainQueue(ctx, x.q, name, x.request(), x.now)
	if err != nil {
		return nil, err
	}
	ex := &Explanation{Ahead: honker.Count(found.Ahead)}
	if found.Queue.Running > 0 {
		ex.add(queueRuns(found.Queue.Running, found.Running))
	}
	if found.Head != nil {
		if err := x.head(ctx, ex, &found); err != nil {
			return nil, err
		}
	}
	if found.Queue.Pause == nil {
		if err := x.failing(ctx, ex, name); err != nil {
			return nil, err
		}
	}
	ex.conclude()
	if len(ex.Reasons) == 0 {
		ex.Text = "has no waiting or running jobs"
	}
	return ex, nil
}

// head adds the first job's reasons. It also sets the time at which the queue will resume without
// intervention.
func (x *explainer) head(ctx context.Context, ex *Explanation, found *row.ExplainedQueue) error {
	id := found.Head.Job.ID
	job, err := x.of(ctx, id, found.Head)
	if err != nil {
		return err
	}
	if ex.Ahead.N == 0 && ex.Ahead.More {
		ex.add(Reason{Code: ReasonInTurn, Text: "more than 1,000 jobs can be claimed or are held back by the limits of their keys, and the first of them are held back"})
	}
	for _, r := range job.Reasons {
		switch r.Code {
		case ReasonInTurn:
			r.Text, r.Jobs = canBeClaimed(ex.Ahead, id), []int64{id}
		case ReasonNoWorker, ReasonWorkersBusy:
			r.Text = canBeClaimed(ex.Ahead, id) + strings.TrimPrefix(r.Text, claimable)
		default:
			r.Text = fmt.Sprintf("job %d comes first: %s", id, r.Text)
		}
		ex.add(r)
	}
	if ex.NextAt = job.NextAt; ex.Ahead == (honker.Count{}) {
		ex.NextAt = found.Next
	}
	return nil
}
