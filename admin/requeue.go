package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/seal"
)

// RequeueOptions of one Requeue. The zero value of a field means its default.
type RequeueOptions struct {
	To       string        // another queue; default the job's own
	Delay    time.Duration // before the first of them can run
	Spread   time.Duration // their times to run are spread evenly over this span, in the order of their deaths
	Attempts int           // how many more; default as many as the job had been given before it died
	Limit    int           // the oldest so many; 0: all
	DryRun   bool          // count, and change nothing
}

func (o *RequeueOptions) withDefaults() (RequeueOptions, error) {
	var out RequeueOptions
	if o != nil {
		out = *o
	}
	err := errors.Join(engine.NotNegative("Delay", out.Delay), engine.NotNegative("Spread", out.Spread))
	if out.To != "" {
		err = errors.Join(err, engine.CheckName("queue name", out.To))
	}
	if out.Attempts < 0 || out.Attempts >= math.MaxInt32 {
		err = errors.Join(err, fmt.Errorf("%w: Attempts %d", honker.ErrInvalid, out.Attempts))
	}
	if out.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("%w: negative Limit %d", honker.ErrInvalid, out.Limit))
	}
	return out, err
}

// Requeue lets the dead jobs that f picks wait again, the oldest first. A job keeps its id, payload,
// priority and unique key. Its Attempts go on from where they were, and its MaxAttempts grows, so that
// a worker that still holds it from before can settle nothing; the queue's Backoff counts from the
// requeue. A job of which another one has the unique key meanwhile stays dead, and is Skipped. One that goes To
// another queue is encoded anew by the [honker.Codec] of the DB, within the transaction; one of which the payload cannot be
// decoded is Skipped.
//
// Spread needs no process that waits: the times to run are stored with the jobs.
//
// It blocks until that is done, in transactions of some milliseconds with pauses between them. When
// ctx ends it returns its error, and what was done until then. nil opts means defaults.
func Requeue(ctx context.Context, db *honker.DB, f JobFilter, opts *RequeueOptions) (*Report, error) {
	rq, err := newRequeue(ctx, db, f, opts)
	if err != nil {
		return new(Report), engine.Wrap("requeue", "", err)
	}
	r, err := rq.run(ctx)
	return r, engine.Wrap("requeue", "", err)
}

// maxRequeueTx bounds the jobs of a RequeueTx, since other writers wait meanwhile.
const maxRequeueTx = 1000

// RequeueTx is like [Requeue], within tx, for up to 1000 jobs: more, or more than Limit asks for, are
// ErrInvalid, and nothing is changed. It may read every dead letter, and other writers wait meanwhile.
func RequeueTx(ctx context.Context, db *honker.DB, tx honker.Tx, f JobFilter, opts *RequeueOptions) (*Report, error) {
	r, err := requeueTx(ctx, db, tx, f, opts)
	return r, engine.Wrap("requeue", "", err)
}

func requeueTx(ctx context.Context, db *honker.DB, tx honker.Tx, f JobFilter, opts *RequeueOptions) (*Report, error) {
	r := new(Report)
	rq, err := newRequeue(ctx, db, f, opts)
	if err != nil {
		return r, err
	}
	rq.inTx = true
	on, err := rq.engine.Join(ctx, tx)
	if err != nil {
		return r, err
	}
	found, err := rq.find(ctx, func(ctx context.Context, f func(context.Context, engine.Querier) error) error { return f(ctx, on) })
	if err != nil {
		return r, err
	}
	r.Matched = int64(len(found))
	if len(found) > maxRequeueTx {
		return r, fmt.Errorf("%w: %d jobs in one transaction, at most %d", honker.ErrInvalid, len(found), maxRequeueTx)
	}
	if rq.dryRun {
		return r, nil
	}
	rq.found(len(found))
	now := time.Now()
	tell, err := rq.change(ctx, on, found, now, r)
	if err != nil {
		return r, err
	}
	if _, err := rq.audit.Note(ctx, on, now, r.Changed); err != nil {
		return r, err
	}
	for _, queue := range rq.queues {
		if _, err := rq.engine.Join(ctx, tx, ready(queue)); err != nil {
			return r, err
		}
	}
	tell()
	return r, nil
}

// requeue is one Requeue that runs.
type requeue struct {
	*action
	RequeueOptions
	actor  string
	inTx   bool
	began  time.Time // of the span of Spread
	total  int       // jobs of the span
	done   int       // of these, in transactions that are committed
	queues []string  // of the last transaction
}

func newRequeue(ctx context.Context, db *honker.DB, f JobFilter, opts *RequeueOptions) (*requeue, error) {
	o, bad := opts.withDefaults()
	a, err := newAction(ctx, db, "requeue", f, true)
	if err := errors.Join(bad, err); err != nil {
		return nil, err
	}
	r := &requeue{action: a, RequeueOptions: o, actor: engine.Actor(ctx)}
	a.limit, a.dryRun, a.change = o.Limit, o.DryRun, r.requeueSome
	a.found = func(n int) { r.total, r.began = n, time.Now() }
	return r, nil
}

// requeueSome is the change of the action.
func (r *requeue) requeueSome(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, report *Report) (func(), error) {
	var changed []row.Change
	for i, j := range found {
		payload, why, err := r.payload(ctx, q, j)
		if err != nil {
			return nil, fmt.Errorf("job %d: %w", j.ID, err)
		}
		if why != "" {
			report.skip(j.ID, why)
			continue
		}
		out, err := changes.Requeue(ctx, q, row.Requeue{ID: j.ID, Queue: r.To, RunAt: r.runAt(r.done+i, now), Attempts: int64(r.Attempts), Payload: payload}, now.Unix(), now.UnixMilli())
		switch {
		case err != nil:
			return nil, fmt.Errorf("job %d: %w", j.ID, err)
		case out.TakenBy != 0:
			report.skip(j.ID, fmt.Sprintf("unique key %q is taken by job %d", out.Key, out.TakenBy))
		case out.Live:
			report.skip(j.ID, "a live job has its id")
		case out.Done:
			changed = append(changed, row.Change{ID: j.ID, Queue: out.Queue})
		}
	}
	report.Changed += int64(len(changed))
	queues, ids := byQueue(changed)
	r.queues = queues
	return func() { r.done += len(found); r.tell(queues, ids) }, nil
}

// payload is that of a job that goes to another queue, or why it cannot go there: a codec may bind a
// payload to its queue. nil leaves it as it is.
func (r *requeue) payload(ctx context.Context, q engine.Querier, j row.SelectedJob) (payload any, why string, err error) {
	if r.To == "" || r.To == j.Queue {
		return nil, "", nil
	}
	payload, err = changes.DeadPayload(ctx, q, j.ID)
	text, isText := payload.(string)
	if err != nil || !isText {
		return nil, "", err
	}
	moved, bad := recode(ctx, r.engine, j.Queue, r.To, text)
	if bad != nil {
		return nil, bad.Error(), nil
	}
	return moved, "", nil
}

// recode returns what is stored in the queue to for a payload that is stored in the queue from.
func recode(ctx context.Context, e *engine.Engine, from, to, stored string) (string, error) {
	if id, sealed := seal.KeyOf(json.RawMessage(stored)); sealed && e.Codec == nil && from != to {
		return "", fmt.Errorf("its payload is sealed with key %q for queue %q, and this process has no codec to open it", id, from)
	}
	return e.Recode(ctx, from, to, stored)
}

// runAt is when the i-th job of the span can run.
func (r *requeue) runAt(i int, now time.Time) int64 {
	if r.Delay == 0 && r.Spread == 0 {
		return now.Unix()
	}
	step := time.Duration(float64(r.Spread) * float64(i) / float64(max(r.total, 1)))
	return engine.UnixUp(r.began.Add(r.Delay).Add(step)) // two sums: one of spans could overflow
}

func (r *requeue) tell(queues []string, ids map[string][]int64) {
	for _, queue := range queues {
		if !r.inTx {
			r.engine.Notifier.Wake(ready(queue))
		}
		r.engine.Observe(honker.Requeued{Queue: queue, IDs: ids[queue], Actor: r.actor, Tx: r.inTx})
	}
}
