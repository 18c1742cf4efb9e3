package ui

import (
	"cmp"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type schedulesPageData struct {
	Schedules []scheduleRow
	Leaders   *admin.LeaderInfo
	Missed    []string // names of schedules whose last time was skipped or has passed
	Others    int      // number of schedules that are not shown
	Zone      string   // of this process
}

type scheduleRow struct {
	admin.ScheduleReport
	Payload   payload
	Next      []time.Time
	Broken    string // error if the next times cannot be computed
	Overdue   bool
	SkippedIt bool // the last time was skipped
	Dot       string
	Strip     template.HTML // the day before now and the day after
	rank      int
}

// schedulesPerPage is the maximum number of schedules on the page. The page computes the next times of
// each schedule.
const schedulesPerPage = 200

func schedulesPage(c *call) serve {
	return func() error {
		d := &schedulesPageData{Zone: c.now.Format("MST, UTC-07:00")}
		all, err := admin.Schedules(c.ctx, c.db)
		if err != nil {
			return err
		}
		if d.Leaders, err = admin.Leaders(c.ctx, c.db); err != nil {
			return err
		}
		v := view{name: "schedules", nav: "schedules", title: "Schedules", data: d}
		for _, s := range all[:min(len(all), schedulesPerPage)] {
			row := c.scheduleRow(s)
			d.Schedules = append(d.Schedules, row)
			if row.Overdue || row.SkippedIt {
				d.Missed = append(d.Missed, s.Name)
			}
			if s.Enabled {
				v.next = sooner(v.next, s.NextFireAt.Add(time.Second))
			}
		}
		d.Others = len(all) - len(d.Schedules)
		slices.SortStableFunc(d.Schedules, func(a, b scheduleRow) int {
			return cmp.Or(cmp.Compare(b.rank, a.rank), strings.Compare(a.Name, b.Name))
		})
		return c.show(v)
	}
}

func (c *call) scheduleRow(s admin.ScheduleReport) scheduleRow {
	row := scheduleRow{ScheduleReport: s, Payload: c.payloadOf(s.Queue, s.Payload, shortText), Dot: "idle"}
	row.Overdue = s.Enabled && c.now.Sub(s.NextFireAt) > 2*time.Second
	row.SkippedIt = s.LastSkipAt.After(s.LastFireAt)
	times, err := c.db.Scheduler().Next(c.ctx, s.Name, 100)
	if err != nil {
		row.Broken = cut(300, err.Error())
	}
	row.Next = times[:min(len(times), 3)]
	if s.LastJob != 0 {
		row.Dot = "good"
	}
	switch {
	case !s.Enabled:
		row.Dot = "paused"
	case row.Broken != "" || row.Overdue || s.LastPhase == honker.PhaseDead:
		row.rank, row.Dot = rankError, "bad"
	case row.SkippedIt:
		row.rank, row.Dot = rankWarn, "warn"
	}
	row.Strip = scheduleStrip(s, times, c.now)
	return row
}
