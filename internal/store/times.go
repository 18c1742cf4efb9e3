package store

import (
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A second scans a column of unix seconds, see row.Instant. Like a number it accepts any value.
type second time.Time

// Scan implements sql.Scanner.
func (t *second) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = second(row.Instant(int64(n)))
	return err
}

// A milli is a second for the columns of honkerx, which have milliseconds.
type milli time.Time

// Scan implements sql.Scanner.
func (t *milli) Scan(v any) error {
	var n number
	err := n.Scan(v)
	*t = milli(row.InstantMS(int64(n)))
	return err
}

// milliUp returns t in milliseconds, rounded up so that nothing expires earlier than requested.
func milliUp(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// ageMS returns the value of a column for an age, which has the precision of honker's times: seconds,
// rounded up.
func ageMS(d time.Duration) int64 { return engine.Seconds(d) * 1000 }
