package honker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/traffic"
	"github.com/honker-go/honker/internal/worker"
)

// Observer is told what happens, for metrics and tests. Nil fields are skipped; a
// nil *Observer is told nothing.
//
// The functions are called in the goroutine that did the work, or while it waits, one after another
// or at once from several: they must be quick and safe for concurrent use. A panic in one
// of them is logged and changes nothing else: jobs are settled, and loops go on. One that ends its goroutine, as
// t.FailNow does, ends the verb or the Work that has called it, which drains; the jobs that it had claimed are
// handled. In Started and Returned it fails the attempt, as a handler that does so; in Woke and Tx it ends nothing.
type Observer struct {
	// Begin is called when a verb begins that adds jobs or events, before Options.Headers, for a trace: the verb goes on
	// with the ctx that it returns, which must be made of the one that it was given, and the function that it returns
	// is called at the end. nil for either means none. What is wrong with the verb's arguments is found out after it.
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

// Operation is an Enqueue, an EnqueueMany, a Publish, a PublishMany, or the Tx form of one.
type Operation struct {
	Verb string // "enqueue" or "publish"
	Name string // of the queue or topic
	N    int    // jobs or events
	Tx   bool   // in the caller's transaction, which may still be rolled back
}

// OperationEnd is how an Operation has ended.
type OperationEnd struct {
	First, Last int64 // ids of the jobs, or offsets of the events; of unique jobs those that there were
	Err         error // nothing was added
}

// Enqueued says that jobs were added to a queue.
type Enqueued struct {
	Queue string
	IDs   []int64
	Tx    bool // in the caller's transaction, which may still be rolled back
}

// Deduplicated says that enqueues have found a job with their unique key, instead of adding one:
// see [Unique]. Enqueued is told of those that were added.
type Deduplicated struct {
	Queue    string
	Existing int  // enqueues that have changed nothing
	Replaced int  // enqueues that have changed the job they found
	Tx       bool // in the caller's transaction, which may still be rolled back
}

// Claimed says that jobs were given to a worker.
type Claimed struct {
	Queue  string
	Worker string
	Jobs   int
	Took   time.Duration // from the decision to claim until the commit

	headers []string // as the file has them
}

// Headers returns the headers of those of the jobs that have some, for a trace, say. Each call decodes
// them anew. See the option [Headers].
func (c Claimed) Headers() []map[string]string {
	all := make([]map[string]string, len(c.headers))
	for i, text := range c.headers {
		all[i] = engine.DecodeHeaders(text)
	}
	return all
}

// Started says that a handler of Work is about to run. Each is followed by a [Returned]. Settled
// does not pair up with it: one comes also for jobs that were not started here, and before the end of
// a handler that settles its job itself.
type Started struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Wait    time.Duration // see [Settled]
}

// Returned says that a handler of Work has returned, panicked or ended its goroutine. How its job was
// settled tells [Settled], later.
type Returned struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Ran     time.Duration
}

// Outcome is how a claim ended.
type Outcome string

// The outcomes of a claim.
const (
	OutcomeAcked    = Outcome(worker.Acked)    // "acked"
	OutcomeRetried  = Outcome(worker.Retried)  // "retried"
	OutcomeDied     = Outcome(worker.Died)     // "died": went to the dead letters
	OutcomeSnoozed  = Outcome(worker.Snoozed)  // "snoozed": attempt unspent
	OutcomeReleased = Outcome(worker.Released) // "released": not finished when Work ended; attempt unspent
	OutcomeLost     = Outcome(worker.Lost)     // "lost": the claim was no longer the worker's

	OutcomeCancelled = Outcome(worker.Cancelled) // "cancelled": the job was, while the claim held
)

// Settled says how a claim ended. A settle in a transaction of the caller's is reported once that
// is committed; on a pool of Attach, outside of [DB.Tx], the commit is not seen, and it is
// reported when the verb returns, and may still be rolled back. AckMany does not look at single
// jobs and is not reported.
//
// Each death that this process finds or causes is reported, also that of a job that was not
// settled: one with a last claim that has lapsed, which the next claim or Maintain finds, and
// one that has expired, which Maintain or SweepExpired finds. Err is the reason then, and
// Worker the one that held the job, if any did. Of the events of groups only deaths are
// reported.
//
// Wait is how long the job could have begun before its handler was called: exact where an
// enqueue of this DB has handed the job to an idle worker; else from the second that the file
// has for it, so up to a second more, or less for one that was delayed.
type Settled struct {
	Queue   string
	Topic   string // of an event of a group; Queue is empty then
	Group   string
	ID      int64 // of the job; the offset of an event
	Worker  string
	Attempt int
	Outcome Outcome
	Err     error         // what the handler returned, if it failed
	Wait    time.Duration // 0 outside Work
	Ran     time.Duration // how long the handler ran, up to the settle if that is its own; 0 outside Work
	At      time.Time     // when the transaction began that ended the claim; zero where no settle has: a lost claim, a death that was found

	headers string // as the file has them
}

// Headers returns the headers of the job, for a trace, say; nil: it has none, or was not settled, but found dead. Each
// call decodes them anew. See the option [Headers].
func (s Settled) Headers() map[string]string { return engine.DecodeHeaders(s.headers) }

// Published says that events were appended to a topic: one, or several that follow one
// another.
type Published struct {
	Topic       string
	First, Last int64
	Tx          bool // in the caller's transaction, which may still be rolled back
}

// Woke says that waiting goroutines were woken.
type Woke struct {
	Cause   string // "commit", "deadline" or "restart"
	Waiters int    // how many
}

// Requeued says that dead jobs wait again, by package admin.
type Requeued struct {
	Queue string // the one in which they wait
	IDs   []int64
	Actor string // see WithActor
	Tx    bool   // in the caller's transaction, which may still be rolled back
}

// Discarded says that dead jobs were deleted, by package admin.
type Discarded struct {
	Queue string
	IDs   []int64
	Actor string // see WithActor
}

// Cancelled says that live jobs were removed, by package admin. [Queue.Cancel] is not reported.
type Cancelled struct {
	Queue string
	IDs   []int64
	Actor string // see WithActor
}

// Working says that a Work, WorkTx, WorkDue or WorkDueTx of this process begins or ends.
type Working struct {
	Queues []string // of [Lanes] several, which share the slots; else one
	Worker string
	Slots  int  // how many handlers may run at once; a [Pool] may bound them further
	Ended  bool // it is drained
}

// Paused says that a verb of this process has paused a queue, or a [Key] of it, or has ended such a
// pause. One that ends by itself is not reported. A Tx form is reported as [Settled] says of a settle.
type Paused struct {
	Queue   string
	Key     string    // "": the whole queue
	Until   time.Time // when it ends by itself; zero: it lasts until it is resumed
	Resumed bool      // the pause was ended
	Actor   string    // see WithActor
}

// Maintained says that a round of [DB.Maintain] has ended, in the process that leads.
type Maintained struct {
	Took   time.Duration
	Failed []string // what could not be done and is tried again in the next round, as the log names it
}

// TxEnded says that a transaction of this process has ended that held the writer: of a verb, of
// several that shared it, of [DB.Tx], or of a pool of [DB.SQL] or [Connector]. Of a DB that was
// attached none is reported, since its pool is the application's.
type TxEnded struct {
	Wait      time.Duration // for other writers; of a single statement, which needs no BEGIN, only those of this process
	Ran       time.Duration // how long it had the writer
	Committed bool
}

// Observers returns an observer that tells all of those, in this order: one for metrics, say, and one for
// traces. nil ones are left out. A panic in one keeps the event from those behind it.
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

// tellEach is nil where none of all has the function.
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

// beginEach is nil where none of all has a Begin. The last that has begun is the first that ends.
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

// began calls Begin, if there is one, and makes good what it leaves out. A nil ctx is refused by the verb.
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

// containedBegin is begin, and what it returns, without panics.
func containedBegin(log *slog.Logger, begin func(context.Context, Operation) (context.Context, func(OperationEnd))) func(context.Context, Operation) (context.Context, func(OperationEnd)) {
	return func(ctx context.Context, op Operation) (inner context.Context, end func(OperationEnd)) {
		engine.Contained(log, "Observer.Begin", func(op Operation) { inner, end = begin(ctx, op) })(op)
		return inner, engine.Contained(log, "Observer.Begin", end)
	}
}

// observe tells of an event of a package that has no Observer at hand.
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

// WithActor returns a ctx that names the person or program behind the verbs that are called with
// it, for the [Observer] and for the audit in the file: see Audit of package admin. name is cut to
// 1024 bytes.
func WithActor(ctx context.Context, name string) context.Context {
	return engine.WithActor(ctx, name)
}

// contained is o with functions of which no panic gets out. nil is an observer of nothing.
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
	if o.Tx != nil { // else no transaction looks at the clock
		c.Tx = engine.Isolated(log, "Observer.Tx", o.Tx)
	}
	return c
}

// ended is told of each transaction that held the writer; nil: none is.
func (o *Observer) ended() func(wait, ran time.Duration, committed bool) {
	if o.Tx == nil {
		return nil
	}
	return func(wait, ran time.Duration, committed bool) {
		o.Tx(TxEnded{Wait: wait, Ran: ran, Committed: committed})
	}
}

// deathLines bounds how many deaths of one call are logged each by a line.
const deathLines = 20

// deaths tells of jobs of a queue that a call dead-letters without settling them.
type deaths struct {
	db    *DB
	queue string
	jobs  int // so far
}

// report tells of dead, once their transaction is committed.
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

// end tells of those that had no line of their own.
func (d *deaths) end() {
	if more := d.jobs - deathLines; more > 0 {
		d.db.opts.Logger.Warn("honker: more jobs dead-lettered", "queue", d.queue, "jobs", more)
	}
}

// errExhausted is the cause of death of an event that no member has settled.
var errExhausted = errors.New(store.ReasonExhausted)

// reportDeath tells of an event that was dead-lettered.
func (g *group) reportDeath(offset int64, attempts int, cause error) {
	g.db.opts.Logger.Warn("honker: event dead-lettered", "topic", g.s.name, "group", g.name, "event", offset,
		"attempt", attempts, "error", worker.Reason(cause))
	g.db.opts.Observer.Settled(Settled{
		Topic: g.s.name, Group: g.name, ID: offset, Attempt: attempts, Outcome: OutcomeDied, Err: cause,
	})
}
