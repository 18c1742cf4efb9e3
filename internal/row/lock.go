package row

import "time"

// RateWindow is the most recent window of a rate limit.
type RateWindow struct {
	Name  string
	Start time.Time // within the years 1 to 9999
	Count int64     // calls admitted in the window
}

// Lock is a held lock.
type Lock struct {
	Name    string
	Owner   string
	Expires time.Time // the lock is free from then on; within the years 1 to 9999
}

// Locks that elect the leader among all processes, whatever their language.
const (
	SchedulerLock   = "honker-scheduler"
	MaintenanceLock = "honker-maintenance" // used only by honker for Go
)
