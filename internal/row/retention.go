package row

import (
	"math"
	"time"
)

// Retention limits the number and age of the events or jobs that are kept.
type Retention struct {
	Topic    string        // "" for a queue's jobs
	MaxCount int64         // 0 means no bound
	MaxAge   time.Duration // 0 means no bound
}

// Pin is a consumer or group that hasn't seen the events above Offset. Those events must not be deleted.
type Pin struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string // topic or pattern
	Offset int64
}

// Compaction is a request to delete some of the events beyond a topic's retention.
type Compaction struct {
	Topic  string
	Policy int64 // retention keeps the events above this offset; see RetentionStore.Cutoff
	After  int64 // events up to this offset are left alone; Compacted.Last from the previous step, or 0
	Limit  int   // maximum number of events to delete
}

// Compacted is the result of a Compaction.
type Compacted struct {
	Deleted int   // less than Compaction.Limit if no more events can be deleted
	Last    int64 // highest deleted offset, or 0 if there is none
	Cutoff  int64 // offset up to which events may be deleted: Policy or the pin's offset
	Pinned  bool  // some reader has not yet seen all events up to Policy
	Pin     Pin   // if Pinned: the reader that has read the least
}

// QueueRetention limits the finished jobs that a queue keeps.
type QueueRetention struct {
	Queue string
	Done  Retention // without a limit, no done jobs are kept
	Dead  Retention // without a limit, all dead jobs are kept
}

// Bounded reports whether r has any limit.
func (r Retention) Bounded() bool { return r.MaxCount > 0 || r.MaxAge > 0 }

// Everything is the Cutoff that deletes all jobs, regardless of their times.
var Everything = Cutoff{At: lastInstant, ID: math.MaxInt64}
