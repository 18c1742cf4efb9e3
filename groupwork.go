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

// GroupWorkOptions of one Work of a group. The zero value of a field means its default.
type GroupWorkOptions struct {
	Workers      int           // handlers at once; default runtime.GOMAXPROCS(0), or with a Pool its size, but no more than 256
	Member       string        // the name in the group, unique among its members; default host-pid-random
	DrainTimeout time.Duration // default 20s: how long handlers may go on when ctx has ended, before their ctx is cancelled
	Pool         *Pool         // bounds the handlers of all the Work loops that share it; default nil: Workers alone does
}

func (o *GroupWorkOptions) withDefaults() (GroupWorkOptions, error) {
	var out GroupWorkOptions
	if o != nil {
		out = *o
	}
	if out.Workers < 0 {
		return out, fmt.Errorf("%w: %d workers", ErrInvalid, out.Workers)
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

// Work joins the group as a member and runs fn for its events, in several goroutines. It
// blocks, waiting without polling, until ctx ends and the handlers have finished; then it
// leaves the group and returns nil. nil opts means defaults.
//
// fn's return settles the event: nil acks it, an error nacks it, to be given out again
// after the group's Backoff until its attempts are spent. A panic is an error with its
// stack. An event that fn has settled itself is left alone. An event is delivered at least
// once; for effects that happen exactly once, call [Delivery.AckTx] in fn.
//
// The lease is renewed while fn runs. fn's ctx carries the values of ctx and is cancelled,
// with [ErrClaimLost] as its cause, when the claim was lost, and at the end of DrainTimeout.
// What fn has not finished then goes back to the group, unspent. A handler that ignores its
// ctx keeps Work from returning, not its event from being given out again.
//
// A nil fn, or a bad name or option, is [ErrInvalid]; a name that another member has is
// [ErrMemberTaken]. Later, Work returns an error when the DB is closed or its file was
// replaced ([ErrClosed], [ErrDatabaseReplaced]), when the group was deleted ([ErrNotFound]),
// and when another member took the name of one that could not renew it for a Lease. Other
// errors of storage are logged and tried again.
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

// groupWork is a Work of a group that is running: a member that hands what it claims to
// handlers, each in a goroutine.
type groupWork[E any] struct {
	group  *Group[E]
	opts   GroupWorkOptions
	fn     func(context.Context, *Delivery[E]) error
	member *Member[E]

	handlerCtx     context.Context // of all handlers
	cancelHandlers context.CancelCauseFunc
	settleCtx      context.Context // ends when what is not settled is given up
	giveUp         context.CancelFunc

	pool     *worker.Reservation // of slots that other loops share; each event that is claimed has one
	slots    chan struct{}       // a value for each handler that runs or is about to
	running  sync.WaitGroup      // handlers
	finished atomic.Int64        // quick handlers since the last claim

	mu     sync.Mutex // guards active
	active map[*heldEvent]context.CancelCauseFunc
}

func newGroupWork[E any](ctx context.Context, g *Group[E], o GroupWorkOptions, fn func(context.Context, *Delivery[E]) error) *groupWork[E] {
	w := &groupWork[E]{group: g, opts: o, fn: fn, pool: o.Pool.shared().Reserve()}
	w.slots = make(chan struct{}, o.Workers)
	w.active = make(map[*heldEvent]context.CancelCauseFunc)
	// The end of ctx ends the claiming. Handlers, and what they settle, have the drain.
	lasting := context.WithoutCancel(ctx)
	w.handlerCtx, w.cancelHandlers = context.WithCancelCause(lasting)
	w.settleCtx, w.giveUp = context.WithCancel(lasting)
	return w
}

func (w *groupWork[E]) retry(what string) *engine.Retry {
	return &engine.Retry{Log: w.group.db.opts.Logger, What: "group: " + what, Attrs: []any{"group", w.group.name}}
}

// run works until ctx ends or claiming fails for good, and returns why.
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

// retryAfter returns nil, after a pause, when a step that failed with err may be tried again,
// and otherwise what ends Work. What fails once ctx has ended is a consequence of that.
func (w *groupWork[E]) retryAfter(ctx context.Context, retry *engine.Retry, err error) error {
	if errors.Is(err, ErrMemberTaken) || errors.Is(err, ErrNotFound) {
		return err // the name or the group is gone, which may be wanted so
	}
	err = retry.After(ctx, err)
	if ctx.Err() != nil {
		return engine.Cause(ctx)
	}
	return err
}

// dispatch starts a handler for each event. It takes a slot before it claims, so that no
// event is held that has to wait for one.
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

// claimSize is the slot that was taken and those that are free. Where the claim before was
// handled quickly, it also counts the quick handlers that have finished since: as many will
// have finished before the next claim. Slow ones do not count, since they may well end
// together, without another event for each soon after. Slots that are shared with other loops
// are never used for an event that waits: nothing is claimed ahead.
func (w *groupWork[E]) claimSize(pace time.Duration) int {
	n := 1 + cap(w.slots) - len(w.slots)
	finished := int(w.finished.Swap(0))
	if pace < quickPace && w.pool == nil {
		n += finished
	}
	return min(n, mostAhead)
}

// takeSlot waits for a slot. What was claimed ahead goes back when that takes long.
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

// endSlots gives back the slots of an event.
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
	// Deferred, for a handler that ends its goroutine, as t.FailNow does.
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

// attempt runs the handler. A panic is an error with its stack.
func (w *groupWork[E]) attempt(ctx context.Context, d *Delivery[E]) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = worker.Panicked(w.group.db.opts.Logger, r, "group", w.group.name, "event", d.Offset, "attempt", d.Attempts)
		}
	}()
	return w.fn(ctx, d)
}

// settle ends the claim after an attempt that returned failure.
func (w *groupWork[E]) settle(ctx context.Context, d *Delivery[E], failure error) {
	if d.settled.Load() { // by the handler
		if failure != nil {
			w.group.db.opts.Logger.Warn("honker: group: a handler has settled its event and then returned an error, which changes nothing",
				"group", w.group.name, "event", d.Offset, "attempt", d.Attempts, "error", engine.Describe(failure))
		}
		return
	}
	if failure != nil && w.handlerCtx.Err() != nil {
		return // Work has ended, and the handler did not fail: leaving gives the event back unspent
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
			w.group.db.opts.Logger.Warn("honker: group: claim lost, the event is given out again",
				"group", w.group.name, "event", d.Offset)
		}
		if err == nil || errors.Is(err, ErrClaimLost) || retry.After(w.settleCtx, err) != nil {
			return
		}
	}
}

// nack gives back an event that its handler has failed, and tells the log; of its death, the
// nack itself has told.
func (w *groupWork[E]) nack(ctx context.Context, d *Delivery[E], rest time.Duration, failure error) error {
	op := d.nackOp(rest, w.group.opts.MaxAttempts, failure)
	if err := d.giveBack(ctx, op); err != nil || op.died {
		return err
	}
	w.group.db.opts.Logger.Info("honker: attempt failed", "topic", w.group.s.name, "group", w.group.name,
		"event", d.Offset, "attempt", d.Attempts, "next", time.Now().Add(rest), "error", worker.Reason(failure))
	return nil
}

// backoff asks for the pause before the next attempt: a minute, should Backoff panic.
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

// renewLeases renews the leases of the events that are being handled, and the membership,
// until stop is called.
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

// renew renews what renewLeases does, once. A failure is logged: two more tries fit into a
// Lease. That another member took the name is for the next claim to return.
func (w *groupWork[E]) renew(ctx context.Context) {
	err := errors.Join(w.extendHeld(ctx), w.member.renew(ctx))
	if err != nil && ctx.Err() == nil {
		w.group.db.opts.Logger.Error("honker: group: leases not renewed", "group", w.group.name, "error", err)
	}
}

// extendHeld extends all leases in one transaction, without one when there are none.
func (w *groupWork[E]) extendHeld(ctx context.Context) error {
	held := w.unsettled()
	if len(held) == 0 {
		return nil
	}
	var lost []*heldEvent
	err := w.group.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		lost = nil // the transaction may run again
		for _, h := range held {
			op := h.extendOp(w.group.opts.Lease)
			if err := op.Run(ctx, q, now); err != nil {
				return err
			}
			if !op.held {
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

// unsettled are the events that their handlers have not settled.
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

// lose cancels the handlers of events with claims that no longer hold, unless the handler
// has settled the event meanwhile: what it still does needs no claim.
func (w *groupWork[E]) lose(lost []*heldEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range lost {
		if cancel := w.active[h]; cancel != nil && !h.settled.Load() && !h.settledTx.Load() {
			cancel(ErrClaimLost)
		}
	}
}

// drain waits for the handlers, cancels those that take too long, and leaves the group,
// which gives back what they have not settled.
func (w *groupWork[E]) drain(stopRenewing func()) {
	defer w.running.Wait()
	finished := make(chan struct{})
	go func() { w.running.Wait(); close(finished) }()
	cancelling := time.AfterFunc(w.opts.DrainTimeout, func() { w.cancelHandlers(worker.ErrEnded) })
	defer cancelling.Stop()
	over := time.NewTimer(max(w.opts.DrainTimeout, w.opts.DrainTimeout+worker.CancelGrace)) // the sum may overflow
	defer over.Stop()
	select {
	case <-finished:
	case <-over.C:
		w.group.db.opts.Logger.Warn("honker: group: a handler ignores the end of its context; its event is given back",
			"group", w.group.name)
		w.giveUp()
	}
	stopRenewing() // a heartbeat after the leave would join again
	err := w.member.leave(context.WithoutCancel(w.settleCtx))
	if err != nil && !engine.Final(err) {
		w.group.db.opts.Logger.Error("honker: group: member has not left, its leases will lapse", "group", w.group.name, "error", err)
	}
}
