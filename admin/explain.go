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

// Explanation tells why a job, or a whole queue, does not run.
type Explanation struct {
	Job     *honker.JobInfo // nil for a queue, and for a job that is not in the file
	Text    string          // the first of Reasons, as a sentence
	Reasons []Reason        // all reasons that apply, longest lasting first
	NextAt  time.Time       // earliest time the job can be claimed; zero if it can be claimed now or does not depend on time
	Ahead   honker.Count    // jobs that can be claimed now and precede this job
}

// Reason is a condition that keeps a job from running, or the state of a job that does not wait.
type Reason struct {
	Code  ReasonCode
	Text  string
	Until time.Time // time at which the condition ends by itself; zero if never, or if it depends on other jobs
	Jobs  []int64   // jobs that this job waits for or that block it; the first 100
	Who   string    // worker that holds the job, or By of a pause
	Do    []Action  // steps that help
}

// Explain tells why the job with the given id does not run, or how it ended. It reads a single snapshot of
// the file and follows the steps of a claim: a job reported as next is the next job a worker gets, and
// claims pass over a job with a blocking reason. Workers are known to the same extent as in [Workers].
// Times use the clock of this machine and assume that nothing else happens in between.
//
// Explain never waits for the writer. It examines at most a few thousand jobs, and Ahead is a lower bound
// if there are more. An unknown or deleted id is not an error. Explain returns [honker.ErrInvalid] if db is
// nil.
func Explain(ctx context.Context, db *honker.DB, id int64) (ex *Explanation, err error) {
	err = explain(ctx, db, func(ctx context.Context, x *explainer) (err error) {
		ex, err = x.job(ctx, id)
		return err
	})
	return ex, engine.WrapID("explain job", id, err)
}

// ExplainQueue tells why no job of queue runs, or which jobs do. In the result, Job is nil and Ahead counts
// the jobs that can be claimed now. A queue without jobs is not an error. The cost is that of [Explain].
// ExplainQueue returns [honker.ErrInvalid] if the name is invalid or db is nil.
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
	stores   *engine.Stores
	codec    engine.Codec // of the DB
	q        engine.Querier
	now      time.Time
	brief    bool                      // count Ahead only up to briefAhead, for pages of many jobs
	outlooks map[string]engine.Outlook // cache by queue
	workers  map[string][]WorkerInfo   // cache by queue
}

// explain calls f with an explainer on a snapshot. It may call f again after an error.
func explain(ctx context.Context, db *honker.DB, f func(ctx context.Context, x *explainer) error) error {
	e, err := engineOf(db)
	if err := errors.Join(err, engine.CheckContext(ctx)); err != nil {
		return err
	}
	return e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		return f(ctx, newExplainer(e, q))
	})
}

func newExplainer(e *engine.Engine, q engine.Querier) *explainer {
	return &explainer{stores: &e.Stores, q: q, codec: e.Codec, now: time.Now(), outlooks: make(map[string]engine.Outlook), workers: make(map[string][]WorkerInfo)}
}

// firstReasons returns the first reason of each job.
func firstReasons(ctx context.Context, e *engine.Engine, jobs []honker.JobInfo) (reasons []Reason, err error) {
	err = e.Snapshot(ctx, func(ctx context.Context, q engine.Querier) error {
		x := newExplainer(e, q)
		x.brief, reasons = true, make([]Reason, len(jobs))
		for i, job := range jobs {
			ex, err := x.job(ctx, job.ID)
			if err != nil {
				return err
			}
			reasons[i] = ex.Reasons[0]
		}
		return nil
	})
	return reasons, err
}

const (
	maxReasonJobs = 100  // limit of Reason.Jobs
	briefAhead    = 1000 // limit of Ahead in brief explanations
)

// outlook returns the state of a queue that decides its next claims.
func (x *explainer) outlook(ctx context.Context, queue string) (engine.Outlook, error) {
	if o := x.outlooks[queue]; o != nil {
		return o, nil
	}
	o, err := x.stores.Operators.Outlook(ctx, x.q, queue, x.now.UnixMilli())
	if err != nil {
		return nil, err
	}
	if x.brief {
		o.Queue().Most = briefAhead
	}
	x.outlooks[queue] = o
	return o, nil
}

// job explains the live, dead or done job with the given id.
func (x *explainer) job(ctx context.Context, id int64) (*Explanation, error) {
	for _, find := range []func(context.Context, engine.Querier, int64) (row.Job, bool, error){x.stores.Jobs.Find, x.stores.Jobs.FindDead, x.stores.Jobs.FindDone} {
		row, found, err := find(ctx, x.q, id)
		if err != nil {
			return nil, err
		}
		if found {
			return x.of(ctx, row)
		}
	}
	highest, err := x.stores.Operators.Highest(ctx, x.q)
	if err != nil {
		return nil, err
	}
	ex := &Explanation{Reasons: []Reason{goneReason(id, highest)}}
	ex.conclude()
	return ex, nil
}

// of explains a job that was found in the file.
func (x *explainer) of(ctx context.Context, row row.Job) (*Explanation, error) {
	job := engine.View().Job(row, x.now, x.codec).(honker.JobInfo)
	ex := &Explanation{Job: &job}
	switch job.Phase {
	case honker.PhaseRunning:
		ex.add(x.running(&job))
	case honker.PhaseDead:
		ex.add(x.dead(&job))
	case honker.PhaseDone:
		ex.add(x.done(&job))
	default:
		if err := x.waiting(ctx, ex, row); err != nil {
			return nil, err
		}
	}
	ex.conclude()
	return ex, nil
}

func (ex *Explanation) add(r ...Reason) { ex.Reasons = append(ex.Reasons, r...) }

// waiting explains a job that waits to be claimed.
func (x *explainer) waiting(ctx context.Context, ex *Explanation, r row.Job) error {
	if over := x.over(ex.Job); over != nil {
		ex.add(*over)
		return nil
	}
	side, err := x.stores.Operators.Side(ctx, x.q, r.ID)
	if err != nil {
		return err
	}
	o, err := x.outlook(ctx, r.Queue)
	if err != nil {
		return err
	}
	if r.State == row.Held {
		if err := x.waitsFor(ctx, ex, o, side); err != nil {
			return err
		}
	}
	var s row.Standing
	if r.RunAt > x.now.Unix() {
		s, err = o.Lasting(ctx, x.q, r)
		ex.add(x.notDue(ex.Job, o, side, s)...)
	} else {
		s, err = o.Of(ctx, x.q, r, side)
		ex.Ahead = honker.Count(s.Ahead)
	}
	if err != nil {
		return err
	}
	if err := x.held(ctx, ex, o, s); err != nil {
		return err
	}
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
	ex.add(x.odd(ex.Job, r.Payload)...)
	return nil
}

// waitsFor adds the jobs that a held job waits for, unless the next claim releases the job.
func (x *explainer) waitsFor(ctx context.Context, ex *Explanation, o engine.Outlook, side row.JobSide) error {
	if o.Freed(ex.Job.ID) {
		return nil
	}
	edges, err := x.stores.Operators.OpenEdges(ctx, x.q, ex.Job.ID, maxReasonJobs+1)
	if err != nil {
		return err
	}
	ex.add(edgeReasons(edges)...)
	for _, e := range edges {
		if e.Job != 0 {
			continue
		}
		r, err := x.batchReason(ctx, e)
		if err != nil {
			return err
		}
		ex.add(r)
	}
	if side.After != 0 {
		ex.add(successorReason(ex.Job, side.After))
	}
	if side.After == 0 && !side.Held && len(edges) == 0 {
		ex.add(Reason{Code: ReasonWaitsFor, Text: "is held, but the file records no reason; check the file", Do: []Action{{Verb: ActionCheckFile}}})
	}
	return nil
}

// batchReason explains a batch that a job waits for. It names the dead members, or the unfinished members
// if none is dead.
func (x *explainer) batchReason(ctx context.Context, e row.Edge) (r Reason, err error) {
	b, _, err := x.stores.Batches.Get(ctx, x.q, e.Batch, x.now.Unix())
	if err != nil {
		return r, err
	}
	of := x.stores.Batches.Members
	if b.Dead > 0 {
		of = x.stores.Batches.DeadMembers
	}
	ids, err := of(ctx, x.q, e.Batch, maxReasonJobs)
	return waitsForBatch(b, e, ids), err
}

// occupants are the jobs that count against a limit, up to 100 running and 100 cancelled jobs.
type occupants struct{ run, cancelled []int64 }

func (r occupants) all() []int64 {
	all := slices.Concat(r.run, r.cancelled)
	return all[:min(len(all), maxReasonJobs)]
}

// runs returns the jobs that count against the limit of a queue or a key.
func (x *explainer) runs(ctx context.Context, o engine.Outlook, queue, key string) (r occupants, err error) {
	if r.run, err = x.stores.Operators.RunningJobs(ctx, x.q, queue, key, x.now.Unix(), maxReasonJobs); err != nil || o.Queue().Cancelled == 0 {
		return r, err
	}
	r.cancelled, err = x.stores.Operators.CancelledJobs(ctx, x.q, queue, key, x.now.Unix(), maxReasonJobs)
	return r, err
}

// held adds the pauses, limits and rates that keep claims from taking the job.
func (x *explainer) held(ctx context.Context, ex *Explanation, o engine.Outlook, s row.Standing) error {
	queue, key := ex.Job.Queue, ex.Job.Key
	if o.Queue().Pause != nil {
		ex.add(x.paused(queue, "", o.Queue().Pause))
	}
	if s.KeyPause != nil {
		ex.add(x.paused(queue, key, s.KeyPause))
	}
	if s.QueueFull {
		r, err := x.runs(ctx, o, queue, "")
		if err != nil {
			return err
		}
		ex.add(queueLimit(queue, o, s, r))
	}
	if s.KeyFull {
		r, err := x.runs(ctx, o, queue, key)
		if err != nil {
			return err
		}
		ex.add(keyLimit(queue, key, o, s, r))
	}
	if s.First != 0 && !s.KeyFull {
		ex.add(keyOrder(key, s.First))
	}
	if s.RateSpent {
		ex.add(x.queueRate(queue, o, s))
	}
	if s.KeyStart != 0 {
		ex.add(x.keyRate(queue, key, o, engine.Instant(s.KeyStart)))
	}
	return nil
}

// blocks reports whether claims pass over a job for this reason.
func (r Reason) blocks() bool { return reasonRank[r.Code] < rankReady }

// start returns the end of the last blocking reason. It returns zero if a reason has no end or none blocks.
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

// conclude sorts the reasons by their ends, the latest first, and sets the text.
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

// compareEnds orders ends from latest to earliest. The zero time has no end and sorts first.
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
	o, err := x.outlook(ctx, name)
	if err != nil {
		return nil, err
	}
	first, waits, n, err := o.First(ctx, x.q)
	if err != nil {
		return nil, err
	}
	ex := &Explanation{Ahead: honker.Count(n)}
	if o.Queue().Running > 0 {
		r, err := x.runs(ctx, o, name, "")
		if err != nil {
			return nil, err
		}
		ex.add(queueRuns(o.Queue().Running, r))
	}
	if id := cmp.Or(first, waits); id != 0 {
		if err := x.head(ctx, ex, o, id); err != nil {
			return nil, err
		}
	}
	ex.conclude()
	if len(ex.Reasons) == 0 {
		ex.Text = "has no waiting or running jobs"
	}
	return ex, nil
}

// head adds the reasons of the first job. It also sets the time at which the queue continues by itself.
func (x *explainer) head(ctx context.Context, ex *Explanation, o engine.Outlook, id int64) error {
	row, _, err := x.stores.Jobs.Find(ctx, x.q, id)
	if err != nil {
		return err
	}
	job, err := x.of(ctx, row)
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
	if ex.NextAt = job.NextAt; ex.Ahead != (honker.Count{}) {
		return nil
	}
	next, err := x.stores.Jobs.NextClaimAt(ctx, x.q, o.Queue().Name, x.now.UnixMilli())
	ex.NextAt = engine.Instant(next)
	return err
}
