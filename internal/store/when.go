package store

import (
	"time"

	"github.com/honker-go/honker/internal/row"
)

// secondOf returns t as a stored second, rounded down. It returns 0 for the zero time, which means that
// there is no time.
func secondOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// secondUp returns t as a stored second, rounded up. It returns 0 for the zero time.
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

// An atSecond scans a column of seconds, as number does. A stored 0 is the zero time.
type atSecond time.Time

// Scan implements sql.Scanner.
func (t *atSecond) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = atSecond(row.Instant(int64(n)))
	return err
}

// An atMilli is like atSecond for milliseconds.
type atMilli time.Time

// Scan implements sql.Scanner.
func (t *atMilli) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = atMilli(row.InstantMS(int64(n)))
	return err
}

// A spanMillis scans a duration in milliseconds.
type spanMillis time.Duration

// Scan implements sql.Scanner.
func (d *spanMillis) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*d = spanMillis(row.Milliseconds(int64(n)))
	return err
}
