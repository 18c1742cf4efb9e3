package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// A strip of a schedule shows the day before now and the day after. Each unit is five minutes.
const (
	stripUnit = 5 * time.Minute
	stripHalf = int(24 * time.Hour / stripUnit)
	stripTall = 22
)

// outcomes maps the phases of a schedule's last job to the classes of its mark. Other jobs have yet to run.
var outcomes = map[honker.Phase]string{
	honker.PhaseDone: "good", honker.PhaseDead: "bad", honker.PhaseExpired: "bad", honker.PhaseLapsed: "warn", honker.PhaseRunning: "now",
}

// scheduleStrip renders the last fire, colored by the outcome of its job, the last skipped time, and the next times. If
// the times end within the day, the schedule may fire more often than the caller has computed, and the strip goes on.
func scheduleStrip(s admin.ScheduleReport, next []time.Time, now time.Time) template.HTML {
	var out strings.Builder
	mark := func(class string, times ...time.Time) (n int) {
		var path strings.Builder
		for _, t := range times {
			if x, in := stripAt(t, now); in {
				n++
				fmt.Fprintf(&path, "M%d 3v%d", x, stripTall-6)
			}
		}
		if n > 0 {
			fmt.Fprintf(&out, `<path class="fire %s" d="%s"/>`, class, path.String())
		}
		return n
	}
	class := "next"
	if !s.Enabled {
		class = "off"
	}
	shown := mark(class, next...)
	label := plural(shown, "fire") + " in the next 24 hours"
	if shown > 0 && shown == len(next) {
		x, _ := stripAt(next[len(next)-1], now)
		fmt.Fprintf(&out, `<rect class="fire more" x="%d" y="3" width="%d" height="%d"/>`, x, 2*stripHalf-x, stripTall-6)
		label = "more than " + label
	}
	if mark("skip", s.LastSkipAt) > 0 {
		label += ", a skipped time in the last"
	}
	outcome := outcomes[s.LastPhase]
	if outcome == "" {
		outcome = "waits"
	}
	if mark(outcome, s.LastFireAt) > 0 {
		label += ", the last fire is " + string(s.LastPhase)
	}
	return template.HTML(fmt.Sprintf(`<svg class="calendar" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title>`+
		`<rect class="bed" width="%d" height="%d"/><path class="grid" d="%s"/>%s<path class="here" d="M%d 0v%d"/></svg>`,
		2*stripHalf, stripTall, label, label, 2*stripHalf, stripTall, stripGrid, out.String(), stripHalf, stripTall))
}

// stripGrid has a line every six hours.
var stripGrid = fmt.Sprintf("M%d 0v%[5]dM%[2]d 0v%[5]dM%[3]d 0v%[5]dM%[4]d 0v%[5]dM%[6]d 0v%[5]dM%[7]d 0v%[5]d",
	stripHalf/4, stripHalf/2, 3*stripHalf/4, 5*stripHalf/4, stripTall, 3*stripHalf/2, 7*stripHalf/4)

// stripAt returns the position of a time, and whether the strip has it.
func stripAt(t, now time.Time) (x int, in bool) {
	if t.IsZero() {
		return 0, false
	}
	d := t.Sub(now)
	x = stripHalf + int(d/stripUnit)
	return x, d.Abs() < 24*time.Hour
}
