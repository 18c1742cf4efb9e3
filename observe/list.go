package observe

import (
	"context"
	"log/slog"
	"slices"

	"github.com/honker-go/honker/internal/contain"
)

// events lists all functions of an Observer except Begin and BeginStep, which return results.
var events = []event{
	of("Enqueued", func(o *Observer) *func(Enqueued) { return &o.Enqueued }),
	of("Deduplicated", func(o *Observer) *func(Deduplicated) { return &o.Deduplicated }),
	of("Claimed", func(o *Observer) *func(Claimed) { return &o.Claimed }),
	of("Started", func(o *Observer) *func(Started) { return &o.Started }),
	of("Returned", func(o *Observer) *func(Returned) { return &o.Returned }),
	of("Settled", func(o *Observer) *func(Settled) { return &o.Settled }),
	of("Published", func(o *Observer) *func(Published) { return &o.Published }),
	of("Fired", func(o *Observer) *func(Fire) { return &o.Fired }),
	isolated("Woke", func(o *Observer) *func(Woke) { return &o.Woke }),
	of("Requeued", func(o *Observer) *func(Requeued) { return &o.Requeued }),
	of("Discarded", func(o *Observer) *func(Discarded) { return &o.Discarded }),
	of("Cancelled", func(o *Observer) *func(Cancelled) { return &o.Cancelled }),
	of("Working", func(o *Observer) *func(Working) { return &o.Working }),
	of("Paused", func(o *Observer) *func(Paused) { return &o.Paused }),
	of("Maintained", func(o *Observer) *func(Maintained) { return &o.Maintained }),
	isolated("Tx", func(o *Observer) *func(TxEnded) { return &o.Tx }),
}

// event describes one of an Observer's functions.
type event struct {
	join    func(to *Observer, all []*Observer)        // sets to's function to call those of all
	contain func(to, from *Observer, log *slog.Logger) // sets to's function to from's, with its panics contained
}

// of returns the event for a field of Observer.
func of[E any](name string, field func(*Observer) *func(E)) event {
	return event{
		join: func(to *Observer, all []*Observer) { *field(to) = tellEach(all, field) },
		contain: func(to, from *Observer, log *slog.Logger) {
			*field(to) = contain.Func(log, "Observer."+name, *field(from))
		},
	}
}

// isolated returns the event for a field that is called from goroutines on which others depend.
func isolated[E any](name string, field func(*Observer) *func(E)) event {
	e := of(name, field)
	e.contain = func(to, from *Observer, log *slog.Logger) {
		*field(to) = contain.Isolated(log, "Observer."+name, *field(from))
	}
	return e
}

func init() {
	contain.RegisterObserver(func(o any, log *slog.Logger) any { return contained(o.(*Observer), log) })
}

// contained returns a copy of o whose functions do not panic. Functions that are nil in o do nothing, except that
// Tx and BeginStep stay nil. Begin and BeginStep return no nil results. A nil o is treated as an empty Observer.
func contained(o *Observer, log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	c := &Observer{Begin: beginNothing}
	if o.Begin != nil {
		c.Begin = containedBegin(log, "Observer.Begin", o.Begin)
	}
	if o.BeginStep != nil {
		c.BeginStep = containedBegin(log, "Observer.BeginStep", o.BeginStep)
	}
	for _, e := range events {
		e.contain(c, o, log)
	}
	if o.Tx == nil {
		c.Tx = nil // so transactions don't need to read the clock
	}
	return c
}

// Observers returns an Observer that calls all of the given observers in order, for example an observer for metrics and
// another for traces. Nil observers are skipped. If an observer panics, the observers after it miss the event.
func Observers(all ...*Observer) *Observer {
	all = slices.DeleteFunc(slices.Clone(all), func(o *Observer) bool { return o == nil })
	joint := &Observer{
		Begin:     beginEach(all, func(o *Observer) begin[Operation, OperationEnd] { return o.Begin }),
		BeginStep: beginEach(all, func(o *Observer) begin[Step, StepEnd] { return o.BeginStep }),
	}
	for _, e := range events {
		e.join(joint, all)
	}
	return joint
}

// tellEach returns a function that calls each observer's field, or nil if no observer sets it.
func tellEach[E any](all []*Observer, field func(*Observer) *func(E)) func(E) {
	var fs []func(E)
	for _, o := range all {
		if f := *field(o); f != nil {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	return func(e E) {
		for _, f := range fs {
			f(e)
		}
	}
}

// begin is the type of Observer.Begin and of Observer.BeginStep.
type begin[Op, End any] func(context.Context, Op) (context.Context, func(End))

// beginEach returns a begin that calls the begin of each observer, or nil if there is none. The operations end in
// reverse order.
func beginEach[Op, End any](all []*Observer, field func(*Observer) begin[Op, End]) begin[Op, End] {
	var fs []begin[Op, End]
	for _, o := range all {
		if f := field(o); f != nil {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	return func(ctx context.Context, op Op) (context.Context, func(End)) {
		ends := make([]func(End), len(fs))
		for i, f := range fs {
			ctx, ends[i] = f.call(ctx, op)
		}
		return ctx, func(e End) {
			for _, end := range slices.Backward(ends) {
				end(e)
			}
		}
	}
}

// call calls f and substitutes defaults for nil results.
func (f begin[Op, End]) call(ctx context.Context, op Op) (context.Context, func(End)) {
	inner, end := f(ctx, op)
	if inner == nil {
		inner = ctx
	}
	if end == nil {
		end = endNothing[End]
	}
	return inner, end
}

// containedBegin wraps f, and the function that it returns, so that panics are logged and recovered. The verb
// itself rejects a nil ctx.
func containedBegin[Op, End any](log *slog.Logger, name string, f begin[Op, End]) begin[Op, End] {
	return func(ctx context.Context, op Op) (inner context.Context, end func(End)) {
		if ctx == nil {
			return ctx, endNothing[End]
		}
		inner, end = ctx, endNothing[End] // even if f panics
		contain.Func(log, name, func(op Op) { inner, end = f.call(ctx, op) })(op)
		return inner, contain.Func(log, name, end)
	}
}

func beginNothing(ctx context.Context, _ Operation) (context.Context, func(OperationEnd)) {
	return ctx, endNothing[OperationEnd]
}

func endNothing[End any](End) {}
