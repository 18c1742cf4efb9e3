package row

import "database/sql"

// RelayPartitionInfo is the progress of a partition.
type RelayPartitionInfo struct {
	Queue                                  string // set by Blocked only
	Partition                              int64
	Processed, Waiting, OldestMS           int64 // OldestMS is 0 if no message waits
	Owner                                  string
	Epoch, LeaseUntilMS, Attempts, RetryMS int64
	LastError                              string
}

// RelayQueue is a queue from which a processor takes batches.
type RelayQueue struct {
	Name    string
	LeaseMS int64 // duration of a lease on a partition
}

// RelayWanted selects the partitions that a processor may take.
type RelayWanted struct {
	Queues  []RelayQueue
	Except  []RelayPartition
	Healthy bool // skip partitions whose last batch failed
}

// RelayTaken is a partition leased to a processor.
type RelayTaken struct {
	RelayLease
	Attempts  int64 // takes without progress, including this take
	Processed int64
	Cursor    int64
	Failing   bool // the last batch failed, or its process died
}

// RelayProgress is the state of a partition at the end of a batch.
type RelayProgress struct {
	Finished  int64 // messages finished, including rejected messages
	After     int64 // cursor at the take; the finished messages are above it
	Cursor    int64 // last finished message
	Attempts  int64 // takes of the message after Cursor
	RetryAtMS int64
	LastError string
	Dead      []RelayDeath // finished messages that become dead letters
}

// RelayDeath is a message that becomes a dead letter.
type RelayDeath struct {
	ID, Seq, Attempts int64
	Reason            string
}

// RelayState reports whether a partition of a queue can be taken now, and otherwise when.
type RelayState struct {
	Queue  string
	Ready  bool
	NextMS int64 // 0 if no partition is expected to become available
}

// RelayDead is a dead letter. Its State is pending, replaying, resolved or discarded.
type RelayDead struct {
	RelayMessage
	Seq, Attempts int64
	LastError     string
	DiedMS        int64
	State         string
	MovedMS       int64 // end of the hold while replaying, else the time of its return or settlement; 0 if never taken
}

// RelayDeadFilter is a condition on the dead letters of a queue.
type RelayDeadFilter struct {
	Queue     string
	Partition sql.NullInt64
	Key       string // "" for any
	Type      string // "" for any
	State     string // "" for any
	SinceMS   int64  // 0 for any
}

// RelayHold identifies a hold on a dead letter. Only its holder may settle the dead letter.
type RelayHold struct {
	ID            int64
	Queue, Holder string
}

// RelayPartition identifies a partition of a queue.
type RelayPartition struct {
	Queue     string
	Partition int64
}

// RelayLease identifies a lease on a partition. It fences all progress: after the partition has been
// taken again, the earlier owner cannot change it.
type RelayLease struct {
	RelayPartition
	Owner string
	Epoch int64
}

// RelayMessage is a message of a relay queue. It may not be stored yet.
type RelayMessage struct {
	ID        int64
	Partition int64
	Key       string // "" if the message has no key
	Type      string
	Payload   []byte
	CreatedMS int64
}
