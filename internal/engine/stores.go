package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// Stores holds a database's statements, grouped by the kind of object that they handle. The function that opens the
// database passes them to [New]; no other code chooses an implementation. A store has no state, no clock and no
// goroutine. It neither begins nor commits transactions: its methods run on the Querier they are given.
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
	Sizes         SizeStore
	Servers       ServerStore // nil for a file
	Moves         MoveStore   // nil for a server
	Problems      ProblemStore
	Dispatches    DispatchStore
	Inboxes       InboxStore
	Flows         FlowStore
	Relays        RelayStores

	Sweeps Sweeps

	Wake wake.Statements // queries for the notifier

	// Single is set if a Step, an Insert of jobs without a unique key and without links, and a Publish are a single
	// statement each. Otherwise only the plain forms of an Insert and a Publish of a single row are.
	Single bool

	// Refused reports whether an error means that a database constraint or trigger rejected a
	// write.
	Refused func(error) bool
}

// Sweeps holds the database's sweeps. A sweep is as of the current time, unless its comment mentions an age.
type Sweeps struct {
	Overdue    Sweep // jobs whose claim has lapsed, by queue; they become claimable or dead letters
	Expired    Sweep // expired jobs that are waiting or whose claim has lapsed, by queue; they become dead letters
	Keys       Sweep // expired unique keys whose job is no longer live
	Pauses     Sweep // expired pauses, and recorded job starts that no longer count toward a rate limit
	Places     Sweep // expired slots held by cancelled jobs
	Fits       Sweep // jobs not yet adjusted to their queue's new limits, by queue
	Claims     Sweep // deleted groups' claims
	Done, Dead Sweep // jobs beyond their queue's retention, by queue
	Results    Sweep // expired results, except those that a waiting job may still read
	Batches    Sweep // batches that finished longer ago than an age and that no live or dead job is waiting for
	Sent       Sweep // records of jobs sent by package dispatch that ended longer ago than an age
	Replies    Sweep // unread replies to jobs unknown to package dispatch, sent longer ago than an age, by prefix
	Actors     Sweep // package dispatch's expired actors
	Runs       Sweep // package flow's runs that are over and no longer kept, and runs without a job
	Received   Sweep // package inbox's message IDs that are past their retention
	Minutes    Sweep // per-minute counts older than an age
	Windows    Sweep // rate limit windows that began longer ago than an age and were followed by a later window
	OldWindows Sweep // all rate limit windows that began longer ago than an age
	Messages   Sweep // notifications sent longer ago than an age

	Surplus func(keep int) Sweep // notifications other than the newest keep, counted across all channels
}

// JobStore reads and writes jobs, whether live, dead or done.
type JobStore interface {
	// Insert adds jobs. Their IDs increase in the order of the payloads, and are larger than the ID of any job
	// inserted earlier in the transaction. Insert returns [ErrInvalid] for a link to an ID that was never assigned,
	// or that would make jobs wait for each other, and [row.ErrBatchDone] if the batch no longer accepts members. In
	// both cases, an Insert of a single job has changed nothing. Insert returns [row.ErrNotInserted] if one of the
	// application's triggers dropped a job.
	Insert(ctx context.Context, q Querier, in *row.Insert, now time.Time) (row.Inserted, error)
	// Step ends a worker's claims, makes new claims in the same transaction, and returns the new claims. It records
	// each settlement's outcome in the settlement itself. A claim that is no longer valid is Lost: settling it
	// changes neither the job nor its result, progress or attempts. The other settlements still take effect, unless
	// Step returns [row.ErrClaimsLost].
	//
	// An ack releases the jobs that are waiting for the acked job. A Step with Alone set does not:
	// if there may be such jobs, it returns [row.ErrAwaited] and changes nothing.
	//
	// A claim uses up one of the job's attempts. It skips jobs that are not due, have expired, have no attempts left,
	// are waiting for other jobs, or may not start because of a pause or a limit. Jobs whose claims have lapsed are
	// first returned to the queue. Step returns [row.ErrStuck] if there is work but nothing could be changed, for
	// example because one of the application's triggers drops every change.
	Step(ctx context.Context, q Querier, s row.Step, now time.Time) (row.Claimed, error)
	// Postpone delays until the given time the dead-lettering that a claim on queue must do before it can take jobs.
	// It is called after one of the application's triggers has rejected a claim: a job that cannot be dead-lettered
	// must not hold up the other jobs. It does nothing in a store whose claims do not dead-letter jobs.
	Postpone(ctx context.Context, q Querier, queue string, until, now time.Time) error
	// AckMany acks the jobs for which a worker holds valid claims and returns their number. It ignores all other IDs.
	// rest reports whether an ack with Alone set may have skipped jobs that other jobs are waiting for.
	AckMany(ctx context.Context, q Querier, a row.AckMany, now time.Time) (n int, rest bool, err error)
	// Renew extends claims and returns the IDs of the jobs that the worker still holds. The worker has lost its
	// claims on the rest. Cancelled jobs among them keep their slots in queues with limits for as long as the
	// claims would have lasted.
	Renew(ctx context.Context, q Querier, r row.Renewal, now time.Time) (kept []int64, err error)
	// Started returns up to 10,000 running jobs of queue whose starts were saved by Renew or Extend, the longest running
	// first. An empty queue means all queues.
	Started(ctx context.Context, q Querier, queue string, now time.Time) ([]row.Started, error)
	// Extend sets the time at which a claim ends. It returns false and changes nothing if the claim is no longer
	// valid.
	Extend(ctx context.Context, q Querier, e row.Extension, now time.Time) (bool, error)
	// Checkpoint stores value, which is JSON text, with a job for its next attempt, replacing any earlier
	// checkpoint. It returns false and changes nothing if the claim is no longer valid.
	Checkpoint(ctx context.Context, q Querier, c row.Claim, value string, now time.Time) (bool, error)
	// Base returns the number of attempts a live job had made when it was last requeued, or 0 if it was never
	// requeued.
	Base(ctx context.Context, q Querier, id int64) (int64, error)
	// States returns the states of queues, in the same order. A state tells whether a claim would find work now and,
	// if not, when it would. The time may be omitted unless next is set. States is called before each wait and after
	// each commit, and must read only indexes.
	States(ctx context.Context, q Querier, queues []string, next bool, now time.Time) ([]row.QueueState, error)
	// NextClaim returns the next time after now at which a job of queue becomes claimable, or the zero time if
	// none will. It takes the queue's pause and limits into account, so the result may also apply to a job
	// that is already due.
	NextClaim(ctx context.Context, q Querier, queue string, now time.Time) (time.Time, error)
	// Find reads a live, dead or done job in queue, or in any queue if queue is "". It returns false if there is no
	// such job. It doesn't miss a job that changes state during the call.
	Find(ctx context.Context, q Querier, id int64, queue string) (row.Job, bool, error)
	// Gone returns the jobs in ids that are neither live nor dead.
	Gone(ctx context.Context, q Querier, ids []int64) ([]int64, error)
	// AfterOf returns the IDs of the jobs that job id is or was waiting for, in ascending order. If the job waits for
	// a batch, they include the batch's members.
	AfterOf(ctx context.Context, q Querier, id int64) ([]int64, error)
	// Keys returns up to limit of the keys used for limits in queue: the keys of its jobs, and paused keys. The
	// keys with the most held jobs come first.
	Keys(ctx context.Context, q Querier, queue string, limit int, now time.Time) ([]row.KeyStats, error)
	// Cancel removes a live job from queue, even if it is claimed. In a queue with limits, a claimed job keeps
	// its slot until its claim would have expired. Jobs waiting for the cancelled job treat it as done. Cancel
	// returns false if there is no such job.
	Cancel(ctx context.Context, q Querier, queue string, id int64, now time.Time) (bool, error)
	// ReleaseUnique takes a unique key from the job that holds it. A job that was waiting for that job to end
	// may then run. ReleaseUnique returns false if the key was free.
	ReleaseUnique(ctx context.Context, q Querier, queue, key string, now time.Time) (bool, error)
}

// Inserter is a JobStore that can insert jobs of several queues in a single statement.
type Inserter interface {
	// InsertAll runs several plain inserts. It returns the IDs of each, in the order of its payloads. The IDs of a
	// later insert are larger.
	InsertAll(ctx context.Context, q Querier, all []*row.Insert, now time.Time) (ids [][]int64, err error)
}

// Publisher is a StreamStore that can append events to several topics in a single statement.
type Publisher interface {
	// PublishAll runs several publications and returns the first and last offset of each.
	PublishAll(ctx context.Context, q Querier, all []row.Publication, now time.Time) (offsets [][2]int64, err error)
}

// BatchStore manages batches, which are sets of jobs that other jobs can wait for.
type BatchStore interface {
	// Cancel seals the batch and removes all jobs waiting for it. It also removes up to about limit members, along
	// with the jobs waiting for those members. It returns the removed jobs and whether there may be more to remove.
	// found is false if the batch does not exist.
	Cancel(ctx context.Context, q Querier, id int64, limit int, now time.Time) (gone []row.Change, more, found bool, err error)
	// Get returns the batch, or false if it does not exist. A member counts as running if its claim is valid.
	Get(ctx context.Context, q Querier, id int64, now time.Time) (b row.Batch, found bool, err error)
	// Insert adds an open batch and returns its ID. name and headers may be empty.
	Insert(ctx context.Context, q Querier, name, headers string, now time.Time) (int64, error)
	// List returns up to limit batches that follow the batch with ID after, oldest first, or newest first if newest
	// is set. If after is 0, the list starts at the beginning.
	List(ctx context.Context, q Querier, newest bool, after int64, limit int, now time.Time) ([]row.Batch, error)
	// Seal closes the batch to new members. It returns false if the batch does not exist.
	Seal(ctx context.Context, q Querier, id int64) (bool, error)
	// Members returns the IDs of up to limit members that are live, or dead if dead is set.
	Members(ctx context.Context, q Querier, id int64, dead bool, limit int) ([]int64, error)
}

// PauseStore manages pauses, which keep a queue's jobs, or the jobs with a given key, from starting. A
// pause is in effect until it ends.
type PauseStore interface {
	// All returns the queue pauses in effect, by queue.
	All(ctx context.Context, q Querier, now time.Time) (map[string]*row.Pause, error)
	// End ends the pause of queue, or of one of its keys if key is not empty. It returns false if the
	// queue or key was not paused, or its pause had already ended.
	End(ctx context.Context, q Querier, queue, key string, now time.Time) (was bool, err error)
	// Set pauses queue, or one of its keys if key is not empty. If the queue or key is already paused, the
	// new pause keeps the previous pause's Since, and Set returns true.
	Set(ctx context.Context, q Querier, queue, key string, p row.Pause, now time.Time) (was bool, err error)
}

// LimitStore manages queue limits.
type LimitStore interface {
	// All returns the limits of every queue that has limits, by queue.
	All(ctx context.Context, q Querier) (map[string]row.QueueLimits, error)
	// Get returns queue's limits, or the zero value if it has none.
	Get(ctx context.Context, q Querier, queue string) (row.QueueLimits, error)
	// Places returns the number of cancelled jobs that still occupy slots in queue.
	Places(ctx context.Context, q Querier, queue string, now time.Time) (int64, error)
	// Set replaces queue's limits. The new limits apply immediately, but jobs still reflect the
	// previous limits until Sweeps.Fits has adjusted them. If the limits do not change, Set writes
	// nothing and returns false.
	Set(ctx context.Context, q Querier, queue string, l row.QueueLimits) (changed bool, err error)
}

// ResultStore manages job results and reports how jobs ended. A result may be saved for any ID, before or after the
// job ends.
type ResultStore interface {
	// Save stores value, which is JSON text, as the result of a job. The result is kept for ttl, or forever
	// if ttl is not positive. A second Save replaces the first. Save returns [row.ErrNotInserted] if a
	// trigger dropped the row.
	Save(ctx context.Context, q Querier, id int64, value string, ttl time.Duration, now time.Time) error
	// Fate returns a job's state as of a single moment, even if the job is moving between tables. An
	// expired result counts as missing, unless a job that was enqueued after this one may still read it.
	Fate(ctx context.Context, q Querier, id int64, now time.Time) (row.Fate, error)
}

// StreamStore reads and writes events. All topics share one sequence of offsets. Offsets increase in
// the order in which events become visible: once an event is visible, no event with a lower offset
// appears.
type StreamStore interface {
	// Ahead counts the selected events with offsets above after. It examines up to most events of the topic, or of
	// all topics for a pattern, and counts those that are selected. If most is row.Unbounded, it examines all events.
	Ahead(ctx context.Context, q Querier, s row.Selection, after, most int64) (a row.Ahead, err error)
	// CountDown counts the events of a topic with offsets above after and at most through, from the highest down. It stops
	// after most events.
	CountDown(ctx context.Context, q Querier, topic string, after, through, most int64) (row.CountedDown, error)
	// Following returns the offset and the creation time of the first event of any topic above after, or false if there
	// is none.
	Following(ctx context.Context, q Querier, after int64) (offset int64, at time.Time, found bool, err error)
	// Head returns an offset such that all events up to it are visible or deleted, and all events that
	// become visible later have larger offsets. It is 0 if there has never been an event. Deleting
	// events does not lower Head, so if Head is lower than before, a backup was restored over the
	// database.
	Head(ctx context.Context, q Querier) (offset int64, err error)
	// Last returns the offset of the last event in the selected topics, ignoring the filter, or 0 if
	// there is none. For a pattern it reads all later events of other topics.
	Last(ctx context.Context, q Querier, s row.Selection) (int64, error)
	// Publish appends p's events in order and returns the first and last offsets. The offsets are
	// consecutive unless a trigger adds more events. In an application's transaction, a database that
	// assigns offsets after the commit returns 0 and 0.
	Publish(ctx context.Context, q Querier, p row.Publication, now time.Time) (first, last int64, err error)
	// Read appends the next page of events to into. The cost of a call is bounded, so a page may be
	// short or empty even if more events follow. There are no more events if the page's Next is not
	// above After.
	Read(ctx context.Context, q Querier, r row.EventRead, into []row.Event) (row.EventPage, error)
	// Start returns the offset at which a reader of s's topics begins, ignoring the filter, and the last
	// offset that RetentionStore.Compact has deleted from those topics. For Position.Since it reads all
	// older events, because no index is ordered by time.
	Start(ctx context.Context, q Querier, s row.Selection, at row.Position) (row.Start, error)
	// TimesAfter returns for each place the creation time of the topic's first event above its offset, or the zero time.
	TimesAfter(ctx context.Context, q Querier, places []row.OffsetIn) ([]time.Time, error)
	// Topics returns the state of each topic that has events or a retention, sorted by name. It counts no events.
	Topics(ctx context.Context, q Querier) (all []row.TopicState, err error)
}

// ConsumerStore manages consumers. A consumer has an offset in a topic or pattern.
type ConsumerStore interface {
	// Add creates a consumer if it doesn't exist, and sets its filter. An existing consumer keeps its offset.
	Add(ctx context.Context, q Querier, n row.NewConsumer, now time.Time) (row.AddedConsumer, error)
	// Drop removes a consumer. It returns false if the consumer does not exist.
	Drop(ctx context.Context, q Querier, consumer, topic string) (bool, error)
	// Get returns a consumer, or false if it does not exist.
	Get(ctx context.Context, q Querier, consumer, topic string) (c row.Consumer, found bool, err error)
	// List returns the consumers of a topic or pattern, sorted by name. If topic is empty, it returns all consumers,
	// sorted by topic or pattern, then by name.
	List(ctx context.Context, q Querier, topic string) ([]row.Consumer, error)
	// SaveOffset advances the consumer to offset and creates it if needed. It returns false and changes
	// nothing if the consumer is already at or beyond offset. Once in row.MarkEvery it takes a row.Mark. The Behind of
	// a consumer with a pattern is always 0.
	SaveOffset(ctx context.Context, q Querier, consumer, topic string, offset int64, now time.Time) (bool, error)
	// Advance moves the consumer from an offset to a later one and returns that and true. If the consumer is not at from,
	// Advance changes nothing and returns its offset. A consumer that does not exist is at 0. No other transaction moves
	// the consumer before the end of q's transaction.
	Advance(ctx context.Context, q Querier, consumer, topic string, from, to int64, now time.Time) (at int64, moved bool, err error)
	// Seek moves the consumer forward or back to a position and returns the position's offset. It
	// returns false if the consumer does not exist.
	Seek(ctx context.Context, q Querier, consumer, topic string, to row.Position) (at row.Start, found bool, err error)
}

// RetentionStore manages the retention of topics and queues.
type RetentionStore interface {
	// Compact deletes up to c.Limit events in c.Topic above c.After that are beyond the topic's
	// retention. It keeps events that a consumer or a group has yet to see, and groups' dead events.
	Compact(ctx context.Context, q Querier, c row.Compaction) (row.Compacted, error)
	// Cutoff returns the last offset that is beyond topic's retention at now, or 0 if there is none. The maximum age
	// is rounded up to whole seconds. Cutoff reads as many rows as the retention's count limit keeps, plus all rows
	// that are too old.
	Cutoff(ctx context.Context, q Querier, topic string, now time.Time) (cutoff int64, err error)
	// List returns a topic's retention, or nothing if none was set. If topic is empty, it returns the
	// retention of every topic, sorted by topic.
	List(ctx context.Context, q Querier, topic string) ([]row.Retention, error)
	// Pin returns the consumer or group that has read the least of topic, or false if the topic has no reader.
	Pin(ctx context.Context, q Querier, topic string) (lowest row.Pin, found bool, err error)
	// Queues returns a queue's retention, or nothing if none was set. If queue is empty, it returns the retention of
	// every queue that may have jobs to trim: queues with finished jobs, and queues that limit their dead jobs.
	Queues(ctx context.Context, q Querier, queue string) ([]row.QueueRetention, error)
	// Set sets the retention of a topic. A retention without limits keeps all events, and List no longer returns it.
	// The maximum age is stored in seconds, rounded up.
	Set(ctx context.Context, q Querier, r row.Retention) error
	// SetQueue sets the retention of a queue. If it is unchanged, SetQueue writes nothing and returns
	// false.
	SetQueue(ctx context.Context, q Querier, r row.QueueRetention) (changed bool, err error)
}

// GroupStore manages consumer groups, their members, and the events leased to them. A lease is valid
// until its deadline has passed. Its token is a fencing token: once an event has been given to another
// member or returned, settling it with the old token changes nothing.
type GroupStore interface {
	// Ack ends the leases on handled events, with which the group is done, and returns how many of them were valid. All of
	// held must belong to the same group. The other leases change nothing.
	Ack(ctx context.Context, q Querier, held []row.Holding, now time.Time) (n int, err error)
	// Claim leases up to c.N events to a member. New events come first, followed by returned events, most recently
	// returned first. This order keeps an event that repeatedly fails from holding up the others. The cost of a call
	// is bounded, so Claim may return fewer events or none, with More set. It first settles lapsed leases: their
	// events are returned to the group, or become dead if they have no attempts left.
	//
	// Claim returns ErrNotFound if the group does not exist, and ErrStuck if the group is ready but
	// nothing could be changed. It writes even if there are no events; call Ready first to avoid
	// this.
	Claim(ctx context.Context, q Querier, c row.GroupClaim, now time.Time) (row.GroupClaimed, error)
	// Dead returns up to limit dead events with offsets above after, in order. It may stop early, but returns at
	// least one event if there are any.
	Dead(ctx context.Context, q Querier, group, after int64, limit int) ([]row.DeadDelivery, error)
	// Discard deletes a dead event from the group. It returns false if there is no such dead event.
	Discard(ctx context.Context, q Querier, group, offset int64) (bool, error)
	// Drop deletes a group, its members, and up to limit of its claims, and returns the number of deleted claims. If
	// it returns limit, the caller must call it again with the same ID. Group IDs are never reused.
	Drop(ctx context.Context, q Querier, id int64, limit int) (int, error)
	// Extend sets the time at which a lease ends, which may be earlier than before. It returns false if the lease is
	// no longer valid.
	Extend(ctx context.Context, q Querier, h row.Holding, expires, now time.Time) (bool, error)
	// Join creates a group if it does not exist, sets its filter, deletes its expired members, and
	// adds j.Member to it, as Renew does. If the membership is not Kept, the caller must roll back.
	Join(ctx context.Context, q Querier, j row.GroupJoin, now time.Time) (row.GroupJoined, error)
	// Leave deletes a member. The events leased to it can be claimed again immediately, and the attempts don't count.
	Leave(ctx context.Context, q Querier, m row.Member, now time.Time) error
	// List returns the group with the given name on a topic or pattern, or nothing if it does not exist.
	// If name is empty, it returns all of the topic's groups, sorted by name. If topic is empty as well,
	// it returns all groups, sorted by topic or pattern, then by name.
	List(ctx context.Context, q Querier, topic, name string) ([]row.Group, error)
	// Progress returns the number of a group's events in each state, and some of its members,
	// including expired ones. The argument members is the maximum number of members to return; a
	// negative value means all. An event whose lease has lapsed counts as Back, even if no claim has
	// returned it yet.
	Progress(ctx context.Context, q Querier, group int64, members int, now time.Time) (row.GroupProgress, error)
	// Ready reports whether a claim by the group would find work, and when a leased or returned event may become
	// claimable. If the filter excludes all new events, a claim may return none and just move the cursor. Ready
	// returns ErrNotFound if the group does not exist. Members call it before making a claim that might find nothing.
	Ready(ctx context.Context, q Querier, id int64, now time.Time) (row.GroupState, error)
	// Release returns claimed events that no handler has seen, without counting the attempt. It ignores the deadline:
	// while an event has this token, no other member can hold it, even if the lease has lapsed.
	Release(ctx context.Context, q Querier, group, token int64, events []int64, now time.Time) error
	// Renew creates or renews m's membership until expires. A name used by another instance is not
	// available until that instance's membership ends. Renew returns ErrNotFound if the group does
	// not exist.
	Renew(ctx context.Context, q Querier, m row.Member, expires, now time.Time) (row.Membership, error)
	// Revive makes a dead event claimable again and resets its attempts. It returns false if there is
	// no such dead event.
	Revive(ctx context.Context, q Querier, group, offset int64, now time.Time) (bool, error)
	// Settle ends an event's lease if the lease is valid. If the event was handled, the group is done with it.
	// Otherwise the event is returned to the group, or becomes dead if it has no attempts left.
	Settle(ctx context.Context, q Querier, s row.GroupSettlement, now time.Time) (row.GroupSettled, error)
}

// NotificationStore reads and writes channel messages. All channels share a single sequence of IDs, which increase in
// the same way as event offsets.
type NotificationStore interface {
	// Head returns an ID such that all messages up to it are visible or deleted, and all messages that become visible
	// later have larger IDs. It is 0 if there has never been a message. Deleting messages does not lower Head, so if
	// Head is lower than before, a backup was restored over the database.
	Head(ctx context.Context, q Querier) (id int64, err error)
	// Insert adds a message and returns its ID. In an application's transaction, a database that assigns IDs after
	// the commit returns 0.
	Insert(ctx context.Context, q Querier, channel, payload string, now time.Time) (int64, error)
	// Since reads up to limit messages sent to channels with IDs above after, in ID order. It may stop early, but
	// returns at least one message if there are any.
	Since(ctx context.Context, q Querier, channels []string, after int64, limit int) ([]row.Notification, error)
}

// ScheduleStore manages schedules, which enqueue jobs when they are due.
type ScheduleStore interface {
	// Enable pauses or resumes a task. It returns false if there is no such task or if nothing changed.
	Enable(ctx context.Context, q Querier, name string, enabled bool) (bool, error)
	// List returns the task called name, or all tasks sorted by name if name is empty.
	List(ctx context.Context, q Querier, name string) ([]row.Task, error)
	// Register adds a task or updates the task with the same name, and returns the spec that the task had before, or
	// "" if it is new. It returns false and writes nothing if nothing changed. Enabled is not stored: a paused task
	// stays paused, and a new task is enabled. The stored NextFire changes only when the spec changes. If a trigger
	// dropped a new task, the error is ErrNotInserted.
	Register(ctx context.Context, q Querier, t row.Task) (before string, changed bool, err error)
	// Soonest returns the time at which the next enabled task is due, or the zero time if there is none.
	// The time may be in the past.
	Soonest(ctx context.Context, q Querier) (time.Time, error)
	// Tick enqueues a job for every time up to k.Due at which a task was due. It stops once it has enqueued k.Limit
	// jobs. This bounds its cost, so that callers can let other writers run between calls. Tasks fire in the order in
	// which they were first registered. A broken task doesn't stop the others.
	Tick(ctx context.Context, q Querier, k row.Tick, now time.Time) (row.Ticked, error)
	// Trigger enqueues a job for the task called name, as if the task were due now. The task's next time
	// does not change. It returns false if there is no such task.
	Trigger(ctx context.Context, q Querier, name, headers string, now time.Time) (f row.Fire, found bool, err error)
	// Unregister removes a task. It returns false if there is no such task.
	Unregister(ctx context.Context, q Querier, name string) (bool, error)
	// Update changes a task's settings. It does nothing if there is no such task.
	Update(ctx context.Context, q Querier, name string, ch row.TaskChange) error
}

// LockStore manages named locks. A lock belongs to a single owner until it expires or is released.
type LockStore interface {
	// Acquire takes a free lock for ttl and returns it with its fencing token, which is larger than all earlier
	// tokens. If the lock is held, even by owner itself, Acquire changes nothing and returns the held lock and a zero
	// token. If the lock was free but couldn't be stored, the error is ErrNotInserted.
	Acquire(ctx context.Context, q Querier, name, owner string, ttl time.Duration, now time.Time) (l row.Lock, token int64, err error)
	// Held returns the lock called name if it is held. If name is empty, Held returns all held locks, sorted
	// by name.
	Held(ctx context.Context, q Querier, name string, now time.Time) ([]row.Lock, error)
	// Release frees a lock. It returns false if the lock does not belong to owner.
	Release(ctx context.Context, q Querier, name, owner string) (bool, error)
	// Renew extends a lock to ttl from now, and returns its new expiry. It returns false if owner no longer holds the
	// lock, in which case nothing changes.
	Renew(ctx context.Context, q Querier, name, owner string, ttl time.Duration, now time.Time) (expires time.Time, held bool, err error)
}

// RateLimitStore manages rate limit windows, which count calls. A window is identified by its limit's
// name and its start time.
type RateLimitStore interface {
	// Count returns how many calls were admitted in the window that starts at start.
	Count(ctx context.Context, q Querier, name string, start time.Time) (int, error)
	// Last returns the last window of each limit, sorted by name.
	Last(ctx context.Context, q Querier) ([]row.RateWindow, error)
	// Take counts a call in the window that starts at start. If the window already has limit calls, Take
	// returns false and counts nothing. limit must be at least 1.
	Take(ctx context.Context, q Querier, name string, start time.Time, limit int) (bool, error)
}
