package store

import "time"

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
