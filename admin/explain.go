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
	"github.com/honker-go/honker/internal/store"
)

// Explanation tells why a job, or nothing of a queue, runs.
type Explanation struct {
	Job     *honker.JobInfo // nil for a queue, and for a job that is not in the file
	Text    string          // a sentence: the first of Reasons
	Reasons []Reason        // all that apply, what lasts longest first
	NextAt  time.Time       // no claim takes the job before, and one does then, unless others come first; zero: now, or that is not a matter of time
	Ahead   honker.Count    // jobs that are claimed before it, of those that can be claimed now
}

// Reason is one of the things that keep a job from running, or what became of it.
type Reason struct {
	Code  ReasonCode
	Text  string
	Until time.Time // when it ends by itself; zero: never, or that depends on other jobs
	Jobs  []int64   // that it waits for, or that stand in its way; the first 100
	Who   string    // the worker that has the job, or By of a pause
	Do    []string  // what helps, as command lines of honker
}

// Explain tells why the job does not run, or what became of it. It reads one snapshot of the file and says
// nothing that is not in it: it follows a claim step by step, so a job that it calls next in turn is the next
// that a worker gets, and one that it gives another reason is passed over by claims. Which workers there are it knows as
// [Workers] does. Times are those of the clock of this
// machine, and hold if nothing else happens meanwhile.
//
// It never waits for the writer, and looks at no more than some thousand jobs: Ahead is a lower bound behind that many.
// A job that is gone, or never was, is no error. nil as the DB is [honker.ErrInvalid].
func Explain(ctx context.Context, db *honker.DB, id int64) (ex *Explanation, err error) {
	err = explain(ctx, db, func(ctx context.Context, x *explainer) (err error) {
		ex, err = x.job(ctx, id)
		return err
	})
	return ex, engine.WrapID("explain job", id, err)
}

// ExplainQueue tells why nothing of a queue runs, or what does. Its Job is nil, and Ahead counts the jobs that can be claimed
// now. A queue that has no jobs is no error. It costs what [Explain] does. A bad name, or nil as the DB, is
// [honker.ErrInvalid].
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

// explainStore are the statements that explain.
type explainStore interface {
	Find(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	FindDead(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	FindDone(ctx context.Context, q engine.Querier, id int64) (row.Job, bool, error)
	Highest(ctx context.Context, q engine.Querier) (int64, error)
	Side(ctx context.Context, q engine.Querier, id int64) (row.JobSide, error)
	OpenEdges(ctx context.Context, q engine.Querier, id int64, limit int) ([]row.Edge, error)
	Outlook(ctx context.Context, q engine.Querier, queue string, nowMS int64) (*store.Outlook, error)
	RunningJobs(ctx context.Context, q engine.Querier, queue, key string, now int64, limit int) ([]int64, error)
	CancelledJobs(ctx context.Context, q engine.Querier, queue, key string, now int64, limit int) ([]int64, error)
	NextClaimAt(ctx context.Context, q engine.Querier, queue string, nowMS int64) (int64, error)
}

var explained explainStore = store.Jobs{}

// explainer explains jobs as they are at one moment, in one read transaction.
type explainer struct {
	codec    engine.Codec // of the DB
	q        engine.Querier
	now      time.Time
	brief    bool                      // for many jobs at once: Ahead goes less far
	outlooks map[string]*store.Outlook // of queues that were looked at
	workers  map[string][]WorkerInfo   // of those
}

// explain runs f on a snapshot. It may run again after an error.
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
	return &explainer{q: q, codec: e.Codec, now: time.Now(), outlooks: make(map[string]*store.Outlook), workers: make(map[string][]WorkerInfo)}
}

// firstReasons returns the first reason of each of jobs.
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
	maxReasonJobs = 100  // of Reason.Jobs
	briefAhead    = 1000 // of Ahead, for many jobs at once
)

// outlook is what the next claims of a queue find.
func (x *explainer) outlook(ctx context.Context, queue string) (*store.Outlook, error) {
	if o := x.outlooks[queue]; o != nil {
		return o, nil
	}
	o, err := explained.Outlook(ctx, x.q, queue, x.now.UnixMilli())
	if err != nil {
		return nil, err
	}
	if x.brief {
		o.Most = briefAhead
	}
	x.outlooks[queue] = o
	return o, nil
}

// job explains the job with an id, wherever it is.
func (x *explainer) job(ctx context.Context, id int64) (*Explanation, error) {
	for _, find := range []func(context.Context, engine.Querier, int64) (row.Job, bool, error){explained.Find, explained.FindDead, explained.FindDone} {
		row, found, err := find(ctx, x.q, id)
		if err != nil {
			return nil, err
		}
		if found {
			return x.of(ctx, row)
		}
	}
	highest, err := explained.Highest(ctx, x.q)
	if err != nil {
		return nil, err
	}
	ex := &Explanation{Reasons: []Reason{goneReason(id, highest)}}
	ex.conclude()
	return ex, nil
}

// of explains a job that is in the file.
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
	side, err := explained.Side(ctx, x.q, r.ID)
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

// waitsFor adds the jobs that a held one waits for, unless the next claim lets it go.
func (x *explainer) waitsFor(ctx context.Context, ex *Explanation, o *store.Outlook, side row.JobSide) error {
	if o.Freed(ex.Job.ID) {
		return nil
	}
	edges, err := explained.OpenEdges(ctx, x.q, ex.Job.ID, maxReasonJobs+1)
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
		ex.add(Reason{Code: ReasonWaitsFor, Text: "is held, and nothing in the file says for what", Do: []string{"honker check"}})
	}
	return nil
}

// batchReason explains a batch that a job waits for, by the members that are dead, or else by those that are left.
func (x *explainer) batchReason(ctx context.Context, e row.Edge) (r Reason, err error) {
	b, _, err := batches.Get(ctx, x.q, e.Batch, x.now.Unix())
	if err != nil {
		return r, err
	}
	of := batches.Members
	if b.Dead > 0 {
		of = batches.DeadMembers
	}
	ids, err := of(ctx, x.q, e.Batch, maxReasonJobs)
	return waitsForBatch(b, e, ids), err
}

// occupants are the jobs that take the places of a limit, up to the first 100 of both kinds.
type occupants struct{ run, cancelled []int64 }

func (r occupants) all() []int64 {
	all := slices.Concat(r.run, r.cancelled)
	return all[:min(len(all), maxReasonJobs)]
}

// runs returns the jobs of a queue, or of a key of it, that run or still take a place.
func (x *explainer) runs(ctx context.Context, o *store.Outlook, queue, key string) (r occupants, err error) {
	if r.run, err = explained.RunningJobs(ctx, x.q, queue, key, x.now.Unix(), maxReasonJobs); err != nil || o.Cancelled == 0 {
		return r, err
	}
	r.cancelled, err = explained.CancelledJobs(ctx, x.q, queue, key, x.now.Unix(), maxReasonJobs)
	return r, err
}

// held adds what keeps claims from taking the job.
func (x *explainer) held(ctx context.Context, ex *Explanation, o *store.Outlook, s row.Standing) error {
	queue, key := ex.Job.Queue, ex.Job.Key
	if o.Pause != nil {
		ex.add(x.paused(queue, "", o.Pause))
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

// blocks tells whether claims pass over a job for that reason.
func (r Reason) blocks() bool { return reasonRank[r.Code] < rankReady }

// start is when the last of the reasons ends; zero where one does not, or there is none.
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

// conclude puts what lasts longest first, and makes it the sentence.
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

// compareEnds is the order of ends from the last one; none at all is later than any.
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

// queue explains a queue by the job that comes first in it.
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
	if o.Running > 0 {
		r, err := x.runs(ctx, o, name, "")
		if err != nil {
			return nil, err
		}
		ex.add(queueRuns(o.Running, r))
	}
	if id := cmp.Or(first, waits); id != 0 {
		if err := x.head(ctx, ex, o, id); err != nil {
			return nil, err
		}
	}
	ex.conclude()
	if len(ex.Reasons) == 0 {
		ex.Text = "no job of it waits or runs"
	}
	return ex, nil
}

// head adds the reasons of the job that comes first, and when the queue goes on by time alone.
func (x *explainer) head(ctx context.Context, ex *Explanation, o *store.Outlook, id int64) error {
	row, _, err := explained.Find(ctx, x.q, id)
	if err != nil {
		return err
	}
	job, err := x.of(ctx, row)
	if err != nil {
		return err
	}
	if ex.Ahead.N == 0 && ex.Ahead.More {
		ex.add(Reason{Code: ReasonInTurn, Text: "there are more than 1,000 jobs that can be claimed or are kept by their keys, and the first of them are kept"})
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
	next, err := explained.NextClaimAt(ctx, x.q, o.Queue, x.now.UnixMilli())
	ex.NextAt = engine.Instant(next)
	return err
}
