package honker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// LaneOptions of a handle. The zero value of a field means its default.
type LaneOptions struct {
	// Strict takes a job of a queue only while those before it in the list have none that can be
	// claimed. A queue that is always full starves those after it.
	Strict bool
	// Weights are the shares of queues while all of them have work, by their names: one of weight 3
	// gets three jobs for each of one of weight 1, which is the default. Each is at least 1.
	Weights map[string]int
	// Queue are the options of each queue: Backoff, Timeout and ResultTTL. nil means defaults.
	Queue *QueueOptions
}

// Lanes are several queues of one file that one Work takes jobs from. It is a cheap handle, and
// safe for concurrent use.
//
// Each claim is one statement over all the queues, which looks at a few jobs of each, however many
// wait. Within a queue jobs are taken in the order of [Queue.Claim]. Between the queues the order
// is that of [LaneOptions]: by default they take turns. A queue that has no work for a while loses
// its turns: it does not get them later.
type Lanes[T any] struct {
	db      *DB
	names   []string
	queues  map[string]*Queue[T]
	strict  bool
	weights []int
	err     error // a bad name or option: returned by Work
}

// NewLanes returns a handle for queues, the first lane first. It touches nothing. No queue, a bad or
// a repeated name, a Weight of 0 or less or of a queue that is not among queues, Weights together
// with Strict, or bad options of the queue are [ErrInvalid] from Work. nil opts means defaults.
func NewLanes[T any](db *DB, queues []string, opts *LaneOptions) *Lanes[T] {
	db.mustExist("NewLanes")
	var o LaneOptions
	if opts != nil {
		o = *opts
	}
	l := &Lanes[T]{db: db, names: slices.Clone(queues), queues: make(map[string]*Queue[T]), strict: o.Strict, err: o.check(queues)}
	for _, name := range queues {
		if l.queues[name] != nil {
			l.err = errors.Join(l.err, fmt.Errorf("%w: lane %q twice", ErrInvalid, name))
			continue
		}
		weight, set := o.Weights[name]
		if !set {
			weight = 1
		}
		l.weights = append(l.weights, weight)
		l.queues[name] = NewQueue[T](db, name, o.Queue)
		l.err = errors.Join(l.err, l.queues[name].err)
	}
	return l
}

func (o *LaneOptions) check(queues []string) (err error) {
	if len(queues) == 0 {
		err = fmt.Errorf("%w: no lanes", ErrInvalid)
	}
	if o.Strict && len(o.Weights) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: Weights of Strict lanes", ErrInvalid))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Weights)) {
		if !slices.Contains(queues, name) {
			err = errors.Join(err, fmt.Errorf("%w: weight of %q, which is no lane", ErrInvalid, name))
		}
		if weight := o.Weights[name]; weight <= 0 {
			err = errors.Join(err, fmt.Errorf("%w: weight %d of lane %q", ErrInvalid, weight, name))
		}
	}
	return err
}

// Work is like [Queue.Work], for the jobs of all the lanes: Workers bounds them together, and
// [JobInfo] says which queue a job is of. A commit to any of the queues wakes it.
//
// A job that comes while Work is idle is claimed after its commit, in one of Work's own: unlike with
// [Queue.Work], no enqueue hands its job over.
//
// Each Work takes turns for itself, so the shares hold for what it takes, not for the file.
// Fast handlers are fed by claims ahead, which a job of an earlier lane comes after;
// with a [Pool] there are none.
func (l *Lanes[T]) Work(ctx context.Context, fn func(context.Context, *Job[T]) error, opts *WorkOptions) error {
	name := strings.Join(l.names, ", ")
	if l.err != nil {
		return fail("work", name, l.err)
	}
	queueOf := func(row *row.Job) *queue { return l.queues[row.Queue].queue }
	c, err := workConfig(ctx, l.queues[l.names[0]].queue, queueOf, fn, opts)
	if err != nil {
		return fail("work", name, err)
	}
	c.OnClaimed = l.claimed
	c.OnStarted = func(claim *worker.Claim) { l.queues[claim.Queue].started(claim) }
	c.OnReturned = func(claim *worker.Claim) { l.queues[claim.Queue].returned(claim) }
	c.OnSettled = func(end *worker.SettleOp, ran time.Duration) { l.queues[end.Claim.Queue].ended(end, ran) }
	source := l.db.newSource(name)
	source.Lanes = l.shares()
	defer l.db.working(c, l.names...)()
	return fail("work", name, worker.NewPool(source, c).Run(ctx))
}

// WorkTx is like [Queue.WorkTx], for the jobs of all the lanes as in [Lanes.Work].
func (l *Lanes[T]) WorkTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) error {
	if fn == nil {
		return l.Work(ctx, nil, opts) // refuses it
	}
	return l.Work(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// shares are the lanes of one Work: it counts their turns.
func (l *Lanes[T]) shares() *worker.Lanes {
	if l.strict {
		return worker.StrictLanes(l.names)
	}
	return worker.FairLanes(l.names, l.weights)
}

// claimed tells of a claim as that of each of its queues.
func (l *Lanes[T]) claimed(op *worker.ClaimOp) {
	for _, name := range l.names {
		part := *op
		part.Rows = nil
		part.Dead = nil
		for _, row := range op.Rows {
			if row.Queue == name {
				part.Rows = append(part.Rows, row)
			}
		}
		for _, death := range op.Dead {
			if death.Queue == name {
				part.Dead = append(part.Dead, death)
			}
		}
		l.queues[name].claimed(&part)
	}
}
