package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// timeline is a chart of a job's waits and attempts.
type timeline struct {
	Rows  []timeRow
	Ticks []template.HTML
}

// timeRow is a row of a timeline.
type timeRow struct {
	Label, Note string
	Bar         template.HTML
	periods     []period
}

// period is a bar of a timeline.
type period struct {
	from, to time.Time
	class    string // "wait", "bad", "now" or "good"
}

const (
	attemptRows = 3   // latest attempts with a row of their own; earlier attempts share a row
	leastWidth  = 0.5 // of a bar, in percent
	ticksShown  = 4
)

// timelineOf returns the timeline of a job, or nil if its times are inconsistent. all lists the failed attempts, oldest
// first. usual is the usual time of a handler, or "".
func timelineOf(j *honker.JobInfo, all []admin.Attempt, now time.Time, usual string) *timeline {
	t := &timeline{}
	since := j.CreatedAt
	for i, a := range all {
		if i == 0 && j.Attempts-len(all) > 0 && a.N > 1 {
			t.add(fmt.Sprintf("attempts before %d", a.N), "not recorded", period{since, a.Start, "wait"})
		} else {
			t.wait("waited", since, a.Start)
		}
		since = a.Start.Add(a.Ran)
		line, _, _ := strings.Cut(strings.TrimSpace(a.Error), "\n")
		t.add(fmt.Sprintf("attempt %d", a.N), admin.FormatSpan(admin.RoundSpan(a.Ran))+" · "+cut(60, line), period{a.Start, since, "bad"})
	}
	t.share(len(all) - attemptRows)
	t.end(j, since, now, usual)
	return t.draw(j.CreatedAt, now)
}

// end adds the rows after the last failed attempt.
func (t *timeline) end(j *honker.JobInfo, since, now time.Time, usual string) {
	switch j.Phase {
	case honker.PhaseRunning, honker.PhaseLapsed:
		if j.StartedAt.IsZero() {
			t.add(fmt.Sprintf("attempt %d", j.Attempts), "runs, its start is unknown", period{since, now, "wait"})
			return
		}
		t.wait("waited", since, j.StartedAt)
		note := "runs for " + spanOf(now.Sub(j.StartedAt))
		if usual != "" {
			note += " · others take " + usual
		}
		t.add(fmt.Sprintf("attempt %d", j.Attempts), note, period{j.StartedAt, now, "now"})
	case honker.PhaseDone:
		t.add("waited and ran", spanOf(j.DoneAt.Sub(since)), period{since, j.DoneAt, "good"})
	case honker.PhaseDead:
		t.wait("waited", since, j.DiedAt)
	case honker.PhaseScheduled:
		label := "delay"
		if j.Attempts > 0 {
			label = "backoff"
		}
		t.add(label, spanOf(j.RunAt.Sub(now))+" left of "+spanOf(j.RunAt.Sub(since)), period{since, j.RunAt, "wait"})
	case honker.PhaseHeld:
		t.add("held", spanOf(now.Sub(since)), period{since, now, "held"})
	default:
		due := since
		if j.RunAt.After(since) {
			t.wait("delay", since, j.RunAt)
			due = j.RunAt
		}
		t.add("waits", spanOf(now.Sub(due)), period{due, now, "held"})
	}
}

func spanOf(d time.Duration) string { return admin.FormatSpan(admin.RoundSpan(max(0, d))) }

// wait adds a row unless it would be too short to see.
func (t *timeline) wait(label string, from, to time.Time) {
	if d := to.Sub(from); d >= time.Second {
		t.add(label, spanOf(d), period{from, to, "wait"})
	}
}

func (t *timeline) add(label, note string, p period) {
	t.Rows = append(t.Rows, timeRow{Label: label, Note: note, periods: []period{p}})
}

// share combines the first n attempts, and the waits before them, into a row.
func (t *timeline) share(n int) {
	if n < 2 {
		return
	}
	var first timeRow
	for seen := 0; len(t.Rows) > 0 && seen < n; t.Rows = t.Rows[1:] {
		r := t.Rows[0]
		seen += boolean(r.periods[0].class == "bad")
		first.periods = append(first.periods, r.periods...)
	}
	first.Label, first.Note = "earlier", plural(n, "attempt")+" failed"
	t.Rows = slices.Insert(t.Rows, 0, first)
}

// writeNote writes a note into a wide bar, or next to it where there is more room. The positions are in percent.
func writeNote(bar *strings.Builder, note, class string, from, to float64) {
	x, dx, anchor, kind := to, 7, "start", ""
	switch {
	case to-from > 50:
		x, kind = from, " in "+class
	case to > 55:
		x, dx, anchor = from, -7, "end"
	}
	fmt.Fprintf(bar, `<text class="note%s" x="%.1f%%" y="12" dx="%d" text-anchor="%s">%s</text>`, kind, x, dx, anchor, template.HTMLEscapeString(note))
}

// draw renders the bars between the first and the last time.
func (t *timeline) draw(from, now time.Time) *timeline {
	to := from
	for _, r := range t.Rows {
		for _, p := range r.periods {
			if p.to.After(to) {
				to = p.to
			}
		}
	}
	whole := to.Sub(from)
	if whole < time.Second || len(t.Rows) == 0 {
		return nil
	}
	at := func(when time.Time) float64 {
		return 100 * min(1, max(0, float64(when.Sub(from))/float64(whole)))
	}
	for i, r := range t.Rows {
		var bar strings.Builder
		bar.WriteString(`<svg class="period" aria-hidden="true">`)
		for _, p := range r.periods {
			x := min(at(p.from), 100-leastWidth)
			fmt.Fprintf(&bar, `<rect class="%s" x="%.1f%%" width="%.1f%%" height="16" rx="3"/>`, p.class, x, max(at(p.to)-x, leastWidth))
		}
		if now.Before(to) {
			fmt.Fprintf(&bar, `<rect class="line" x="%.1f%%" width="2" height="16"/>`, at(now))
		}
		last := r.periods[len(r.periods)-1]
		writeNote(&bar, r.Note, last.class, at(last.from), at(last.to))
		bar.WriteString(`</svg>`)
		t.Rows[i].Bar = template.HTML(bar.String())
	}
	kind := "clock"
	switch {
	case whole >= 20*time.Hour || now.Sub(from) >= 20*time.Hour:
		kind = "day"
	case whole < 10*time.Minute:
		kind = "second"
	}
	for i := range time.Duration(ticksShown + 1) {
		t.Ticks = append(t.Ticks, instant(from.Add(whole*i/ticksShown), kind))
	}
	return t
}
