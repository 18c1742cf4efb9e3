package row

import "math"

// Retention bounds the number and the age of the events or jobs that are kept.
type Retention struct {
	Topic    string
	MaxCount int64 // 0 means no bound
	MaxAgeMS int64 // 0 means no bound
}

// Pin is a consumer or group that has not seen the events above Offset. These events must not be
// deleted.
type Pin struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string // topic or pattern
	Offset int64
}

// QueueRetention bounds the finished jobs that a queue keeps.
type QueueRetention struct {
	Queue string
	Done  Retention // without a bound, no done job is kept
	Dead  Retention // without a bound, all dead jobs are kept
}

// Bounded reports whether r has any bound.
func (r Retention) Bounded() bool { return r.MaxCount > 0 || r.MaxAgeMS > 0 }

// Everything is the Cutoff that keeps no jobs.
var Everything = Cutoff{At: math.MaxInt64, ID: math.MaxInt64}
