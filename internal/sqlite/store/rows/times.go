package rows

import (
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// honker's columns hold seconds, and honkerx columns hold milliseconds. In both, 0 means that there is no
// time. Times are rounded down, except that the end of a period is rounded up, so that nothing expires
// earlier than requested.

// SecondUp returns t as a stored second, rounded up, or 0 for the zero time.
func SecondUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return engine.UnixUp(t)
}

// MilliOf returns t in milliseconds, rounded down, or 0 for the zero time.
func MilliOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// MilliUp is like MilliOf but rounds up.
func MilliUp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Add(time.Millisecond - 1).UnixMilli()
}

// NullMilli is like MilliOf but returns NULL for the zero time.
func NullMilli(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// AgeMS returns the column value for an age. It is rounded up to seconds, the precision of honker's times.
func AgeMS(d time.Duration) int64 { return engine.Seconds(d) * 1000 }

// A Second scans a column of seconds; see row.Instant. Like Number, it accepts any value.
type Second time.Time

// Scan implements sql.Scanner.
func (t *Second) Scan(v any) error {
	var n Number
	err := n.Scan(v)
	*t = Second(row.Instant(int64(n)))
	return err
}

// A Milli is like a Second, for a column of milliseconds.
type Milli time.Time

// Scan implements sql.Scanner.
func (t *Milli) Scan(v any) error {
	var n Number
	err := n.Scan(v)
	*t = Milli(row.InstantMS(int64(n)))
	return err
}

// A SpanMilli scans a duration in milliseconds.
type SpanMilli time.Duration

// Scan implements sql.Scanner.
func (d *SpanMilli) Scan(v any) error {
	var n Number
	err := n.Scan(v)
	*d = SpanMilli(row.Milliseconds(int64(n)))
	return err
}

// After returns now plus seconds, or the largest second if the sum would overflow.
func After(now, seconds int64) int64 {
	if seconds > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + seconds
}

// ExpiryIn is like After for NewJob.ExpiresAt, where 0 means never. It returns -1 instead of 0; both are in the
// distant past.
func ExpiryIn(now, seconds int64) int64 {
	if at := After(now, seconds); at != 0 {
		return at
	}
	return -1
}
