// Package cron computes when a schedule is next due, in honker's cron dialect. All bindings that share a file must
// compute the same second. The package doesn't read the clock.
//
// The calendar comes from robfig/cron, but the grammar is different: in honker a day must match both day fields, a
// step on a single value selects only that value, there are no names, and error texts are the same as in other
// bindings. For this reason, fields.go and interval.go parse specs. next.go lets robfig advance a wall clock without
// a time zone, and then finds the moment at which clocks in the time zone show the result.
package cron

import (
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// Spec is a schedule: "@every <n><unit>", or 5 or 6 cron fields. The zero Spec never fires.
type Spec struct {
	text   string // as given, for errors
	every  int64  // interval in seconds; 0 for a schedule with fields
	fields robfig.SpecSchedule
}

// Parse parses spec. Its error texts are exactly those of honker, without a prefix, because other bindings show and
// test them.
func Parse(spec string) (Spec, error) {
	text := strings.TrimSpace(spec)
	if body, ok := strings.CutPrefix(text, "@every"); ok {
		every, err := parseInterval(strings.TrimSpace(body))
		return Spec{text: spec, every: every}, err
	}
	fields, err := parseFields(text)
	return Spec{text: spec, fields: fields}, err
}

// Local computes schedules in this process's local time zone.
type Local struct{}

// Next returns the first second after the given time at which spec is due.
func (Local) Next(spec string, after time.Time) (time.Time, error) {
	s, err := Parse(spec)
	if err != nil {
		return time.Time{}, err
	}
	return s.Next(after, time.Local)
}

// Last returns the last second up to and including through at which spec is due. spec must be due at first, where the
// search starts.
func (Local) Last(spec string, first, through time.Time) (time.Time, error) {
	s, err := Parse(spec)
	if err != nil {
		return time.Time{}, err
	}
	last, err := s.last(first.Unix(), through.Unix(), time.Local)
	return time.Unix(last, 0), err
}

// Plan returns spec in honker's dialect (see Translate) and the first time after from at which it
// is due.
func (Local) Plan(spec string, from time.Time) (plain string, next time.Time, err error) {
	if plain, err = Translate(spec); err != nil {
		return "", time.Time{}, err
	}
	s, err := Parse(plain)
	if err != nil {
		return "", time.Time{}, err
	}
	next, err = s.Next(from, time.Local)
	return plain, next, err
}

// Next returns the first second after from at which s fires in the time zone loc. A nil loc means time.Local. Next
// ignores fractions of a second in from. An interval is added to from regardless of clock changes in the time zone.
func (s Spec) Next(from time.Time, loc *time.Location) (time.Time, error) {
	if loc == nil {
		loc = time.Local
	}
	from = from.In(loc)
	if s.every > 0 {
		return s.nextInterval(from)
	}
	return s.nextMatch(from)
}
