package store

import (
	"math"
	"time"
)

// The times that a row can show. honker's SQL functions and other programs may store any
// second, up to the largest integer. Beyond these two package time overflows, so that a job
// that is due in ages would seem to be overdue, and JSON refuses the year. The first is not
// time.Time's zero, which means that there is no time.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Instant turns a stored second into a time, at most the last of the year 9999. 0, which
// says that there is none, is the zero time.
func Instant(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(min(max(unix, firstInstant.Unix()), lastInstant.Unix()), 0)
}

// InstantMS is Instant for our own columns.
func InstantMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(max(ms, firstInstant.UnixMilli()), lastInstant.UnixMilli()))
}

// After is the second that lies seconds after now. It stops at the last second there is,
// where a sum would overflow into the past.
func After(now, seconds int64) int64 {
	if seconds > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + seconds
}

// ExpiryIn is After for NewJob.ExpiresAt, where 0 means never: the second 0 is the one before,
// which is as long past.
func ExpiryIn(now, seconds int64) int64 {
	if at := After(now, seconds); at != 0 {
		return at
	}
	return -1
}
