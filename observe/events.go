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

	RawHeaders []string // as stored in the file; see Headers
}

// Headers returns the headers of the claimed jobs that have any. Each call decodes them again. See honker.Headers.
func (c Claimed) Headers() []map[string]string {
	all := make([]map[string]string, len(c.RawHeaders))
	for i, text := range c.RawHeaders {
		all[i] = row.DecodeHeaders(text)
	}
	return all
}

// Started reports that a Work handler is about to run. Every Started is followed by a [Returned]. [Settled] is not
// paired with Started: it's also reported for jobs that weren't started here, and it comes before Returned if the
// handler settles its job itself.
type Started struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Wait    time.Duration // see [Settled]
}

// Returned reports that a Work handler has returned, panicked or ended its goroutine. Its job's settle is reported
// later, by [Settled].
type Returned struct {
	Queue   string
	ID      int64
	Worker  string
	Attempt int
	Ran     time.Duration
}

// Settled reports the end of a claim. A settle in the caller's transaction is reported after the commit. On a pool
// passed to honker.Attach, outside honker.DB.Tx, the commit cannot be observed; the settle is then reported when
// the verb returns and may still be rolled back. AckMany does not read individual jobs and is not reported.
//
// Every death that this process finds or causes is reported, including deaths without a settle: a job whose last claim
// has lapsed, found by the next claim or by Maintain, and an expired job, found by Maintain or SweepExpired. Err is
// then the reason, and Worker is the worker that held the job, if any. For group events only deaths are reported.
//
// Wait is the time from when the job became ready until its handler was called. It is exact if an enqueue on this DB
// handed the job to an idle worker. Otherwise it counts from the second stored in the file, so it may be up to a second
// too long or, if the job was delayed, too short.
type Settled struct {
	Queue   string
	Topic   string // set for an event of a group, in which case Queue is empty
	Group   string
	ID      int64 // ID of the job, or offset of the event
	Worker  string
	Attempt int
	Outcome Outcome
	Err     error         // error of the handler, if it failed
	Wait    time.Duration // 0 outside of Work
	Ran     time.Duration // run time of the handler, or the time until it settled the job itself; 0 outside of Work
	At      time.Time     // start of the transaction that ended the claim; zero if no settle ended it, because the claim was lost or the job was found dead

	RawHeaders string // as stored in the file; see Headers
}

// Headers returns the job's headers. It returns nil if the job has none, or was found dead without being settled. Each
// call decodes them again. See honker.Headers.
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
	Waiters int    // number of goroutines woken
}

// Requeued reports that dead jobs were requeued by package admin.
type Requeued struct {
	Queue string // queue in which the jobs are now waiting
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

// Working reports that a Work, WorkTx, WorkDue or WorkDueTx in this process has begun or ended.
type Working struct {
	Queues []string // several for honker.Workers, which share the slots; otherwise just one queue
	Worker string
	Slots  int  // number of handlers that may run at once; a honker.Pool may limit them further
	Ended  bool // the Work has ended and drained
}

// Paused reports that a verb in this process has paused a queue or one of its keys (see honker.Key), or has ended such
// a pause. The expiry of a pause is not reported. Tx forms are reported like settles; see [Settled].
type Paused struct {
	Queue   string
	Key     string    // empty for the whole queue
	Until   time.Time // when the pause expires; zero if it lasts until resumed
	Resumed bool      // the pause was ended
	Actor   string    // see honker.WithActor
}

// Maintained reports the end of a round of honker.DB.Maintain in the leading process.
type Maintained struct {
	Took   time.Duration
	Failed []string // names of the tasks that failed and will be retried in the next round, as in the log
	Did    []Chore  // tasks that changed something, in order
}

// Chore is a task of honker.DB.Maintain, such as "retention" or "expired jobs".
type Chore struct {
	Name string
	N    int64 // number of rows that were deleted or changed
}

// TxEnded reports the end of a transaction in this process that held the writer. It may belong to a verb, to
// several verbs that shared it, to honker.DB.Tx, or to a pool from honker.DB.SQL or honker.Connector. An attached
// DB doesn't report transactions, because its pool belongs to the application.
type TxEnded struct {
	Wait      time.Duration // time spent waiting for other writers; for a single statement, which needs no BEGIN, only for writers in this process
	Ran       time.Duration // how long the writer was held
	Committed bool
}

// Fire describes a job that was enqueued for a due schedule.
type Fire struct {
	Name   string
	Queue  string
	FireAt time.Time // when the schedule was due; also the job's RunAt
	JobID  int64
}
