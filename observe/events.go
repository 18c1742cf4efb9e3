package observe

import (
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Enqueued reports that jobs were added to a queue.
type Enqueued struct {
	Queue string
	IDs   []int64
	Tx    bool // in the caller's transaction, which may still be rolled back
}

// Deduplicated reports enqueues that found a job with their unique key and added no job; see honker.Unique. Added
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

	RawHeaders []string // headers as stored in the file; see Headers
}

// Headers returns the headers of the claimed jobs that have any. Each call decodes them again. See the
// option honker.Headers.
func (c Claimed) Headers() []map[string]string {
	all := make([]map[string]string, len(c.RawHeaders))
	for i, text := range c.RawHeaders {
		all[i] = row.DecodeHeaders(text)
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

// Settled reports the end of a claim. A settle in the caller's transaction is reported after the commit. On a pool
// given to honker.Attach, outside of honker.DB.Tx, the commit cannot be observed. The settle is then reported when the verb
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

	RawHeaders string // headers as stored in the file; see Headers
}

// Headers returns the headers of the job. It returns nil if the job has none or was found dead without being
// settled. Each call decodes them again. See the option honker.Headers.
func (s Settled) Headers() map[string]string { return row.DecodeHeaders(s.RawHeaders) }

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
	Actor string // see honker.WithActor
	Tx    bool   // in the caller's transaction, which may still be rolled back
}

// Discarded reports that dead jobs were deleted by package admin.
type Discarded struct {
	Queue string
	IDs   []int64
	Actor string // see honker.WithActor
}

// Cancelled reports that live jobs were removed by package admin. honker.Queue.Cancel is not reported.
type Cancelled struct {
	Queue string
	IDs   []int64
	Actor string // see honker.WithActor
}

// Working reports that a Work, WorkTx, WorkDue or WorkDueTx of this process begins or ends.
type Working struct {
	Queues []string // those of a honker.Workers share the slots; otherwise a single queue
	Worker string
	Slots  int  // number of handlers that may run at once; a honker.Pool may limit them further
	Ended  bool // the Work has ended and is drained
}

// Paused reports that a verb of this process has paused a queue or a honker.Key of it, or has ended such a pause. The
// expiry of a pause is not reported. A Tx form is reported in the same way as a settle; see [Settled].
type Paused struct {
	Queue   string
	Key     string    // empty for the whole queue
	Until   time.Time // time at which the pause expires; zero means it lasts until it is resumed
	Resumed bool      // the pause was ended
	Actor   string    // see honker.WithActor
}

// Maintained reports the end of a round of honker.DB.Maintain in the process that leads.
type Maintained struct {
	Took   time.Duration
	Failed []string // names of the tasks that failed and are retried in the next round, as in the log
}

// TxEnded reports the end of a transaction of this process that held the writer. The transaction may
// belong to a verb, to several verbs that shared it, to honker.DB.Tx, or to a pool of honker.DB.SQL or honker.Connector.
// An attached DB reports none, because its pool belongs to the application.
type TxEnded struct {
	Wait      time.Duration // time spent waiting for other writers; for a single statement, which needs no BEGIN, only writers of this process
	Ran       time.Duration // time for which the writer was held
	Committed bool
}

// Fire describes a job that was enqueued for a due schedule.
type Fire struct {
	Name   string
	Queue  string
	FireAt time.Time // time at which the schedule was due, and RunAt of the job
	JobID  int64
}
