package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// flowMinutes is the number of minutes that a flow covers.
const flowMinutes = 10

// flow summarizes a queue's traffic.
type flow struct {
	In, Out, Fail float64            // jobs added, jobs done and failed attempts per second, over the last minute
	Ran           time.Duration      // mean run time of the handlers; 0 if none ran
	Tried         [flowMinutes]int64 // attempts that have ended
	Failed        int64              // number of Tried that have failed
}

// flowOf computes a flow. The file's counts are per minute, so the rate over the last 60 seconds combines the current
// minute with part of the previous minute.
func flowOf(minutes []admin.Minute, now time.Time) (f flow) {
	current := now.Truncate(time.Minute)
	before := 1 - now.Sub(current).Seconds()/60 // the part of the previous minute to include
	var ran time.Duration
	var settled int64
	for _, m := range minutes {
		age := int(current.Sub(m.Start) / time.Minute)
		if age < 0 || age >= flowMinutes {
			continue
		}
		share := 0.0
		switch age {
		case 0:
			share = 1
		case 1:
			share = before
		}
		failed := m.Retried + m.Died
		f.In += share * float64(m.Enqueued) / 60
		f.Out += share * float64(m.Acked) / 60
		f.Fail += share * float64(failed) / 60
		f.Tried[flowMinutes-1-age] = m.Acked + failed
		f.Failed += failed
		ran += m.Ran
		settled += m.Acked + failed
	}
	if settled > 0 {
		f.Ran = ran / time.Duration(settled)
	}
	return f
}

// still reports whether the flow will look the same a minute from now.
func (f flow) still() bool { return f.In == 0 && f.Out == 0 && f.Fail == 0 }

// color is red if most attempts have failed.
func (f flow) color() style {
	var tried int64
	for _, n := range f.Tried {
		tried += n
	}
	if f.Failed*2 > tried {
		return red
	}
	return plain
}

// sparkline returns a bar for each minute.
func (f flow) sparkline() string {
	const bars = "▁▂▃▄▅▆▇█"
	most := int64(1)
	for _, n := range f.Tried {
		most = max(most, n)
	}
	var b strings.Builder
	for _, n := range f.Tried {
		level := int((n*7 + most - 1) / most) // 0 only if there was no attempt
		b.WriteRune([]rune(bars)[level])
	}
	return b.String()
}

// perSecond shows a rate.
func perSecond(r float64) cell {
	switch {
	case r == 0:
		return cell{human: "-", right: true}
	case r < 9.95:
		return cell{human: fmt.Sprintf("%.1f", r), right: true}
	}
	return number(int64(r + 0.5))
}

// frame renders a reading as a single screen. A zero width or height means no limit.
type frame struct {
	reading
	width, height int
	color         bool
	selected      string // name of the selected queue, or ""
	filter        string // only queues with names that contain this text are shown
	order         order
	foot          []string
}

// shownQueues returns the queues that match the filter, in the frame's order.
func (f frame) shownQueues() []honker.QueueStats {
	var out []honker.QueueStats
	for _, q := range f.Queues {
		if strings.Contains(strings.ToLower(q.Queue), strings.ToLower(f.filter)) {
			out = append(out, q)
		}
	}
	f.sort(out)
	return out
}

// lines returns the lines of the frame, cut to its width.
func (f frame) lines() []string {
	lines := []string{f.head()}
	lines = append(lines, f.problemLines()...)
	table, at := f.table()
	if f.height > 0 {
		room := max(2, f.height-len(lines)-len(f.foot))
		table = window(table, at, room)
	}
	lines = append(append(lines, table...), f.foot...)
	for i, line := range lines {
		lines[i] = cut(line, f.width)
	}
	return lines
}

func (f frame) head() string {
	all := f.Flows[""]
	var parts []string
	if f.Database != nil {
		parts = []string{clean(f.Database.Database + "/" + f.Database.Schema), admin.FormatSize(f.Database.Size)}
	} else {
		parts = []string{clean(filepath.Base(f.File.Path)), admin.FormatSize(f.File.Size)}
		if f.File.WAL > 0 {
			parts = append(parts, "WAL "+admin.FormatSize(f.File.WAL))
		}
	}
	rate := func(name string, r float64) string {
		if r == 0 {
			return name + " 0/s"
		}
		return name + " " + perSecond(r).human + "/s"
	}
	if f.Commits != nil {
		parts = append(parts, commitsText(*f.Commits))
	}
	parts = append(parts, rate("in", all.In), rate("out", all.Out))
	if all.Fail > 0 {
		parts = append(parts, rate("fail", all.Fail))
	}
	parts = append(parts, plural(int64(f.Workers), "worker"),
		f.At.Local().Format(time.TimeOnly))
	return strings.Join(parts, "  ")
}

// commitsText shows the rate with a plus sign, because it is a lower bound.
func commitsText(rate float64) string {
	if rate == 0 {
		return "commits 0/s"
	}
	return "commits " + perSecond(rate).human + "+/s"
}

// mostProblems limits the problems shown, to leave room for the queues.
const mostProblems = 5

func (f frame) problemLines() (lines []string) {
	most := mostProblems
	if f.height > 0 {
		most = min(most, max(1, f.height/4))
	}
	for i, g := range f.Problems {
		if i == most {
			return append(lines, fmt.Sprintf(" … %d more: honker doctor", len(f.Problems)-i))
		}
		line := " ! " + clean(g.sentence(f.At))
		if detail := g.detail(); detail != "" {
			line += ": " + clean(detail)
		}
		if do := g.do(); len(do) > 0 {
			line += "  → " + clean(do[0])
		}
		lines = append(lines, f.paint(cut(line, f.width), colorOf(g.Severity)))
	}
	return lines
}

func (f frame) paint(line string, s style) string {
	if !f.color || s == plain {
		return line
	}
	return string(s) + line + reset
}

var topHeader = []string{"QUEUE", "READY", "RUN", "SCHED", "HELD", "DEAD", "OLDEST", "IN/s", "OUT/s", "FAIL/s", "RAN", ""}

// table returns the header and a line for each queue, and the index of the selected line.
func (f frame) table() (lines []string, at int) {
	rows := [][]cell{make([]cell, len(topHeader))}
	for i, name := range topHeader {
		rows[0][i] = cell{human: name, right: i > 0 && name != ""}
	}
	queues := f.shownQueues()
	for _, q := range queues {
		rows = append(rows, f.row(q))
	}
	widths := make([]int, len(topHeader))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], cells(c.human))
		}
	}
	if f.width > 0 {
		widths = f.fit(widths)
	}
	for i, row := range rows {
		marked := i > 0 && queues[i-1].Queue == f.selected && f.selected != ""
		if marked {
			at = i
		}
		lines = append(lines, f.line(row, widths, marked))
	}
	if len(queues) == 0 {
		lines = append(lines, "  no queues")
	}
	return lines, at
}

func (f frame) row(q honker.QueueStats) []cell {
	flow := f.Flows[q.Queue]
	oldest, ran := cell{human: "-", right: true}, cell{human: "-", right: true}
	if !q.OldestReady.IsZero() {
		oldest.human = admin.FormatAge(max(0, f.At.Sub(q.OldestReady)))
	}
	if flow.Ran > 0 {
		ran = took(flow.Ran)
	}
	running := q.Running
	running.N += q.Lapsed.N
	name := clean(strings.ReplaceAll(q.Queue, "\n", " "))
	if q.Pause != nil {
		name += " (paused)"
	}
	failed := perSecond(flow.Fail)
	if flow.Fail > 0 {
		failed = failed.in(red)
	}
	return []cell{text(name), count(q.Ready), count(running), count(q.Scheduled), count(q.Held), count(q.Dead).in(deadColor(q.Dead.N)), oldest,
		perSecond(flow.In), perSecond(flow.Out), failed, ran, text(flow.sparkline()).in(flow.color())}
}

// gap separates two columns. mark is the margin before the first column.
const gap, mark = 2, 2

// fit narrows the name column first, and then drops columns from the right.
func (f frame) fit(widths []int) []int {
	const narrowest = 10
	total := func() (sum int) {
		for _, w := range widths {
			sum += w + gap
		}
		return sum - gap + mark
	}
	for len(widths) > 1 {
		over := total() - f.width
		if spare := widths[0] - narrowest; over <= 0 || over <= spare {
			widths[0] -= max(0, over)
			return widths
		}
		widths = widths[:len(widths)-1]
	}
	widths[0] = max(1, min(widths[0], f.width-mark))
	return widths
}

func (f frame) line(row []cell, widths []int, marked bool) string {
	var b strings.Builder
	b.WriteString("  ")
	if marked {
		b.Reset()
		b.WriteString("> ")
	}
	for i, width := range widths {
		c := row[i]
		c.human = cut(c.human, width)
		pad := strings.Repeat(" ", max(0, width-cells(c.human)))
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		if c.right {
			b.WriteString(pad + f.paint(c.human, c.style))
		} else {
			b.WriteString(f.paint(c.human, c.style) + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// window returns the part of a table that fits in room lines: the header and the lines around index
// at.
func window(table []string, at, room int) []string {
	if len(table) <= room {
		return table
	}
	rows := room - 1
	first := min(max(1, at-rows/2), len(table)-rows)
	return append(table[:1:1], table[first:first+rows]...)
}
