package ui

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// section is an entry in the navigation menu.
type section struct{ Path, Text, Key string }

var sections = []section{
	{"", "Overview", "o"}, {"jobs", "Jobs", "j"}, {"dead", "Dead", "d"}, {"streams", "Streams", "t"},
	{"schedules", "Schedules", "s"}, {"batches", "Batches", "b"}, {"locks", "Locks & limits", "l"}, {"workers", "Workers", "w"}, {"file", "File", "f"}, {"audit", "Audit", "a"},
}

// Sections returns the entries in the navigation menu.
func (p *page) Sections() []section {
	if p.c.file == nil {
		return nil
	}
	return sections
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

// Short formats t as hour and minute if it is within the next 20 hours, and with the date otherwise.
func (p *page) Short(t time.Time) string {
	if d := t.Sub(p.c.now); d >= 0 && d < 20*time.Hour {
		return t.UTC().Format("15:04")
	}
	return t.UTC().Format("Jan 2 15:04")
}
