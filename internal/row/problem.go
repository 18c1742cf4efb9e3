package row

import "time"

// ProblemAges holds the ages at which a state becomes a problem.
type ProblemAges struct {
	Late   time.Duration // of an overdue schedule
	Unseen time.Duration // of the oldest event that a consumer or group has not seen
	Death  time.Duration // younger deaths are problems
	Pause  time.Duration // of a key's pause that has no end
}

// Troubles holds a database's problems. Each list has up to 100 elements.
type Troubles struct {
	DeadMembers []DeadMembers // by queue
	HeldFree    []HeldKey     // held jobs whose limits would let another job with their key run
	Deaths      []QueueDeaths // by queue
	KeyPauses   []OldPause    // by queue and key
	Late        []Late        // longest overdue first
	Skips       []SkippedFire // enabled schedules that have skipped their last time, by name
	Behind      []Behind      // by topic, kind and name
	Blocked     []Blocked     // sessions that keep others waiting, most first; nil for a database with a single writer
	Snapshots   []Snapshot    // oldest first; nil for a database that needs no vacuum
	Unvacuumed  *Unvacuumed
	Standbys    []Standby    // the furthest behind first; nil for a database without standbys
	Connections *Connections // set if a server has few connections left
	// Unseen is the number of deleted jobs and of waiting sessions whose cause the role may not see, or zero.
	Unseen int64
	// Newest is the creation time of the newest job or event, by the creating process's clock. It is
	// zero if there is none.
	Newest time.Time
}

// QueueDeaths counts a queue's jobs that died recently and are still dead.
type QueueDeaths struct {
	Queue string
	N     Count
	First time.Time // first death
}

// FailedJob is a dead job, or a job that waits for another attempt.
type FailedJob struct {
	ID       int64
	Attempts int64
	Error    string // of the last attempt
	Dead     bool
}

// DeadMembers counts the jobs in a queue that are waiting for dead jobs.
type DeadMembers struct {
	Queue  string
	N      int64     // waiting jobs
	Waiter int64     // a waiting job, as an example
	Member int64     // dead job that it waits for, as an example; 0 if it is a batch
	Since  time.Time // first death; zero if unknown
}

// Late is a schedule that is overdue.
type Late struct {
	Name string
	At   time.Time // due time
}

// SkippedFire is a schedule that has skipped the last time at which it was due.
type SkippedFire struct {
	Name, Queue string
	At          time.Time
}

// Behind is a consumer or group that has not seen an old event. Consumers and groups with a pattern or
// a filter are not examined, and a group with a live member is not behind.
type Behind struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string
	Unseen Count
	Oldest time.Time // publication time of the first unseen event
	Acked  time.Time // time at which the consumer last saved its offset; zero if unknown
}

// OldPause is a key's pause that has no end.
type OldPause struct {
	Queue, Key string
	Pause
}

// HeldKey is a key with held jobs, and the limits that apply to it.
type HeldKey struct {
	Queue, Key string
	N          int64 // held jobs
	First      int64 // ID of the first held job
	PerKey     int64 // 0 if there is no limit
	InOrder    bool
}

// Blocked counts the sessions that have been waiting for the locks of another session for longer than a second, and that
// use honker's tables.
type Blocked struct {
	By    string // the other session, for example "session 812 of psql"
	Query string // beginning of its running or last statement; "" if unknown
	N     int64
	Since time.Time // when the first began its statement
}

// Snapshot is an old snapshot of the database. As long as it lasts, vacuum cannot remove deleted jobs, and claims slow
// down.
type Snapshot struct {
	Of    string    // its holder, for example "session 812 of pg_dump"
	Query string    // beginning of the holder's running or last statement; "" if unknown
	Since time.Time // zero if unknown
	Dead  int64     // approximate number of deleted jobs that have not been removed
}

// Unvacuumed means that vacuum does not remove deleted jobs.
type Unvacuumed struct {
	Off   bool      // autovacuum is off
	Since time.Time // last vacuum; zero if there has been none
	Dead  int64     // approximate number of deleted jobs that have not been removed
}

// Standby is a standby server that has fallen behind.
type Standby struct {
	Name   string        // for example "standby walreceiver"
	Behind int64         // bytes of the log that it has not replayed
	Lag    time.Duration // age of the last change that it has replayed; zero if unknown
	Away   bool          // it is not connected, and its slot keeps the log
}

// Connections counts the connections of a server.
type Connections struct {
	Used, Most int64 // Most excludes those that are reserved for superusers
}
