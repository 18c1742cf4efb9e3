package store

import (
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Columns of honker hold seconds, and columns of honkerx hold milliseconds. In both, 0 means that there is
// no time. Times are rounded down, but the end of a span is rounded up, so that nothing expires earlier than
// requested.

// secondOf returns t as a stored second, rounded down, or 0 for the zero time.
func secondOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// secondUp is like secondOf but rounds up.
func secondUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// milliOf returns t in milliseconds, rounded down, or 0 for the zero time.
func milliOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// milliUp is like milliOf but rounds up.
func milliUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// nullMilli is like milliOf but returns NULL for the zero time.
func nullMilli(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// ageMS returns the value of a column for an age, which has the precision of honker's times: seconds,
// rounded up.
func ageMS(d time.Duration) int64 { return engine.Seconds(d) * 1000 }

// A second scans a column of seconds, see row.Instant. Like a number it accepts any value.
type second time.Time

// Scan implements sql.Scanner.
func (t *second) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = second(row.Instant(int64(n)))
	return err
}

// A milli is like a second for a column of milliseconds.
type milli time.Time

// Scan implements sql.Scanner.
func (t *milli) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = milli(row.InstantMS(int64(n)))
	return err
}

// A spanMilli scans a duration in milliseconds.
type spanMilli time.Duration

// Scan implements sql.Scanner.
func (d *spanMilli) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*d = spanMilli(row.Milliseconds(int64(n)))
	return err
}
