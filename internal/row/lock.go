package row

// RateWindow is the last window of a rate limit.
type RateWindow struct {
	Name  string
	Start int64
	Count int64
}

// Lock is a row of _honker_locks.
type Lock struct {
	Owner     string
	ExpiresAt int64
}

// NamedLock is a lock that is held.
type NamedLock struct {
	Name string
	Lock
}
