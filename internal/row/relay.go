package row

import "database/sql"

// RelayPartitionInfo is how far a partition has come.
type RelayPartitionInfo struct {
	Queue                                  string // of Blocked only
	Partition                              int64
	Processed, Waiting, OldestMS           int64 // OldestMS 0: nothing waits
	Owner                                  string
	Epoch, LeaseUntilMS, Attempts, RetryMS int64
	LastError                              string
}

// RelayQueue is a queue that a processor takes batches of, and how long it holds a partition.
type RelayQueue struct {
	Name    string
	LeaseMS int64
}

// RelayWanted selects the partitions that a processor takes.
type RelayWanted struct {
	Queues  []RelayQueue
	Except  []RelayPartition
	Healthy bool // only partitions that did not fail the last time
}

// RelayTaken is a partition that was taken.
type RelayTaken struct {
	RelayLease
	Attempts  int64 // takes without progress, this one included
	Processed int64
	Cursor    int64
	Failing   bool // the partition failed the last time, or its process died
}

// RelayProgress is what a partition has come to by the end of a batch.
type RelayProgress struct {
	Finished  int64 // messages, rejected ones included
	After     int64 // the cursor at the take: they are the ones above it
	Cursor    int64 // the last of them
	Attempts  int64 // takes of the message after it
	RetryAtMS int64
	LastError string
	Dead      []RelayDeath // of the finished ones
}

// RelayDeath is a message that becomes a dead letter.
type RelayDeath struct {
	ID, Seq, Attempts int64
	Reason            string
}

// RelayState says whether a partition of a queue can be taken, and when one will be otherwise.
type RelayState struct {
	Queue  string
	Ready  bool
	NextMS int64 // 0: none will
}

// RelayDead is a dead letter. It is pending, held by a replayer, resolved or discarded.
type RelayDead struct {
	RelayMessage
	Seq, Attempts int64
	LastError     string
	DiedMS        int64
	State         string
	MovedMS       int64 // the end of the hold, or when it came back or was settled; 0: it was never taken
}

// RelayDeadFilter selects dead letters of a queue.
type RelayDeadFilter struct {
	Queue     string
	Partition sql.NullInt64
	Key       string // "": any
	Type      string // "": any
	State     string // "": any
	SinceMS   int64  // 0: any
}

// RelayHold is the right to settle a dead letter.
type RelayHold struct {
	ID            int64
	Queue, Holder string
}

// RelayPartition names a partition of a queue.
type RelayPartition struct {
	Queue     string
	Partition int64
}

// RelayLease is the right to handle a partition. All progress is fenced by it.
type RelayLease struct {
	RelayPartition
	Owner string
	Epoch int64
}

// RelayMessage is a row of _honkerx_relay_messages, or one to be.
type RelayMessage struct {
	ID        int64
	Partition int64
	Key       string // "": none
	Type      string
	Payload   []byte
	CreatedMS int64
}
