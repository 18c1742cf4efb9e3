package honker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// Pool limits the number of handlers that run at once across all Work loops that share it through [WorkOptions]
// or [GroupWorkOptions]. The loops may belong to any queues, groups and DBs. Each loop is still limited by its
// Workers option.
//
// A loop acquires a slot before it claims, so it never claims a job that cannot start. While a job waits for a
// slot, its Timeout and its lease have not started, its priority still counts, and another process can claim it.
// The drawback is that loops with a Pool do not claim jobs ahead for fast handlers.
//
// A loop with nothing to claim holds no slot. If all slots are taken, loops wait in order of arrival and get a
// single slot each, so that a queue that is always full does not starve a queue that rarely gets a job. A loop
// keeps its slot while it claims and while it waits for its file's writer.
//
// A Pool has no goroutine, needs no Close and may outlive the DBs. It is safe for concurrent use.
type Pool struct {
	slots *worker.Slots
	size  int
}

// NewPool returns a Pool for up to n concurrent handlers. If n is not positive, Work returns [ErrInvalid].
func NewPool(n int) *Pool {
	return &Pool{slots: worker.NewSlots(n), size: n}
}

// poolWorkers limits the default number of Workers of a loop with a Pool. No claim takes more jobs than this.
const poolWorkers = 256

func (p *Pool) check() error {
	if p != nil && p.size <= 0 {
		return fmt.Errorf("%w: the size of a Pool must be positive, got %d", ErrInvalid, p.size)
	}
	return nil
}

// workers returns the default for Workers, which lets a single busy queue use the whole Pool.
func (p *Pool) workers() int {
	if p == nil {
		return runtime.GOMAXPROCS(0)
	}
	return min(p.size, poolWorkers)
}

// shared returns the Pool's slots, or nil if p is nil.
func (p *Pool) shared() *worker.Slots {
	if p == nil {
		return nil
	}
	return p.slots
}

// LaneOptions configures Lanes. The zero value of a field means its default.
type LaneOptions struct {
	// Strict claims jobs of a queue only while no earlier queue in the list has a claimable job. A queue that
	// always has jobs starves the queues after it.
	Strict bool
	// Weights maps queue names to their shares while all queues have jobs: a queue with weight 3 gets three jobs
	// for each job of a queue with weight 1. The default weight is 1. Weights must be at least 1.
	Weights map[string]int
	// Queue provides the Backoff, Timeout and ResultTTL of each queue. nil means defaults.
	Queue *QueueOptions
}

// Lanes is a set of queues in the same file from which a single Work takes jobs. It is a cheap handle, safe for
// concurrent use.
//
// Each claim is a single statement over all the queues. It examines a few jobs of each queue, however many are
// waiting. Within a queue, jobs are taken in the order described at [Queue.Claim]. [LaneOptions] determines the
// order between queues; by default the queues take turns. A queue without jobs loses its turns and does not get
// them back later.
type Lanes[T any] struct {
	db      *DB
	names   []string
	queues  map[string]*Queue[T]
	strict  bool
	weights []int
	err     error // invalid name or option, returned by Work
}

// NewLanes returns a handle for queues, with the first lane first. It does not access the file. A nil opts means
// defaults.
//
// Work returns [ErrInvalid] if the list is empty, if a name is invalid or repeated, if Weights is used together
// with Strict, if a weight is below 1 or belongs to a queue that is not in the list, and if the queue options
// are invalid.
func NewLanes[T any](db *DB, queues []string, opts *LaneOptions) *Lanes[T] {
	db.mustExist("NewLanes")
	var o LaneOptions
	if opts != nil {
		o = *opts
	}
	l := &Lanes[T]{db: db, names: slices.Clone(queues), queues: make(map[string]*Queue[T]), strict: o.Strict, err: o.check(queues)}
	for _, name := range queues {
		if l.queues[name] != nil {
			l.err = errors.Join(l.err, fmt.Errorf("%w: lane %q is listed twice", ErrInvalid, name))
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
		err = fmt.Errorf("%w: no lanes: list at least one queue", ErrInvalid)
	}
	if o.Strict && len(o.Weights) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: Weights cannot be combined with Strict", ErrInvalid))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Weights)) {
		if !slices.Contains(queues, name) {
			err = errors.Join(err, fmt.Errorf("%w: Weights names %q, which is not a lane", ErrInvalid, name))
		}
		if weight := o.Weights[name]; weight <= 0 {
			err = errors.Join(err, fmt.Errorf("%w: weight %d of lane %q is not positive", ErrInvalid, weight, name))
		}
	}
	return err
}

// Work is like [Queue.Work] for the jobs of all lanes. Workers limits their handlers together, and [JobInfo]
// contains the job's queue. A commit to any of the queues wakes Work.
//
// A job that arrives while Work is idle is claimed after its commit, in a transaction of Work. Unlike with
// [Queue.Work], an enqueue never hands its job directly to an idle worker.
//
// Each Work counts its own turns, so the shares apply to the jobs taken by that Work and not to the file as a
// whole. Work claims jobs ahead to keep fast handlers busy, and a job of an earlier lane has to wait for these
// jobs. With a [Pool], Work claims nothing ahead.
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
	c.OnSettled = func(end *worker.SettleOp, ran time.Duration) { l.queues[end.Claim.Queue].onSettled(end, ran) }
	source := l.db.newSource(name)
	source.Queues, source.Lanes = l.names, l.shares()
	defer l.db.working(c, l.names...)()
	return fail("work", name, worker.NewPool(source, c).Run(ctx))
}

// WorkTx is like [Queue.WorkTx], for the jobs of all lanes as in [Lanes.Work].
func (l *Lanes[T]) WorkTx(ctx context.Context, fn func(context.Context, *sql.Tx, *Job[T]) error, opts *WorkOptions) error {
	if fn == nil {
		return l.Work(ctx, nil, opts) // returns ErrInvalid
	}
	return l.Work(ctx, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) }, opts)
}

// shares returns the lanes of a single Work, which keeps count of their turns.
func (l *Lanes[T]) shares() *worker.Lanes {
	if l.strict {
		return worker.StrictLanes()
	}
	return worker.FairLanes(l.names, l.weights)
}

// claimed splits a claim by queue and reports each part to the queue concerned.
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
