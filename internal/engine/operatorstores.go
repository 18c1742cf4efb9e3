package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// OperatorStore lets operators list, count, explain and bulk-change jobs.
type OperatorStore interface {
	// Attempts returns a live or dead job's failed attempts, oldest first.
	Attempts(ctx context.Context, q Querier, id int64) (all []row.Attempt, err error)
	// Bury moves the live jobs in ids to the dead letters, except those with a valid claim, and returns them. A job keeps
	// its last error and its attempts.
	Bury(ctx context.Context, q Querier, ids []int64, now time.Time) ([]row.Death, error)
	// CancelMany deletes the live jobs in c.IDs and returns them. Unless c.Running is set, it leaves jobs with a
	// valid claim alone. If it is set, these jobs are deleted too, but keep their slots in queues with limits until
	// their claims would have expired.
	CancelMany(ctx context.Context, q Querier, c row.CancelJobs, now time.Time) (row.Removed, error)
	// Counts returns the number of jobs by queue in the queues and phases of s, all as of the same moment.
	// It ignores the other fields of s. No count exceeds limit. Queues without such jobs are left out. cost
	// is the approximate number of index entries read.
	Counts(ctx context.Context, q Querier, s row.JobSelect, limit int64, now time.Time) (counts map[string]row.QueueCounts, cost int64, err error)
	// Discard deletes the dead jobs in ids and returns them.
	Discard(ctx context.Context, q Querier, ids []int64, w row.Waiters) (row.Removed, error)
	// Edges returns up to limit nodes that node depends on, dead nodes first, and up to limit nodes that depend on
	// node. A batch depends on its members. A node is a job ID or a negated batch ID.
	Edges(ctx context.Context, q Querier, node int64, limit int) (before, after []row.Neighbor, err error)
	// Explain describes how the next claims treat each of the jobs in ids, in the same order. It mirrors the
	// database's claims and writes nothing. It examines a few thousand jobs at most, besides those counted up to
	// r.MaxAhead.
	Explain(ctx context.Context, q Querier, ids []int64, r row.ExplainRequest, now time.Time) ([]row.Explained, error)
	// ExplainQueue describes the next claims on queue. It costs as much as Explain.
	ExplainQueue(ctx context.Context, q Querier, queue string, r row.ExplainRequest, now time.Time) (row.ExplainedQueue, error)
	// Heads returns a head for each queue in queues, sorted by name. If queues is empty, it returns a head for every
	// queue that has jobs. For a named queue without jobs, it returns either a head without times or nothing. The
	// cost doesn't depend on the number of jobs.
	Heads(ctx context.Context, q Querier, queues []string, now time.Time) ([]row.QueueHead, error)
	// List returns the next part of a list, with full details of each job. A list that is read to its end contains
	// every job that didn't change while it was read. If the list is in ID order, it contains no job twice.
	List(ctx context.Context, q Querier, r row.ListRequest, now time.Time) (row.ListPart, error)
	// MarkRequeued stores with the requeued jobs in ids the audit entry of their requeue, which JobSelect.Requeue selects.
	MarkRequeued(ctx context.Context, q Querier, ids []int64, entry int64) error
	// Queues returns the names of the queues that have live jobs.
	Queues(ctx context.Context, q Querier) ([]string, error)
	// Requeue makes a dead job pending again under the same ID, with its unique key if it had any. If another job has
	// taken that key, Requeue changes nothing and sets TakenBy.
	Requeue(ctx context.Context, q Querier, r row.Requeue, now time.Time) (out row.Requeued, err error)
	// RunNow makes the scheduled jobs in ids due at now, and returns them.
	RunNow(ctx context.Context, q Querier, ids []int64, now time.Time) ([]row.Change, error)
	// Same returns the state of the job with the given ID, queue, creation time and payload: "live", "dead" or
	// "done". It returns "" if there is no such job.
	Same(ctx context.Context, q Querier, id int64, queue string, created time.Time, payload string) (where string, err error)
	// Scan returns the next part of a list, with brief details of each job.
	Scan(ctx context.Context, q Querier, r row.ListRequest, now time.Time) (row.ScanPart, error)
	// Select returns up to limit jobs that s selects from the table s.In, with IDs above after, in ID order. The cost
	// includes skipped jobs.
	Select(ctx context.Context, q Querier, s row.JobSelect, after int64, limit int, now time.Time) (out []row.SelectedJob, err error)
	// Waiters returns the jobs that are waiting for any of nodes, directly or indirectly, excluding the nodes
	// themselves. A node is a job ID or a negated batch ID.
	Waiters(ctx context.Context, q Querier, nodes []int64) ([]int64, error)
}

// WorkerStore reads and writes the rows that describe running Work loops.
type WorkerStore interface {
	// Drop deletes those rows in all whose Since has not changed. A row with a different Since belongs
	// to another loop with the same ID.
	Drop(ctx context.Context, q Querier, all []row.Worker) error
	// Holders returns the workers, of any binding, that hold valid claims on queue's jobs, sorted by
	// worker and queue. An empty queue means all queues. Holders examines at most 10,000 jobs.
	Holders(ctx context.Context, q Querier, queue string, now time.Time) (all []row.Holder, err error)
	// List returns up to 10,000 rows for queue, sorted by ID and queue. An empty queue means all
	// queues.
	List(ctx context.Context, q Querier, queue string) (all []row.Worker, err error)
	// Put inserts the rows in all, replacing rows with the same ID and queue.
	Put(ctx context.Context, q Querier, all []row.Worker) error
}

// MinuteStore reads and writes queue traffic. There is a row for each queue and minute, and a row with the queue
// row.AllQueues for each minute's total. A time identifies the minute that contains it.
type MinuteStore interface {
	// Add adds the counts in all to the stored rows, creating any that are missing. MaxWait becomes the larger of the
	// two values. No row may occur twice in all.
	Add(ctx context.Context, q Querier, all []row.Minute) error
	// All returns every queue's rows, starting with the minute of since, sorted by minute and
	// queue.
	All(ctx context.Context, q Querier, since time.Time) (all []row.Minute, err error)
	// List returns queue's traffic in steps of length step, oldest first. step must be a whole number of
	// minutes. Steps are aligned to multiples of step since 1970. The first step contains since. Steps
	// without rows are omitted.
	List(ctx context.Context, q Querier, queue string, since time.Time, step time.Duration) (all []row.Minute, err error)
	// Queues returns the queues that have their own row in the minute of since or later.
	Queues(ctx context.Context, q Querier, since time.Time) ([]string, error)
	// Trim deletes rows older than minute, but only from the span oldest minutes, and returns the number of rows
	// deleted.
	Trim(ctx context.Context, q Querier, minute int64, span int) (int, error)
	// Sums returns the sums of queue's Claimed, Acked, Retried, Died, Wait and Ran, from the minute of since up to but not
	// including the minute of before. The other fields of the result are zero.
	Sums(ctx context.Context, q Querier, queue string, since, before time.Time) (row.Minute, error)
}

// AuditStore reads and writes the audit log. The log keeps the newest 10,000 entries.
type AuditStore interface {
	// List returns up to limit entries with IDs below before, newest first.
	List(ctx context.Context, q Querier, before int64, limit int) (all []row.AuditRow, err error)
	// Note inserts r and returns its ID, which is larger than all earlier IDs. If r.ID is set, an earlier transaction
	// of the same operation has already inserted the entry, and Note only adds r.N to it.
	Note(ctx context.Context, q Querier, r row.AuditRow) (id int64, err error)
}

// FileStore contains the statements that describe the database.
type FileStore interface {
	// Definitions returns the definitions of honker's tables with all indexes and triggers on them, including
	// the application's own.
	Definitions(ctx context.Context, q Querier) (all []row.Definition, err error)
	// Describe returns the file's versions, settings and sizes. It counts no more than most rows in each of honker's
	// tables.
	Describe(ctx context.Context, q Querier, most int) (f row.FileState, err error)
}

// SizeStore estimates the space that tables take.
type SizeStore interface {
	// Sizes returns estimates. It reads a bounded number of pages, no matter how large the tables are.
	Sizes(ctx context.Context, q Querier) (row.Sizes, error)
}

// ServerStore contains the statements that describe a database on a server.
type ServerStore interface {
	// DescribeServer returns the server's versions, connections and sizes. It reads no table of honker's as a whole.
	DescribeServer(ctx context.Context, q Querier) (s row.ServerState, err error)
}

// ProblemStore looks for problems. Each method reads a bounded number of rows.
type ProblemStore interface {
	// Errors returns jobs of queue with an error: up to limit jobs that died after since, newest first, and, for each of
	// the first priorities, the waiting jobs among the limit jobs that are due next and the limit jobs that became
	// due last.
	Errors(ctx context.Context, q Querier, queue string, since time.Time, limit int, now time.Time) ([]row.FailedJob, error)
	// LapsedSince returns the time at which queue's oldest lapsed claim expired, considering only jobs with
	// attempts left that have not expired. It returns the zero time if there is none.
	LapsedSince(ctx context.Context, q Querier, queue string, now time.Time) (since time.Time, err error)
	// Problems returns the problems that have lasted for longer than ages. If it is unknown when a consumer last
	// saved its offset, the consumer counts as behind only once its event is 23 hours older still.
	Problems(ctx context.Context, q Querier, ages row.ProblemAges, now time.Time) (row.Troubles, error)
	// Retains returns the number of topics and the number of queues that have a retention.
	Retains(ctx context.Context, q Querier) (topics, queues int64, err error)
}
