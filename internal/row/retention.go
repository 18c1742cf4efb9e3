package row

import (
	"math"
	"time"
)

// Retention bounds the number and the age of the events or jobs that are kept.
type Retention struct {
	Topic    string        // empty for the jobs of a queue
	MaxCount int64         // 0 means no bound
	MaxAge   time.Duration // 0 means no bound
}

// Pin is a consumer or group that has not seen the events above Offset. These events must not be
// deleted.
type Pin struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string // topic or pattern
	Offset int64
}

// Compaction is a request to delete some of the events that the retention of a topic no longer keeps.
type Compaction struct {
	Topic  string
	Policy int64 // the retention keeps the events above this offset, see RetentionStore.Cutoff
	After  int64 // events up to this offset are left alone; Compacted.Last of the step before, or 0
	Limit  int   // maximum number of deleted events
}

// Compacted is the result of a Compaction.
type Compacted struct {
	Deleted int   // fewer than Compaction.Limit if no further event can be deleted
	Last    int64 // highest offset of the deleted events, or 0 if there are none
	Cutoff  int64 // offset up to which events may be deleted: Policy or the offset of the pin
	Pinned  bool  // a reader has yet to see events up to Policy
	Pin     Pin   // the reader that has read the least, if Pinned
}

// QueueRetention bounds the finished jobs that a queue keeps.
type QueueRetention struct {
	Queue string
	Done  Retention // without a bound, no done job is kept
	Dead  Retention // without a bound, all dead jobs are kept
}

// Bounded reports whether r has any bound.
func (r Retention) Bounded() bool { return r.MaxCount > 0 || r.MaxAge > 0 }

// Everything is the Cutoff that keeps no jobs, whatever their times.
var Everything = Cutoff{At: lastInstant, ID: math.MaxInt64}
