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
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
	"github.com/honker-go/honker/seal"
)

// RequeueOptions configures Requeue. The zero value of a field selects its default.
type RequeueOptions struct {
	To       string        // destination queue; defaults to the job's own queue
	Delay    time.Duration // delay before the first job can run
	Spread   time.Duration // period over which run times are spread evenly, in order of death
	Attempts int           // additional attempts; defaults to the number the job had before it died
	Limit    int           // requeue only the oldest Limit jobs; 0 means all
	DryRun   bool          // count the jobs without changing them
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
		err = errors.Join(err, fmt.Errorf("%w: Attempts must be 0 to %d, but is %d", honker.ErrInvalid, math.MaxInt32-1, out.Attempts))
	}
	if out.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("%w: Limit must not be negative, but is %d", honker.ErrInvalid, out.Limit))
	}
	return out, err
}

// audited returns the options that audit entries have, as pairs of names and texts.
func (o *RequeueOptions) audited() (pairs []string) {
	if o.To != "" {
		pairs = append(pairs, "To", o.To)
	}
	if o.Delay != 0 {
		pairs = append(pairs, "Delay", FormatSpan(o.Delay))
	}
	if o.Spread != 0 {
		pairs = append(pairs, "Spread", FormatSpan(o.Spread))
	}
	return pairs
}

// Requeue returns the dead jobs that f selects to their queues, oldest first. A job keeps its ID,
// payload, priority and unique key. Attempts is not reset, so a worker with an old claim on the job
// cannot settle it. Instead, MaxAttempts is increased, and the queue's Backoff starts over.
//
// The report's Audit selects the jobs of this call that have used no attempt since (see [JobFilter]), so [Bury] can undo
// it.
//
// A job is skipped and stays dead if another job has taken its unique key. If To is set, payloads are
// re-encoded within the transaction by the DB's [honker.Codec], and a job whose payload cannot be decoded
// is skipped.
//
// With Spread, the run times are stored with the jobs, so no process has to keep running.
//
// Requeue blocks until all jobs are requeued. The work is split into transactions of a few milliseconds
// with pauses in between. If ctx is done, Requeue returns ctx's error and a report of the jobs requeued so
// far. A nil opts selects the defaults.
func Requeue(ctx context.Context, db *honker.DB, f JobFilter, opts *RequeueOptions) (*Report, error) {
	rq, err := newRequeue(ctx, db, f, opts)
	if err != nil {
		return new(Report), engine.Wrap("requeue", "", err)
	}
	r, err := rq.run(ctx)
	return r, engine.Wrap("requeue", "", err)
}

// maxRequeueTx limits the number of jobs in a RequeueTx, because the transaction blocks other
// writers.
const maxRequeueTx = 1000

// RequeueTx is like [Requeue] but runs within tx and requeues at most 1000 jobs. If f selects more jobs
// and opts.Limit does not limit them, RequeueTx returns ErrInvalid and changes nothing. RequeueTx may have
// to read every dead letter and blocks other writers during that time.
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
		return r, fmt.Errorf("%w: a transaction can requeue at most %d jobs, but the filter selects %d; use Requeue or a narrower filter", honker.ErrInvalid, maxRequeueTx, len(found))
	}
	if rq.dryRun {
		return r, nil
	}
	rq.found(len(found))
	now := rq.engine.Now()
	tell, err := rq.change(ctx, on, found, now, r)
	if err != nil {
		return r, err
	}
	if _, err := rq.note(ctx, on, now, r.Changed, r); err != nil {
		return r, err
	}
	for _, queue := range rq.queues {
		if _, err := rq.engine.Join(ctx, tx, wake.Queue(queue)); err != nil {
			return r, err
		}
	}
	tell()
	return r, nil
}

// requeue is the state of a running Requeue.
type requeue struct {
	*action
	RequeueOptions
	actor  string
	inTx   bool
	began  time.Time // start of the Spread period
	total  int       // number of jobs to spread
	done   int       // jobs in committed transactions
	queues []string  // queues affected by the last transaction
	ids    []int64   // jobs changed by the last transaction
}

func newRequeue(ctx context.Context, db *honker.DB, f JobFilter, opts *RequeueOptions) (*requeue, error) {
	o, bad := opts.withDefaults()
	a, err := newAction(ctx, db, "requeue", f, true)
	if err := errors.Join(bad, err); err != nil {
		return nil, err
	}
	r := &requeue{action: a, RequeueOptions: o, actor: engine.Actor(ctx)}
	a.audit = a.engine.NewAudit(ctx, "requeue", audited(f, o.audited()...))
	a.limit, a.dryRun, a.change = o.Limit, o.DryRun, r.requeueSome
	a.noted = func(ctx context.Context, q engine.Querier, entry int64) error {
		return a.engine.Stores.Operators.MarkRequeued(ctx, q, r.ids, entry)
	}
	a.found = func(n int) { r.total, r.began = n, r.engine.Now() }
	return r, nil
}

// requeueSome implements action.change.
func (r *requeue) requeueSome(ctx context.Context, q engine.Querier, found []row.SelectedJob, now time.Time, report *Report) (func(), error) {
	var changed []row.Change
	r.ids = nil
	for i, j := range found {
		payload, why, err := r.payload(ctx, q, j)
		if err != nil {
			return nil, fmt.Errorf("job %d: %w", j.ID, err)
		}
		if why != "" {
			report.skip(j.ID, why)
			continue
		}
		out, err := r.engine.Stores.Operators.Requeue(ctx, q, row.Requeue{ID: j.ID, Queue: r.To, RunAt: r.runAt(r.done + i), Attempts: int64(r.Attempts), Payload: payload}, now)
		switch {
		case err != nil:
			return nil, fmt.Errorf("job %d: %w", j.ID, err)
		case out.TakenBy != 0:
			report.skip(j.ID, fmt.Sprintf("unique key %q is taken by job %d", out.Key, out.TakenBy))
		case out.Live:
			report.skip(j.ID, "a live job has the same id")
		case out.Done:
			changed, r.ids = append(changed, row.Change{ID: j.ID, Queue: out.Queue}), append(r.ids, j.ID)
		}
	}
	report.Changed += int64(len(changed))
	queues, ids := byQueue(changed)
	r.queues = queues
	return func() { r.done += len(found); r.tell(queues, ids) }, nil
}

// payload returns the new payload of a job that moves to another queue, because a codec may bind a
// payload to its queue. A nil payload means that the stored payload is unchanged. If the job cannot
// move, payload returns the reason.
func (r *requeue) payload(ctx context.Context, q engine.Querier, j row.SelectedJob) (payload *string, why string, err error) {
	if r.To == "" || r.To == j.Queue {
		return nil, "", nil
	}
	dead, _, err := r.engine.Stores.Jobs.Find(ctx, q, j.ID, j.Queue)
	text, isText := dead.Payload.(string)
	if err != nil || !isText {
		return nil, "", err
	}
	moved, bad := recode(ctx, r.engine, j.Queue, r.To, text)
	if bad != nil {
		return nil, bad.Error(), nil
	}
	return &moved, "", nil
}

// recode converts a payload stored in queue from to its stored form in queue to.
func recode(ctx context.Context, e *engine.Engine, from, to, stored string) (string, error) {
	if id, sealed := seal.KeyOf(json.RawMessage(stored)); sealed && e.Codec == nil && from != to {
		return "", fmt.Errorf("its payload is sealed with key %q for queue %q, but this DB has no Codec to open it", id, from)
	}
	return e.Recode(ctx, from, to, stored)
}

// runAt returns the run time of the i-th job. It returns the zero time, which means immediately, if neither
// Delay nor Spread is set.
func (r *requeue) runAt(i int) time.Time {
	if r.Delay == 0 && r.Spread == 0 {
		return time.Time{}
	}
	step := time.Duration(float64(r.Spread) * float64(i) / float64(max(r.total, 1)))
	return r.began.Add(r.Delay).Add(step) // adding the durations first could overflow
}

func (r *requeue) tell(queues []string, ids map[string][]int64) {
	for _, queue := range queues {
		if !r.inTx {
			r.engine.Notifier.Wake(wake.Queue(queue))
		}
		r.engine.Observer.Requeued(observe.Requeued{Queue: queue, IDs: ids[queue], Actor: r.actor, Tx: r.inTx})
	}
}
