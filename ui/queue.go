package ui

import (
	"context"
	"encoding/json"
	"html/template"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type rawJSON = json.RawMessage

// queueOf returns a queue whose payloads are not decoded.
func queueOf(db *honker.DB, name string) *honker.Queue[rawJSON] {
	return honker.NewQueue[rawJSON](db, name, nil)
}

// headRows is the maximum number of rows in each list of a page with several lists.
const headRows = 20

type queuePageData struct {
	honker.QueueStats
	Retention honker.QueueRetention
	Turn      []jobRow // next jobs in claim order
	Running   []jobRow
	Keys      []honker.KeyStats
	Errors    []deadGroup // errors of the last hour
	Schedules []honker.ScheduleInfo
	Workers   []workerRow
	Why       *admin.Explanation
	Span      string
	Spans     []string
	Chart     template.HTML
	Traffic   legend
	Wait, Ran time.Duration // averages over the time of the chart
	Late      bool
	Old       bool // whether the counts were cached
	Enqueue   bool
}

// spans maps the "span" parameter to the intervals of the chart.
var spans = map[string]struct {
	parts  int
	length time.Duration
	layout string
}{
	"1h":  {60, time.Minute, "15:04"},
	"24h": {96, 15 * time.Minute, "Jan 2 15:04"},
	"7d":  {168, time.Hour, "Jan 2 15:04"},
}

func queuePage(c *call) serve {
	name := c.params.name("name")
	over := c.params.choice("span", "1h", "24h", "7d")
	c.access.Queue = name
	return func() error {
		d, err := c.queueData(name)
		if err != nil {
			return err
		}
		if err := c.queueTraffic(d, over); err != nil {
			return err
		}
		return c.show(view{name: "queue", title: "Queue " + cut(80, name), data: d, next: d.NextAt})
	}
}

func (c *call) queueData(name string) (*queuePageData, error) {
	q := queueOf(c.db, name)
	d := &queuePageData{Enqueue: c.h.opts.Enqueue}
	for _, read := range []func(context.Context) error{
		func(ctx context.Context) (err error) { d.QueueStats, err = q.Stats(ctx); return err },
		func(ctx context.Context) (err error) { d.Retention, err = q.Retention(ctx); return err },
		func(ctx context.Context) (err error) { d.Keys, err = q.Keys(ctx); return err },
		func(context.Context) (err error) {
			d.Turn, err = c.head(name, admin.ClaimOrder, honker.PhaseReady)
			return err
		},
		func(context.Context) (err error) {
			d.Running, err = c.head(name, admin.OldestFirst, honker.PhaseRunning, honker.PhaseLapsed)
			return err
		},
		func(context.Context) error { return c.queueErrors(d) },
		func(ctx context.Context) error { return c.queueSchedules(ctx, d) },
		func(ctx context.Context) error { return c.queueWorkers(ctx, d) },
		func(ctx context.Context) (err error) { d.Why, err = admin.ExplainQueue(ctx, c.db, name); return err },
	} {
		if err := read(c.ctx); err != nil {
			return nil, err
		}
	}
	d.Keys = d.Keys[:min(len(d.Keys), headRows)]
	d.Late, d.Old = late(d.QueueStats, c.now), c.now.Sub(d.AsOf) > 2*time.Second
	return d, nil
}

// head returns the first jobs of a queue in the given phases.
func (c *call) head(name string, order admin.Order, of ...honker.Phase) ([]jobRow, error) {
	page, err := admin.ListJobs(c.ctx, c.db, admin.JobFilter{Queues: []string{name}, Phases: of}, &admin.PageOptions{Order: order, Limit: headRows})
	if err != nil {
		return nil, err
	}
	return c.rows(page.Jobs), nil
}

func (c *call) queueErrors(d *queuePageData) error {
	f := &admin.JobFilter{Queues: []string{d.Queue}, DiedSince: c.now.Add(-time.Hour)}
	report, err := c.deadGroups(f, false)
	if err != nil {
		return err
	}
	d.Errors = groupsOf(f, report, 5)
	return nil
}

func (c *call) queueSchedules(ctx context.Context, d *queuePageData) error {
	all, err := c.db.Scheduler().List(ctx)
	for _, s := range all {
		if s.Queue == d.Queue {
			d.Schedules = append(d.Schedules, s)
		}
	}
	return err
}

func (c *call) queueTraffic(d *queuePageData, over string) error {
	part := spans[over]
	since := c.now.Add(-time.Duration(part.parts-1) * part.length)
	steps, err := admin.TrafficSteps(c.ctx, c.db, d.Queue, since, part.length)
	if err != nil {
		return err
	}
	all := buckets(steps, c.now, part.parts, part.length)
	d.Span, d.Spans = over, []string{"1h", "24h", "7d"}
	d.Chart, d.Traffic = chart(all, part.layout), legendOf(all)
	var claimed, ended int64
	for _, m := range steps {
		claimed, ended = claimed+m.Claimed, ended+m.Acked+m.Retried+m.Died
		d.Wait, d.Ran = d.Wait+m.Wait, d.Ran+m.Ran
	}
	d.Wait, d.Ran = d.Wait/time.Duration(max(claimed, 1)), d.Ran/time.Duration(max(ended, 1))
	return nil
}

// tile is a number on the page of a queue.
type tile struct {
	Text string
	Link countLink
}

// Tiles returns the numbers of a queue. Rarely used numbers are omitted if they are zero.
func (p *page) Tiles(q honker.QueueStats) (tiles []tile) {
	for _, t := range []struct {
		text   string
		n      honker.Count
		phase  honker.Phase
		always bool
	}{
		{"Ready", q.Ready, honker.PhaseReady, true}, {"Running", q.Running, honker.PhaseRunning, true},
		{"Lapsed", q.Lapsed, honker.PhaseLapsed, false}, {"Scheduled", q.Scheduled, honker.PhaseScheduled, true},
		{"Held", q.Held, honker.PhaseHeld, false}, {"Expired", q.Expired, honker.PhaseExpired, false},
		{"Dead", q.Dead, honker.PhaseDead, true},
	} {
		if t.always || t.n.N > 0 {
			tiles = append(tiles, tile{t.text, p.Count(t.n, string(t.phase), q.Queue)})
		}
	}
	return tiles
}
