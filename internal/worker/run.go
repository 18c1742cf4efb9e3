package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// activeJob is a job that a pool holds, from its claim to the commit that settles it. The worker
// sets end and ran before it calls finish, and the batch reads them afterwards, so they need no
// lock.
type activeJob struct {
	claim   *Claim
	row     *row.Job
	handler *Handler
	end     *SettleOp // nil if nothing is left to settle
	ready   time.Time // when the job could have started
	ran     time.Duration

	// Guarded by Pool.mu, because renewals and the drain look at running jobs.
	cancel    context.CancelCauseFunc // cancels the running handler
	lost      bool                    // the claim is lost
	cancelled bool                    // the job was cancelled
	returned  bool                    // the handler has returned
}

// work runs handlers, one after another, until jobs or retire is closed. All workers receive from
// the same channel, so a blocked handler holds up only its own worker.
func (p *Pool) work(retire chan struct{}) {
	defer p.workers.Done()
	for {
		select {
		case j, open := <-p.jobs:
			if !open { // closed by end after the drain, when nothing can be sent any more
				return
			}
			p.runJob(j, retire)
		case <-retire:
			return
		}
	}
}

// ErrGoexit is the error of a handler that has ended its goroutine, as t.FailNow does.
var ErrGoexit = errors.New("the handler called runtime.Goexit")

// runJob runs the handler of j and queues j to be settled. It calls finish exactly once, whatever
// the handler does: an unfinished job would be held and renewed forever.
func (p *Pool) runJob(j *activeJob, retire chan struct{}) {
	// The job was claimed ahead, and now the pool is stopping or the claim has expired. The handler has
	// not run, so the job must not lose an attempt.
	if p.stopping.Load() || p.isLost(j) {
		p.finish(j, p.source.release(j.claim))
		return
	}
	if p.isCancelled(j) {
		p.finish(j, p.source.cancelled(j.claim))
		return
	}
	err, returned := ErrGoexit, false
	defer func() {
		if !returned {
			p.replaceWorker(j, retire, err)
		}
	}()
	ctx, cancel := p.handlerContext(j)
	defer cancel()
	j.handler.OnStarted(j.claim)
	err = p.attempt(ctx, j)
	end := p.outcomeFor(j, err)
	returned = true
	p.finish(j, end)
}

// replaceWorker handles a goroutine that the handler, or OnError, has ended with runtime.Goexit, as
// t.FailNow does. It reports the error, retries the job, and starts another worker.
func (p *Pool) replaceWorker(j *activeJob, retire chan struct{}, err error) {
	defer func() { // OnError may end the goroutine, too
		p.finish(j, p.source.Retry(j.claim, time.Second, err))
		if !p.Due && p.slots == nil { // otherwise Run uses this goroutine, or it serves a single job
			p.workers.Add(1) // before the deferred Done of this worker, so that the group does not reach zero
			go p.work(retire)
		}
	}()
	if err == ErrGoexit { // any other error was reported before OnError ended the goroutine
		p.reportError(j, err)
	}
}

// isLost reports whether a renewal found the claim missing before the handler started.
func (p *Pool) isLost(j *activeJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.lost
}

// handlerContext returns the ctx of an attempt. It ends with the claim, after the Timeout, and with
// the drain.
func (p *Pool) handlerContext(j *activeJob) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(p.handlerCtx)
	p.mu.Lock()
	j.cancel = cancel // from here on, a lost claim cancels the handler
	if j.cancelled {  // after the check in runJob
		cancel(ErrCancelled)
	}
	j.claim.Began, j.claim.Made = time.Now(), p.source.Engine.Now()
	j.claim.started.Store(true)
	j.claim.Wait = max(0, j.claim.Made.Sub(j.ready)) // times in the file are whole seconds
	p.mu.Unlock()                                    // locked, because the drain may report this handler
	timeout := j.handler.Timeout
	if timeout <= 0 {
		return ctx, func() { cancel(nil) }
	}
	// Derived from the cancellable ctx, so that a lost claim ends the attempt before its Timeout.
	ctx, end := context.WithTimeoutCause(ctx, timeout, timeoutError(timeout))
	stays := time.AfterFunc(max(timeout, timeout+CancelGrace), func() { // the sum may overflow
		p.Logger.Warn("honker: worker: a handler is still running after its Timeout and occupies a worker",
			"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt, "timeout", timeout)
	})
	return ctx, func() { stays.Stop(); end(); cancel(nil) }
}

// timeoutError is the cancellation cause of a ctx whose Timeout has passed. It distinguishes a
// timeout from the drain.
type timeoutError time.Duration

func (t timeoutError) Error() string { return fmt.Sprintf("timeout after %v", time.Duration(t)) }

// attempt runs the handler. It turns a panic into an error with the stack.
func (p *Pool) attempt(ctx context.Context, j *activeJob) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(p.Logger, r, "queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
		}
		j.ran = j.claim.Ran()
		j.handler.OnReturned(j.claim)
		j.claim.returned.Store(true)
		// Handlers mostly return ctx's error, which does not mention the timeout.
		var timeout timeoutError
		if err != nil && errors.As(context.Cause(ctx), &timeout) {
			err = fmt.Errorf("%w: %w", timeout, err)
		}
	}()
	return j.handler.Handle(ctx, j.claim, j.row)
}

// stackFollows separates the text of a panic from its stack.
const stackFollows = "\n\ngoroutine "

// Panicked logs the panic value r of a handler and returns it as an error with the stack. It must
// be called by the function that has recovered.
func Panicked(log *slog.Logger, r any, attrs ...any) error {
	text, stack := fmt.Sprint(r), string(debug.Stack())
	log.Error("honker: handler panicked", append(attrs, "panic", text, "stack", stack)...)
	return fmt.Errorf("panic: %s\n\n%s", text, stack)
}

// outcomeFor decides how the claim ends after an attempt that returned err. It returns nil if the
// handler has settled the job itself.
func (p *Pool) outcomeFor(j *activeJob, err error) *SettleOp {
	if j.claim.Settled.Load() {
		if err != nil {
			p.reportIgnored(j, err)
		}
		return nil // the handler's own settle is final, whatever it returned
	}
	if p.isCancelled(j) {
		return p.source.cancelled(j.claim) // a cancellation overrides the handler's result
	}
	// The handler may have settled the job in a transaction of its own that was not committed. The
	// batch therefore settles the job as usual and accepts that the claim may be gone.
	mayBeSettled := j.claim.SettledTx.Load()
	if err == nil {
		end := p.source.Ack(j.claim, j.handler.ResultTTL)
		end.Ended = mayBeSettled
		return end
	}
	directive, directed := p.asDirective(err)
	// The handler's directive holds even at the end of the drain. Any other error at that time is
	// mostly ctx's error and does not use up an attempt. A snooze is not a failure and is not reported.
	switch {
	case !directed && p.handlerCtx.Err() != nil:
		return p.source.release(j.claim) // the pool has stopped, and the handler did not fail
	case directed && directive.SlowDown:
		return p.source.slowDown(j.claim, directive)
	case directed && directive.Outcome == Snoozed:
		return p.source.Snooze(j.claim, directive.Delay)
	}
	// Report the error here and not after the commit. Formatting the error runs the handler's code,
	// which must not run, or panic, inside a transaction shared with other callers.
	p.reportError(j, err)
	end := p.source.Retry(j.claim, 0, err)
	end.Ended, end.Ran = mayBeSettled, j.ran
	if directed {
		end.Outcome, end.Delay = directive.Outcome, directive.Delay
	} else {
		end.Delay = p.backoff(j, err)
	}
	return end
}

// reportIgnored reports an error that the handler returned after it had settled its job.
func (p *Pool) reportIgnored(j *activeJob, err error) {
	p.Logger.Warn("honker: worker: a handler returned an error after it settled its job; the error is ignored",
		"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt, "error", engine.Describe(err))
	p.reportError(j, err)
}

// asDirective returns the Directive in err, if any. The methods of err belong to the application,
// so panics in them are caught.
func (p *Pool) asDirective(err error) (d *Directive, ok bool) {
	defer p.recoverPanic("the handler's error")
	ok = errors.As(err, &d)
	return d, ok
}

// reportError calls OnError and catches its panics.
func (p *Pool) reportError(j *activeJob, err error) {
	if p.OnError == nil {
		return
	}
	defer p.recoverPanic("OnError")
	p.OnError(p.handlerCtx, j.row, err)
}

// backoff returns the pause before the next attempt: the result of Backoff, or a minute if Backoff
// panics.
func (p *Pool) backoff(j *activeJob, err error) (d time.Duration) {
	d = time.Minute // neither an endless loop of immediate retries nor a lost job
	defer p.recoverPanic("Backoff")
	return max(0, j.handler.Backoff(int(j.row.Attempts-p.base(j)), err))
}

// base returns the number of attempts that the job had before it was last requeued. It is read only
// after failures, which are rare. If the read fails, all attempts count.
func (p *Pool) base(j *activeJob) (base int64) {
	if j.row.Attempts <= 1 {
		return 0
	}
	_ = p.source.Engine.Read(p.settleCtx, func(ctx context.Context, q engine.Querier) (err error) {
		base, err = p.source.Engine.Stores.Jobs.Base(ctx, q, j.claim.ID)
		return err
	})
	return min(base, j.row.Attempts-1)
}

// recoverPanic keeps a panic of the application's code from ending the process. It must be deferred
// directly, because recover works only there.
func (p *Pool) recoverPanic(what string) {
	if r := recover(); r != nil {
		p.Logger.Error("honker: worker: "+what+" panicked", "queue", p.source.Name, "panic", r, "stack", string(debug.Stack()))
	}
}
