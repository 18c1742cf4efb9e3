package honker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
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
// event that fn has already settled is left alone. The acks of several events share a commit, which begins as soon as a
// handler has returned and an earlier commit has ended. Events are delivered at least once; call [Delivery.AckTx] in fn
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

// groupWork is the state of a running Group.Work. The goroutine that called Work makes all claims. It claims events and
// settles handled events in the same transaction, called a step. Handlers run in other goroutines, which end when no
// claimed event is left.
//
//	step ──ready──► handlers ──finished, signal──► step
type groupWork[E any] struct {
	group  *Group[E]
	opts   GroupWorkOptions
	fn     func(context.Context, *Delivery[E]) error
	member *Member[E]

	handlerCtx     context.Context // parent of every handler's context
	cancelHandlers context.CancelCauseFunc
	settleCtx      context.Context // when it ends, unsettled events are given up
	giveUp         context.CancelFunc

	pool    *worker.Reservation // slots shared with other loops; each claimed event holds a slot until its handler returns
	signal  chan struct{}       // capacity 1; an event is finished
	running sync.WaitGroup      // goroutines

	// The following fields belong to the goroutine that called Work.
	more     bool      // a claim may find events
	claimed  time.Time // when events were last claimed
	prefetch worker.Prefetch

	mu       sync.Mutex
	ready    []*Delivery[E]                         // claimed events that no handler has seen
	handlers int                                    // goroutines that take events from ready
	active   map[*heldEvent]context.CancelCauseFunc // events from the start of their handlers until they are settled
	finished []*settleOp                            // of active, to be settled by the next step
	quick    int                                    // handlers that have returned quickly since the last claim
	stopping bool                                   // no handler may start
}

func newGroupWork[E any](ctx context.Context, g *Group[E], o GroupWorkOptions, fn func(context.Context, *Delivery[E]) error) *groupWork[E] {
	w := &groupWork[E]{group: g, opts: o, fn: fn, pool: o.Pool.shared().Reserve()}
	w.signal = make(chan struct{}, 1)
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
	err := w.loop(ctx, retry)
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

// loop takes steps until ctx ends.
func (w *groupWork[E]) loop(ctx context.Context, retry *engine.Retry) error {
	settling := w.retry(notSettled)
	for ctx.Err() == nil {
		finished := w.takeFinished()
		n := w.reserve(w.want(len(finished)))
		failures := retry
		if len(finished) > 0 {
			failures = settling
		}
		var err error
		if len(finished) == 0 && n == 0 {
			err = w.wait(ctx)
		} else if err = w.step(finished, n); err == nil {
			failures.Reset()
		}
		if err == nil {
			continue
		}
		w.pool.Release() // other loops can use the slots during the pause
		if err := w.retryAfter(ctx, failures, err); err != nil {
			return err
		}
	}
	return engine.Cause(ctx)
}

const notSettled = "event not settled, retrying"

// want returns the number of events to claim once settling events have been settled: an event for each handler without an
// event, plus as many as have been handled quickly within the last few milliseconds. Slow handlers do not count,
// because they may all finish together and not be free again soon. With a Pool nothing is claimed ahead, because a
// waiting event must not hold a slot.
func (w *groupWork[E]) want(settling int) int {
	if !w.more {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.idle() + settling
	if w.pool == nil {
		n += w.prefetch.Size(time.Now(), w.quick)
		w.quick = 0
	}
	return max(0, min(n, row.ClaimRows))
}

// idle returns the number of handlers without an event. It is negative while events are claimed ahead. The caller holds
// mu.
func (w *groupWork[E]) idle() int { return w.opts.Workers - len(w.active) - len(w.ready) }

// reserve returns n if the loop has a shared slot. If all slots are taken, it returns 0 and waits in line for a slot. If n is
// 0, it gives the loop's slots back.
func (w *groupWork[E]) reserve(n int) int {
	switch {
	case n == 0:
		w.pool.Release()
	case !w.pool.Ask():
		return 0
	}
	return n
}

// wait blocks until an event is finished or, if a handler is idle, until a claim may find events. It gives back events that
// were claimed ahead and have waited for too long, and renews the membership.
func (w *groupWork[E]) wait(ctx context.Context) error {
	var published <-chan struct{}
	if w.looks() {
		waiter := w.group.db.engine.Notifier.Subscribe(w.member.keys...)
		defer waiter.Close()
		ready, err := w.member.ready(ctx) // after subscribing, so that no commit in between is missed
		if err != nil || ready {
			w.more = ready
			return err
		}
		published = waiter.C()
	}
	timer := time.NewTimer(w.patience())
	defer timer.Stop()
	select {
	case <-w.signal:
	case <-published:
		return w.group.db.engine.Notifier.Err()
	case <-w.pool.Granted():
	case <-timer.C:
		if w.patience() <= 0 {
			w.giveBack()
		}
		return w.member.renew(ctx)
	case <-ctx.Done():
	}
	return nil
}

// looks reports whether a handler is idle and the last claim left no events behind.
func (w *groupWork[E]) looks() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.more && w.idle() > 0
}

// patience returns how long to wait until the membership is due to be renewed or events that were claimed ahead are given
// back.
func (w *groupWork[E]) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ready) == 0 {
		return w.member.third()
	}
	return min(w.member.third(), w.member.stale()-time.Since(w.claimed))
}

// step settles finished events and claims up to n events.
func (w *groupWork[E]) step(finished []*settleOp, n int) error {
	markSettled(finished, true)
	s := &groupStep{member: w.member.member, finished: finished, n: n, pool: w.pool}
	if err := s.write(w.settleCtx); err != nil {
		markSettled(finished, false)
		w.undone(s, err)
		return err
	}
	w.settled(finished, s.repeated)
	if n > 0 {
		w.more = s.claimed.More
		w.hand(s.claimed.Events)
	}
	return nil
}

// markSettled marks events as settled while they are being settled, so that a renewal at that time does not report their
// claims as lost.
func markSettled(ops []*settleOp, is bool) {
	for _, op := range ops {
		op.h.settled.Store(is)
	}
}

// undone keeps the finished events of a step that has failed for the next step. A trigger of the application may have
// refused an event or the claim. Then each event is settled by itself, and the next claim waits until it may find
// events again.
func (w *groupWork[E]) undone(s *groupStep, err error) {
	if w.group.db.engine.Refused(err) {
		w.more = false
		for _, op := range s.finished {
			w.running.Go(func() { w.settleAlone(op) })
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = append(s.finished, w.finished...)
}

// settleAlone settles an event until it succeeds or Work gives up.
func (w *groupWork[E]) settleAlone(op *settleOp) {
	all, retry := []*settleOp{op}, w.retry(notSettled)
	for {
		markSettled(all, true)
		err := w.group.db.engine.Write(w.settleCtx, "", op)
		if err == nil {
			w.settled(all, false)
			return
		}
		markSettled(all, false)
		if retry.After(w.settleCtx, err) != nil {
			w.forget(op.h)
			return
		}
	}
}

// settled reports the outcomes of settled events and drops the events. repeated means that they may have been settled by
// an earlier commit.
func (w *groupWork[E]) settled(ops []*settleOp, repeated bool) {
	log, back := w.group.db.opts.Logger, false
	for _, op := range ops {
		h := op.h
		switch {
		case !op.out.Held && !h.settledTx.Load() && !repeated:
			log.Warn("honker: group: claim lost, the event will be delivered again", "group", w.group.name, "event", h.claim.Offset)
		case op.out.Held && op.settle.Back && !op.out.Died:
			log.Info("honker: attempt failed", "topic", w.group.s.name, "group", w.group.name, "event", h.claim.Offset,
				"attempt", h.attempts, "next", w.group.db.engine.Now().Add(op.rest), "error", worker.Reason(op.cause))
		}
		h.report(op)
		back = back || op.out.Held && op.settle.Back
		w.forget(h)
	}
	if back {
		w.group.db.engine.Notifier.Wake(wake.Group(groupKey(w.member.id)))
	}
}

// hand passes claimed events to handlers. It starts no more goroutines than there are events.
func (w *groupWork[E]) hand(rows []row.Delivery) {
	if len(rows) == 0 {
		return
	}
	w.claimed = time.Now()
	w.pool.Start(len(rows))
	bytes := 0
	for _, r := range rows {
		bytes += len(r.Payload)
	}
	w.prefetch.Saw(bytes, len(rows))
	decoded := w.member.decodeAll(w.settleCtx, rows)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range decoded {
		if d.err != nil { // the event is dead
			w.pool.End()
			continue
		}
		w.ready = append(w.ready, d.delivery)
	}
	for n := min(len(w.ready), w.opts.Workers-w.handlers); n > 0; n-- {
		w.handlers++
		w.running.Go(w.serve)
	}
}

// serve handles events until none is left.
func (w *groupWork[E]) serve() {
	ended := false
	defer func() {
		if !ended { // the handler has called runtime.Goexit, as t.FailNow does
			w.running.Go(w.serve)
		}
	}()
	for {
		d, ctx, cancel := w.next()
		if d == nil {
			ended = true
			return
		}
		w.handle(ctx, cancel, d)
	}
}

// next returns the next event and the ctx of its handler. It returns nil if the calling goroutine must end.
func (w *groupWork[E]) next() (*Delivery[E], context.Context, context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ready) == 0 || w.stopping {
		w.handlers--
		return nil, nil, nil
	}
	d := w.ready[0]
	w.ready = w.ready[1:]
	ctx, cancel := context.WithCancelCause(w.handlerCtx)
	w.active[d.heldEvent] = cancel
	return d, ctx, cancel
}

// handle runs the handler and passes its outcome to the next step.
func (w *groupWork[E]) handle(ctx context.Context, cancel context.CancelCauseFunc, d *Delivery[E]) {
	began, err := time.Now(), worker.ErrGoexit
	// Deferred, because the handler may call runtime.Goexit.
	defer func() {
		cancel(nil)
		w.finish(d, err, time.Since(began) < quickPace)
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

// finish ends the handling of an event with the handler's error, which may be nil.
func (w *groupWork[E]) finish(d *Delivery[E], failure error, quick bool) {
	op := w.outcome(d, failure)
	w.mu.Lock()
	if quick {
		w.quick++
	}
	if op == nil {
		delete(w.active, d.heldEvent)
	} else {
		w.finished = append(w.finished, op)
	}
	w.mu.Unlock()
	w.pool.End()
	w.wakeLoop()
}

// outcome decides how to settle an event after its handler returned failure, which may be nil. It returns nil if nothing
// is left to settle.
func (w *groupWork[E]) outcome(d *Delivery[E], failure error) *settleOp {
	switch {
	case d.settled.Load(): // by the handler
		if failure != nil {
			w.group.db.opts.Logger.Warn("honker: group: a handler returned an error after it settled its event; the error is ignored",
				"group", w.group.name, "event", d.Offset, "attempt", d.Attempts, "error", engine.Describe(failure))
		}
		return nil
	case failure == nil:
		return d.ackOp()
	case w.handlerCtx.Err() != nil:
		return nil // Work has ended and the handler did not fail; leaving the group returns the event without using up an attempt
	}
	return d.nackOp(w.backoff(d, failure), w.group.opts.MaxAttempts, failure)
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

// takeFinished returns the events to settle.
func (w *groupWork[E]) takeFinished() []*settleOp {
	w.mu.Lock()
	defer w.mu.Unlock()
	finished := w.finished
	w.finished = nil
	return finished
}

// forget drops an event that has ended or was given up.
func (w *groupWork[E]) forget(h *heldEvent) {
	w.mu.Lock()
	delete(w.active, h)
	w.mu.Unlock()
	w.wakeLoop()
}

func (w *groupWork[E]) wakeLoop() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// giveBack returns events that no handler has seen to the group.
func (w *groupWork[E]) giveBack() {
	w.mu.Lock()
	unseen := w.ready
	w.ready = nil
	w.mu.Unlock()
	held := make([]row.Holding, len(unseen))
	for i, d := range unseen {
		held[i] = d.claim
		w.pool.End()
	}
	w.member.release(held)
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

// drain gives back the events that no handler has seen, waits for the handlers, and cancels slow handlers. It
// then leaves the group, which gives back unsettled events.
func (w *groupWork[E]) drain(stopRenewing func()) {
	defer w.running.Wait()
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	w.pool.Release()
	w.giveBack()
	cancelling := time.AfterFunc(w.opts.DrainTimeout, func() { w.cancelHandlers(worker.ErrEnded) })
	defer cancelling.Stop()
	// max, because the sum may overflow
	over := time.AfterFunc(max(w.opts.DrainTimeout, w.opts.DrainTimeout+worker.CancelGrace), w.giveUp)
	defer over.Stop()
	w.settleLast()
	stopRenewing() // a heartbeat after leaving would rejoin the group
	err := w.member.leave(context.WithoutCancel(w.settleCtx))
	if err != nil && !engine.Final(err) {
		w.group.db.opts.Logger.Error("honker: group: the member could not leave the group, its leases will lapse", "group", w.group.name, "error", err)
	}
}

// settleLast settles events until no handler is left or settleCtx ends.
func (w *groupWork[E]) settleLast() {
	retry := w.retry(notSettled)
	for w.busy() {
		if finished := w.takeFinished(); len(finished) > 0 {
			if err := w.step(finished, 0); err != nil && retry.After(w.settleCtx, err) != nil {
				return
			}
			continue
		}
		select {
		case <-w.signal:
		case <-w.settleCtx.Done():
			w.group.db.opts.Logger.Warn("honker: group: a handler is still running after its context was cancelled; its event is returned to the group",
				"group", w.group.name)
			return
		}
	}
}

// busy reports whether handlers run or have events to settle.
func (w *groupWork[E]) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.active) > 0
}
