package ui

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type schedulesPageData struct {
	Schedules []scheduleRow
	Leaders   *admin.LeaderInfo
}

type scheduleRow struct {
	honker.ScheduleInfo
	Payload  payload
	Next     []time.Time
	Broken   string // error if the next times cannot be computed
	Overdue  bool
	Calendar template.HTML // run times in the next 24 hours
}

// schedulesPerPage is the maximum number of schedules on the page. The page computes the next times of
// each schedule.
const schedulesPerPage = 200

func schedulesPage(c *call) serve {
	return func() error {
		d := &schedulesPageData{}
		all, err := c.db.Scheduler().List(c.ctx)
		if err != nil {
			return err
		}
		if d.Leaders, err = admin.Leaders(c.ctx, c.db); err != nil {
			return err
		}
		v := view{name: "schedules", nav: "schedules", title: "Schedules", data: d}
		for _, s := range all[:min(len(all), schedulesPerPage)] {
			d.Schedules = append(d.Schedules, c.scheduleRow(s))
			if s.Enabled {
				v.next = sooner(v.next, s.NextFireAt.Add(time.Second))
			}
		}
		return c.show(v)
	}
}

func (c *call) scheduleRow(s honker.ScheduleInfo) scheduleRow {
	row := scheduleRow{ScheduleInfo: s, Payload: c.payloadOf(s.Queue, s.Payload, shortText)}
	row.Overdue = s.Enabled && c.now.Sub(s.NextFireAt) > 2*time.Second
	times, err := c.db.Scheduler().Next(c.ctx, s.Name, 100)
	if err != nil {
		row.Broken = cut(300, err.Error())
		return row
	}
	row.Next = times[:min(len(times), 5)]
	if s.Enabled {
		row.Calendar = calendar(times, c.now)
	}
	return row
}

// calendar renders a strip of 24 hours with a mark for each of the given times. If all of them are within 24
// hours, the schedule may fire more often than the caller has computed, and the label says so.
func calendar(times []time.Time, now time.Time) template.HTML {
	const width = 288 // each unit is five minutes
	start := now.Truncate(5 * time.Minute)
	var marks strings.Builder
	n := 0
	for _, t := range times {
		x := int(t.Sub(start) / (5 * time.Minute))
		if x < 0 || x >= width {
			continue
		}
		n++
		fmt.Fprintf(&marks, "M%d 3v16", x)
	}
	label := "no fire in the next 24 hours"
	if n > 0 {
		label = plural(n, "fire") + " in the next 24 hours"
	}
	if n == len(times) && n > 0 {
		label = "more than " + label
	}
	return template.HTML(fmt.Sprintf(`<svg class="calendar" viewBox="0 0 %d 22" preserveAspectRatio="none" role="img" aria-label="%s"><title>%s</title>`+
		`<rect class="bed" width="%d" height="22"/><path class="fire" d="%s"/></svg>`, width, label, label, width, marks.String()))
}
