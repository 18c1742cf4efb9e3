package observe

import (
	"context"
	"log/slog"
	"slices"

	"github.com/honker-go/honker/internal/contain"
)

// events lists all functions of an Observer except Begin, which returns results.
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
// Tx stays nil. Begin returns no nil results. A nil o is treated as an empty Observer.
func contained(o *Observer, log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	c := &Observer{Begin: containedBegin(log, o.Begin)}
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
	joint := &Observer{Begin: beginEach(all)}
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

// begin is the type of Observer.Begin.
type begin func(context.Context, Operation) (context.Context, func(OperationEnd))

// beginEach returns a begin that calls each observer's Begin, or nil if there is none. The operations end in
// reverse order.
func beginEach(all []*Observer) begin {
	var fs []begin
	for _, o := range all {
		if o.Begin != nil {
			fs = append(fs, o.Begin)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	return func(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
		ends := make([]func(OperationEnd), len(fs))
		for i, f := range fs {
			ctx, ends[i] = f.call(ctx, op)
		}
		return ctx, func(e OperationEnd) {
			for _, end := range slices.Backward(ends) {
				end(e)
			}
		}
	}
}

// call calls f and substitutes defaults for nil results.
func (f begin) call(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
	inner, end := f(ctx, op)
	if inner == nil {
		inner = ctx
	}
	if end == nil {
		end = endNothing
	}
	return inner, end
}

// containedBegin wraps f, and the function that it returns, so that panics are logged and recovered. The verb
// itself rejects a nil ctx.
func containedBegin(log *slog.Logger, f begin) begin {
	if f == nil {
		return beginNothing
	}
	return func(ctx context.Context, op Operation) (inner context.Context, end func(OperationEnd)) {
		if ctx == nil {
			return ctx, endNothing
		}
		inner = ctx // even if f panics
		contain.Func(log, "Observer.Begin", func(op Operation) { inner, end = f.call(ctx, op) })(op)
		return inner, contain.Func(log, "Observer.Begin", end)
	}
}

func beginNothing(ctx context.Context, _ Operation) (context.Context, func(OperationEnd)) {
	return ctx, endNothing
}

func endNothing(OperationEnd) {}
