package ui

import (
	"html/template"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// queuesPerPage is the maximum number of queues on the overview page, which has a chart for each
// queue.
const queuesPerPage = 100

type overview struct {
	Problems     []wrong
	MoreProblems int
	Queues       []queueRow
	Search       string
	Found        int
	From         int // index of the first queue on this page
	Next         int // index of the first queue on the next page; 0 on the last page
	Chart        template.HTML
	Traffic      legend
	AsOf         time.Time // time of the counts if they were cached
}

// queueRow is a row in the overview.
type queueRow struct {
	honker.QueueStats
	Spark template.HTML
	Late  bool // whether the oldest job has been ready for more than a minute
}

func overviewPage(c *call) serve {
	search := c.params.text("q", maxText)
	from := int(c.params.integer("from", 0, maxNumber, 0))
	return func() error {
		o, err := c.overview(search, from)
		if err != nil {
			return err
		}
		v := view{name: "overview", title: "Overview", data: o}
		for _, q := range o.Queues {
			v.next = sooner(v.next, q.NextAt)
		}
		return c.show(v)
	}
}

func (c *call) overview(search string, from int) (*overview, error) {
	all, err := admin.Queues(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	o := &overview{Search: search, From: from}
	if o.Problems, o.MoreProblems, err = c.problems(); err != nil {
		return nil, err
	}
	for _, q := range all {
		if !strings.Contains(q.Queue, search) {
			continue
		}
		if o.Found++; o.Found <= from || len(o.Queues) == queuesPerPage {
			continue
		}
		o.Queues = append(o.Queues, queueRow{QueueStats: q, Late: late(q, c.now)})
		if c.now.Sub(q.AsOf) > 2*time.Second {
			o.AsOf = sooner(o.AsOf, q.AsOf)
		}
	}
	if o.Found > from+len(o.Queues) {
		o.Next = from + len(o.Queues)
	}
	return o, c.overviewTraffic(o)
}

func (c *call) overviewTraffic(o *overview) error {
	all, err := admin.TrafficAll(c.ctx, c.db, c.now.Add(-time.Hour))
	if err != nil {
		return err
	}
	total := buckets(all[""], c.now, 60, time.Minute)
	o.Chart, o.Traffic = chart(total, "15:04"), legendOf(total)
	for i, q := range o.Queues {
		o.Queues[i].Spark = spark(buckets(all[q.Queue], c.now, 60, time.Minute))
	}
	return nil
}

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
