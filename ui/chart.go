package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/admin"
)

// bucket holds the job counts for a time interval in a chart.
type bucket struct {
	start                                 time.Time
	enqueued, claimed, done, failed, died int64
	wait, ran, longest                    time.Duration // totals, and the longest wait
}

// buckets aggregates minutes into n buckets of the given length. The last bucket contains now.
func buckets(minutes []admin.Minute, now time.Time, n int, length time.Duration) []bucket {
	first := now.UTC().Truncate(length).Add(-time.Duration(n-1) * length)
	all := make([]bucket, n)
	for i := range all {
		all[i].start = first.Add(time.Duration(i) * length)
	}
	for _, m := range minutes {
		i := int(m.Start.Sub(first) / length)
		if m.Start.Before(first) || i >= n {
			continue
		}
		all[i].enqueued += m.Enqueued
		all[i].done += m.Acked
		all[i].failed += m.Retried + m.Died
		all[i].died += m.Died
		all[i].claimed += m.Claimed
		all[i].wait += m.Wait
		all[i].ran += m.Ran
		all[i].longest = max(all[i].longest, m.MaxWait)
	}
	return all
}

// spark renders a small chart of settled jobs. For speed it does not use a template, because the overview
// has a chart for every queue. Only numbers are inserted into the SVG, so nothing needs escaping.
func spark(all []bucket) template.HTML {
	peak, done, failed := int64(0), int64(0), int64(0)
	for _, b := range all {
		peak = max(peak, b.done+b.failed)
		done, failed = done+b.done, failed+b.failed
	}
	if peak == 0 {
		return `<span class="none" title="nothing in the last hour">–</span>`
	}
	const height = 18
	var good, bad strings.Builder
	for i, b := range all {
		total := scaled(b.done+b.failed, peak, height)
		lost := scaled(b.failed, peak, height)
		if total > lost {
			fmt.Fprintf(&good, "M%d %dv-%d", 2*i+1, height-lost, total-lost)
		}
		if lost > 0 {
			fmt.Fprintf(&bad, "M%d %dv-%d", 2*i+1, height, lost)
		}
	}
	title := fmt.Sprintf("last hour: %s done, %s failed", num(done), num(failed))
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s"><title>%s</title>`+
		`<path class="good" d="%s"/><path class="bad" d="%s"/></svg>`,
		2*len(all), height, 2*len(all), height, title, title, good.String(), bad.String()))
}

// deaths renders a chart of the jobs that died in each hour of the last day.
func deaths(hours [24]int64) template.HTML {
	peak, sum := slices.Max(hours[:]), int64(0)
	const width, height = 8, 30
	var bars strings.Builder
	for i, n := range hours {
		sum += n
		if n > 0 {
			tall := scaled(n, peak, height)
			fmt.Fprintf(&bars, "M%d %dh%dv%dh-%dz", width*i, height-tall, width-1, tall, width-1)
		}
	}
	title := fmt.Sprintf("last 24 hours: %s died, at most %s in an hour", num(sum), num(peak))
	return template.HTML(fmt.Sprintf(`<svg class="deaths" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title><path class="bed" d="M0 %dH%d"/><path class="bad" d="%s"/></svg>`,
		width*len(hours), height, title, title, height, width*len(hours), bars.String()))
}

// mostBars is the maximum number of bars of a chart of attempts. The last bar includes jobs with more attempts.
const mostBars = 25

// attemptsSpent renders a chart of the jobs that wait for another attempt, by the number of their attempts. It is empty if
// there are no such jobs.
func attemptsSpent(r *admin.QueueDetails) template.HTML {
	var jobs [mostBars]int64
	last := 0
	for attempts, n := range r.Attempts {
		i := min(max(attempts, 1), mostBars) - 1
		jobs[i] += n
		last = max(last, i)
	}
	if len(r.Attempts) == 0 {
		return ""
	}
	peak := slices.Max(jobs[:])
	const width, height = 10, 56
	var bars strings.Builder
	for i, n := range jobs[:last+1] {
		tall := scaled(n, peak, height)
		fmt.Fprintf(&bars, `<rect class="bed" x="%d" y="0" width="%d" height="%d"><title>attempts %d: %s</title></rect><rect class="warn" x="%d" y="%d" width="%d" height="%d"/>`,
			width*i, width-1, height, i+1, num(n), width*i, height-tall, width-1, tall)
	}
	end := max(last+1, 10)
	return template.HTML(fmt.Sprintf(`<svg class="spent" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="waiting jobs by attempts spent">%s</svg><div class="axis"><span>1</span><span>%d</span></div>`,
		width*end, height, bars.String(), end))
}

// scaled returns height*n/peak. If n is not zero, the result is at least 1, so that small values
// remain visible.
func scaled(n, peak, height int64) int64 {
	if n == 0 || peak == 0 {
		return 0
	}
	return max(1, n*height/peak)
}

// chart renders a large chart with axes. Bars show settled jobs, and a line shows enqueued jobs. Each bar's title
// lists its counts. kind is the kind of the times at the axis, see layouts.
func chart(all []bucket, kind string) template.HTML {
	peak := int64(1)
	for _, b := range all {
		peak = max(peak, b.done+b.failed, b.enqueued)
	}
	tick := tickOf(peak)
	peak = ticks * tick
	const height, step = 160, 10
	var s, line strings.Builder
	width := step * len(all)
	s.WriteString(`<div class="chart"><div class="y">`)
	for i := int64(ticks); i >= 0; i-- {
		fmt.Fprintf(&s, `<span>%s</span>`, brief(i*tick))
	}
	fmt.Fprintf(&s, `</div><svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="jobs settled and enqueued over time"><path class="grid" d="`, width, height)
	for i := range ticks {
		fmt.Fprintf(&s, "M0 %dH%d", i*height/ticks, width)
	}
	s.WriteString(`"/>`)
	for i, b := range all {
		total, lost := scaled(b.done+b.failed, peak, height), scaled(b.failed, peak, height)
		fmt.Fprintf(&line, "%s%d %d", map[bool]string{true: "M", false: "L"}[i == 0], step*i+step/2, height-scaled(b.enqueued, peak, height))
		if total+b.enqueued == 0 {
			continue
		}
		fmt.Fprintf(&s, `<g><title>%s UTC: %s enqueued, %s done, %s failed</title><rect class="hit" x="%d" y="0" width="%d" height="%d"/>`,
			b.start.Format(layouts[kind]), num(b.enqueued), num(b.done), num(b.failed), step*i, step, height)
		bar(&s, "good", step*i, height-total, total-lost)
		bar(&s, "bad", step*i, height-lost, lost)
		s.WriteString("</g>")
	}
	fmt.Fprintf(&s, `<path class="line" d="%s"/></svg><div class="x">`, line.String())
	for i := 0; i < len(all)-len(all)/8; i += max(1, len(all)/4) {
		s.WriteString(string(instant(all[i].start, kind)))
	}
	s.WriteString(`<span>now</span></div></div>`)
	return template.HTML(s.String())
}

// ticks is the number of intervals of a chart's vertical axis.
const ticks = 4

// tickOf returns a round distance of the ticks of an axis that reaches peak.
func tickOf(peak int64) int64 {
	for size := int64(1); ; size *= 10 {
		for _, round := range []int64{10, 20, 25, 50} {
			if tick := round * size / 10; round*size%10 == 0 && tick*ticks >= peak {
				return tick
			}
		}
	}
}

func bar(s *strings.Builder, class string, x int, y, height int64) {
	if height > 0 {
		fmt.Fprintf(s, `<rect class="%s" x="%d" y="%d" width="8" height="%d"/>`, class, x+1, y, height)
	}
}

// legend holds a chart's totals.
type legend struct{ Enqueued, Done, Failed int64 }

func legendOf(all []bucket) (l legend) {
	for _, b := range all {
		l.Enqueued, l.Done, l.Failed = l.Enqueued+b.enqueued, l.Done+b.done, l.Failed+b.failed
	}
	return l
}
