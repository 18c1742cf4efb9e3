package row

import (
	"math"
	"time"
)

// The range of times that a row can contain. honker's SQL functions and other programs may store any second up to the
// largest integer. Outside this range package time overflows, so that a job due in the distant future would appear
// overdue, and JSON rejects the year. The first instant differs from the zero time.Time, which means that there is no
// time.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	lastInstant  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Instant converts a stored second to a time within the years 1 to 9999. It converts 0, which stands for no time, to
// the zero time.
func Instant(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(min(max(unix, firstInstant.Unix()), lastInstant.Unix()), 0)
}

// Unix is the inverse of Instant.
func Unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// InstantMS is like Instant for milliseconds, the unit of honkerx columns.
func InstantMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(max(ms, firstInstant.UnixMilli()), lastInstant.UnixMilli()))
}

// Span converts a stored number of seconds, limiting the result to the range of time.Duration.
func Span(seconds int64) time.Duration { return span(seconds, time.Second) }

// Milliseconds is like Span for milliseconds.
func Milliseconds(ms int64) time.Duration { return span(ms, time.Millisecond) }

// span returns n units, limited to the range of time.Duration.
func span(n int64, unit time.Duration) time.Duration {
	longest := math.MaxInt64 / int64(unit)
	return time.Duration(min(max(n, -longest), longest)) * unit
}
