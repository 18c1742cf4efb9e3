// Package cron says when a schedule is due next, in honker's dialect: every binding
// that shares the file computes the same second. It reads no clock.
//
// The calendar is robfig/cron's. What a text means is not: honker ANDs the two day
// fields, lets a step on a single value stand for that value, has no names, and its
// errors have texts that other bindings know. So fields.go and interval.go read the
// text, and next.go has robfig step wall clocks, free of any zone, before it asks when
// the clocks of a zone show the result.
package cron

import (
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// Spec is a schedule: "@every <n><unit>", or 5 or 6 fields of cron. The zero Spec
// never fires.
type Spec struct {
	text   string // as it was given: errors quote it
	every  int64  // seconds from one fire to the next; 0: the fields say
	fields robfig.SpecSchedule
}

// Parse reads spec. Its errors have honker's texts, without a prefix: they are known
// to what other bindings show and test.
func Parse(spec string) (Spec, error) {
	text := strings.TrimSpace(spec)
	if body, ok := strings.CutPrefix(text, "@every"); ok {
		every, err := parseInterval(strings.TrimSpace(body))
		return Spec{text: spec, every: every}, err
	}
	fields, err := parseFields(text)
	return Spec{text: spec, fields: fields}, err
}

// Next returns the first second after from at which s fires, where the clocks are
// those of loc; nil is time.Local. Of from only the whole second counts. An interval
// counts from from, whatever the clocks show.
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
