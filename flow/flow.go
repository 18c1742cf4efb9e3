// Package flow runs functions that survive. A function runs step by step, and the result of each step is stored in
// the database. After a crash, a deploy or a week of sleep, the function goes on after its last step, in any process.
//
//	orders := flow.New(db, "order", func(ctx context.Context, o Order) (Receipt, error) {
//		charge, err := flow.Step(ctx, "charge", func(ctx context.Context) (Charge, error) {
//			return pay(ctx, flow.Key(ctx, "charge"), o.Total) // may run again after a crash
//		})
//		if err != nil {
//			return Receipt{}, err
//		}
//		if _, err := flow.Wait[Approval](ctx, "approved", 72*time.Hour); err != nil {
//			return Receipt{}, err // the worker is free meanwhile
//		}
//		return flow.StepTx(ctx, "ship", func(ctx context.Context, tx *sql.Tx) (Receipt, error) {
//			return ship(ctx, tx, o, charge) // takes effect exactly once
//		})
//	}, nil)
//	go orders.Work(ctx, nil)
//	...
//	started, err := orders.StartTx(ctx, tx, "order-17", order)
//
// A run is a job of the queue flow:<name>. Pauses, limits, priorities, retries and dead letters of queues apply to it,
// and [honker.Explain] and the dashboard show it. The function is called again from its beginning whenever the run goes
// on. Steps that have ended return their stored results without running.
//
// The function needs no deterministic code. It must give each step a name of its own, and must do in steps whatever
// must not happen again.
package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Errors of package flow.
var (
	// ErrSuspended is returned by the functions of the package once the run waits: by the Sleep, Wait or Call that
	// makes it wait, and by every later call of the same attempt. The function must return it.
	ErrSuspended = errors.New("the run is suspended; return this error")
	// ErrTimeout is returned by [Wait] if the signal has not come in time.
	ErrTimeout = errors.New("the signal has not come in time")
	// ErrSignalled is returned by [Signal] if the run has a signal of that name already. The first signal stays.
	ErrSignalled = errors.New("the run already has this signal")
)

// FailedError is the error of a run that has failed for good or was cancelled.
type FailedError struct {
	Flow, ID  string
	Attempts  int    // zero for a cancelled run
	LastError string // as stored with the dead letter
	Cancelled bool
}

// Error implements error.
func (e *FailedError) Error() string {
	if e.Cancelled {
		return fmt.Sprintf("run %q of flow %q was cancelled", e.ID, e.Flow)
	}
	return fmt.Sprintf("run %q of flow %q failed after %d attempts: %s", e.ID, e.Flow, e.Attempts, e.LastError)
}

// Is reports whether target is honker.ErrCancelled and the run was cancelled.
func (e *FailedError) Is(target error) bool { return e.Cancelled && target == honker.ErrCancelled }

// Options configures a Flow. The zero value of a field means its default.
type Options struct {
	// Queue configures the jobs of the runs. MaxAttempts counts failures and crashes of a run; a suspended run spends
	// none. Timeout limits a stretch between two suspensions. ResultTTL must be zero; see Keep.
	Queue honker.QueueOptions
	// Keep is how long a run that is over stays, with its steps and its result; default 24h, negative for ever. No
	// run with the same ID can start meanwhile.
	Keep time.Duration
}

// Flow is a function whose runs survive. It is safe for concurrent use.
type Flow[In, Out any] struct {
	*flow
	fn    func(ctx context.Context, in In) (Out, error)
	queue *honker.Queue[In]
}

// flow is the part of a Flow that does not depend on its types.
type flow struct {
	name   string
	db     *honker.DB
	engine *engine.Engine
	store  engine.FlowStore
	keep   time.Duration // negative for ever
	// Of the undos. backoff is the pause after a failed try, and attempts the largest number of tries.
	backoff  honker.Backoff
	attempts int
	err      error // returned by all methods if the flow is invalid
}

// QueuePrefix begins the names of the queues of flows. The rest is the name of the flow. Use it to limit, pause or watch
// the runs of a flow as the jobs of its queue.
const QueuePrefix = "flow:"

const (
	maxName     = 255
	maxSteps    = 10_000
	defaultKeep = 24 * time.Hour

	defaultAttempts = 25 // as honker.QueueOptions has it
)

// New returns a flow that runs fn. It does not access the database. opts may be nil.
//
// If an argument is invalid, the flow's methods return [honker.ErrInvalid]: for a nil fn, a name that is not 1 to 255
// bytes of UTF-8, invalid options, or a name that the process already uses for a flow of other types in the same
// database. New panics if db is nil.
func New[In, Out any](db *honker.DB, name string, fn func(ctx context.Context, in In) (Out, error), opts *Options) *Flow[In, Out] {
	if db == nil {
		panic("flow.New: db is nil")
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	e := engine.Of(db)
	f := &Flow[In, Out]{flow: &flow{name: name, db: db, engine: e, store: e.Stores.Flows, keep: o.Keep}, fn: fn}
	f.err = errors.Join(checkName("name of the flow", name), o.check())
	if fn == nil {
		f.err = errors.Join(f.err, fmt.Errorf("%w: the function of flow %q is nil", honker.ErrInvalid, name))
	}
	f.keep = cmp.Or(f.keep, defaultKeep)
	f.attempts, f.backoff = cmp.Or(o.Queue.MaxAttempts, defaultAttempts), o.Queue.Backoff
	if f.backoff == nil {
		f.backoff = honker.Exponential(time.Second, time.Hour)
	}
	if f.err == nil {
		f.err = register(f.flow, reflect.TypeFor[func(In) Out]())
	}
	o.Queue.ResultTTL = f.keep
	f.queue = honker.NewQueue[In](db, QueuePrefix+name, &o.Queue)
	return f
}

func (o *Options) check() error {
	if o.Queue.ResultTTL != 0 {
		return fmt.Errorf("%w: set Keep instead of Queue.ResultTTL", honker.ErrInvalid)
	}
	return nil
}

// checkName checks a name of a flow, run, step or signal.
func checkName(kind, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("%w: the %s has %d bytes; the maximum is %d", honker.ErrInvalid, kind, len(name), maxName)
	}
	return engine.CheckName(kind, name)
}

// registered holds the types of the flows of each database of the process.
var registered = struct {
	mu    sync.Mutex
	types map[*engine.Engine]map[string]reflect.Type
}{types: make(map[*engine.Engine]map[string]reflect.Type)}

// register records the types of a flow. It returns an error if the process uses the name for other types.
func register(f *flow, types reflect.Type) error {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	of := registered.types[f.engine]
	if of == nil {
		of = make(map[string]reflect.Type)
		registered.types[f.engine] = of
		run, _ := f.engine.UntilClose(context.Background())
		context.AfterFunc(run, func() { forget(f.engine) })
	}
	if other := of[f.name]; other != nil && other != types {
		return fmt.Errorf("%w: flow %q has the types %v here and %v elsewhere in the process", honker.ErrInvalid, f.name, types, other)
	}
	of[f.name] = types
	return nil
}

func forget(e *engine.Engine) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	delete(registered.types, e)
}

// Work runs the flow's runs, as [honker.Queue.Work] does for jobs. It blocks until ctx ends and the running handlers
// have drained, and then returns nil. opts may be nil.
func (f *Flow[In, Out]) Work(ctx context.Context, opts *honker.WorkOptions) error {
	if f.err != nil {
		return fail("work", f.name, f.err)
	}
	return f.queue.Work(ctx, f.handle, opts)
}

// WorkDue runs the runs that are due, as [honker.Queue.WorkDue] does for jobs, and returns the number of attempts. A run
// that is suspended, or waits for a retry, stays for a later call. opts may be nil.
func (f *Flow[In, Out]) WorkDue(ctx context.Context, opts *honker.WorkOptions) (int, error) {
	if f.err != nil {
		return 0, fail("work", f.name, f.err)
	}
	return f.queue.WorkDue(ctx, f.handle, opts)
}

// Name returns the name of the flow.
func (f *Flow[In, Out]) Name() string { return f.name }

// DB returns the DB that New was given.
func (f *Flow[In, Out]) DB() *honker.DB { return f.db }

// Handle registers f with w, which then runs f's runs beside other jobs. See [honker.Handle].
func Handle[In, Out any](w *honker.Workers, f *Flow[In, Out]) {
	if f == nil || f.err != nil {
		honker.Handle[In](w, nil, nil)
		return
	}
	honker.Handle(w, f.queue, f.handle)
}

func fail(op, name string, err error) error { return engine.Wrap("flow "+op, name, err) }

// failRun adds the flow and the run to err.
func failRun(op, flow, id string, err error) error {
	if err == nil {
		return nil
	}
	return fail(op, flow+"/"+id, err)
}
