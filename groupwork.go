package honker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/worker"
)

// GroupWorkOptions configures [Group.Work]. The zero value of a field means its default.
type GroupWorkOptions struct {
	// Workers is the number of concurrent handlers. The default is runtime.GOMAXPROCS(0) or, with a Pool, the
	// size of the Pool up to 256.
	Workers int
	// Member is the member's name, which must be unique in the group. The default is host-pid-random.
	Member string
	// DrainTimeout is how long handlers may continue after ctx ends before their own ctx is cancelled. The
	// default is 20s.
	DrainTimeout time.Duration
	// Pool limits the total number of handlers in all Work loops that share it. If it is nil, only Workers
	// applies.
	Pool *Pool
}

func (o *GroupWorkOptions) withDefaults() (GroupWorkOptions, error) {
	var out GroupWorkOptions
	if o != nil {
		out = *o
	}
	if out.Workers < 0 {
		return out, fmt.Errorf("%w: negative Workers %d", ErrInvalid, out.Workers)
	}
	if err := out.Pool.check(); err != nil {
		return out, err
	}
	if out.Workers == 0 {
		out.Workers = out.Pool.workers()
	}
	if out.Member == "" {
		out.Member = newWorkerID()
	}
	if out.DrainTimeout == 0 {
		out.DrainTimeout = 20 * time.Second
	}
	return out, errors.Join(engine.NotNegative("DrainTimeout", out.DrainTimeout), engine.CheckName("member", out.Member))
}

// Work joins the group as a member and calls fn for its events from several goroutines. It blocks until ctx ends
// and the handlers have finished, then leaves the group and returns nil. It waits for events without polling. A
// nil opts means defaults.
//
// The return value of fn settles the event. nil acks it. An error nacks it: the event is delivered again after the
// group's Backoff, until no attempts are left. A panic counts as an error whose text includes the stack trace. An
// event that fn has already settled is left alone. Events are delivered at least once; call [Delivery.AckTx] in fn
// for effects that must happen exactly once.
//
// The lease is renewed while fn runs. The ctx passed to fn carries the values of Work's ctx. It is cancelled
// with cause [ErrClaimLost] if the claim is lost, and it is cancelled when DrainTimeout has passed. Events that
// are unfinished by then return to the group without using up an attempt. A handler that ignores its ctx keeps
// Work from returning, but its event is still given back.
//
// Work returns [ErrInvalid] if fn is nil or if a name or option is invalid, and [ErrMemberTaken] if another
// member has the name. While running, it returns an error if the DB is closed ([ErrClosed]), if the file is
// replaced ([ErrDatabaseReplaced]), if the group is deleted ([ErrNotFound]), or if this member fails to renew
// its name for a Lease and another member takes it. Other storage errors are logged and retried.
func (g *Group[E]) Work(ctx context.Context, fn func(context.Context, *Delivery[E]) error, opts *GroupWorkOptions) error {
	o, err := opts.withDefaults()
	if fn == nil {
		err = errors.Join(err, errNilFunction)
	}
	if err := errors.Join(g.err, err); err != nil {
		return fail("work", g.name, err)
	}
	if err := g.db.engine.RefuseInTx(ctx, ""); err != nil {
		return fail("work", g.name, err)
	}
	return fail("work", g.name, g.db.runLoop(ctx, newGroupWork(ctx, g, o, fn).run))
}

// groupWork is the state of a running Group.Work: a member that passes its claimed events to handlers, each in
// its own goroutine.
type groupWork[E any] struct {
	group  *Group[E]
	opts   GroupWorkOptions
	fn     func(context.Context, *Delivery[E]) error
	member *Member[E]

	handlerCtx     context.Context // parent of every handler's context
	cancelHandlers context.CancelCauseFunc
	settleCtx      context.Context // when it ends, unsettled events are given up
	giveUp         context.CancelFunc

	pool     *worker.Reservation // slots shared with other loops; each claimed event holds a slot
	slots    chan struct{}       // holds a value for each handler that is running or about to run
	running  sync.WaitGroup      // counts running handlers
	finished atomic.Int64        // number of handlers that have finished quickly since the last claim

	mu     sync.Mutex // protects active
	active map[*heldEvent]context.CancelCauseFunc
}

func newGroupWork[E any](ctx context.Context, g *Group[E], o GroupWorkOptions, fn func(context.Context, *Delivery[E]) error) *groupWork[E] {
	w := &groupWork[E]{group: g, opts: o, fn: fn, pool: o.Pool.shared().Reserve()}
	w.slots = make(chan struct{}, o.Workers)
	w.active = make(map[*heldEvent]context.CancelCauseFunc)
	// When ctx ends, only claiming stops. Handlers may run and settle their events until the drain is over.
	lasting := context.WithoutCancel(ctx)
	w.handlerCtx, w.cancelHandlers = context.WithCancelCause(lasting)
	w.settleCtx, w.giveUp = context.WithCancel(lasting)
	return w
}

func (w *groupWork[E]) retry(what string) *engine.Retry {
	return &engine.Retry{Log: w.group.db.opts.Logger, Message: "group: " + what, Attrs: []any{"group", w.group.name}}
}

// run processes events until ctx ends or a claim fails permanently, and returns the reason.
func (w *groupWork[E]) run(ctx context.Context) error {
	defer w.giveUp()
	defer w.cancelHandlers(nil)
	retry := w.retry("transaction failed, retrying")
	for w.member == nil {
		m, err := w.group.Join(ctx, w.opts.Member)
		if err != nil {
			err = w.retryAfter(ctx, retry, err)
		}
		if err != nil {
			return err
		}
		w.member = m
	}
	stopRenewing := w.renewLeases()
	err := w.dispatch(ctx, retry)
	w.drain(stopRenewing)
	return err
}

// retryAfter handles an error of a step. If the step may be retried, retryAfter pauses and returns nil. Otherwise it
// returns the error that ends Work. Once ctx has ended, any error is assumed to be a result of that.
func (w *groupWork[E]) retryAfter(ctx context.Context, retry *engine.Retry, err error) error {
	if errors.Is(err, ErrMemberTaken) || errors.Is(err, ErrNotFound) {
		return err // the member or the group was removed, possibly on purpose
	}
	err = retry.After(ctx, err)
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	return err
}

// dispatch starts a handler for each event. It acquires a slot before claiming, so that no leased event has to
// wait for a slot.
func (w *groupWork[E]) dispatch(ctx context.Context, retry *engine.Retry) error {
	events := &prefetcher[E]{member: w.member, size: w.claimSize, pool: w.pool}
	defer w.pool.Release()
	defer events.giveBack()
	for {
		if err := w.takeSlot(ctx, events); err != nil {
			return err
		}
		d, err := events.next(ctx)
		if err != nil && d != nil {
			w.pool.Start(1)
			w.endSlots()
			continue
		}
		if err != nil {
			<-w.slots
			w.pool.Release()
			if err := w.retryAfter(ctx, retry, err); err != nil {
				return err
			}
			continue
		}
		retry.Reset()
		w.start(d)
	}
}

// claimSize returns the number of events to claim: the slot already taken plus the free slots. If the last batch was
// handled quickly, it also adds the number of quick handlers that have finished since, because about that many will
// finish before the next claim. Slow handlers do not count, because they may all finish together and not free their
// slots again soon. Slots shared with other loops are never held for a waiting event, so with a Pool nothing is
// claimed ahead.
func (w *groupWork[E]) claimSize(pace time.Duration) int {
	n := 1 + cap(w.slots) - len(w.slots)
	finished := int(w.finished.Swap(0))
	if pace < quickPace && w.pool == nil {
		n += finished
	}
	return min(n, mostAhead)
}

// takeSlot waits for a slot. If the wait is long, it gives back the events that were claimed ahead.
func (w *groupWork[E]) takeSlot(ctx context.Context, events *prefetcher[E]) error {
	select {
	case w.slots <- struct{}{}:
		return nil
	default:
	}
	stale := time.NewTimer(events.stale() - time.Since(events.taken))
	defer stale.Stop()
	for {
		select {
		case w.slots <- struct{}{}:
			return nil
		case <-stale.C:
			events.giveBack()
		case <-ctx.Done():
			return engine.Cause(ctx)
		}
	}
}

// endSlots releases an event's slots.
func (w *groupWork[E]) endSlots() {
	w.pool.End()
	<-w.slots
}

func (w *groupWork[E]) start(d *Delivery[E]) {
	w.pool.Start(1)
	ctx, cancel := context.WithCancelCause(w.handlerCtx)
	w.mu.Lock()
	w.active[d.heldEvent] = cancel
	w.mu.Unlock()
	w.running.Go(func() { w.handle(ctx, cancel, d) })
}

// handle runs the handler and settles its event.
func (w *groupWork[E]) handle(ctx context.Context, cancel context.CancelCauseFunc, d *Delivery[E]) {
	began, err := time.Now(), worker.ErrGoexit
	// Run in a defer because the handler may call runtime.Goexit, as t.FailNow does.
	defer func() {
		w.settle(ctx, d, err)
		w.mu.Lock()
		delete(w.active, d.heldEvent)
		w.mu.Unlock()
		cancel(nil)
		if time.Since(began) < quickPace {
			w.finished.Add(1)
		}
		w.endSlots()
	}()
	err = w.attempt(ctx, d)
}

// attempt runs the handler. It converts a panic into an error that includes the stack trace.
func (w *groupWork[E]) attempt(ctx context.Context, d *Delivery[E]) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = worker.Panicked(w.group.db.opts.Logger, r, "group", w.group.name, "event", d.Offset, "attempt", d.Attempts)
		}
	}()
	return w.fn(ctx, d)
}

// settle acks the event or gives it back after its handler returned failure, which may be nil.
func (w *groupWork[E]) settle(ctx context.Context, d *Delivery[E], failure error) {
	if d.settled.Load() { // by the handler
		if failure != nil {
			w.group.db.opts.Logger.Warn("honker: group: a handler returned an error after it settled its event; the error is ignored",
				"group", w.group.name, "event", d.Offset, "attempt", d.Attempts, "error", engine.Describe(failure))
		}
		return
	}
	if failure != nil && w.handlerCtx.Err() != nil {
		return // Work has ended and the handler did not fail; leaving the group returns the event without using up an attempt
	}
	settle := d.ack
	if failure != nil {
		rest := w.backoff(d, failure)
		settle = func(ctx context.Context) error { return w.nack(ctx, d, rest, failure) }
	}
	retry := w.retry("event not settled, retrying")
	for {
		err := settle(w.settleCtx)
		if errors.Is(err, ErrClaimLost) && !d.settledTx.Load() {
			w.group.db.opts.Logger.Warn("honker: group: claim lost, the event will be delivered again",
				"group", w.group.name, "event", d.Offset)
		}
		if err == nil || errors.Is(err, ErrClaimLost) || retry.After(w.settleCtx, err) != nil {
			return
		}
	}
}

// nack gives back an event whose handler failed, and logs the failure. If the event dies, nack reports its death.
func (w *groupWork[E]) nack(ctx context.Context, d *Delivery[E], rest time.Duration, failure error) error {
	op := d.nackOp(rest, w.group.opts.MaxAttempts, failure)
	if err := d.giveBack(ctx, op); err != nil || op.out.Died {
		return err
	}
	w.group.db.opts.Logger.Info("honker: attempt failed", "topic", w.group.s.name, "group", w.group.name,
		"event", d.Offset, "attempt", d.Attempts, "next", w.group.db.engine.Now().Add(rest), "error", worker.Reason(failure))
	return nil
}

// backoff returns the delay before the next attempt, or a minute if Backoff panics.
func (w *groupWork[E]) backoff(d *Delivery[E], failure error) (rest time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			rest = time.Minute
			w.group.db.opts.Logger.Error("honker: group: Backoff panicked",
				"group", w.group.name, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	return d.backoff(failure)
}

// renewLeases keeps renewing the membership and the leases of running events until stop is called.
func (w *groupWork[E]) renewLeases() (stop func()) {
	ctx, cancel := context.WithCancel(w.settleCtx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		engine.Every(ctx, w.member.third(), func() time.Duration {
			w.renew(ctx)
			return w.member.third()
		})
	}()
	return func() { cancel(); <-ended }
}

// renew renews the leases and the membership once, logging any failure. There is time for two more tries before the
// Lease is over. If another member has taken the name, the next claim returns the error.
func (w *groupWork[E]) renew(ctx context.Context) {
	err := errors.Join(w.extendHeld(ctx), w.member.renew(ctx))
	if err != nil && ctx.Err() == nil {
		w.group.db.opts.Logger.Error("honker: group: leases not renewed", "group", w.group.name, "error", err)
	}
}

// extendHeld extends all leases in a single transaction. It does nothing if there are no leases.
func (w *groupWork[E]) extendHeld(ctx context.Context) error {
	held := w.unsettled()
	if len(held) == 0 {
		return nil
	}
	var lost []*heldEvent
	err := w.group.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		lost = nil // the transaction may be retried
		for _, h := range held {
			op := h.extendOp(w.group.opts.Lease)
			if err := op.Run(ctx, q, now); err != nil {
				return err
			}
			if !op.out.Held {
				lost = append(lost, h)
			}
		}
		return nil
	}))
	if err != nil {
		return err
	}
	w.lose(lost)
	return nil
}

// unsettled returns the events that have not been settled by their handlers.
func (w *groupWork[E]) unsettled() (held []*heldEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h := range w.active {
		if !h.settled.Load() {
			held = append(held, h)
		}
	}
	return held
}

// lose cancels the handlers of events whose claims were lost. A handler that has already settled its event may
// continue, because it no longer needs the claim.
func (w *groupWork[E]) lose(lost []*heldEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range lost {
		if cancel := w.active[h]; cancel != nil && !h.settled.Load() && !h.settledTx.Load() {
			cancel(ErrClaimLost)
		}
	}
}

// drain waits for the handlers and cancels those that take too long. It then leaves the group, which gives back
// unsettled events.
func (w *groupWork[E]) drain(stopRenewing func()) {
	defer w.running.Wait()
	finished := make(chan struct{})
	go func() { w.running.Wait(); close(finished) }()
	cancelling := time.AfterFunc(w.opts.DrainTimeout, func() { w.cancelHandlers(worker.ErrEnded) })
	defer cancelling.Stop()
	over := time.NewTimer(max(w.opts.DrainTimeout, w.opts.DrainTimeout+worker.CancelGrace)) // max, because the sum may overflow
	defer over.Stop()
	select {
	case <-finished:
	case <-over.C:
		w.group.db.opts.Logger.Warn("honker: group: a handler is still running after its context was cancelled; its event is returned to the group",
			"group", w.group.name)
		w.giveUp()
	}
	stopRenewing() // a heartbeat after leaving would rejoin the group
	err := w.member.leave(context.WithoutCancel(w.settleCtx))
	if err != nil && !engine.Final(err) {
		w.group.db.opts.Logger.Error("honker: group: the member could not leave the group, its leases will lapse", "group", w.group.name, "error", err)
	}
}
