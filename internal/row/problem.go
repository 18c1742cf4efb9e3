package row

import "time"

// ProblemAges are the ages at which a state becomes a problem.
type ProblemAges struct {
	Late   time.Duration // of a schedule that is due
	Unseen time.Duration // of the oldest event that a consumer or a group has not seen
	Death  time.Duration // younger deaths are problems
	Pause  time.Duration // of a pause of a key without an end
}

// Troubles are the problems of a database. Each list has up to 100 elements.
type Troubles struct {
	DeadMembers []DeadMembers // by queue
	HeldFree    []HeldKey     // held jobs whose limits would let another job of their key run
	Deaths      []QueueDeaths // by queue
	KeyPauses   []OldPause    // by queue and key
	Late        []Late        // the longest overdue first
	Behind      []Behind      // by topic, kind and name
	// Newest is the time at which the newest job or event was created, by the clock of the process that
	// created it. It is zero if there is none.
	Newest time.Time
}

// QueueDeaths counts the jobs of a queue that died recently and are still dead.
type QueueDeaths struct {
	Queue string
	N     Count
	First time.Time // first death
}

// DeadMembers counts the jobs of a queue that wait for dead jobs.
type DeadMembers struct {
	Queue  string
	N      int64     // waiting jobs
	Waiter int64     // a waiting job, as an example
	Member int64     // dead job that is waited for, as an example; 0 if it is a batch
	Since  time.Time // first death; zero if unknown
}

// Late is a schedule that is overdue.
type Late struct {
	Name string
	At   time.Time // time at which it was due
}

// Behind is a consumer or group of a single topic that has not seen an old event. A group with a live
// member is not behind. Consumers and groups with a pattern or a filter are not examined.
type Behind struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string
	Unseen Count
	Oldest time.Time // publication of the first unseen event
	Acked  time.Time // time at which the consumer last saved its offset; zero if unknown
	Pins   bool      // it keeps events that the retention of the topic would have deleted
}

// OldPause is a pause of a key that has no end.
type OldPause struct {
	Queue, Key string
	Pause
}

// HeldKey is a key with held jobs, and the limits that apply to it.
type HeldKey struct {
	Queue, Key string
	N          int64 // held jobs
	First      int64 // id of the first held job
	PerKey     int64 // 0 if there is no limit
	InOrder    bool
}
