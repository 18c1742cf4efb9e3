package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// number is a large number of the overview with its course over the last hour.
type number struct {
	Label, Value, Unit, Note string
	Class                    string // of the value: "bad", "warn" or ""
	Spark                    template.HTML
}

// recent is the number of minutes over which rates are averaged. Rates cover complete minutes, except for the first
// minute of a file.
const recent = 10

// flow holds the totals of the traffic of some minutes.
type flow struct {
	minutes                               float64
	enqueued, claimed, done, failed, died int64
	wait, ran                             time.Duration
}

func flowOf(all []bucket) (f flow) {
	f.minutes = float64(max(1, len(all)))
	for _, b := range all {
		f.enqueued, f.claimed, f.done = f.enqueued+b.enqueued, f.claimed+b.claimed, f.done+b.done
		f.failed, f.died = f.failed+b.failed, f.died+b.died
		f.wait, f.ran = f.wait+b.wait, f.ran+b.ran
	}
	return f
}

// lately returns the traffic of the last complete minutes.
func lately(all []bucket) flow {
	if len(all) <= recent {
		return flowOf(all)
	}
	return flowOf(all[len(all)-1-recent : len(all)-1])
}

// failing returns the percentage of attempts that failed, or -1 if there were none.
func (f flow) failing() float64 {
	if f.done+f.failed == 0 {
		return -1
	}
	return 100 * float64(f.failed) / float64(f.done+f.failed)
}

func percent(share float64) string {
	switch {
	case share < 0:
		return "–"
	case share > 0 && share < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", share), ".0")
	}
	return fmt.Sprintf("%.0f", share)
}

// numbers returns the six numbers of the overview.
func (c *call) numbers(s *survey) []number {
	now, before := lately(s.total), flowOf(s.total[:recent])
	return []number{
		doneNumber(s, now), failingNumber(s, now, before), waitNumber(s, now),
		backlogNumber(s, now), deadNumber(s, now), handlersNumber(s),
	}
}

func doneNumber(s *survey, now flow) number {
	last := flowOf(s.total)
	return number{
		Label: "Done", Value: num(int64(float64(now.done)/now.minutes + 0.5)), Unit: "a minute",
		Note:  num(last.done) + " in the last hour",
		Spark: course("good", valuesOf(s.total, func(b bucket) float64 { return float64(b.done) })),
	}
}

func failingNumber(s *survey, now, before flow) number {
	n := number{Label: "Failing", Value: percent(now.failing()), Unit: "% of attempts", Note: "no attempts an hour ago", Class: failingClass(now)}
	if now.failing() < 0 {
		n.Unit = "no attempts"
	}
	if share := before.failing(); share >= 0 {
		n.Note = percent(share) + " % an hour ago"
	}
	n.Spark = course("bad", valuesOf(s.total, func(b bucket) float64 { return max(0, flowOf([]bucket{b}).failing()) }))
	return n
}

// failingClass returns "bad" if most attempts fail, and "warn" if more than a twentieth do.
func failingClass(f flow) string {
	switch share := f.failing(); {
	case f.done+f.failed > 20 && share > 50:
		return "bad"
	case f.done+f.failed > 20 && share > 5:
		return "warn"
	}
	return ""
}

func waitNumber(s *survey, now flow) number {
	n := number{Label: "Wait, worst queue", Value: "–", Note: "nothing claimed in 10m"}
	var worst honker.QueueStats
	for _, q := range s.queues {
		if q.Pause == nil && !q.OldestReady.IsZero() && (worst.OldestReady.IsZero() || q.OldestReady.Before(worst.OldestReady)) {
			worst = q
		}
	}
	if wait := s.now.Sub(worst.OldestReady); !worst.OldestReady.IsZero() && wait > 0 {
		n.Value, n.Unit = admin.FormatAge(wait.Truncate(max(time.Second, wait/60).Truncate(time.Second))), cut(40, worst.Queue)
		if late(worst, s.now) {
			n.Class = "warn"
		}
	}
	if now.claimed > 0 {
		n.Note = measured(now.wait/time.Duration(now.claimed)) + " on average"
	}
	longest := make([]float64, hour)
	for name, all := range s.traffic {
		for i, b := range all {
			if name != "" {
				longest[i] = max(longest[i], b.longest.Seconds())
			}
		}
	}
	n.Spark = course("warn", longest)
	return n
}

func backlogNumber(s *survey, now flow) number {
	var left honker.Count
	for _, q := range s.queues {
		left = sum(left, backlog(q))
	}
	n := number{Label: "Backlog", Value: left.String(), Note: trend(now.enqueued-now.done-now.died, now.minutes)}
	n.Spark = course("info", backwards(s.total, left.N, func(b bucket) int64 { return b.enqueued - b.done - b.died }))
	return n
}

func deadNumber(s *survey, now flow) number {
	var dead honker.Count
	for _, q := range s.queues {
		dead = sum(dead, q.Dead)
	}
	n := number{Label: "Dead letters", Value: dead.String(), Note: trend(now.died, now.minutes)}
	if dead.N > 0 {
		n.Class = "bad"
	}
	n.Spark = course("bad", backwards(s.total, dead.N, func(b bucket) int64 { return b.died }))
	return n
}

func trend(change int64, minutes float64) string {
	rate := float64(change) / minutes
	switch {
	case rate >= 0.5:
		return "+ " + num(int64(rate+0.5)) + " a minute"
	case rate <= -0.5:
		return "− " + num(int64(0.5-rate)) + " a minute"
	}
	return "steady"
}

func handlersNumber(s *survey) number {
	running, slots := 0, 0
	processes, hosts := map[string]bool{}, map[string]bool{}
	for _, w := range s.workers {
		if w.Alive == admin.Gone {
			continue
		}
		if !w.Foreign {
			processes[fmt.Sprint(w.Host, " ", w.PID)], hosts[w.Host] = true, true
		}
		running, slots = running+min(w.Running, max(w.Slots, w.Running*boolean(w.Foreign))), slots+w.Slots
	}
	n := number{Label: "Handlers busy", Value: num(running), Note: plural(len(processes), "process") + " on " + plural(len(hosts), "host")}
	if slots > 0 {
		n.Unit = "of " + num(slots)
	}
	n.Spark = course("info", valuesOf(s.total, func(b bucket) float64 { return b.ran.Minutes() }))
	return n
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

func valuesOf(all []bucket, f func(bucket) float64) (points []float64) {
	for _, b := range all {
		points = append(points, f(b))
	}
	return points
}

// backwards returns the course of a number that is last now and was changed by each bucket.
func backwards(all []bucket, last int64, change func(bucket) int64) []float64 {
	points := make([]float64, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		points[i] = float64(max(0, last))
		last -= change(all[i])
	}
	return points
}

// course renders a small line over an area. Both begin at zero.
func course(class string, points []float64) template.HTML {
	peak := 0.0
	for _, p := range points {
		peak = max(peak, p)
	}
	if peak == 0 {
		peak = 1
	}
	const step, height = 2, 22
	var line strings.Builder
	for i, p := range points {
		fmt.Fprintf(&line, "%s%d %d", map[bool]string{true: "M", false: "L"}[i == 0], step*i, height-1-int((height-3)*p/peak))
	}
	width := step * (len(points) - 1)
	return template.HTML(fmt.Sprintf(`<svg class="course %s" viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true"><path class="area" d="%sV%dH0Z"/><path class="line" d="%s"/></svg>`,
		class, width, height, line.String(), height, line.String()))
}
