// Package dispatch sends work to actors by address: to a type of them, a group of it, or one
// instance.
//
// An actor takes what is for itself first, then what is for its group, then what is for its type,
// and shows that it lives. A supervisor sends, waits for replies, sees what became of a job, and
// stops, pauses or asks the actors. The names of all queues come from [Keys].
//
//	d := dispatch.New(db, nil)
//	actor := dispatch.NewActor(d, dispatch.Identity{Type: "osis", Instance: "1"},
//		func(ctx context.Context, t *dispatch.Task[Script]) (any, error) { return run(ctx, t.Args) }, nil)
//	go actor.Run(ctx)
//	...
//	out, err := dispatch.Call[string](ctx, d, dispatch.Target{Type: "osis"}, Script{"2 + 2"})
//
// A job is one of honker's: it is delivered at least once, any binding can send it, and any binding
// can take it. The tables of dispatch are this library's own, _honkerx_dispatch_ in the file, and
// are made by the first Send or the first actor.
package dispatch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

//go:embed schema.sql
var schemaDDL string

//go:embed life.sql
var lifeDDL string

//go:embed legacy.sql
var legacyDDL string

//go:embed reply.sql
var replyDDL string

var (
	tables  = row.DispatchPart{Name: store.DispatchTables, DDL: schemaDDL}
	life    = row.DispatchPart{Name: store.DispatchLife, DDL: lifeDDL}
	copies  = row.DispatchPart{Name: store.DispatchLegacy, DDL: legacyDDL}
	replies = row.DispatchPart{Name: store.DispatchReplies, DDL: replyDDL}
)

// ErrInstanceTaken reports that another actor lives under the name. It is free once that has ended,
// or has not been heard of for Options.TTL.
var ErrInstanceTaken = errors.New("another actor lives under this name")

// ErrNoResult reports a job that has finished, and of which no result is there: its worker has saved
// none and pushed no reply, a caller has taken the reply, or it is no longer kept.
var ErrNoResult = errors.New("the job has finished without a result")

// Options of a Dispatcher. The zero value of a field means its default.
type Options struct {
	Prefix       string                // of all keys; default DefaultPrefix
	Prios        int                   // levels of priority, up to MaxPrios, alike in all processes; default 1
	Legacy       LegacyMode            // what is done with the queues of old actors; default LegacyOff; see SetLegacy
	LegacyQueues func(Target) []string // the old queues of a target; default LegacyActorQueue of a whole type, and none for a group or an instance
	IfAbsent     AbsentPolicy          // where a job goes when no actor of its target lives; default Wait
	Log          bool                  // publish the life of each job that is sent to the stream <prefix>events
	TTL          time.Duration         // after which an actor that is not heard of counts as gone; refreshed at a third of it; at least 1s; default 15s
}

// Dispatcher sends work to actors, and steers them. It is safe for concurrent use.
type Dispatcher struct {
	db     *honker.DB
	engine *engine.Engine
	keys   Keys
	opts   Options
	err    error // of a bad option
	store  store.Dispatches

	mu       sync.Mutex
	mode     LegacyMode
	sessions map[*session]struct{} // actors that run
	retained map[string]bool       // control topics that have a retention
}

// New returns a dispatcher on db. It touches nothing: a bad option is [honker.ErrInvalid] from the
// first verb. nil opts means defaults.
func New(db *honker.DB, opts *Options) *Dispatcher {
	d := &Dispatcher{db: db, engine: engine.Of(db), sessions: make(map[*session]struct{}), retained: make(map[string]bool)}
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
		err = errors.Join(err, fmt.Errorf("%w: %d Prios, at most %d", honker.ErrInvalid, out.Prios, MaxPrios))
	}
	if out.TTL != 0 && out.TTL < time.Second {
		err = errors.Join(err, fmt.Errorf("%w: TTL %v: at least a second", honker.ErrInvalid, out.TTL))
	}
	out.Prefix, out.Prios, out.TTL = or(out.Prefix, DefaultPrefix), or(out.Prios, 1), or(out.TTL, 15*time.Second)
	return out, err
}

// Keys are the names that the dispatcher uses.
func (d *Dispatcher) Keys() Keys { return d.keys }

// checkTarget is the error of a target, or of the dispatcher's options.
func (d *Dispatcher) checkTarget(t Target) error {
	if err := errors.Join(d.err, t.check()); err != nil {
		return err
	}
	if t.Prio < 0 || t.Prio >= d.opts.Prios {
		return fmt.Errorf("%w: level %d of %d (Options.Prios)", honker.ErrInvalid, t.Prio, d.opts.Prios)
	}
	return nil
}

// read runs f, unless nothing of dispatch is in the file.
func (d *Dispatcher) read(ctx context.Context, f func(ctx context.Context, q engine.Querier) error) error {
	if d.err != nil {
		return d.err
	}
	return d.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		if there, err := d.store.Exists(ctx, q); err != nil || !there {
			return err
		}
		return f(ctx, q)
	})
}

func fail(op, name string, err error) error { return engine.Wrap("dispatch "+op, name, err) }

func failID(op string, id int64, err error) error { return engine.WrapID("dispatch "+op, id, err) }

// or is v, or the default of a v that is zero.
func or[V comparable](v, otherwise V) V {
	var zero V
	if v == zero {
		return otherwise
	}
	return v
}
