package ui

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// section is an entry in the navigation menu.
type section struct {
	Path, Text, Key string
	Icon            string // SVG path in a box of 20 by 20
}

// sectionGroup is a titled part of the navigation menu. The first group has no title.
type sectionGroup struct {
	Text     string
	Sections []section
}

// fileSection has another text for a database on a server.
var fileSection = section{"file", "File", "f", "M5 3h7l3 3v11H5zM12 3v4h3"}

var sectionGroups = []sectionGroup{
	{"", []section{
		{"", "Overview", "o", "M3 13h6V3H3zM11 17h6V7h-6zM3 17h6v-2H3zM11 5h6V3h-6z"},
		{"queues", "Queues", "q", "M3 5h14M3 10h14M3 15h9"},
		{"jobs", "Jobs", "j", "M4 4h12v12H4zM7 10l2 2 4-4"},
		{"dead", "Dead letters", "d", "M10 3 18 17H2zM10 8v4M10 14.5v.5"},
	}},
	{"Flow", []section{
		{"schedules", "Schedules", "s", "M10 3a7 7 0 1 0 .01 0M10 6v4l3 2"},
		{"batches", "Batches", "b", "M5 5h4v4H5zM11 11h4v4h-4zM7 9v4h4"},
		{"streams", "Streams", "t", "M2 6c4-4 6 4 10 0s4 0 6 0M2 13c4-4 6 4 10 0s4 0 6 0"},
		{"flows", "Flows", "n", "M4 4h5v4H4zM11 12h5v4h-5zM6.5 8v6H11"},
		{"relays", "Relays", "r", "M3 10h9M9 6l4 4-4 4M16 4v12"},
		{"actors", "Actors", "c", "M10 10a3 3 0 1 0 0-6 3 3 0 0 0 0 6M4 17c0-4 3-6 6-6s6 2 6 6"},
	}},
	{"System", []section{
		{"workers", "Workers", "w", "M4 6h12v8H4zM7 17h6"},
		{"locks", "Locks & limits", "l", "M6 9V7a4 4 0 0 1 8 0v2M5 9h10v8H5z"},
		fileSection,
		{"audit", "Audit", "a", "M4 5h12M4 9h12M4 13h7"},
	}},
}

// Sections returns the groups of the navigation menu.
func (p *page) Sections() []sectionGroup {
	if p.c.file == nil {
		return nil
	}
	if admin.IsFile(p.c.db) {
		return sectionGroups
	}
	all := slices.Clone(sectionGroups)
	for i, g := range all {
		if at := slices.Index(g.Sections, fileSection); at >= 0 {
			all[i].Sections = slices.Clone(g.Sections)
			all[i].Sections[at].Text = "Database"
		}
	}
	return all
}

// Stamp formats a time for the page's script.
func (p *page) Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// ID returns an element ID derived from kind and parts. The ID does not depend on the element's position, so a row
// keeps its state when other rows are added or removed.
func (p *page) ID(kind string, parts ...any) string {
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%q", parts)
	return fmt.Sprintf("%s-%x", kind, sum.Sum64())
}

// countLink is a count that links to the counted jobs.
type countLink struct {
	N          honker.Count
	Class, URL string
}

// Count returns a count that links to queue's jobs in the given phase.
func (p *page) Count(n honker.Count, phase, queue string) countLink {
	if phase == string(honker.PhaseDead) {
		return countLink{n, phase, p.URL("dead", "queue", queue)}
	}
	return countLink{n, phase, p.URL("jobs", "queue", queue, "phase", phase)}
}

// Limits returns a short description of limits, or "" if there are none.
func (p *page) Limits(l honker.Limits) string { return limitWords(l) }

func limitWords(l honker.Limits) string {
	var words []string
	add := func(set bool, format string, args ...any) {
		if set {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(l.Running > 0, "%d running", l.Running)
	add(l.PerKey > 0, "%d per key", l.PerKey)
	add(l.InOrder, "in order")
	add(l.Rate.N > 0, "%s", rateWords(l.Rate))
	add(l.KeyRate.N > 0, "%s per key", rateWords(l.KeyRate))
	return strings.Join(words, " · ")
}

func rateWords(r honker.Rate) string {
	per := admin.FormatSpan(r.Per)
	if strings.HasPrefix(per, "1") && !strings.ContainsAny(per[1:], "0123456789") {
		per = per[1:]
	}
	return fmt.Sprintf("%d/%s", r.N, per)
}

// Short formats t as hour and minute if it is within 20 hours of now, and with the date otherwise.
func (p *page) Short(t time.Time) template.HTML {
	if t.Sub(p.c.now).Abs() < 20*time.Hour {
		return instant(t, "clock")
	}
	return instant(t, "day")
}
