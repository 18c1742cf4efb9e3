package ui

import (
	"encoding/json"
	"html/template"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

type rawJSON = json.RawMessage

// queueOf returns a handle to a queue that doesn't decode payloads.
func queueOf(db *honker.DB, name string) *honker.Queue[rawJSON] {
	return honker.NewQueue[rawJSON](db, name, nil)
}

// headRows is the maximum number of rows in each list on a page with several lists.
const headRows = 20

type queuePageData struct {
	honker.QueueStats
	Retention honker.QueueRetention
	Turn      []jobRow // next jobs in claim order
	Running   []jobRow
	Keys      []honker.KeyStats
	Errors    []deadGroup // errors in the last hour
	Schedules []honker.ScheduleInfo
	Workers   []workerRow
	Why       *admin.Explanation
	Span      string
	Spans     []string
	Chart     template.HTML
	Traffic   legend
	Wait, Ran time.Duration // averages over the chart's period
	Late      bool
	Old       bool // whether the counts were cached
	Enqueue   bool
}

// spans maps the values of the "span" parameter to chart intervals.
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
		d, err := c.queueData(name, over)
		if err != nil {
			return err
		}
		return c.show(view{name: "queue", title: "Queue " + cut(80, name), data: d, next: d.NextAt})
	}
}

// queueData returns the data for a queue's page, read from a single snapshot.
func (c *call) queueData(name, over string) (*queuePageData, error) {
	part := spans[over]
	since := c.now.Add(-time.Duration(part.parts-1) * part.length)
	r, err := admin.QueueReport(c.ctx, c.db, name, &admin.QueueReportOptions{Jobs: headRows, Since: since, Step: part.length})
	if err != nil {
		return nil, err
	}
	d := &queuePageData{
		QueueStats: r.QueueStats, Retention: r.Retention, Keys: r.Keys[:min(len(r.Keys), headRows)],
		Turn: c.rows(r.Next), Running: c.rows(r.Running), Schedules: r.Schedules, Why: r.Why, Enqueue: c.h.opts.Enqueue,
		Late: late(r.QueueStats, c.now), Old: c.now.Sub(r.AsOf) > 2*time.Second,
	}
	f := &admin.JobFilter{Queues: []string{name}, DiedSince: c.now.Add(-time.Hour)}
	d.Errors = groupsOf(f, r.Dead, 5)
	for _, w := range r.Workers[:min(len(r.Workers), headRows)] {
		d.Workers = append(d.Workers, workerRow{w, meter(w.Running, w.Slots)})
	}
	all := buckets(r.Traffic, c.now, part.parts, part.length)
	d.Span, d.Spans = over, []string{"1h", "24h", "7d"}
	d.Chart, d.Traffic = chart(all, part.layout), legendOf(all)
	var claimed, ended int64
	for _, m := range r.Traffic {
		claimed, ended = claimed+m.Claimed, ended+m.Acked+m.Retried+m.Died
		d.Wait, d.Ran = d.Wait+m.Wait, d.Ran+m.Ran
	}
	d.Wait, d.Ran = d.Wait/time.Duration(max(claimed, 1)), d.Ran/time.Duration(max(ended, 1))
	return d, nil
}

// tile is a number shown on a queue's page.
type tile struct {
	Text string
	Link countLink
}

// Tiles returns the numbers to show for a queue. Rarely used numbers are omitted if they are zero.
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
