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
	start                  time.Time
	enqueued, done, failed int64
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

// deaths renders a small chart of the jobs that died in each hour of the last day.
func deaths(hours [24]int64) template.HTML {
	peak, sum := slices.Max(hours[:]), int64(0)
	const height = 18
	var bars strings.Builder
	for i, n := range hours {
		sum += n
		if n > 0 {
			fmt.Fprintf(&bars, "M%d %dv-%d", 2*i+1, height, scaled(n, peak, height))
		}
	}
	if sum == 0 {
		return ""
	}
	title := fmt.Sprintf("last 24 hours: %s died, at most %s in an hour", num(sum), num(peak))
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s"><title>%s</title><path class="bad" d="%s"/></svg>`,
		2*len(hours), height, 2*len(hours), height, title, title, bars.String()))
}

// scaled returns height*n/peak. If n is not zero, the result is at least 1, so that small values
// remain visible.
func scaled(n, peak, height int64) int64 {
	if n == 0 || peak == 0 {
		return 0
	}
	return max(1, n*height/peak)
}

// chart renders a large chart. Bars show settled jobs, and a line shows enqueued jobs. Each bar's title
// lists its counts.
func chart(all []bucket, layout string) template.HTML {
	peak := int64(1)
	for _, b := range all {
		peak = max(peak, b.done+b.failed, b.enqueued)
	}
	const height, step = 96, 10
	var s, line strings.Builder
	width := step * len(all)
	fmt.Fprintf(&s, `<svg class="chart" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="jobs settled and enqueued over time">`, width, height)
	for i, b := range all {
		total, lost := scaled(b.done+b.failed, peak, height-4), scaled(b.failed, peak, height-4)
		fmt.Fprintf(&s, `<g><title>%s: %s enqueued, %s done, %s failed</title><rect class="hit" x="%d" y="0" width="%d" height="%d"/>`,
			b.start.Format(layout), num(b.enqueued), num(b.done), num(b.failed), step*i, step, height)
		bar(&s, "good", step*i, height-total, total-lost)
		bar(&s, "bad", step*i, height-lost, lost)
		s.WriteString("</g>")
		fmt.Fprintf(&line, "%s%d %d", map[bool]string{true: "M", false: "L"}[i == 0], step*i+step/2, height-scaled(b.enqueued, peak, height-4))
	}
	fmt.Fprintf(&s, `<path class="line" d="%s"/></svg>`, line.String())
	return template.HTML(s.String())
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
