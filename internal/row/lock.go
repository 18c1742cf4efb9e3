package row

import "time"

// RateWindow is a rate limit's most recent window.
type RateWindow struct {
	Name  string
	Start time.Time // within the years 1 to 9999
	Count int64     // calls admitted in the window
}

// Lock is a held lock.
type Lock struct {
	Name    string
	Owner   string
	Expires time.Time // the lock is free from this time on; within the years 1 to 9999
}

// Names of the locks that elect a leader among all processes, in any language.
const (
	SchedulerLock   = "honker-scheduler"
	MaintenanceLock = "honker-maintenance" // used only by honker for Go
)
