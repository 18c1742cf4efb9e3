package row

import "time"

// RelayPartition identifies a partition of a queue.
type RelayPartition struct {
	Queue     string
	Partition int64
}

// RelayMessage is a message in a relay queue. It may not be stored yet.
type RelayMessage struct {
	ID        int64 // increases in commit order
	Partition int64
	Key       string // "" if the message has no key
	Type      string
	Payload   []byte    // not nil
	CreatedAt time.Time // set by the store; in whole milliseconds
}

// RelayQueue is a queue from which a processor takes batches.
type RelayQueue struct {
	Name  string
	Lease time.Duration // duration of a partition's lease; rounded up to milliseconds
	Batch int           // maximum number of messages in a batch
}

// RelayWanted selects the partitions that a processor may take.
type RelayWanted struct {
	Queues  []RelayQueue
	Except  []RelayPartition // partitions that must not be taken
	Healthy bool             // skip partitions whose last batch failed
	Sizes   []RelaySize      // partitions whose batches are smaller than the queue's usual batch
}

// RelaySize is the maximum number of messages in a partition's next batch.
type RelaySize struct {
	RelayPartition
	Messages int
}

// Size returns the maximum number of messages in t's batch. After a batch without progress it is 1, to
// isolate the failing message.
func (w *RelayWanted) Size(t *RelayTaken) int {
	if t.Attempts > 1 {
		return 1
	}
	for _, s := range w.Sizes {
		if s.RelayPartition == t.RelayPartition {
			return s.Messages
		}
	}
	for _, q := range w.Queues {
		if q.Name == t.Queue {
			return q.Batch
		}
	}
	return 1
}

// RelayLease identifies a partition's lease. It fences all progress: once the partition has been taken again, the
// earlier owner can't change it.
type RelayLease struct {
	RelayPartition
	Owner string
	Epoch int64 // number of times the partition was taken
}

// RelayTaken is a partition leased to a processor.
type RelayTaken struct {
	RelayLease
	Attempts  int64 // takes without progress, including this take
	Processed int64 // finished messages; a message's number is Processed plus its rank in the batch
	Cursor    int64 // last finished message
	Failing   bool  // the last batch failed, or its process died
}

// RelayBatch is a partition that was taken, with its first messages in ID order.
type RelayBatch struct {
	RelayTaken
	Size     int // result of RelayWanted.Size
	Messages []RelayMessage
	Busy     RelayPartition // if nothing was taken: a partition that seemed free, but that another transaction had locked
}

// RelayProgress is a partition's state at the end of a batch.
type RelayProgress struct {
	Finished  int64     // messages finished, including rejected messages
	After     int64     // cursor when the partition was taken; the finished messages are above it
	Cursor    int64     // last finished message
	Attempts  int64     // takes of the message after Cursor
	RetryAt   time.Time // the partition waits until this time; zero if it does not wait; rounded up to milliseconds
	LastError string    // "" if the batch succeeded
	Dead      []RelayDeath
}

// RelayDeath is a finished message that becomes a dead letter.
type RelayDeath struct {
	ID, Seq, Attempts int64
	Reason            string
}

// RelayState reports whether one of a queue's partitions can be taken now and, if not, when.
type RelayState struct {
	Queue string
	Ready bool
	Next  time.Time // zero if no partition is expected to become available
}

// RelayInfo is a queue's progress.
type RelayInfo struct {
	Partitions []RelayProgressInfo // all partitions, by number
	Misplaced  int64               // messages in partitions that the queue does not have; another program inserted them
	OpenDead   int64               // dead letters that were neither resolved nor discarded
}

// RelayProgressInfo is a partition's progress.
type RelayProgressInfo struct {
	Partition          int64
	Processed, Waiting int64
	Oldest             time.Time // time when the first waiting message was sent; zero if none is waiting
	RelayHolding
}

// RelayHolding describes a partition that is leased or has failed.
type RelayHolding struct {
	Owner      string // "" if the partition is not held
	Epoch      int64
	LeaseUntil time.Time // zero if there is no lease
	Attempts   int64
	RetryAt    time.Time // zero if the last batch did not fail; may be in the past
	LastError  string    // "" if the last batch did not fail
}

// RelayRegistered is a registered queue.
type RelayRegistered struct {
	Family     string // "" for the unnamed family
	Queue      string
	Partitions int
}

// RelayBlocked is a partition that is leased or is waiting after a failure.
type RelayBlocked struct {
	Family string // "" for the unnamed family
	RelayPartition
	RelayHolding
}

// RelayFailing is a partition that does not get past its first message.
type RelayFailing struct {
	Family string // "" for the unnamed family
	RelayPartition
	RelayHolding
	Waiting Count
	Oldest  time.Time // time when the first waiting message was sent
}

// RelayDeaths counts the dead letters of a queue.
type RelayDeaths struct {
	Family, Queue string
	N             Count
	First         time.Time     // first death
	Last          RelayDeadInfo // newest dead letter
}

// RelayDeadInfo is a brief description of a dead letter.
type RelayDeadInfo struct {
	ID, Partition, Attempts int64
	LastError               string
}

// RelayLeftovers describes the rows of a relay that no processor will touch.
type RelayLeftovers struct {
	Strays   []RelayPartition // partitions that do not exist but have messages; another program inserted them
	Finished []string         // queues that still contain finished messages
}

// The states of a dead letter.
const (
	RelayPending   = "pending"   // waiting for a decision
	RelayReplaying = "replaying" // held by a Replay
	RelayResolved  = "resolved"  // handled by a Replay
	RelayDiscarded = "discarded" // given up
)

// RelayDead is a dead letter.
type RelayDead struct {
	RelayMessage
	Seq, Attempts int64
	LastError     string
	DiedAt        time.Time
	State         string
	HoldUntil     time.Time // end of the hold if State is RelayReplaying
	SettledAt     time.Time // set if State is RelayResolved or RelayDiscarded
}

// RelayDeadFilter is a condition on a queue's dead letters.
type RelayDeadFilter struct {
	Queue     string
	Partition *int      // nil for any
	Key       string    // "" for any
	Type      string    // "" for any
	State     string    // "" for any
	Since     time.Time // selects dead letters that died at this time or later; zero for any; rounded down to milliseconds
}

// RelayReplay requests dead letters for a holder.
type RelayReplay struct {
	RelayDeadFilter
	Limit  int
	Holder string    // must be unique for each request
	Until  time.Time // end of the hold; rounded up to milliseconds
}

// RelayHold identifies a hold on a dead letter. Only its holder may settle the dead letter.
type RelayHold struct {
	ID            int64
	Queue, Holder string
}

// RelayVerdict is the outcome of a replay.
type RelayVerdict struct {
	Resolved bool   // the dead letter was handled; otherwise it becomes pending again with one more attempt
	Cause    string // error of the attempt, unless Resolved; "" if there is none
}
