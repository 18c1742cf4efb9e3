package row

// RateWindow is the most recent window of a rate limit.
type RateWindow struct {
	Name  string
	Start int64
	Count int64
}

// Lock is the state of a lock.
type Lock struct {
	Owner     string
	ExpiresAt int64
}

// NamedLock is a held lock with its name.
type NamedLock struct {
	Name string
	Lock
}

// Locks that elect the leader among all processes, whatever their language.
const (
	SchedulerLock   = "honker-scheduler"
	MaintenanceLock = "honker-maintenance" // used only by this package
)
