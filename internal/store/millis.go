package store

import "time"

// millis converts a time to the unit of our own columns, rounded down. The zero time is 0, which means
// that there is no time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// millisUp is like millis but rounds up. It is for the end of a span, so that nothing expires earlier than
// requested.
func millisUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}
