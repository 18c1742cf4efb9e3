// Package cron says when a schedule is due next, in honker's dialect: every binding
// that shares the file computes the same second. It reads no clock.
//
// The calendar is robfig/cron's, the grammar is not: in honker a day has to match both day
// fields, a step on a single value means that value, there are no names, and other bindings
// know the texts of the errors. So fields.go and interval.go read the text. next.go lets
// robfig step a wall clock that is in no zone, and then finds the moment at which the clocks
// of the zone show the result.
package cron

import (
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// Spec is a schedule: "@every <n><unit>", or 5 or 6 fields of cron. The zero Spec
// never fires.
type Spec struct {
	text   string // as it was given, for errors
	every  int64  // seconds from one fire to the next; 0: the fields are used
	fields robfig.SpecSchedule
}

// Parse reads spec. Its errors have honker's texts without a prefix, because other bindings
// show and test those texts.
func Parse(spec string) (Spec, error) {
	text := strings.TrimSpace(spec)
	if body, ok := strings.CutPrefix(text, "@every"); ok {
		every, err := parseInterval(strings.TrimSpace(body))
		return Spec{text: spec, every: every}, err
	}
	fields, err := parseFields(text)
	return Spec{text: spec, fields: fields}, err
}

// Local is the calendar of this process's zone, for unix seconds.
type Local struct{}

// Next returns the first second after another at which spec is due.
func (Local) Next(spec string, after int64) (int64, error) {
	s, err := Parse(spec)
	if err != nil {
		return 0, err
	}
	at, err := s.Next(time.Unix(after, 0), time.Local)
	return at.Unix(), err
}

// Last returns the last second until through at which spec is due, counted from first, at
// which it is due.
func (Local) Last(spec string, first, through int64) (int64, error) {
	s, err := Parse(spec)
	if err != nil {
		return 0, err
	}
	return s.last(first, through, time.Local)
}

// Plan returns spec in honker's dialect, see Translate, and when it is due first after from.
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

// Next returns the first second after from at which s fires in the zone loc; nil is
// time.Local. Of from only the whole second counts. An interval is added to from, whatever
// the clocks of the zone show.
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
