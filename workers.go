package honker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/worker"
)

// Order determines from which queue [Workers] takes the next job. Within a queue, jobs are always taken in the
// order described at [Queue.Claim].
type Order int

// The orders.
const (
	// ByPriority takes the job with the highest priority in any of the queues. Among jobs of equal priority it
	// takes the job with the earliest start time, then the lowest id, as if all jobs were in a single queue.
	ByPriority Order = iota
	// InTurns takes jobs from the queues in turn, in proportion to WorkersOptions.Weights. A queue without jobs
	// loses its turns and does not catch up later.
	InTurns
	// Strict takes jobs of a queue only while no queue that was registered before it has a job that can be
	// claimed. A queue that always has jobs starves the queues after it.
	Strict
)

// WorkersOptions configures [Workers]. The zero value of a field means its default.
type WorkersOptions struct {
	Order Order // default ByPriority
	// Weights maps queue names to their shares under InTurns. While all queues have jobs, three jobs of a queue
	// with weight 3 run for each job of a queue with weight 1. The default weight is 1. A weight less than 1, a
	// queue without a handler, and Weights with another Order are ErrInvalid.
	Weights map[string]int
}

// Workers runs many kinds of jobs. Each kind has its own queue, and [Handle] or [HandleTx] registers a function
// for its jobs. [Workers.Work] then runs the jobs of all registered queues, and never claims jobs of any other
// queue. The queues must belong to the same DB.
//
// Each claim is a single statement over all queues. It examines a few jobs of each queue, however many are
// waiting.
//
// A Workers is safe for concurrent use, and several calls of Work may run at the same time. The zero Workers is
// [ErrInvalid]; use NewWorkers.
type Workers struct {
	db   *DB
	opts WorkersOptions

	mu    sync.Mutex
	kinds []kind
	begun bool  // Work has been called
	err   error // invalid registrations
}

// kind is a queue and the function that handles its jobs.
type kind struct {
	*queue
	handle func(middleware []Middleware) func(context.Context, *worker.Claim, *row.Job) error
}

// NewWorkers returns a Workers without handlers. It does not access the file. A nil opts means defaults. Work
// returns [ErrInvalid] for invalid options. NewWorkers panics if db is nil.
func NewWorkers(db *DB, opts *WorkersOptions) *Workers {
	db.mustExist("NewWorkers")
	w := &Workers{db: db}
	if opts != nil {
		w.opts = *opts
		w.opts.Weights = maps.Clone(opts.Weights)
	}
	return w
}

// Handle registers fn as the handler of q's jobs. [Workers.Work] calls it as [Queue.Work] would, with q's Timeout,
// Backoff and ResultTTL. The lease is WorkOptions.Lease, and each job has the MaxAttempts with which it was
// enqueued. The order of the registrations matters for [Strict] only.
//
// Handle returns no error. Instead Work returns [ErrInvalid] if q or fn is nil, if q is invalid or belongs to
// another DB, or if q's queue already has a handler. Handle must be called before Work. A later call registers
// nothing and is logged, and Work returns ErrInvalid when it ends. w must not be nil.
func Handle[T any](w *Workers, q *Queue[T], fn func(context.Context, *Job[T]) error) {
	if q == nil || q.queue == nil {
		w.refuse(fmt.Errorf("%w: Handle was called with a nil or zero Queue: create it with NewQueue", ErrInvalid))
		return
	}
	if fn == nil {
		w.refuse(errNilFunction)
		return
	}
	w.register(kind{q.queue, func(middleware []Middleware) func(context.Context, *worker.Claim, *row.Job) error {
		return func(ctx context.Context, claim *worker.Claim, row *row.Job) error {
			return newJob[T](q.queue, row, claim).run(ctx, row.Payload, fn, middleware)
		}
	}})
}

// HandleTx is like [Handle], but runs fn in a write transaction that also acks the job, as [Queue.WorkTx] does.
// All other writers wait meanwhile, so fn should not use the network and should not wait.
func HandleTx[T any](w *Workers, q *Queue[T], fn func(context.Context, *sql.Tx, *Job[T]) error) {
	if fn == nil {
		Handle(w, q, nil) // reports the nil function
		return
	}
	Handle(w, q, func(ctx context.Context, job *Job[T]) error { return job.handleTx(ctx, fn) })
}

// register adds k, unless it is invalid or Work has begun.
func (w *Workers) register(k kind) {
	w.mu.Lock()
	begun := w.begun
	twice := slices.ContainsFunc(w.kinds, func(other kind) bool { return other.name == k.name })
	if !begun && !twice {
		w.kinds = append(w.kinds, k)
	}
	w.mu.Unlock()
	switch {
	case begun:
		w.refuse(fmt.Errorf("%w: Handle of queue %q was called after Work", ErrInvalid, k.name))
	case twice:
		w.refuse(fmt.Errorf("%w: queue %q has two handlers", ErrInvalid, k.name))
	case k.db != w.db:
		w.refuse(fmt.Errorf("%w: queue %q belongs to another DB", ErrInvalid, k.name))
	default:
		w.refuse(k.err)
	}
}

// refuse makes Work return err, which may be nil. After Work has been called, refuse also logs err.
func (w *Workers) refuse(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
	if w.begun {
		w.db.opts.Logger.Error("honker: a handler was not registered", "error", err)
	}
}

// refused returns the errors of all registrations.
func (w *Workers) refused() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// begin returns the registered kinds and ends the registration. It returns an error if the Workers is invalid.
func (w *Workers) begin() ([]kind, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.err
	if w.db == nil {
		return nil, fmt.Errorf("%w: a zero Workers: create it with NewWorkers", ErrInvalid)
	}
	if len(w.kinds) == 0 && err == nil {
		err = fmt.Errorf("%w: Workers has no handlers: register them with Handle", ErrInvalid)
	}
	if err := errors.Join(err, w.checkOrder()); err != nil {
		return w.kinds, err
	}
	w.begun = true
	return w.kinds, nil
}

// checkOrder returns an error for an unknown Order or invalid Weights.
func (w *Workers) checkOrder() (err error) {
	if w.opts.Order < ByPriority || w.opts.Order > Strict {
		err = fmt.Errorf("%w: unknown Order %d", ErrInvalid, w.opts.Order)
	}
	if len(w.opts.Weights) > 0 && w.opts.Order != InTurns {
		err = errors.Join(err, fmt.Errorf("%w: Weights require the Order InTurns", ErrInvalid))
	}
	for _, name := range slices.Sorted(maps.Keys(w.opts.Weights)) {
		if !slices.ContainsFunc(w.kinds, func(k kind) bool { return k.name == name }) {
			err = errors.Join(err, fmt.Errorf("%w: Weights names queue %q, which has no handler", ErrInvalid, name))
		}
		if weight := w.opts.Weights[name]; weight <= 0 {
			err = errors.Join(err, fmt.Errorf("%w: weight %d of queue %q is not positive", ErrInvalid, weight, name))
		}
	}
	return err
}

// Work runs the jobs of all registered queues, as [Queue.Work] does for a single queue. It blocks until ctx ends
// and the running handlers have drained, and then returns nil. A nil opts means defaults. The option Workers limits
// the handlers of all queues together, and a commit to any of the queues wakes Work. JobInfo.Queue tells Middleware
// and OnError which queue a job belongs to.
//
// Without handlers, or after an invalid registration, Work returns [ErrInvalid] immediately. Its other errors are
// those of Queue.Work.
//
// Work claims jobs ahead to keep fast handlers busy. A job that is enqueued later runs after those jobs, even if
// its priority is higher. With a [Pool], Work claims nothing ahead. With [InTurns], each Work counts its own turns,
// so the weights hold for the jobs of each Work and not across processes.
func (w *Workers) Work(ctx context.Context, opts *WorkOptions) error {
	_, err := w.work(ctx, opts, false)
	return err
}

// WorkDue runs the due jobs of all registered queues in the Order of w, sequentially and in the caller's goroutine,
// until no job is due. It returns the number of attempts. Options and errors are those of [Queue.WorkDue] and
// [Workers.Work].
func (w *Workers) WorkDue(ctx context.Context, opts *WorkOptions) (int, error) {
	return w.work(ctx, opts, true)
}

// work runs jobs until ctx ends. With due, it returns when no job is due, and n is the number of attempts.
func (w *Workers) work(ctx context.Context, opts *WorkOptions, due bool) (n int, err error) {
	kinds, err := w.begin()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	name := strings.Join(names, ", ")
	o, optsErr := opts.withDefaults()
	if err := errors.Join(err, optsErr); err != nil {
		return 0, fail("work", name, err)
	}
	if err := w.db.engine.RefuseInTx(ctx, ""); err != nil {
		return 0, fail("work", name, err)
	}
	c := w.db.poolConfig(o)
	for _, k := range kinds {
		c.Handlers = append(c.Handlers, k.handler(o.Middleware))
	}
	if due {
		c.Due, c.Workers = true, 1
		countAttempts(c.Handlers, &n)
	}
	defer w.db.working(c, names...)()
	err = worker.NewPool(w.source(kinds, names), c).Run(ctx)
	if due && err == nil && ctx.Err() != nil {
		err = engine.Cause(ctx)
	}
	return n, fail("work", name, errors.Join(err, w.refused()))
}

// source returns the source of a single Work.
func (w *Workers) source(kinds []kind, names []string) *worker.Source {
	if len(kinds) == 1 {
		return kinds[0].source
	}
	s := w.db.newSource(strings.Join(names, ", "))
	s.Queues = names
	switch w.opts.Order {
	case Strict:
		s.Lanes = row.InOrder(names...)
	case InTurns:
		s.Lanes = row.InTurns(names, w.weights(names))
	default:
		s.Lanes = row.InOneOrder(names...)
	}
	return s
}

// weights returns the weights of the queues. The default is 1.
func (w *Workers) weights(names []string) []int {
	weights := make([]int, len(names))
	for i, name := range names {
		weights[i] = max(1, w.opts.Weights[name])
	}
	return weights
}

// handler returns the worker.Handler for jobs of kind k.
func (k kind) handler(middleware []Middleware) *worker.Handler {
	return &worker.Handler{
		Timeout:    k.opts.Timeout,
		ResultTTL:  k.opts.ResultTTL,
		Backoff:    k.opts.Backoff,
		Handle:     k.handle(middleware),
		OnClaimed:  k.claimed,
		OnStarted:  k.started,
		OnReturned: k.returned,
		OnSettled:  k.onSettled,
	}
}

// countAttempts makes handlers, which run one after another, count their calls in n.
func countAttempts(handlers []*worker.Handler, n *int) {
	for _, h := range handlers {
		handle := h.Handle
		h.Handle = func(ctx context.Context, claim *worker.Claim, row *row.Job) error {
			*n++
			return handle(ctx, claim, row)
		}
	}
}

// poolConfig returns the configuration of a pool, without its handlers.
func (db *DB) poolConfig(o WorkOptions) worker.Config {
	c := worker.Config{
		WorkerID:     o.WorkerID,
		Workers:      o.Workers,
		Lease:        o.Lease,
		DrainTimeout: o.DrainTimeout,
		Logger:       db.opts.Logger,
		Slots:        o.Pool.shared(),
	}
	if o.OnError != nil {
		c.OnError = func(ctx context.Context, row *row.Job, err error) {
			info := infoOf(row, db.engine.Now(), db.opts.Codec)
			o.OnError(ctx, &info, err)
		}
	}
	return c
}
