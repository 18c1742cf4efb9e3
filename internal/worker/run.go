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

// activeJob is a job that a pool holds, from its claim to the commit that settles it. Its
// worker sets end and ran before it is finished, and the batch reads them after, so they need
// no lock.
type activeJob struct {
	claim *Claim
	row   *row.Job
	end   *SettleOp // nil: nothing is left to settle
	ready time.Time // when it could have begun
	ran   time.Duration

	// Guarded by Pool.mu, because renewals and the drain look at jobs that run.
	cancel    context.CancelCauseFunc // of a running handler
	lost      bool                    // the claim, while the handler has not started
	cancelled bool                    // the job was
	returned  bool                    // the handler has
}

// work runs handlers, one after another, until there are no more jobs, or retire is closed. Which worker takes which
// job is left to the channel: a handler that blocks holds up its own worker and no other.
func (p *Pool) work(retire chan struct{}) {
	defer p.workers.Done()
	for {
		select {
		case j, open := <-p.jobs:
			if !open { // by Run, when the drain is over and nothing can be sent any more
				return
			}
			p.runJob(j, retire)
		case <-retire:
			return
		}
	}
}

// ErrGoexit is the failure of a handler that has ended its goroutine, as t.FailNow does.
var ErrGoexit = errors.New("the handler ended its goroutine")

// runJob runs one job and queues it to be settled. Whatever the handler does, finish is called
// exactly once: a job that is not finished is held, and renewed, for ever.
func (p *Pool) runJob(j *activeJob, retire chan struct{}) {
	// Claimed ahead, and now Work is ending or the claim has lapsed: the attempt was not made, so
	// it is not spent.
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
	p.OnStarted(j.claim)
	err = p.attempt(ctx, j)
	end := p.outcomeFor(j, err)
	returned = true
	p.finish(j, end)
}

// replaceWorker is for a goroutine that the handler, or OnError, has ended by runtime.Goexit, as
// t.FailNow does. The job is retried, and another goroutine takes the place of this one.
func (p *Pool) replaceWorker(j *activeJob, retire chan struct{}, err error) {
	p.finish(j, p.source.Retry(j.claim, time.Second, err))
	if !p.Due && p.slots == nil { // else it is the goroutine of Run, which drains and ends with it, or that of one job
		p.workers.Add(1) // before the deferred Done of this one: the group must not reach zero
		go p.work(retire)
	}
	if err == ErrGoexit { // another error was reported before: it was OnError that ended it
		p.reportError(j, err)
	}
}

// isLost reports that a renewal has missed the claim before the handler has started.
func (p *Pool) isLost(j *activeJob) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.lost
}

// handlerContext makes the ctx of one attempt. It ends with the claim, with the Timeout and
// with the drain.
func (p *Pool) handlerContext(j *activeJob) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(p.handlerCtx)
	p.mu.Lock()
	j.cancel = cancel // from here on a lost claim cancels the handler
	j.claim.Began = time.Now()
	j.claim.Wait = max(0, j.claim.Began.Sub(j.ready)) // the file has whole seconds
	p.mu.Unlock()                                     // the drain may report a handler that it gives up
	if p.Timeout <= 0 {
		return ctx, func() { cancel(nil) }
	}
	// On top of the cancellable one: a lost claim ends the attempt before its time.
	ctx, end := context.WithTimeoutCause(ctx, p.Timeout, timeoutError(p.Timeout))
	stays := time.AfterFunc(max(p.Timeout, p.Timeout+CancelGrace), func() { // the sum may overflow
		p.Logger.Warn("honker: worker: a handler goes on after its Timeout, and occupies a worker",
			"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt, "timeout", p.Timeout)
	})
	return ctx, func() { stays.Stop(); end(); cancel(nil) }
}

// timeoutError is the cause of a ctx that has ended by Timeout, to tell it from the drain's.
type timeoutError time.Duration

func (t timeoutError) Error() string { return fmt.Sprintf("timeout after %v", time.Duration(t)) }

// attempt runs the handler. A panic is an error with its stack.
func (p *Pool) attempt(ctx context.Context, j *activeJob) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(p.Logger, r, "queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt)
		}
		j.ran = j.claim.Ran()
		p.OnReturned(j.claim)
		j.claim.returned.Store(true)
		// A handler returns ctx's error as a rule, which does not say that its time was up.
		var timeout timeoutError
		if err != nil && errors.As(context.Cause(ctx), &timeout) {
			err = fmt.Errorf("%w: %w", timeout, err)
		}
	}()
	return p.Handle(ctx, j.claim, j.row)
}

// stackFollows separates the text of a panic from its stack.
const stackFollows = "\n\ngoroutine "

// Panicked logs the panic r of a handler and returns it as an error, with the stack. It is
// called by the function that has recovered.
func Panicked(log *slog.Logger, r any, attrs ...any) error {
	text, stack := fmt.Sprint(r), string(debug.Stack())
	log.Error("honker: handler panicked", append(attrs, "panic", text, "stack", stack)...)
	return fmt.Errorf("panic: %s\n\n%s", text, stack)
}

// outcomeFor decides how the claim ends after an attempt that returned err.
func (p *Pool) outcomeFor(j *activeJob, err error) *SettleOp {
	if j.claim.Settled.Load() {
		if err != nil {
			p.reportIgnored(j, err)
		}
		return nil // the handler has, and its word is the last, whatever it returned
	}
	if p.isCancelled(j) {
		return p.source.cancelled(j.claim) // as was asked for, whatever the handler made of it
	}
	// In a transaction of its own it may have settled the job and not committed. So the batch
	// tries as if it had not, and is not surprised when the claim is gone.
	mayBeSettled := j.claim.SettledTx.Load()
	if err == nil {
		end := p.source.Ack(j.claim, p.ResultTTL)
		end.mayBeSettled = mayBeSettled
		return end
	}
	directive, directed := p.asDirective(err)
	// What the handler says outright holds, also at the end of the drain; an error then is
	// mostly that of its ctx, and does not cost an attempt. Snooze is not a failure, so it is
	// not reported.
	switch {
	case !directed && p.handlerCtx.Err() != nil:
		return p.source.release(j.claim) // Work has ended, and the handler did not fail
	case directed && directive.SlowDown:
		return p.source.slowDown(j.claim, directive)
	case directed && directive.Outcome == Snoozed:
		return p.source.Snooze(j.claim, directive.Delay)
	}
	// Here and not after the commit: the error and its text are the handler's own code, which
	// must not run, or panic, inside a transaction that other callers share.
	p.reportError(j, err)
	end := p.source.Retry(j.claim, 0, err)
	end.mayBeSettled, end.ran = mayBeSettled, j.ran
	if directed {
		end.Outcome, end.Delay = directive.Outcome, directive.Delay
	} else {
		end.Delay = p.backoff(j, err)
	}
	return end
}

// reportIgnored tells of an error that came after the handler had settled its job.
func (p *Pool) reportIgnored(j *activeJob, err error) {
	p.Logger.Warn("honker: worker: a handler has settled its job and then returned an error, which changes nothing",
		"queue", j.claim.Queue, "job", j.claim.ID, "attempt", j.claim.Attempt, "error", engine.Describe(err))
	p.reportError(j, err)
}

// asDirective finds what the handler has said about its job. The error's methods are the
// application's code, so a panic in them is caught.
func (p *Pool) asDirective(err error) (d *Directive, ok bool) {
	defer p.recoverPanic("the handler's error")
	ok = errors.As(err, &d)
	return d, ok
}

// reportError calls OnError, in which a panic is caught as well.
func (p *Pool) reportError(j *activeJob, err error) {
	if p.OnError == nil {
		return
	}
	defer p.recoverPanic("OnError")
	p.OnError(p.handlerCtx, j.row, err)
}

// backoff asks for the pause before the next attempt: a minute, should Backoff panic.
func (p *Pool) backoff(j *activeJob, err error) (d time.Duration) {
	d = time.Minute // neither a retry at once, for ever, nor a job that is lost
	defer p.recoverPanic("Backoff")
	return max(0, p.Backoff(int(j.row.Attempts-p.base(j)), err))
}

// base is how many attempts the job had before it was last requeued. It is read only here, since
// failures are few. Where that fails, all attempts count.
func (p *Pool) base(j *activeJob) (base int64) {
	if j.row.Attempts <= 1 {
		return 0
	}
	_ = p.source.Engine.Read(p.settleCtx, func(ctx context.Context, q engine.Querier) (err error) {
		base, err = p.source.Jobs.Base(ctx, q, j.claim.ID)
		return err
	})
	return min(base, j.row.Attempts-1)
}

// recoverPanic keeps a panic of the application's code from ending the process. It is deferred
// directly, since recover works nowhere else.
func (p *Pool) recoverPanic(what string) {
	if r := recover(); r != nil {
		p.Logger.Error("honker: worker: "+what+" panicked", "queue", p.source.Queue, "panic", r, "stack", string(debug.Stack()))
	}
}
