package row

// QueueDeaths counts the jobs of a queue that died after a given time and are still dead.
type QueueDeaths struct {
	Queue string
	N     Count
	First int64 // time of the first death
}

// DeadMembers counts the jobs of a queue that wait for dead jobs.
type DeadMembers struct {
	Queue  string
	N      int64 // waiting jobs
	Waiter int64 // a waiting job, as an example
	Member int64 // dead job that is waited for, as an example; 0 if it is a batch
	Since  int64 // time of the first death; 0 if unknown
}

// Late is a schedule that is overdue.
type Late struct {
	Name string
	At   int64 // time at which it was due
}

// Behind is a consumer or group of a single topic that has not seen an old event.
type Behind struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string
	Unseen Count
	Oldest int64 // publication time of the first unseen event
	AckMS  int64 // time at which the consumer last saved its offset; 0 if unknown
	Pins   bool  // it keeps events that the retention of the topic would have deleted
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
