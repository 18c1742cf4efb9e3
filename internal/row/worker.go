package row

// Process is what tells a process from all others. A field may be unknown.
type Process struct {
	Host  string
	Boot  string // of the machine
	Space string // of the PID
	PID   int64
	Start int64 // in a unit of the system's
}

// Worker is a row of _honkerx_workers: a Work loop, once for each of its queues.
type Worker struct {
	ID, Queue string
	Process
	Version         string
	Slots           int64
	SinceMS, SeenMS int64
}

// Holder is what a worker holds of a queue by claims that are valid.
type Holder struct {
	Worker, Queue string
	Jobs          int64
	Oldest        int64 // the lowest id
}
