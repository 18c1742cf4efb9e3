package cron

import (
	"fmt"
	"time"
)

const (
	horizon = 100 // years: a schedule without a match in them is an error
	stride  = 5   // years: robfig looks for a match to the end of the fifth

	// The range of Rust's chrono, by which honker computes.
	firstYear, lastYear = -262143, 262142

	// No zone is further from UTC.
	widest = 26 * time.Hour
)

// wallZone is the zone of a wall clock that is in no zone: robfig steps it where no
// hour is missing or shown twice. It is not time.UTC itself, because robfig's answer
// for no match is the zero time, which is in UTC and might be a match.
var wallZone = time.FixedZone("wall", 0)

// wallClock is what the clocks show at t, as a time in wallZone.
func wallClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return time.Unix(t.Unix()+int64(offset), 0).In(wallZone)
}

// nextMatch goes by the wall clock of from. Where clocks show an hour twice, a match earlier
// in that hour is over once the first pass has gone by it, although the second is to come.
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
	// This happens in no real zone, but an application may construct one.
	if !next.After(from) || wallClock(next).Year() > wall.Year()+horizon {
		return time.Time{}, fmt.Errorf("no valid local schedule match found within %d years after unix_ts=%d: %s",
			horizon, from.Unix(), quote(s.text))
	}
	return next, nil
}

// nextWall returns the first wall clock after wall that matches the fields. robfig gives up
// after stride years, so it is asked again from there. The longest distance between two
// matches is forty years, of a 29 February on one weekday.
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

// instant returns the first moment from which on the clocks of loc never show less
// than wall. So of a wall clock that is shown twice it is the second time, and for one
// that is skipped it is the end of the gap; and it lies after every moment that shows
// less.
//
// time.Date promises neither. ZoneBounds is asked for starts alone: on 31 December of
// a leap year the end that it names can be over.
func instant(wall time.Time, loc *time.Location) time.Time {
	var end time.Time // the end of the period of t, once it is known
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

// chronoFormat is how Rust's chrono prints a date and time.
func chronoFormat(wall time.Time) string {
	text := wall.Format("2006-01-02T15:04:05")
	if wall.Year() > 9999 {
		return "+" + text
	}
	return text
}
