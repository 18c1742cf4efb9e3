// Package dispatch sends jobs to actors by address. An address is an actor type, a group within a
// type, or a single instance.
//
// An actor runs the jobs for its instance first, then the jobs for its group, then the jobs for its
// type. It refreshes a presence row while it runs. A supervisor sends jobs, waits for their results,
// reads their status, and stops, pauses or pings actors. [Keys] builds the names of all queues.
//
//	d := dispatch.New(db, nil)
//	actor := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: "1"},
//		func(ctx context.Context, t *dispatch.Task[Script]) (any, error) { return run(ctx, t.Args) }, nil)
//	go actor.Run(ctx)
//	...
//	out, err := dispatch.Call[string](ctx, d, dispatch.Target{Type: "osis"}, Script{"2 + 2"})
//
// Jobs are ordinary honker jobs. They are delivered at least once, and all bindings can send and
// claim them. Package dispatch keeps its own data in tables with the prefix _honkerx_dispatch_. The
// first Send or the first actor creates them.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// ErrInstanceTaken is returned by [Actor.Run] if another actor with the same name is alive. The
// name becomes free when that actor ends or has not refreshed its presence for Options.TTL.
var ErrInstanceTaken = errors.New("another live actor has this name")

// ErrNoResult is returned for a finished job without a result. Either its worker saved no result
// and sent no reply, or another caller claimed the reply, or the result has expired.
var ErrNoResult = errors.New("the job has finished without a result")

// Options configures a Dispatcher. The zero value of each field selects its default.
type Options struct {
	// Prefix begins every key, which lets several systems share a database; default DefaultPrefix.
	// It may be up to 64 bytes of UTF-8 and must not contain an asterisk or NUL.
	Prefix string
	// Prios is the number of priority levels, at most MaxPrios; default 1. It must be the same in all
	// processes.
	Prios int
	// Legacy controls the use of legacy queues, see SetLegacy; default LegacyOff.
	Legacy LegacyMode
	// LegacyQueues returns a target's legacy queues. The default returns LegacyActorQueue for a
	// type and nil for a group or an instance.
	LegacyQueues func(Target) []string
	// IfAbsent controls where a job is sent if its target has no live actor; default Wait.
	IfAbsent AbsentPolicy
	// Log publishes the state changes of sent jobs to the stream <prefix>events, see [Event].
	Log bool
	// TTL is the lifetime of a presence that is not refreshed, at least 1s; default 15s. Actors refresh
	// their presence every TTL/3.
	TTL time.Duration
}

// Dispatcher sends jobs and commands to actors. It is safe for concurrent use.
type Dispatcher struct {
	db     *honker.DB
	engine *engine.Engine
	keys   Keys
	opts   Options
	err    error // returned by all methods if an option is invalid
	store  engine.DispatchStore

	mu       sync.Mutex
	mode     LegacyMode
	sessions map[*session]struct{} // running actors
	retained map[string]bool       // control topics whose retention was set
}

// New returns a dispatcher for db. If opts is nil, the defaults are used. New does not access the
// database. If an option is invalid, the dispatcher's methods return [honker.ErrInvalid].
func New(db *honker.DB, opts *Options) *Dispatcher {
	e := engine.Of(db)
	d := &Dispatcher{db: db, engine: e, store: e.Stores.Dispatches, sessions: make(map[*session]struct{}), retained: make(map[string]bool)}
	d.opts, d.err = opts.withDefaults()
	d.keys, d.mode = Keys{Prefix: d.opts.Prefix}, d.opts.Legacy
	if d.opts.LegacyQueues == nil {
		d.opts.LegacyQueues = d.keys.legacyQueues
	}
	return d
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	err := errors.Join(Keys{Prefix: out.Prefix}.check(), out.Legacy.check(), out.IfAbsent.check())
	if out.Prios < 0 || out.Prios > MaxPrios {
		err = errors.Join(err, fmt.Errorf("%w: Prios must be between 0 and %d, got %d", honker.ErrInvalid, MaxPrios, out.Prios))
	}
	if out.TTL != 0 && out.TTL < time.Second {
		err = errors.Join(err, fmt.Errorf("%w: TTL must be at least a second, got %v", honker.ErrInvalid, out.TTL))
	}
	out.Prefix, out.Prios, out.TTL = cmp.Or(out.Prefix, DefaultPrefix), cmp.Or(out.Prios, 1), cmp.Or(out.TTL, 15*time.Second)
	return out, err
}

// Keys returns the dispatcher's key builder.
func (d *Dispatcher) Keys() Keys { return d.keys }

// checkTarget returns an error if the options of d or the target t are invalid.
func (d *Dispatcher) checkTarget(t Target) error {
	if err := errors.Join(d.err, t.check()); err != nil {
		return err
	}
	if t.Prio < 0 || t.Prio >= d.opts.Prios {
		return fmt.Errorf("%w: Prio must be between 0 and %d (Options.Prios), got %d", honker.ErrInvalid, d.opts.Prios-1, t.Prio)
	}
	return nil
}

// read runs f in a read transaction.
func (d *Dispatcher) read(ctx context.Context, f func(ctx context.Context, q engine.Querier) error) error {
	if d.err != nil {
		return d.err
	}
	return d.engine.Read(ctx, f)
}

func fail(op, name string, err error) error { return engine.Wrap("dispatch "+op, name, err) }

func failID(op string, id int64, err error) error { return engine.WrapID("dispatch "+op, id, err) }
