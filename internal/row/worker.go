package row

import "time"

// Process identifies a process across machines and restarts. Any field may be unknown.
type Process struct {
	Host  string
	Boot  string // the machine's boot ID
	Space string // PID namespace
	PID   int64
	Start int64 // start time of the process, in a unit of the operating system
}

// Worker is a running Work loop. A loop over several queues has a Worker for each queue.
type Worker struct {
	ID, Queue string
	Process
	Version string
	Slots   int64     // concurrent handlers
	Since   time.Time // start of the loop, to the millisecond; distinguishes loops with the same ID
	Seen    time.Time // the process's last commit, to the minute
}

// Holder counts the jobs in a queue on which a worker has valid claims.
type Holder struct {
	Worker, Queue string
	Jobs          int64
	Oldest        int64 // lowest ID of these jobs
}
