package cron_test

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// walker finds the next fire time the slow way: it steps from instant to instant and checks the time that clocks
// show. It shares no code with the package.
//
// Let w be a wall clock time that matches the fields, and is later than the wall clock at the
// start. An instant fires for w if it shows w and no later instant does, or if the clocks jump over
// w to this instant.
type walker struct {
	fields [6]func(int) bool
	step   int64 // seconds; a divisor of w, of all offsets and of all shifts
	loc    *time.Location
}

func newWalker(t require.TestingT, spec string, loc *time.Location) walker {
	fields := strings.Split(spec, " ")
	w := walker{step: 1, loc: loc}
	if len(fields) == 5 {
		fields, w.step = append([]string{"0"}, fields...), 60
	}
	require.Len(t, fields, 6, "%q", spec)
	for i, field := range fields {
		w.fields[i] = admits(t, field, []int{0, 0, 0, 1, 1, 0}[i])
	}
	return w
}

var plainPart = regexp.MustCompile(`^(?:(\*)|(\d+)(?:-(\d+))?)(?:/(\d+))?$`)

// admits parses a valid field, and returns a function that reports whether it contains a value.
func admits(t require.TestingT, field string, lowest int) func(int) bool {
	have := map[int]bool{}
	for _, part := range strings.Split(field, ",") {
		m := plainPart.FindStringSubmatch(part)
		require.NotNil(t, m, "%q", field)
		number := func(i, otherwise int) int {
			if m[i] == "" {
				return otherwise
			}
			n, err := strconv.Atoi(m[i])
			require.NoError(t, err)
			return n
		}
		from, to := lowest, 59
		if m[1] == "" {
			from = number(2, 0)
			to = number(3, from)
		}
		for n := from; n <= to; n++ {
			have[n] = have[n] || (n-from)%number(4, 1) == 0
		}
	}
	return func(n int) bool { return have[n] }
}

func (w walker) matchesDay(wall time.Time) bool {
	return w.fields[3](wall.Day()) && w.fields[4](int(wall.Month())) && w.fields[5](int(wall.Weekday()))
}

func (w walker) matches(wall time.Time) bool {
	return w.matchesDay(wall) && w.fields[0](wall.Second()) && w.fields[1](wall.Minute()) && w.fields[2](wall.Hour())
}

// shows returns the wall clock time at unix, as a time in UTC.
func (w walker) shows(unix int64) time.Time {
	t := time.Unix(unix, 0).In(w.loc)
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return time.Date(year, month, day, hour, minute, second, 0, time.UTC)
}

// walk returns the first instant after from, up to and including until, that fires.
func (w walker) walk(from, until int64) (int64, bool) {
	set := w.shows(from)
	t := from - mod(from, w.step) + w.step
	for before := w.shows(t - w.step); t <= until; t += w.step {
		if t%hour == 0 && w.quiet(t) {
			t += 24*hour - w.step
			before = w.shows(t)
			continue
		}
		shown := w.shows(t)
		if w.jumps(set, before, shown) || shown.After(set) && w.matches(shown) && !w.showsAgain(t, shown) {
			return t, true
		}
		before = shown
	}
	return 0, false
}

const hour = 60 * 60

func mod(a, b int64) int64 { return (a%b + b) % b }

// quiet reports whether no day near t matches.
func (w walker) quiet(t int64) bool {
	shown := w.shows(t)
	for day := -2; day <= 3; day++ {
		if w.matchesDay(shown.AddDate(0, 0, day)) {
			return false
		}
	}
	return true
}

// jumps reports whether a match after set lies between two consecutive wall clock times.
func (w walker) jumps(set, before, after time.Time) bool {
	step := time.Duration(w.step) * time.Second
	for wall := before.Add(step); wall.Before(after); wall = wall.Add(step) {
		if wall.After(set) && w.matches(wall) {
			return true
		}
	}
	return false
}

// No fold in these tests is longer than three hours.
func (w walker) showsAgain(t int64, wall time.Time) bool {
	for later := t + w.step; later <= t+3*hour; later += w.step {
		if w.shows(later).Equal(wall) {
			return true
		}
	}
	return false
}
