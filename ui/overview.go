package ui

import (
	"html/template"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type overview struct {
	Lead         string
	Problems     []trouble
	MoreProblems int
	Numbers      []number
	Chart        template.HTML
	Traffic      legend
	Span         string
	Spans        []string
	Strips       []waitStrip
	Table        *queueTable
}

func overviewPage(c *call) serve {
	view, span := c.queueView(), c.params.choice("span", "1h", "24h", "7d")
	return func() error {
		o, err := c.overview(view, span)
		if err != nil {
			return err
		}
		return c.showQueues("overview", "", "Overview", o, o.Table)
	}
}

func (c *call) overview(view queueView, span string) (*overview, error) {
	s, err := c.survey()
	if err != nil {
		return nil, err
	}
	o := &overview{Span: span, Spans: []string{"1h", "24h", "7d"}, Strips: strips(s)}
	groups := admin.GroupProblems(s.problems)
	o.Lead = leadOf(groups)
	o.Problems, o.MoreProblems = c.troubles(groups)
	o.Numbers = c.numbers(s)
	view.limit = rowsInOverview
	o.Table = c.queueTable(s, view)
	return o, c.overviewTraffic(o, s)
}

func (c *call) overviewTraffic(o *overview, s *survey) error {
	part := spans[o.Span]
	all := s.total
	if o.Span != "1h" {
		since := c.now.Add(-time.Duration(part.parts-1) * part.length)
		minutes, err := admin.TrafficSteps(c.ctx, c.db, "", since, part.length)
		if err != nil {
			return err
		}
		all = buckets(minutes, c.now, part.parts, part.length)
	}
	o.Chart, o.Traffic = chart(all, part.kind), legendOf(all)
	return nil
}

// survey holds the facts about all queues of a file, read once for a page.
type survey struct {
	now      time.Time
	queues   []honker.QueueStats
	problems []admin.Problem
	workers  []admin.WorkerInfo
	traffic  map[string][]bucket // minutes of the last hour, keyed by queue
	total    []bucket
}

// hour is the number of minutes for which a survey has the traffic.
const hour = 60

func (c *call) survey() (*survey, error) {
	s := &survey{now: c.now, traffic: map[string][]bucket{}}
	var err error
	if s.queues, s.problems, err = c.state(); err != nil {
		return nil, err
	}
	c.file.badges.keep(c.badgesOf(s.queues, s.problems), s.problems, c.now)
	if s.workers, err = admin.Workers(c.ctx, c.db); err != nil {
		return nil, err
	}
	traffic, err := admin.TrafficAll(c.ctx, c.db, c.now.Add(-time.Hour))
	if err != nil {
		return nil, err
	}
	for name, minutes := range traffic {
		s.traffic[name] = buckets(minutes, c.now, hour, time.Minute)
	}
	if s.total = s.traffic[""]; s.total == nil {
		s.total = buckets(nil, c.now, hour, time.Minute)
	}
	return s, nil
}

// late reports whether a queue's oldest job has been ready for more than a minute.
func late(q honker.QueueStats, now time.Time) bool {
	return !q.OldestReady.IsZero() && now.Sub(q.OldestReady) > time.Minute && q.Pause == nil
}

// sooner returns the earlier of two times. It ignores zero times.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
