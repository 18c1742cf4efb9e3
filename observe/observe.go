package observe

import (
	"context"
	"errors"
)

// Observer receives events for metrics, traces and tests. Nil fields are skipped, and a nil *Observer
// receives nothing.
//
// The functions are called from the goroutine that did the work or while it waits. Several may be called at once,
// so they must be fast and safe for concurrent use. A panic in a function is logged and has no other effect: jobs
// are still settled and loops continue. A function that ends its goroutine, as t.FailNow does, also ends the verb
// or the Work that called it; the Work drains and handles the jobs that it has claimed. In Started and Returned,
// ending the goroutine fails the attempt, as it does in a handler. In Woke and Tx, it affects nothing else.
type Observer struct {
	// Begin is called at the start of a verb that adds jobs or events, before honker.Options.Headers, so that it
	// can start a trace span. The verb continues with the returned ctx, which must be derived from the given ctx.
	// The returned function is called at the end of the verb. Either result may be nil. The verb's arguments are
	// checked after Begin.
	Begin func(ctx context.Context, op Operation) (context.Context, func(OperationEnd))

	// BeginStep is called before a function that package flow runs for a step: that of Step, StepTx or Undo. It is not
	// called for a step that is recorded already. The function gets the returned ctx, which must be derived from the
	// given ctx. The returned function is called when the result of a step is committed, when an undo has returned, or when
	// either has failed. Either result may be nil. Both are called in the goroutine of the step.
	BeginStep func(ctx context.Context, s Step) (context.Context, func(StepEnd))

	Enqueued     func(Enqueued)
	Deduplicated func(Deduplicated)
	Claimed      func(Claimed)
	Started      func(Started)
	Returned     func(Returned)
	Settled      func(Settled)
	Published    func(Published)
	Fired        func(Fire)
	Woke         func(Woke)
	Requeued     func(Requeued)
	Discarded    func(Discarded)
	Cancelled    func(Cancelled)
	Working      func(Working)
	Paused       func(Paused)
	Maintained   func(Maintained)
	Tx           func(TxEnded)
}

// Operation describes a call to Enqueue, EnqueueMany, Publish or PublishMany, or of their Tx forms.
type Operation struct {
	Verb string // "enqueue" or "publish"
	Name string // queue or topic name
	N    int    // number of jobs or events
	Tx   bool   // in the caller's transaction, which may still be rolled back
}

// Step describes a step of a run of package flow.
type Step struct {
	Flow, Run string
	Name      string
	Undo      bool  // the step takes back an earlier step
	Job       int64 // job of the run
	Attempt   int   // of the job
}

// StepEnd describes the end of a Step.
type StepEnd struct {
	Err error // if not nil, the step is not recorded; observe.ErrPanicked if its function has not returned
}

// ErrPanicked is the error of a [StepEnd] if the step's function panicked or ended its goroutine.
var ErrPanicked = errors.New("the function of the step panicked or ended its goroutine")

// OperationEnd describes the end of an Operation.
type OperationEnd struct {
	First, Last int64 // job IDs or event offsets; includes the ID of an existing unique job
	Err         error // if not nil, nothing was added
}
