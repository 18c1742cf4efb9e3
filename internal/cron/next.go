package cron

import (
	"fmt"
	"time"
)

const (
	horizon = 100 // years; it is an error if a schedule has no match in this period
	stride  = 5   // years; robfig searches until the end of the fifth year

	// The range of years of Rust's chrono, which honker uses.
	firstYear, lastYear = -262143, 262142

	// The largest offset of any zone.
	widest = 26 * time.Hour
)

// wallZone is a time zone without clock changes, in which robfig can advance a wall clock without skipped or repeated
// hours. It isn't time.UTC, because robfig returns the zero time, which is in UTC, if there is no match, and in UTC
// that time could be a match.
var wallZone = time.FixedZone("wall", 0)

// wallClock returns the time shown by clocks at t, as a time in wallZone.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return time.Unix(t.Unix()+int64(offset), 0).In(wallZone)
}

// nextMatch searches from the wall clock time at from. In a repeated hour, a match counts as past once clocks have
// shown it for the first time, even though they will show it again.
func (s Spec) nextMatch(from time.Time) (time.Time, error) {
	if year := from.UTC().Year(); year < firstYear || year > lastYear {
		return time.Time{}, fmt.Errorf("invalid timestamp: %d", from.Unix())
	}
	shown := wallClock(from)
	wall, ok := s.nextWall(shown)
	if !ok {
		return time.Time{}, fmt.Errorf("no schedule match found within %d years after local datetime %s",
			horizon, chronoFormat(shown))
	}
	next := instant(wall, from.Location())
	// This doesn't happen in real time zones, but an application can construct such a zone.
	if !next.After(from) || wallClock(next).Year() > wall.Year()+horizon {
		return time.Time{}, fmt.Errorf("no valid local schedule match found within %d years after unix_ts=%d: %s",
			horizon, from.Unix(), quote(s.text))
	}
	return next, nil
}

// nextWall returns the first wall clock time after wall that matches the fields. robfig gives up after stride years,
// so it is called repeatedly. The longest gap between two matches is forty years, for February 29 on a given weekday.
func (s Spec) nextWall(wall time.Time) (time.Time, bool) {
	s.fields.Location = wallZone
	year := wall.Add(time.Second).Year()
	for last := year + horizon; year <= last; year += stride + 1 {
		if next := s.fields.Next(wall); next.Location() == wallZone {
			return next, true
		}
		wall = time.Date(year+stride, time.December, 31, 23, 59, 59, 0, wallZone)
	}
	return time.Time{}, false
}

// instant returns the earliest moment from which loc's clocks never again show a time before wall. If clocks show
// wall twice, this is the second time. If they skip wall, it is the end of the gap.
//
// time.Date does not guarantee this. instant uses only the start returned by ZoneBounds, because the end can be wrong
// on December 31 of a leap year.
func instant(wall time.Time, loc *time.Location) time.Time {
	var end time.Time // end of t's zone period, once known
	t := wall.Add(widest).In(loc)
	for {
		start, _ := t.ZoneBounds()
		_, offset := t.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second).In(loc)
		switch {
		case !start.IsZero() && at.Before(start):
			end, t = start, start.Add(-time.Second)
		case !end.IsZero() && at.After(end):
			return end
		default:
			return at
		}
	}
}

// chronoFormat formats a date and time like Rust's chrono.
func chronoFormat(wall time.Time) string {
	text := wall.Format("2006-01-02T15:04:05")
	if wall.Year() > 9999 {
		return "+" + text
	}
	return text
}
