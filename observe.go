package honker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/worker"
)

// Observer receives events for metrics, traces and tests. Nil fields are skipped, and a nil *Observer
// receives nothing.
//
// The functions are called from the goroutine that did the work, or while it waits. Several may be called at once,
// so they must be quick and safe for concurrent use. A panic in a function is logged and has no other effect:
// jobs are still settled and loops continue. If a function ends its goroutine, as t.FailNow does, it also ends the
// verb or the Work that has called it. The Work drains, and handles the jobs that it has claimed. In Started and
// Returned, ending the goroutine fails the attempt, as it does in a handler. In Woke and Tx it ends nothing.
type Observer struct {
	// Begin is called at the start of a verb that adds jobs or events, before Options.Headers, so that it
	// can start a span of a trace. The verb continues with the returned ctx, which must be derived from
	// the given ctx. The returned function is called at the end of the verb. Either result may be nil. The
	// arguments of the verb are checked after Begin.
	Begin func(ctx context.Context, op Operation) (context.Context, func(OperationEnd))

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

// Operation describes a call of Enqueue, EnqueueMany, Publish or PublishMany, or of their Tx forms.
type Operation struct {
	Verb string // "enqueue" or "publish"
	Name string // of the queue or topic
	N    int    // number of jobs or events
	Tx   bool   // in the caller's transaction, which may still be rolled back
}

// OperationEnd describes the end of an Operation.
type OperationEnd struct {
	First, Last int64 // ids of the jobs or offsets of the events; a unique job that was found counts with its id
	Err         error // if not nil, nothing was added
}

// Enqueued reports that jobs were added to a queue.
type Enqueued struct {
	Queue string
	IDs   []int64
	Tx    bool // in the caller's transaction, which may still be rolled back
}

// Deduplicated reports enqueues that found a job with their unique key and added no job; see [Unique]. Added
// jobs are reported by Enqueued.
type Deduplicated struct {
	Queue    string
	Existing int  // number of enqueues that changed nothing
	Replaced int  // number of enqueues that changed the job they found
	Tx       bool // in the caller's transaction, which may still be rolled back
}

// Claimed reports that jobs were claimed by a worker.
type Claimed struct {
	Queue  string
	Worker string
	Jobs   int
	Took   time.Duration // from the decision to claim until the commit

	headers []string // as stored in the file
}

// Headers returns the headers of the claimed jobs that have any. Each call decodes them again. See the
// option [Headers].
func (c Claimed) Headers() []map[string]string {
	all := make([]map[string]string, len(c.headers))
	for i, text := range c.headers {
		all[i] = engine.DecodeHeaders(text)
	}
	return all
}

// Started reports that a handler of Work is about to run. A [Returned] follows each Started. [Settled] does not
// pair up with it: Settled is also reported for jobs that were not started here, and comes before Returned if the
// handler settles its job itself.
type Started struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Wait    time.Duration // see [Settled]
}

// Returned reports that a handler of Work has returned, panicked or ended its goroutine. The settle
// of its job is reported by [Settled], later.
type Returned struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Ran     time.Duration
}

// Outcome is the way in which a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	OutcomeAcked    = Outcome(worker.Acked)    // "acked"
	OutcomeRetried  = Outcome(worker.Retried)  // "retried"
	OutcomeDied     = Outcome(worker.Died)     // "died": the job was dead-lettered
	OutcomeSnoozed  = Outcome(worker.Snoozed)  // "snoozed": the attempt is unspent
	OutcomeReleased = Outcome(worker.Released) // "released": unfinished when Work ended; the attempt is unspent
	OutcomeLost     = Outcome(worker.Lost)     // "lost": the worker no longer held the claim

	OutcomeCancelled = Outcome(worker.Cancelled) // "cancelled": the job was cancelled while it was claimed
)

// Settled reports the end of a claim. A settle in the caller's transaction is reported after the commit. On a pool
// given to Attach, outside of [DB.Tx], the commit cannot be observed. The settle is then reported when the verb
// returns, and may still be rolled back. AckMany does not read individual jobs and is not reported.
//
// Every death that this process finds or causes is reported, including deaths without a settle: a job whose
// last claim has lapsed, found by the next claim or by Maintain, and an expired job, found by
// Maintain or SweepExpired. Err is then the reason, and Worker is the worker that held the job, if any. For events of
// groups only deaths are reported.
//
// Wait is the time between the moment at which the job became ready and the call of its handler. It is exact if an
// enqueue of this DB handed the job to an idle worker. Otherwise it counts from the second stored in the file, so
// it may be up to a second too long, or too short if the job was delayed.
type Settled struct {
	Queue   string
	Topic   string // set for an event of a group, in which case Queue is empty
	Group   string
	ID      int64 // id of the job, or offset of the event
	Worker  string
	Attempt int
	Outcome Outcome
	Err     error         // error of the handler, if it failed
	Wait    time.Duration // 0 outside of Work
	Ran     time.Duration // run time of the handler, or until the settle if the handler settled the job itself; 0 outside of Work
	At      time.Time     // start of the transaction that ended the claim; zero if no settle ended it: a lost claim, or a death that was found

	headers string // as stored in the file
}

// Headers returns the headers of the job. It returns nil if the job has none or was found dead without being
// settled. Each call decodes them again. See the option [Headers].
func (s Settled) Headers() map[string]string { return engine.DecodeHeaders(s.headers) }

// Published reports that an event or several consecutive events were appended to a topic.
type Published struct {
	Topic       string
	First, Last int64
	Tx          bool // in the caller's transaction, which may still be rolled back
}

// Woke reports that waiting goroutines were woken.
type Woke struct {
	Cause   string // "commit", "deadline" or "restart"
	Waiters int    // number of woken goroutines
}

// Requeued reports that dead jobs were requeued by package admin.
type Requeued struct {
	Queue string // the queue in which the jobs now wait
	IDs   []int64
	Actor string // see WithActor
	Tx    bool   // in the caller's transaction, which may still be rolled back
}

// Discarded reports that dead jobs were deleted by package admin.
type Discarded struct {
	Queue string
	IDs   []int64
	Actor string // see WithActor
}

// Cancelled reports that live jobs were removed by package admin. [Queue.Cancel] is not reported.
type Cancelled struct {
	Queue string
	IDs   []int64
	Actor string // see WithActor
}

// Working reports that a Work, WorkTx, WorkDue or WorkDueTx of this process begins or ends.
type Working struct {
	Queues []string // several for [Lanes], which share the slots; otherwise a single queue
	Worker string
	Slots  int  // number of handlers that may run at once; a [Pool] may limit them further
	Ended  bool // the Work has ended and is drained
}

// Paused reports that a verb of this process has paused a queue or a [Key] of it, or has ended such a pause. The
// expiry of a pause is not reported. A Tx form is reported in the same way as a settle; see [Settled].
type Paused struct {
	Queue   string
	Key     string    // empty for the whole queue
	Until   time.Time // time at which the pause expires; zero means it lasts until it is resumed
	Resumed bool      // the pause was ended
	Actor   string    // see WithActor
}

// Maintained reports the end of a round of [DB.Maintain] in the process that leads.
type Maintained struct {
	Took   time.Duration
	Failed []string // names of the tasks that failed and are retried in the next round, as in the log
}

// TxEnded reports the end of a transaction of this process that held the writer. The transaction may
// belong to a verb, to several verbs that shared it, to [DB.Tx], or to a pool of [DB.SQL] or [Connector].
// An attached DB reports none, because its pool belongs to the application.
type TxEnded struct {
	Wait      time.Duration // time spent waiting for other writers; for a single statement, which needs no BEGIN, only writers of this process
	Ran       time.Duration // time for which the writer was held
	Committed bool
}

// Observers returns an Observer that calls all of the given observers in order, such as an observer for metrics and
// another for traces. Nil observers are skipped. If an observer panics, the observers after it miss the event.
func Observers(all ...*Observer) *Observer {
	all = slices.DeleteFunc(slices.Clone(all), func(o *Observer) bool { return o == nil })
	return &Observer{
		Begin:        beginEach(all),
		Enqueued:     tellEach(all, func(o *Observer) func(Enqueued) { return o.Enqueued }),
		Deduplicated: tellEach(all, func(o *Observer) func(Deduplicated) { return o.Deduplicated }),
		Claimed:      tellEach(all, func(o *Observer) func(Claimed) { return o.Claimed }),
		Started:      tellEach(all, func(o *Observer) func(Started) { return o.Started }),
		Returned:     tellEach(all, func(o *Observer) func(Returned) { return o.Returned }),
		Settled:      tellEach(all, func(o *Observer) func(Settled) { return o.Settled }),
		Published:    tellEach(all, func(o *Observer) func(Published) { return o.Published }),
		Fired:        tellEach(all, func(o *Observer) func(Fire) { return o.Fired }),
		Woke:         tellEach(all, func(o *Observer) func(Woke) { return o.Woke }),
		Requeued:     tellEach(all, func(o *Observer) func(Requeued) { return o.Requeued }),
		Discarded:    tellEach(all, func(o *Observer) func(Discarded) { return o.Discarded }),
		Cancelled:    tellEach(all, func(o *Observer) func(Cancelled) { return o.Cancelled }),
		Working:      tellEach(all, func(o *Observer) func(Working) { return o.Working }),
		Paused:       tellEach(all, func(o *Observer) func(Paused) { return o.Paused }),
		Maintained:   tellEach(all, func(o *Observer) func(Maintained) { return o.Maintained }),
		Tx:           tellEach(all, func(o *Observer) func(TxEnded) { return o.Tx }),
	}
}

// tellEach returns nil if no observer has the function.
func tellEach[E any](all []*Observer, of func(*Observer) func(E)) func(E) {
	var fs []func(E)
	for _, o := range all {
		if f := of(o); f != nil {
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

// beginEach returns nil if no observer has a Begin. The operations end in reverse order.
func beginEach(all []*Observer) func(context.Context, Operation) (context.Context, func(OperationEnd)) {
	all = slices.DeleteFunc(slices.Clone(all), func(o *Observer) bool { return o.Begin == nil })
	if len(all) == 0 {
		return nil
	}
	return func(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
		ends := make([]func(OperationEnd), len(all))
		for i, o := range all {
			ctx, ends[i] = o.began(ctx, op)
		}
		return ctx, func(e OperationEnd) {
			for _, end := range slices.Backward(ends) {
				end(e)
			}
		}
	}
}

// began calls Begin, if it is set, and substitutes defaults for nil results. The verb itself rejects a nil ctx.
func (o *Observer) began(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
	if o.Begin == nil || ctx == nil {
		return ctx, func(OperationEnd) {}
	}
	inner, end := o.Begin(ctx, op)
	if inner == nil {
		inner = ctx
	}
	if end == nil {
		end = func(OperationEnd) {}
	}
	return inner, end
}

// containedBegin wraps begin, and the function that it returns, so that their panics are logged and recovered.
func containedBegin(log *slog.Logger, begin func(context.Context, Operation) (context.Context, func(OperationEnd))) func(context.Context, Operation) (context.Context, func(OperationEnd)) {
	return func(ctx context.Context, op Operation) (inner context.Context, end func(OperationEnd)) {
		engine.Contained(log, "Observer.Begin", func(op Operation) { inner, end = begin(ctx, op) })(op)
		return inner, engine.Contained(log, "Observer.Begin", end)
	}
}

// observe dispatches an event of a package that has no access to the Observer.
func (o *Observer) observe(event any) {
	switch e := event.(type) {
	case Enqueued:
		o.Enqueued(e)
	case Requeued:
		o.Requeued(e)
	case Discarded:
		o.Discarded(e)
	case Cancelled:
		o.Cancelled(e)
	}
}

// WithActor returns a copy of ctx that carries the name of the person or program on whose behalf verbs are
// called. The name is passed to the [Observer] and stored in the audit of the file; see Audit of package
// admin. It is cut to 1024 bytes.
func WithActor(ctx context.Context, name string) context.Context {
	return engine.WithActor(ctx, name)
}

// contained returns a copy of o whose functions do not panic. For a nil o it returns an empty Observer.
func (o *Observer) contained(log *slog.Logger) *Observer {
	if o == nil {
		o = &Observer{}
	}
	c := &Observer{
		Enqueued:     engine.Contained(log, "Observer.Enqueued", o.Enqueued),
		Deduplicated: engine.Contained(log, "Observer.Deduplicated", o.Deduplicated),
		Claimed:      engine.Contained(log, "Observer.Claimed", o.Claimed),
		Started:      engine.Contained(log, "Observer.Started", o.Started),
		Returned:     engine.Contained(log, "Observer.Returned", o.Returned),
		Settled:      engine.Contained(log, "Observer.Settled", o.Settled),
		Published:    engine.Contained(log, "Observer.Published", o.Published),
		Fired:        engine.Contained(log, "Observer.Fired", o.Fired),
		Woke:         engine.Isolated(log, "Observer.Woke", o.Woke),
		Requeued:     engine.Contained(log, "Observer.Requeued", o.Requeued),
		Discarded:    engine.Contained(log, "Observer.Discarded", o.Discarded),
		Cancelled:    engine.Contained(log, "Observer.Cancelled", o.Cancelled),
		Working:      engine.Contained(log, "Observer.Working", o.Working),
		Paused:       engine.Contained(log, "Observer.Paused", o.Paused),
		Maintained:   engine.Contained(log, "Observer.Maintained", o.Maintained),
	}
	if o.Begin != nil {
		c.Begin = containedBegin(log, o.Begin)
	}
	if o.Tx != nil { // if nil, transactions need not read the clock
		c.Tx = engine.Isolated(log, "Observer.Tx", o.Tx)
	}
	return c
}

// ended returns the function to call after each transaction that held the writer, or nil if none is needed.
func (o *Observer) ended() func(wait, ran time.Duration, committed bool) {
	if o.Tx == nil {
		return nil
	}
	return func(wait, ran time.Duration, committed bool) {
		o.Tx(TxEnded{Wait: wait, Ran: ran, Committed: committed})
	}
}

// deathLines limits the log lines about individual deaths in a call.
const deathLines = 20

// deaths reports jobs of a queue that a call dead-letters without a settle.
type deaths struct {
	db    *DB
	queue string
	jobs  int // so far
}

// report logs and reports the dead jobs. It must be called after their transaction is committed.
func (d *deaths) report(dead []row.Death) {
	if len(dead) > 0 {
		d.db.traffic.Add(time.Now(), d.queue, traffic.Counts{Died: int64(len(dead))})
	}
	for _, j := range dead {
		if d.jobs++; d.jobs <= deathLines {
			d.db.opts.Logger.Warn("honker: job dead-lettered", "queue", d.queue, "job", j.ID,
				"attempt", j.Attempts, "worker", j.Worker, "error", j.Reason)
		}
		d.db.opts.Observer.Settled(Settled{
			Queue: d.queue, ID: j.ID, Worker: j.Worker, Attempt: int(j.Attempts), Outcome: OutcomeDied, Err: errors.New(j.Reason),
		})
	}
}

// end logs the number of dead jobs that had no log line of their own.
func (d *deaths) end() {
	if more := d.jobs - deathLines; more > 0 {
		d.db.opts.Logger.Warn("honker: more jobs dead-lettered", "queue", d.queue, "jobs", more)
	}
}

// errExhausted is the cause of death of an event whose attempts are spent without a settle.
var errExhausted = errors.New(row.ReasonExhausted)

// reportDeath logs and reports an event that was dead-lettered.
func (g *group) reportDeath(offset int64, attempts int, cause error) {
	g.db.opts.Logger.Warn("honker: event dead-lettered", "topic", g.s.name, "group", g.name, "event", offset,
		"attempt", attempts, "error", worker.Reason(cause))
	g.db.opts.Observer.Settled(Settled{
		Topic: g.s.name, Group: g.name, ID: offset, Attempt: attempts, Outcome: OutcomeDied, Err: cause,
	})
}
