package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Stores holds the statements of a database, by noun. The function that opens the database passes them
// to [New]; no other code chooses an implementation. A store has no state, no clock and no goroutine. It
// neither begins nor commits a transaction: its methods run on the Querier that they are given.
type Stores struct {
	Jobs          JobStore
	Operators     OperatorStore
	Batches       BatchStore
	Pauses        PauseStore
	Limits        LimitStore
	Results       ResultStore
	Streams       StreamStore
	Consumers     ConsumerStore
	Retentions    RetentionStore
	Groups        GroupStore
	Notifications NotificationStore
	Schedules     ScheduleStore
	Locks         LockStore
	RateLimits    RateLimitStore
	Workers       WorkerStore
	Minutes       MinuteStore
	Audits        AuditStore
	Files         FileStore
	Problems      ProblemStore
	Dispatches    DispatchStore
	Inboxes       InboxStore
	Relays        RelayStores

	Sweeps Sweeps

	Wake wake.Statements // the questions of the notifier

	// Refused reports that a constraint or a trigger of the database has refused a write.
	Refused func(error) bool
}

// Sweeps are the sweeps of a database. The time of a sweep is now, unless its comment says that it has an age.
type Sweeps struct {
	Overdue    Sweep // jobs whose last claim has lapsed, by queue; they become dead letters or claimable
	Expired    Sweep // jobs that have expired and wait, or whose claim has lapsed, by queue; they become dead letters
	Keys       Sweep // unique keys whose time is over and whose job is gone
	Pauses     Sweep // pauses that have ended by themselves, and counted starts that no longer matter
	Places     Sweep // places of cancelled jobs that have ended
	Fits       Sweep // jobs that do not yet fit the changed limits of their queue, by queue
	Claims     Sweep // claims of deleted groups
	Done, Dead Sweep // jobs beyond the retention of their queue, by queue
	Results    Sweep // results that have expired
	Batches    Sweep // batches that were done before an age and that no live job waits for
	Sent       Sweep // jobs of package dispatch that ended before an age
	Replies    Sweep // replies of package dispatch to forgotten jobs that were sent before an age, by prefix
	Actors     Sweep // actors of package dispatch that have expired
	Received   Sweep // message ids of package inbox whose retention is over
	Minutes    Sweep // counts of minutes before an age
	Windows    Sweep // windows of rate limits that began before an age and are over
	OldWindows Sweep // all windows of rate limits that began before an age
	Messages   Sweep // notifications sent before an age

	Surplus func(keep int) Sweep // notifications beyond the newest keep of all channels
}

// JobStore contains the statements on live jobs, and on jobs that are dead or done.
type JobStore interface {
	// Insert adds jobs. Their ids increase in the order of the payloads, and are larger than the id of any
	// earlier job of the transaction. Insert returns [ErrInvalid] for a link to an id that was never assigned,
	// or that would make jobs wait for each other, and [row.ErrBatchDone] if the batch takes no more members;
	// an Insert of a single job has then changed nothing. It returns [row.ErrNotInserted] if a trigger of the
	// application dropped a job.
	Insert(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (row.Inserted, error)
	// Step ends claims of a worker and then makes new claims, in one transaction, and returns the outcome of
	// the claim. It sets the outcome of each settlement in the settlement itself. A claim that no longer holds
	// is Lost, and changes neither the job nor its result, progress or attempts. The other settlements take
	// effect nevertheless, unless Step returns [row.ErrClaimsLost].
	//
	// An ack releases the jobs that wait for the job. A Step that is Alone does not, and returns
	// [row.ErrAwaited] without a change if there may be such jobs.
	//
	// A claim spends an attempt of each job. It takes no job that is not due, has expired, has no attempt left,
	// waits for other jobs, or may not start because of a pause or a limit. Jobs of claims that have lapsed wait
	// again before. Step returns [row.ErrStuck] if there is work but it could change nothing, as when a trigger
	// of the application drops every change.
	Step(ctx context.Context, q row.Querier, s row.Step, now time.Time) (row.Claimed, error)
	// Postpone postpones to the time until the deaths that a claim on queue has to record before it takes
	// jobs. It is called after a trigger of the application has refused a claim: a job that cannot be
	// dead-lettered must not keep the other jobs waiting. It does nothing in a store whose claims record no
	// deaths.
	Postpone(ctx context.Context, q row.Querier, queue string, until, now time.Time) error
	// AckMany acks jobs that a worker holds by valid claims and returns their number. It ignores all other ids.
	// rest reports whether an ack that is Alone may have left out jobs that others wait for.
	AckMany(ctx context.Context, q row.Querier, a row.AckMany, now time.Time) (n int, rest bool, err error)
	// Renew extends claims and returns the ids of the jobs that the worker still holds. The worker has lost its
	// claims on all other ids. Cancelled jobs among these keep their places in queues with limits for as long as
	// the claims would have lasted.
	Renew(ctx context.Context, q row.Querier, r row.Renewal, now time.Time) (kept []int64, err error)
	// Extend sets the end of a claim. It returns false and changes nothing if the claim no longer holds.
	Extend(ctx context.Context, q row.Querier, e row.Extension, now time.Time) (bool, error)
	// Checkpoint stores value, JSON text, with a job for its next attempt, in place of an earlier checkpoint. It
	// returns false and changes nothing if the claim no longer holds.
	Checkpoint(ctx context.Context, q row.Querier, c row.Claim, value string, now time.Time) (bool, error)
	// Base returns the number of attempts that a live job had when it was last requeued, or 0 if it never was.
	Base(ctx context.Context, q row.Querier, id int64) (int64, error)
	// States returns the states of queues in their order: whether a claim would find work, and otherwise when it
	// would. Without next, the states need not tell when. States is called before each wait and after commits,
	// and must read no more than indexes provide.
	States(ctx context.Context, q row.Querier, queues []string, next bool, now time.Time) ([]row.QueueState, error)
	// NextClaim returns the next time after now at which a job of queue becomes claimable, or the zero time if
	// none will. It takes the pause and the limits of the queue into account, so the result may also concern a
	// job that is already due.
	NextClaim(ctx context.Context, q row.Querier, queue string, now time.Time) (time.Time, error)
	// Find reads a job that is live, dead or done, of queue or of any queue if queue is "". It returns false if
	// there is none. It finds a job that moves from one state to another meanwhile.
	Find(ctx context.Context, q row.Querier, id int64, queue string) (row.Job, bool, error)
	// Gone returns the jobs among ids that are neither live nor dead.
	Gone(ctx context.Context, q row.Querier, ids []int64) ([]int64, error)
	// AfterOf returns the ids of the jobs that job id waits for or has waited for, in ascending order. For a
	// batch it returns the members.
	AfterOf(ctx context.Context, q row.Querier, id int64) ([]int64, error)
	// Keys returns up to limit limits keys of queue: those of its jobs, and those that are paused. The keys with
	// the most held jobs come first.
	Keys(ctx context.Context, q row.Querier, queue string, limit int, now time.Time) ([]row.KeyStats, error)
	// Cancel removes a live job of queue, even a claimed job. In a queue with limits, a job that is claimed now
	// keeps its place until its claim would have expired. Jobs that wait for the cancelled job treat it as done.
	// Cancel returns false if there is no such job.
	Cancel(ctx context.Context, q row.Querier, queue string, id int64, now time.Time) (bool, error)
	// ReleaseUnique takes a unique key from the job that holds it. A job that waited for the end of that job may
	// then run. ReleaseUnique returns false if the key was free.
	ReleaseUnique(ctx context.Context, q row.Querier, queue, key string, now time.Time) (bool, error)
}

// OperatorStore are the statements with which operators list, count, explain and change many jobs.
type OperatorStore interface {
	// Attempts returns the failed attempts of a live or dead job, oldest first.
	Attempts(ctx context.Context, q row.Querier, id int64) (all []row.Attempt, err error)
	// CancelMany deletes the live jobs among c.IDs and returns them. Without c.Running it leaves jobs with a
	// valid claim alone. With it, they keep their places in queues with limits until their claims would have
	// expired.
	CancelMany(ctx context.Context, q row.Querier, c row.CancelJobs, now time.Time) (row.Removed, error)
	// Counts returns the number of jobs by queue in the queues and phases of s, all of the same moment. It
	// ignores the other fields of s. Each number stops at limit. Queues without such jobs are left out. cost
	// is the approximate number of index entries read.
	Counts(ctx context.Context, q row.Querier, s row.JobSelect, limit int64, now time.Time) (counts map[string]row.QueueCounts, cost int64, err error)
	// Discard deletes the dead jobs among ids and returns them.
	Discard(ctx context.Context, q row.Querier, ids []int64, w row.Waiters) (row.Removed, error)
	// Explain describes how the next claims treat each of the jobs ids, in the order of ids. It mirrors the
	// claims of the database and writes nothing. It examines a few thousand jobs at most, besides those
	// counted up to r.MaxAhead.
	Explain(ctx context.Context, q row.Querier, ids []int64, r row.ExplainRequest, now time.Time) ([]row.Explained, error)
	// ExplainQueue describes the next claims of queue. Its cost is that of Explain.
	ExplainQueue(ctx context.Context, q row.Querier, queue string, r row.ExplainRequest, now time.Time) (row.ExplainedQueue, error)
	// Heads returns the heads of queues, sorted by name. If queues is empty, it returns all queues that have
	// jobs. A named queue without jobs has a head without times, or none. The cost does not depend on the
	// number of jobs.
	Heads(ctx context.Context, q row.Querier, queues []string, now time.Time) ([]row.QueueHead, error)
	// List returns the next part of a list, with the jobs in full. A list that is read to its end contains
	// each job that did not change meanwhile, and no job twice if it is in the order of ids.
	List(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (row.ListPart, error)
	// Queues returns the queues that have live jobs.
	Queues(ctx context.Context, q row.Querier) ([]string, error)
	// Requeue makes a dead job pending again under its id, with its unique key if it had a key. If
	// another job has taken that key, Requeue changes nothing and sets TakenBy.
	Requeue(ctx context.Context, q row.Querier, r row.Requeue, now time.Time) (out row.Requeued, err error)
	// RunNow makes the scheduled jobs among ids due at now, and returns them.
	RunNow(ctx context.Context, q row.Querier, ids []int64, now time.Time) ([]row.Change, error)
	// Same reports where the database has a job with the given id, queue, creation time and payload:
	// "live", "dead" or "done". It returns "" if there is no such job.
	Same(ctx context.Context, q row.Querier, id int64, queue string, created time.Time, payload string) (where string, err error)
	// Scan returns the next part of a list, with the jobs in brief.
	Scan(ctx context.Context, q row.Querier, r row.ListRequest, now time.Time) (row.ScanPart, error)
	// Select returns up to limit jobs of the table s.In with ids above after that s selects, in id order. The
	// cost includes the jobs that it skips.
	Select(ctx context.Context, q row.Querier, s row.JobSelect, after int64, limit int, now time.Time) (out []row.SelectedJob, err error)
	// Waiters returns the jobs that wait for any of nodes, directly or indirectly, without the nodes
	// themselves. A node is a job id or a negated batch id.
	Waiters(ctx context.Context, q row.Querier, nodes []int64) ([]int64, error)
}

// BatchStore are the batches, which are sets of jobs that other jobs can wait for.
type BatchStore interface {
	// Cancel seals the batch and removes jobs: all that wait for the batch, and up to about limit members with
	// the jobs that wait for them. It returns the removed jobs and whether there may be more. found is false
	// if the batch does not exist.
	Cancel(ctx context.Context, q row.Querier, id int64, limit int, now time.Time) (gone []row.Change, more, found bool, err error)
	// Get returns the batch, or false if it does not exist. A member counts as running if its claim is valid.
	Get(ctx context.Context, q row.Querier, id int64, now time.Time) (b row.Batch, found bool, err error)
	// Insert adds an open batch and returns its id. name and headers may be empty.
	Insert(ctx context.Context, q row.Querier, name, headers string, now time.Time) (int64, error)
	// List returns up to limit batches that follow the batch with the id after, oldest first or, with newest,
	// newest first. An after of 0 is the start of the list.
	List(ctx context.Context, q row.Querier, newest bool, after int64, limit int, now time.Time) ([]row.Batch, error)
	// Seal closes the batch to new members. It returns false if the batch does not exist.
	Seal(ctx context.Context, q row.Querier, id int64) (bool, error)
	// Members returns the ids of up to limit members that are live, or dead if dead is set.
	Members(ctx context.Context, q row.Querier, id int64, dead bool, limit int) ([]int64, error)
}

// PauseStore are the pauses of queues and of their keys, which keep jobs from starting. A pause is in force
// until its end.
type PauseStore interface {
	// All returns the pauses of queues that are in force, by queue.
	All(ctx context.Context, q row.Querier, now time.Time) (map[string]*row.Pause, error)
	// End ends the pause of queue, or of a key of it if key is not empty. It returns false if it was not
	// paused or its pause had already ended.
	End(ctx context.Context, q row.Querier, queue, key string, now time.Time) (was bool, err error)
	// Set pauses queue, or a key of it if key is not empty. If it is already paused, the new pause keeps the
	// Since of the previous pause, and Set returns true.
	Set(ctx context.Context, q row.Querier, queue, key string, p row.Pause, now time.Time) (was bool, err error)
}

// LimitStore are the limits of queues.
type LimitStore interface {
	// All returns the limits of all queues that have any, by queue.
	All(ctx context.Context, q row.Querier) (map[string]row.QueueLimits, error)
	// Get returns the limits of queue, zero if it has none.
	Get(ctx context.Context, q row.Querier, queue string) (row.QueueLimits, error)
	// Places returns the number of cancelled jobs that occupy a place of queue.
	Places(ctx context.Context, q row.Querier, queue string, now time.Time) (int64, error)
	// Set replaces the limits of queue. They apply immediately, but the jobs still carry the effects of
	// the previous limits until Sweeps.Fits has adjusted them. If the limits do not change, Set writes
	// nothing and returns false.
	Set(ctx context.Context, q row.Querier, queue string, l row.QueueLimits) (changed bool, err error)
}

// ResultStore contains the statements on the results of jobs, and those that find out how a job ended. A
// result may be saved for any id, before or after the job ends.
type ResultStore interface {
	// Save stores value, JSON text, as the result of a job. It is kept for ttl, or forever if ttl is not
	// positive. A second Save replaces the first. Save returns [row.ErrNotInserted] if a trigger dropped the
	// row.
	Save(ctx context.Context, q row.Querier, id int64, value string, ttl time.Duration, now time.Time) error
	// Fate returns the state of a job as of a single moment, although a job may move between tables. An
	// expired result counts as missing, unless a job that was enqueued after this one may still read it.
	Fate(ctx context.Context, q row.Querier, id int64, now time.Time) (row.Fate, error)
	// Decided returns the jobs among ids that have a result or are no longer live. An id that was never
	// assigned is not decided.
	Decided(ctx context.Context, q row.Querier, ids []int64) ([]int64, error)
}

// StreamStore are the statements on events. Offsets are common to all topics. They rise in the order in
// which the events become visible: once an event is visible, no event with a lower offset appears.
type StreamStore interface {
	// Ahead counts the selected events above after, among the next most events of the topics or all of
	// them if most is row.Unbounded. The count of all reads all of them.
	Ahead(ctx context.Context, q row.Querier, s row.Selection, after, most int64) (a row.Ahead, err error)
	// Head returns an offset such that all events up to it are visible or deleted, and all events that
	// become visible later have larger offsets. It is 0 if there never was an event. The deletion of
	// events does not lower it, so a lower Head than before means that a backup was restored over the
	// database.
	Head(ctx context.Context, q row.Querier) (offset int64, err error)
	// Last returns the offset of the last event of the selected topics, ignoring the filter, or 0 if
	// there is none. For a pattern it reads all later events of other topics.
	Last(ctx context.Context, q row.Querier, s row.Selection) (int64, error)
	// Publish appends the events of p in order and returns the offsets of the first and of the last
	// event. The offsets are consecutive unless a trigger adds further events. A database that assigns
	// offsets after the commit returns 0 and 0 in a transaction of the application.
	Publish(ctx context.Context, q row.Querier, p row.Publication, now time.Time) (first, last int64, err error)
	// Read appends the next page of events to into. The cost of a call is bounded, so a page may be
	// short or empty although further events follow. There are none if Next of the page is not above
	// After.
	Read(ctx context.Context, q row.Querier, r row.EventRead, into []row.Event) (row.EventPage, error)
	// Start returns the offset at which a reader of the topics of s begins, ignoring the filter, and the
	// last offset that RetentionStore.Compact has deleted from them. For Position.Since it reads all
	// older events, because no index is ordered by time.
	Start(ctx context.Context, q row.Querier, s row.Selection, at row.Position) (row.Start, error)
	// Topics returns the state of each topic that has events or a retention, sorted by name.
	Topics(ctx context.Context, q row.Querier) (all []row.TopicState, err error)
}

// ConsumerStore are the statements on consumers, each with its offset in a topic or pattern.
type ConsumerStore interface {
	// Add creates a consumer unless it exists, and sets its filter. An existing consumer keeps its
	// offset.
	Add(ctx context.Context, q row.Querier, n row.NewConsumer, now time.Time) (row.AddedConsumer, error)
	// Drop removes a consumer. It returns false if the consumer does not exist.
	Drop(ctx context.Context, q row.Querier, consumer, topic string) (bool, error)
	// Get returns a consumer, or false if it does not exist.
	Get(ctx context.Context, q row.Querier, consumer, topic string) (c row.Consumer, found bool, err error)
	// List returns the consumers of a topic or pattern by name. If topic is empty, it returns all
	// consumers, by topic or pattern and by name.
	List(ctx context.Context, q row.Querier, topic string) ([]row.Consumer, error)
	// SaveOffset advances the consumer to offset and creates it if needed. It returns false and changes
	// nothing if the consumer is already at or beyond offset.
	SaveOffset(ctx context.Context, q row.Querier, consumer, topic string, offset int64, now time.Time) (bool, error)
	// Seek moves the consumer to a position, forward or back, and returns the offset of the position. It
	// returns false if the consumer does not exist.
	Seek(ctx context.Context, q row.Querier, consumer, topic string, to row.Position) (at row.Start, found bool, err error)
}

// RetentionStore are the statements on the retentions of topics and queues.
type RetentionStore interface {
	// Compact deletes up to c.Limit events of c.Topic above c.After that the retention no longer keeps.
	// It keeps the events that a consumer or a group has yet to see, and the dead events of groups.
	Compact(ctx context.Context, q row.Querier, c row.Compaction) (row.Compacted, error)
	// Cutoff returns the last offset that the retention of topic no longer keeps at now, or 0. The
	// events of the maximum age are kept to the second. Cutoff reads as many rows as are kept by count,
	// and all rows that are too old.
	Cutoff(ctx context.Context, q row.Querier, topic string, now time.Time) (cutoff int64, err error)
	// List returns the retention of a topic, or none if none was set. If topic is empty, it returns the
	// retentions of all topics, by topic.
	List(ctx context.Context, q row.Querier, topic string) ([]row.Retention, error)
	// Queues returns the retention of a queue, or none if none was set. If queue is empty, it returns
	// the retentions of all queues that may have jobs to trim: queues with finished jobs, and queues
	// with a bound on dead jobs.
	Queues(ctx context.Context, q row.Querier, queue string) ([]row.QueueRetention, error)
	// Set sets the retention of a topic. A retention without bounds keeps all events, and List no
	// longer returns it. The maximum age is stored in seconds, rounded up.
	Set(ctx context.Context, q row.Querier, r row.Retention) error
	// SetQueue sets the retention of a queue. If it is unchanged, SetQueue writes nothing and returns
	// false.
	SetQueue(ctx context.Context, q row.Querier, r row.QueueRetention) (changed bool, err error)
}

// GroupStore are the statements on consumer groups, their members, and the events that they have been
// given. A lease is valid until the end of its deadline. Its token fences it: after an event was given
// to another member, or has come back, a settle with the old token changes nothing.
type GroupStore interface {
	// Claim leases up to c.N events to a member: new events first, and when there are no more, returned
	// events, the last returned first. With this order an event that keeps failing does not hold up the
	// others. The cost of a call is bounded, so it may return fewer events or none, with More. It first
	// settles lapsed leases: their events come back, or are dead if they have no attempts left.
	//
	// Claim returns ErrNotFound if the group does not exist, and ErrStuck if the group is ready and
	// nothing could be changed. Its cost is a write even if there are no events: see Ready.
	Claim(ctx context.Context, q row.Querier, c row.GroupClaim, now time.Time) (row.GroupClaimed, error)
	// Dead returns up to limit dead events with offsets above after, in order. It may stop early, but
	// returns at least one event if there is one.
	Dead(ctx context.Context, q row.Querier, group, after int64, limit int) ([]row.DeadDelivery, error)
	// Discard deletes a dead event from the group. It returns false if there is no such dead event.
	Discard(ctx context.Context, q row.Querier, group, offset int64) (bool, error)
	// Drop deletes a group, its members, and up to limit of its claims, and returns the number of
	// deleted claims. If it returns limit, it must be called again with the same id. Group ids are never
	// reused.
	Drop(ctx context.Context, q row.Querier, id int64, limit int) (int, error)
	// Extend sets the end of a lease, which may be earlier than before. It returns false if the lease is
	// no longer valid.
	Extend(ctx context.Context, q row.Querier, h row.Holding, expires, now time.Time) (bool, error)
	// Join creates a group unless it exists, sets its filter, deletes its expired members, and makes
	// j.Member a member of it as Renew does. If the membership is not Kept, the caller must roll back.
	Join(ctx context.Context, q row.Querier, j row.GroupJoin, now time.Time) (row.GroupJoined, error)
	// Leave deletes a member. Its leased events can be claimed again at once, and the attempt is not
	// counted.
	Leave(ctx context.Context, q row.Querier, m row.Member, now time.Time) error
	// List returns the group of a topic or pattern that has the given name, or none if it does not
	// exist. If name is empty, it returns all groups of the topic by name. If topic is empty as well, it
	// returns all groups, by topic or pattern and by name.
	List(ctx context.Context, q row.Querier, topic, name string) ([]row.Group, error)
	// Progress returns the numbers of events of a group by state, and up to members of its members,
	// including expired members. A negative number means all members. An event whose lease has lapsed
	// counts as Back, although no claim has returned it yet.
	Progress(ctx context.Context, q row.Querier, group int64, members int, now time.Time) (row.GroupProgress, error)
	// Ready reports whether a claim of the group would find work, and otherwise when a leased or
	// returned event may become claimable. It returns ErrNotFound if the group does not exist. A member
	// asks before a claim that might find nothing.
	Ready(ctx context.Context, q row.Querier, id int64, now time.Time) (row.GroupState, error)
	// Release returns the events of a claim that no handler has seen, and does not count the attempt. It
	// ignores the deadline: while an event has this token no other member can hold it, even if the
	// lease has lapsed.
	Release(ctx context.Context, q row.Querier, group, token int64, events []int64, now time.Time) error
	// Renew creates or renews the membership of m until expires. A name belongs to another instance
	// until the end of its membership. Renew returns ErrNotFound if the group does not exist.
	Renew(ctx context.Context, q row.Querier, m row.Member, expires, now time.Time) (row.Membership, error)
	// Revive makes a dead event claimable again, with no attempts. It returns false if there is no such
	// dead event.
	Revive(ctx context.Context, q row.Querier, group, offset int64, now time.Time) (bool, error)
	// Settle ends the lease of an event, if the lease is valid. The group is done with an event that was
	// handled. An event that was not comes back, or is dead if it has no attempts left.
	Settle(ctx context.Context, q row.Querier, s row.GroupSettlement, now time.Time) (row.GroupSettled, error)
}

// NotificationStore are the statements on the messages of channels. Ids are common to all channels and
// rise as the offsets of events do.
type NotificationStore interface {
	// Head returns an id such that all messages up to it are visible or deleted, and all messages that
	// become visible later have larger ids. It is 0 if there never was a message. The deletion of
	// messages does not lower it, so a lower Head than before means that a backup was restored over the
	// database.
	Head(ctx context.Context, q row.Querier) (id int64, err error)
	// Insert adds a message and returns its id. A database that assigns ids after the commit returns 0
	// in a transaction of the application.
	Insert(ctx context.Context, q row.Querier, channel, payload string, now time.Time) (int64, error)
	// Since reads up to limit messages of channels with ids above after, in id order. It may stop early,
	// but returns at least one message if there is one.
	Since(ctx context.Context, q row.Querier, channels []string, after int64, limit int) ([]row.Notification, error)
}

// ScheduleStore are the schedules, which enqueue jobs when they are due.
type ScheduleStore interface {
	// Enable pauses or resumes a task. It returns false if there is no such task or nothing changed.
	Enable(ctx context.Context, q row.Querier, name string, enabled bool) (bool, error)
	// List returns the task called name, or all tasks sorted by name if name is empty.
	List(ctx context.Context, q row.Querier, name string) ([]row.Task, error)
	// Register adds a task or updates the task of the same name, and returns the spec that the task had
	// before, or "" if it is new. It returns false and writes nothing if nothing changed. Enabled is not
	// stored: a paused task stays paused, and a new one is not. The stored NextFire changes only together
	// with the spec. If a trigger has dropped a new task, the error is ErrNotInserted.
	Register(ctx context.Context, q row.Querier, t row.Task) (before string, changed bool, err error)
	// Soonest returns the time at which the next enabled task is due, which may be in the past, or the zero
	// time if there is none.
	Soonest(ctx context.Context, q row.Querier) (time.Time, error)
	// Tick enqueues a job for every time up to k.Due at which a task was due. It stops once it has enqueued
	// k.Limit jobs, and its cost is proportional to k.Limit, so that callers can let other writers in between
	// calls. Tasks fire in the order of their first registration. A broken task does not stop the others.
	Tick(ctx context.Context, q row.Querier, k row.Tick, now time.Time) (row.Ticked, error)
	// Trigger enqueues a job of the task called name as if it were due now. The next time of the task does
	// not change. It returns false if there is no such task.
	Trigger(ctx context.Context, q row.Querier, name, headers string, now time.Time) (f row.Fire, found bool, err error)
	// Unregister removes a task. It returns false if there is none.
	Unregister(ctx context.Context, q row.Querier, name string) (bool, error)
	// Update changes values of a task. It does nothing if there is no such task.
	Update(ctx context.Context, q row.Querier, name string, ch row.TaskChange) error
}

// LockStore are the named locks. A lock belongs to a single owner until it expires or is released.
type LockStore interface {
	// Acquire takes a free lock for ttl and returns it with its fencing token, which is larger than all
	// earlier tokens. If the lock is held, even by owner itself, Acquire changes nothing and returns the
	// held lock and the token 0. If it is neither held nor stored, the error is ErrNotInserted.
	Acquire(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (l row.Lock, token int64, err error)
	// Held returns the lock called name if it is held. An empty name selects all held locks, sorted by name.
	Held(ctx context.Context, q row.Querier, name string, now time.Time) ([]row.Lock, error)
	// Release frees a lock. It returns false if the lock does not belong to owner.
	Release(ctx context.Context, q row.Querier, name, owner string) (bool, error)
	// Renew extends a lock to ttl from now, and returns its new end. It returns false if owner no longer
	// holds the lock, in which case nothing changes.
	Renew(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (expires time.Time, held bool, err error)
	// States returns the time at which each named lock expires, or the zero time if the lock is free.
	States(ctx context.Context, q row.Querier, names []string, now time.Time) (map[string]time.Time, error)
}

// RateLimitStore are the windows of rate limits, which count calls. A window is identified by the name of
// the limit and its start.
type RateLimitStore interface {
	// Count returns how many calls were admitted in the window that starts at start.
	Count(ctx context.Context, q row.Querier, name string, start time.Time) (int, error)
	// Last returns the last window of each limit, sorted by name.
	Last(ctx context.Context, q row.Querier) ([]row.RateWindow, error)
	// Take counts a call in the window that starts at start. If the window has limit calls already, Take
	// returns false and counts nothing. limit is at least 1.
	Take(ctx context.Context, q row.Querier, name string, start time.Time, limit int) (bool, error)
}

// WorkerStore are the statements on the rows of Work loops.
type WorkerStore interface {
	// Drop deletes the rows of all that still have the same Since. A row with another Since belongs to
	// another loop with the same ID.
	Drop(ctx context.Context, q row.Querier, all []row.Worker) error
	// Holders returns the workers of any binding that hold jobs of queue by valid claims, sorted by worker
	// and queue. An empty queue means all queues. It examines up to 10,000 jobs.
	Holders(ctx context.Context, q row.Querier, queue string, now time.Time) (all []row.Holder, err error)
	// List returns up to 10,000 rows of queue, sorted by ID and queue. An empty queue means all queues.
	List(ctx context.Context, q row.Querier, queue string) (all []row.Worker, err error)
	// Put inserts the rows of all, or replaces the rows with the same ID and queue.
	Put(ctx context.Context, q row.Querier, all []row.Worker) error
}

// MinuteStore are the statements on the traffic of queues. There is a row for each queue and minute, and a
// row with the queue row.AllQueues for the total. A time stands for the minute that contains it.
type MinuteStore interface {
	// Add adds the counts in all to the stored rows, which it creates if they do not exist. MaxWait becomes
	// the larger of both values. No row may occur twice in all.
	Add(ctx context.Context, q row.Querier, all []row.Minute) error
	// All returns the rows of all queues from the minute of since on, sorted by minute and queue.
	All(ctx context.Context, q row.Querier, since time.Time) (all []row.Minute, err error)
	// List returns the traffic of queue in steps of step, a number of whole minutes, oldest first. Steps are
	// aligned to multiples of step since 1970. The first step is the one that contains since, and steps
	// without rows are omitted.
	List(ctx context.Context, q row.Querier, queue string, since time.Time, step time.Duration) (all []row.Minute, err error)
	// Queues returns the queues with a row of their own in the minute of since or later.
	Queues(ctx context.Context, q row.Querier, since time.Time) ([]string, error)
	// Trim deletes rows before minute, limited to the span oldest minutes, and returns the number of
	// deleted rows.
	Trim(ctx context.Context, q row.Querier, minute int64, span int) (int, error)
	// Waits returns the sum of Wait and of Claimed of queue, in the minutes from that of since up to but
	// excluding that of before.
	Waits(ctx context.Context, q row.Querier, queue string, since, before time.Time) (wait time.Duration, claimed int64, err error)
}

// AuditStore are the statements on the audit log. The log keeps the newest 10,000 entries.
type AuditStore interface {
	// List returns up to limit entries with ids below before, newest first.
	List(ctx context.Context, q row.Querier, before int64, limit int) (all []row.AuditRow, err error)
	// Note inserts r and returns its id, which is larger than all earlier ids. If r.ID is set, an earlier
	// transaction of the same verb has inserted the entry, and Note only adds r.N to it.
	Note(ctx context.Context, q row.Querier, r row.AuditRow) (id int64, err error)
}

// FileStore contains the statements that describe the database.
type FileStore interface {
	// Definitions returns the definitions of honker's tables with all indexes and triggers on them, including
	// those of the application.
	Definitions(ctx context.Context, q row.Querier) (all []row.Definition, err error)
	// Describe returns the versions, settings and sizes of the file. It counts up to most rows in each table of
	// honker.
	Describe(ctx context.Context, q row.Querier, most int) (f row.FileState, err error)
}

// ProblemStore are the statements that look for problems. Each reads a bounded number of rows.
type ProblemStore interface {
	// LapsedSince returns the time at which the oldest lapsed claim of queue expired, among the jobs that a
	// worker could claim again. It returns the zero time if there is none.
	LapsedSince(ctx context.Context, q row.Querier, queue string, now time.Time) (since time.Time, err error)
	// Problems returns the problems that have lasted for longer than ages. A consumer whose last save is
	// unknown is behind only when its event is 23 hours older.
	Problems(ctx context.Context, q row.Querier, ages row.ProblemAges, now time.Time) (row.Troubles, error)
	// Retains returns the number of topics and the number of queues with a retention.
	Retains(ctx context.Context, q row.Querier) (topics, queues int64, err error)
}

// RelayStores gives access to the relay queues. They are divided into families, which are separate from
// each other: queues of different families may have the same name.
type RelayStores interface {
	// Family returns the store of a family. "" is the family without a name.
	Family(name string) RelayStore
	// Blocked returns the partitions of all families that are leased or wait after a failure, by family,
	// queue and partition.
	Blocked(ctx context.Context, q row.Querier, now time.Time) ([]row.RelayBlocked, error)
	// Break frees a blocked partition of family if its epoch is still epoch, and keeps its attempts and its
	// error. It returns false if the partition is not blocked or has been taken again. The former holder can
	// no longer save its progress.
	Break(ctx context.Context, q row.Querier, family string, p row.RelayPartition, epoch int64, now time.Time) (bool, error)
}

// RelayStore stores the queues of a family of relays. A queue has a fixed number of partitions, which must
// be registered before the first Send. Dead letters can be read and changed before that; there are none.
type RelayStore interface {
	// Partitions returns the number of partitions of a queue, or 0 if it is not registered. outdated reports
	// that Register would bring the database up to date, which does not keep other methods from working.
	Partitions(ctx context.Context, q row.Querier, queue string) (n int, outdated bool, err error)
	// Register adds a queue with the given number of partitions unless it is registered already. It returns
	// the number of partitions in force, and whether it has changed anything. It may be called first in a
	// transaction.
	Register(ctx context.Context, q row.Querier, queue string, partitions int, now time.Time) (found int, changed bool, err error)
	// Send appends messages to the queue and returns their ids in the same order. Ids rise in the order of the
	// commits, within a partition at least.
	Send(ctx context.Context, q row.Querier, queue string, messages []row.RelayMessage, now time.Time) ([]int64, error)

	// Take leases a partition with messages to owner, counts the attempt, and returns the first messages. The
	// partition must be selected by w, have no valid lease, and not wait for a retry. The least recently taken
	// partition comes first, and among partitions that were never taken, that with the oldest message. Take
	// returns false if there is no such partition. It may return fewer messages than w allows if payloads are
	// large. It returns [row.ErrStuck] if the partition has no messages after all.
	Take(ctx context.Context, q row.Querier, w row.RelayWanted, owner string, now time.Time) (b row.RelayBatch, found bool, err error)
	// Save ends a lease and saves its progress. It deletes the finished messages, and copies those in p.Dead
	// to the dead letters. It returns false and changes nothing if the partition has been taken again or was
	// freed by Break. A lease that has expired still holds until then.
	Save(ctx context.Context, q row.Querier, l row.RelayLease, p row.RelayProgress, now time.Time) (held bool, err error)
	// States returns the state of each queue of w that has messages. Next also covers the partitions that w
	// excludes.
	States(ctx context.Context, q row.Querier, w row.RelayWanted, now time.Time) ([]row.RelayState, error)
	// Info returns the progress of a registered queue with the given number of partitions.
	Info(ctx context.Context, q row.Querier, queue string, partitions int) (row.RelayInfo, error)
	// Leftovers returns rows that no processor will touch: the partitions of all queues that do not exist but
	// have messages, and those of queues from which Vacuum would delete a message.
	Leftovers(ctx context.Context, q row.Querier, queues []string) (row.RelayLeftovers, error)
	// Vacuum deletes up to limit messages of queue that are finished but still stored, and returns their number.
	Vacuum(ctx context.Context, q row.Querier, queue string, limit int) (int, error)

	// Dead returns up to limit dead letters that match f and have ids above after, in id order. It may return
	// fewer if payloads are large, but none only if there are none.
	Dead(ctx context.Context, q row.Querier, f row.RelayDeadFilter, after int64, limit int) ([]row.RelayDead, error)
	// CountDead returns the number of dead letters that match f.
	CountDead(ctx context.Context, q row.Querier, f row.RelayDeadFilter) (n int64, err error)
	// Replay holds dead letters that match p for p.Holder. It takes those that are free: the pending dead
	// letters, and those whose hold has expired. The dead letters that were not taken for the longest time
	// come first, and those that never were before them, in id order. Replay may return fewer than p.Limit if
	// payloads are large.
	Replay(ctx context.Context, q row.Querier, p row.RelayReplay, now time.Time) ([]row.RelayDead, error)
	// SettleDead ends a hold with the verdict v. It returns false and changes nothing if the hold is over.
	SettleDead(ctx context.Context, q row.Querier, h row.RelayHold, v row.RelayVerdict, now time.Time) (held bool, err error)
	// Requeue sends the dead letters of queue among ids that are free, as in Replay, as new messages at the end
	// of their partitions. It deletes the dead letters and returns the ids of the messages.
	Requeue(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) ([]int64, error)
	// Discard marks the dead letters of queue among ids that are free, as in Replay, as discarded, and returns
	// their number.
	Discard(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) (int, error)
	// SettledDead returns the ids of up to limit dead letters of a registered queue that were resolved or
	// discarded at or before the time before.
	SettledDead(ctx context.Context, q row.Querier, queue string, before time.Time, limit int) ([]int64, error)
	// DropDead deletes the dead letters among ids that SettledDead would still return, and returns their number.
	DropDead(ctx context.Context, q row.Querier, queue string, before time.Time, ids []int64) (int, error)
}

// DispatchStore stores the jobs sent by dispatch, beside the jobs themselves, and the actors that are alive.
// The store follows the life of a sent job: a claim, a retry, an ack, a death and a cancellation of the job,
// by any program, change its status, and add an event to its log and its reply.
type DispatchStore interface {
	// Lock makes the transaction of q the writer before it reads. A send must call it first, so that its
	// transaction cannot fail because another writer has committed since it began to read. In a database
	// whose transactions may write after a read it does nothing.
	Lock(ctx context.Context, q row.Querier) error
	// Add records a sent job, in the transaction that has inserted it. It returns false and changes nothing
	// if the job is recorded already, because an enqueue with a unique key has found an existing job.
	Add(ctx context.Context, q row.Querier, s row.Sent, now time.Time) (bool, error)
	// AddTwins records copies of the job sent that were inserted in legacy queues. It must run after Add in
	// the same transaction. The claim of the job or of a copy removes the others.
	AddTwins(ctx context.Context, q row.Querier, sent int64, twins []int64) error
	// Original returns the job that was sent, and its queue, for the copy id in a legacy queue. It returns
	// false if id is not a copy.
	Original(ctx context.Context, q row.Querier, id int64) (sent int64, queue string, found bool, err error)
	// Copies returns the live jobs that represent the sent job id. There are several while it also waits in
	// legacy queues.
	Copies(ctx context.Context, q row.Querier, id int64, now time.Time) ([]row.DispatchCopy, error)
	// Status returns the state and outcome of a sent job, or false if dispatch does not know it. prefix is the
	// prefix of its keys.
	Status(ctx context.Context, q row.Querier, prefix string, id int64, now time.Time) (s row.DispatchStatus, found bool, err error)
	// Stop records that a sent job was stopped and returns its live jobs, which the caller must cancel in the
	// same transaction. If there are none, the job has ended or is unknown, and Stop changes nothing.
	Stop(ctx context.Context, q row.Querier, id int64, now time.Time) ([]row.DispatchCopy, error)
	// EndStopped records that the handler of a stopped job has returned. It does nothing if the job was not
	// stopped, or not while it was running.
	EndStopped(ctx context.Context, q row.Querier, id int64, now time.Time) error

	// Loads returns the number of pending and running jobs of each queue, and the creation time of the oldest
	// pending job.
	Loads(ctx context.Context, q row.Querier, queues []string) ([]row.DispatchLoad, error)
	// Occupancy returns the number of pending jobs of each queue of waiting, up to a thousand, and the worker
	// of each running job of the queues of running.
	Occupancy(ctx context.Context, q row.Querier, waiting, running []string) (row.DispatchOccupancy, error)

	// Register adds an actor or updates it, and may be called first in a transaction. It returns false and
	// changes nothing if another live owner has its key.
	Register(ctx context.Context, q row.Querier, p row.DispatchPresence, now time.Time) (bool, error)
	// Beat updates registered actors and returns the keys that still belong to their owners.
	Beat(ctx context.Context, q row.Querier, all []row.DispatchPresence) ([]string, error)
	// Leave removes an actor. It returns false if the key is free or belongs to another owner.
	Leave(ctx context.Context, q row.Querier, key, owner string) (bool, error)
	// Presences returns the live actors with keys from first up to but excluding end, by key. If both are
	// empty, it returns those of all keys.
	Presences(ctx context.Context, q row.Querier, first, end string, now time.Time) ([]row.DispatchPresence, error)
}

// InboxStore stores the ids of the messages that were received.
type InboxStore interface {
	// Receive records a message until expires. first is false if the message was recorded before and not
	// deleted since. It returns [row.ErrNotInserted] if the message was not stored. Receive may be called
	// first in a transaction.
	Receive(ctx context.Context, q row.Querier, source, id string, now, expires time.Time) (first bool, err error)
}
