package row

// QueueDeaths are the jobs of a queue that have died since a time.
type QueueDeaths struct {
	Queue string
	N     Count
	First int64
}

// DeadMembers are jobs of a queue that wait for jobs that are dead.
type DeadMembers struct {
	Queue  string
	N      int64 // jobs that wait
	Waiter int64 // one of them
	Member int64 // a dead one that it waits for; 0: of a batch
	Since  int64 // 0: unknown
}

// Late is a schedule that was to fire.
type Late struct {
	Name string
	At   int64
}

// Behind is a consumer or a group of one topic that has not seen an old event.
type Behind struct {
	Kind   string // "consumer" or "group"
	Name   string
	Topic  string
	Unseen Count
	Oldest int64 // when the first event was published that it has not seen
	AckMS  int64 // when the consumer saved its offset; 0: unknown
	Pins   bool  // the retention of the topic would have let events go
}

// OldPause is the pause of a key that has no end.
type OldPause struct {
	Queue, Key string
	Pause
}

// HeldKey is a key with jobs that are held.
type HeldKey struct {
	Queue, Key string
	N          int64
	First      int64 // job
	PerKey     int64 // 0: no bound
	InOrder    bool
}
