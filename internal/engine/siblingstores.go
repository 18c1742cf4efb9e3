package engine

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// RelayStores gives access to the relay queues. The queues are divided into families. Each family is a separate
// namespace: queues in different families may have the same name.
type RelayStores interface {
	// Family returns a family's store. "" names the unnamed family.
	Family(name string) RelayStore
	// Registered returns the queues of all families, sorted by family and name.
	Registered(ctx context.Context, q Querier) ([]row.RelayRegistered, error)
	// Blocked returns the partitions, in all families, that are leased or waiting for a retry, sorted by
	// family, queue and partition.
	Blocked(ctx context.Context, q Querier, now time.Time) ([]row.RelayBlocked, error)
	// Failing returns up to 100 partitions, in all families, whose last batch failed after at least the given number of
	// attempts, sorted by family, queue and partition. It omits partitions without messages.
	Failing(ctx context.Context, q Querier, attempts int64) ([]row.RelayFailing, error)
	// Deaths returns, by family and queue, the dead letters that died after since and that were neither resolved nor
	// discarded. It reads only the newest thousand dead letters of each family.
	Deaths(ctx context.Context, q Querier, since time.Time) ([]row.RelayDeaths, error)
	// Break frees a blocked partition in family if its epoch has not changed. It keeps the partition's
	// attempts and error. It returns false if the partition is not blocked or has been taken again. The
	// former holder can no longer save its progress.
	Break(ctx context.Context, q Querier, family string, p row.RelayPartition, epoch int64, now time.Time) (bool, error)
}

// RelayStore stores the relay queues in a family. A queue has a fixed number of partitions, and must be registered
// before the first Send. Until then, the dead-letter methods succeed but return nothing.
type RelayStore interface {
	// Partitions returns the number of partitions of a queue, or 0 if it is not registered. outdated means that
	// Register would bring the database up to date. The other methods work even if it is outdated.
	Partitions(ctx context.Context, q Querier, queue string) (n int, outdated bool, err error)
	// Register adds a queue with the given number of partitions unless it is already registered. It returns the
	// actual number of partitions, and whether it changed anything. It may be the first call in a transaction.
	Register(ctx context.Context, q Querier, queue string, partitions int, now time.Time) (found int, changed bool, err error)
	// Send appends messages to the queue and returns their IDs in the same order. Within a partition, IDs increase in
	// commit order; of transactions that overlap, either may come first in a database with several writers. Such a
	// database numbers the messages of an application's transaction after the commit, and Send returns an ID of 0 for
	// each of them, because no other ID would remain theirs. Requeue returns the same.
	Send(ctx context.Context, q Querier, queue string, messages []row.RelayMessage, now time.Time) ([]int64, error)

	// Take leases a partition with messages to owner, counts the attempt, and returns the first messages. The
	// partition must be selected by w, have no valid lease, and not wait for a retry. The least recently taken
	// partition comes first. Among partitions that were never taken, the partition with the oldest message
	// comes first. Take returns false if there is no such partition, or if other transactions have locked all of
	// them. Then b.Busy is one of these, and the caller should try again after Await. Take may return fewer messages than w
	// allows if payloads are large. It returns [row.ErrStuck] if the partition turns out to have no messages.
	Take(ctx context.Context, q Querier, w row.RelayWanted, owner string, now time.Time) (b row.RelayBatch, found bool, err error)
	// Await waits until no other transaction has locked a partition. It must be called in a transaction of its own:
	// transactions that held locks and waited for each other would deadlock.
	Await(ctx context.Context, q Querier, p row.RelayPartition) error
	// Save ends a lease and saves its progress. It deletes the finished messages, and copies those in p.Dead
	// to the dead letters. It returns false and changes nothing if the partition has been taken again or was
	// freed by Break. Until then, even an expired lease can be saved.
	Save(ctx context.Context, q Querier, l row.RelayLease, p row.RelayProgress, now time.Time) (held bool, err error)
	// States returns the state of each queue in w that has messages. Next also takes into account the
	// partitions that w excludes.
	States(ctx context.Context, q Querier, w row.RelayWanted, now time.Time) ([]row.RelayState, error)
	// Info returns the progress of a registered queue with the given number of partitions.
	Info(ctx context.Context, q Querier, queue string, partitions int) (row.RelayInfo, error)
	// Leftovers returns rows that no processor will touch: partitions, of any queue, that have messages but don't
	// exist; and those of the given queues from which Vacuum would delete messages.
	Leftovers(ctx context.Context, q Querier, queues []string) (row.RelayLeftovers, error)
	// Vacuum deletes up to limit of queue's messages that are finished but still stored, and returns how many it
	// deleted.
	Vacuum(ctx context.Context, q Querier, queue string, limit int) (int, error)

	// Dead returns up to limit dead letters that match f and have IDs above after, in ID order. It may return fewer
	// if payloads are large, but always at least one if there are any.
	Dead(ctx context.Context, q Querier, f row.RelayDeadFilter, after int64, limit int) ([]row.RelayDead, error)
	// CountDead returns the number of dead letters that match f.
	CountDead(ctx context.Context, q Querier, f row.RelayDeadFilter) (n int64, err error)
	// Replay gives p.Holder a hold on free dead letters that match p. A dead letter is free if it is pending or its
	// hold has expired. Dead letters that were never taken come first, in ID order, followed by the others, least
	// recently taken first. Replay may return fewer than p.Limit if payloads are large.
	Replay(ctx context.Context, q Querier, p row.RelayReplay, now time.Time) ([]row.RelayDead, error)
	// SettleDead ends a hold with verdict v. It returns false and changes nothing if the hold has already ended.
	SettleDead(ctx context.Context, q Querier, h row.RelayHold, v row.RelayVerdict, now time.Time) (held bool, err error)
	// Requeue sends those of the dead letters in ids that are free, as defined by Replay, as new messages at the end
	// of their partitions in queue. It deletes the dead letters and returns the IDs of the new messages.
	Requeue(ctx context.Context, q Querier, queue string, ids []int64, now time.Time) ([]int64, error)
	// Discard marks those of queue's dead letters in ids that are free, as defined by Replay, as discarded, and
	// returns how many it marked.
	Discard(ctx context.Context, q Querier, queue string, ids []int64, now time.Time) (int, error)
	// SettledDead returns the IDs of up to limit dead letters of a registered queue that were resolved or discarded
	// no later than before.
	SettledDead(ctx context.Context, q Querier, queue string, before time.Time, limit int) ([]int64, error)
	// DropDead deletes the dead letters in ids that SettledDead would still return, and returns how many it deleted.
	DropDead(ctx context.Context, q Querier, queue string, before time.Time, ids []int64) (int, error)
}

// DispatchStore stores a record of each job sent by package dispatch, in addition to the job itself, as well as the
// live actors. The record follows the job's life cycle: whenever any program claims, retries, acks, dead-letters or
// cancels the job, its status changes, and an event is added to its log and its reply.
type DispatchStore interface {
	// Lock takes the write lock for q's transaction before the transaction reads. A send must call it
	// first, so that its transaction cannot fail because another writer has committed after the first
	// read. Lock does nothing in a database whose transactions can always write after a read.
	Lock(ctx context.Context, q Querier) error
	// Add records a sent job in the transaction that inserted it. It returns false and changes nothing if
	// the job is already recorded, which happens when an enqueue with a unique key finds an existing job.
	Add(ctx context.Context, q Querier, s row.Sent, now time.Time) (bool, error)
	// AddTwins records the copies of the job sent that were inserted into legacy queues. It must run after
	// Add in the same transaction. The claim of the job or of a copy removes the others.
	AddTwins(ctx context.Context, q Querier, sent int64, twins []int64) error
	// Original returns the sent job and its queue for id, a copy in a legacy queue. It returns false if id is not a
	// copy.
	Original(ctx context.Context, q Querier, id int64) (sent int64, queue string, found bool, err error)
	// Copies returns the live jobs that represent the sent job id. There are several as long as the job is also
	// waiting in legacy queues.
	Copies(ctx context.Context, q Querier, id int64, now time.Time) ([]row.DispatchCopy, error)
	// Status returns the state and outcome of a sent job, or false if package dispatch does not know the job.
	// prefix is the job's key prefix.
	Status(ctx context.Context, q Querier, prefix string, id int64, now time.Time) (s row.DispatchStatus, found bool, err error)
	// Stop records that a sent job was stopped and returns its live jobs, which the caller must cancel in the
	// same transaction. If there are none, the job has ended or is unknown, and Stop changes nothing.
	Stop(ctx context.Context, q Querier, id int64, now time.Time) ([]row.DispatchCopy, error)
	// EndStopped records that the handler of a stopped job has returned. It does nothing unless the job was
	// stopped while it was running.
	EndStopped(ctx context.Context, q Querier, id int64, now time.Time) error

	// Loads returns each queue's number of pending and running jobs, and the creation time of its oldest
	// pending job.
	Loads(ctx context.Context, q Querier, queues []string) ([]row.DispatchLoad, error)
	// Occupancy returns the number of pending jobs, up to a thousand, in each of the queues in waiting, and the
	// worker of each running job in the queues in running.
	Occupancy(ctx context.Context, q Querier, waiting, running []string) (row.DispatchOccupancy, error)

	// Register adds or updates an actor. It may be the first call in a transaction. It returns false and
	// changes nothing if another live owner has the actor's key.
	Register(ctx context.Context, q Querier, p row.DispatchPresence, now time.Time) (bool, error)
	// Beat updates registered actors and returns the keys still held by their owners.
	Beat(ctx context.Context, q Querier, all []row.DispatchPresence) ([]string, error)
	// Leave removes an actor. It returns false if the key is free or belongs to another owner.
	Leave(ctx context.Context, q Querier, key, owner string) (bool, error)
	// Presences returns the live actors with keys from first up to but not including end, sorted by key. If both are
	// empty, it returns all live actors.
	Presences(ctx context.Context, q Querier, first, end string, now time.Time) ([]row.DispatchPresence, error)
}

// FlowStore records the runs of package flow, with their steps and signals. A run belongs to a job.
type FlowStore interface {
	// Prepare must run first in a transaction that starts a run. It takes the write lock and makes the tables that the
	// other methods need, where a database needs that.
	Prepare(ctx context.Context, q Querier) error
	// Find returns the run of flow with the given ID, or false if there is none.
	Find(ctx context.Context, q Querier, flow, id string) (row.FlowRun, bool, error)
	// Hold is like Find, but also keeps other transactions from signalling, cancelling, resuming or ending the run until
	// q's transaction ends. It may be the first call in a transaction. A transaction that settles the job holds the run
	// first.
	Hold(ctx context.Context, q Querier, flow, id string) (row.FlowRun, bool, error)
	// Add records the run of a new job. It returns false and changes nothing if the flow has a run with that ID.
	Add(ctx context.Context, q Querier, r row.FlowRun, now time.Time) (bool, error)
	// History returns the recorded state of the run of a job, or false if there is none.
	History(ctx context.Context, q Querier, job int64) (row.FlowHistory, bool, error)
	// Signals returns the values of the signals to a run, by name.
	Signals(ctx context.Context, q Querier, flow, id string) (map[string]string, error)
	// Save records a step or its end, and returns whether the run was cancelled. It returns false and changes nothing
	// if the claim is no longer valid, or if the step has ended already.
	Save(ctx context.Context, q Querier, c row.Claim, s row.FlowStepRow, now time.Time) (saved, cancelled bool, err error)
	// Signal records a signal and lets a run that waits for it go on. It returns false and changes nothing if the run
	// has a signal of that name. The caller must hold the run, which must not be over.
	Signal(ctx context.Context, q Querier, s row.FlowSignal, now time.Time) (bool, error)
	// Cancel records a request to cancel the run of a job. The caller must hold the run.
	Cancel(ctx context.Context, q Querier, job int64) error
	// Resume makes the suspended run of a job due, and returns its flow, or "" if the job has no run. It holds the run.
	Resume(ctx context.Context, q Querier, job int64, now time.Time) (flow string, err error)
	// Restart deletes the steps of a job's run from seq on, and forgets that the run was cancelled or undone. It returns
	// false and changes nothing if a worker holds the job, and otherwise keeps the job from being claimed until q's
	// transaction ends. The caller must hold the run.
	Restart(ctx context.Context, q Querier, job int64, seq int, now time.Time) (bool, error)
	// Fail records the error for which the run of a job is undone. It returns false and changes nothing if the claim is no
	// longer valid.
	Fail(ctx context.Context, q Querier, c row.Claim, failure string, now time.Time) (failed bool, err error)
	// End records the end of the run of a job. The run is kept until keepUntil, or for ever if that is zero.
	End(ctx context.Context, q Querier, job int64, o row.FlowOutcome, keepUntil, now time.Time) error
	// List returns the runs that f selects, newest first, with the state of their jobs.
	List(ctx context.Context, q Querier, f row.FlowFilter, now time.Time) ([]row.FlowView, error)
}

// InboxStore stores the IDs of received messages.
type InboxStore interface {
	// Receive records a message until expires. first is false if the message had already been recorded
	// and not deleted since. Receive returns [row.ErrNotInserted] if the message was not stored. It may
	// be the first call in a transaction.
	Receive(ctx context.Context, q Querier, source, id string, now, expires time.Time) (first bool, err error)
}
