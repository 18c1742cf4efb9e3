package store

import (
	"math"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// After returns now plus seconds, or the largest second if the sum would overflow.
func After(now, seconds int64) int64 {
	if seconds > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + seconds
}

// ExpiryIn is like After for NewJob.ExpiresAt, where 0 means never. It returns -1 instead of 0; both are
// long past.
func ExpiryIn(now, seconds int64) int64 {
	if at := After(now, seconds); at != 0 {
		return at
	}
	return -1
}

// atMS scans a column of milliseconds. NULL and 0 are the zero time.
type atMS time.Time

// Scan implements sql.Scanner.
func (t *atMS) Scan(v any) error {
	var ms number
	err := ms.Scan(v)
	*t = atMS(row.InstantMS(int64(ms)))
	return err
}

// spanMS scans a span of milliseconds.
type spanMS time.Duration

// Scan implements sql.Scanner.
func (d *spanMS) Scan(v any) error {
	var ms number
	err := ms.Scan(v)
	*d = spanMS(engine.Milliseconds(int64(ms)))
	return err
}

// unixMS returns t in milliseconds, or NULL for the zero time.
func unixMS(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// msOf returns t in milliseconds, or 0 for the zero time.
func msOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
