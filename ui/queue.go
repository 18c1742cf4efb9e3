package ui

import (
	"encoding/json"
	"html/template"
	"slices"
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

// turnRows is the maximum number of next jobs on a queue's page.
const turnRows = 10

// queuePageData is the template data for a queue's page.
type queuePageData struct {
	honker.QueueStats
	Retention honker.QueueRetention
	Answer    *answer
	Pills     []tag
	Tiles     []tile
	Turn      []jobRow // next jobs in claim order
	Running   []jobRow // longest running first
	Keys      []honker.KeyStats
	Errors    []errorKind   // kinds of errors, most jobs first
	Attempts  template.HTML // attempts of the jobs that wait for another one
	Schedules []honker.ScheduleInfo
	Workers   []workerRow
	Span      string
	Spans     []string
	Chart     template.HTML
	Traffic   legend
	Old       bool // whether the counts were cached
	Enqueue   bool
	Form      string // form to open
}

// spans maps the values of the "span" parameter to chart intervals.
var spans = map[string]struct {
	parts  int
	length time.Duration
	kind   string // see layouts
}{
	"1h":  {60, time.Minute, "clock"},
	"24h": {96, 15 * time.Minute, "day"},
	"7d":  {168, time.Hour, "day"},
}

func queuePage(c *call) serve {
	name := c.params.name("name")
	over := c.params.choice("span", "1h", "24h", "7d")
	form := c.params.choice("form", "", "pause", "limits", "retention", "enqueue")
	c.access.Queue = name
	return func() error {
		d, err := c.queueData(name, over)
		if err != nil {
			return err
		}
		d.Form = form
		return c.show(view{name: "queue", nav: "queues", title: "Queue " + cut(80, name), data: d, next: d.NextAt})
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
		Turn: c.rows(r.Next[:min(len(r.Next), turnRows)]), Schedules: r.Schedules, Enqueue: c.h.opts.Enqueue, Old: c.now.Sub(r.AsOf) > 2*time.Second,
	}
	if d.Running, err = c.runningRows(name, r.Running); err != nil {
		return nil, err
	}
	d.Errors, d.Attempts = c.errorKinds(r), attemptsSpent(r)
	for _, w := range r.Workers[:min(len(r.Workers), headRows)] {
		d.Workers = append(d.Workers, workerRow{w, meter(w.Running, w.Slots)})
	}
	all := buckets(r.Traffic, c.now, part.parts, part.length)
	d.Span, d.Spans = over, []string{"1h", "24h", "7d"}
	d.Chart, d.Traffic = chart(all, part.kind), legendOf(all)
	if over != "1h" {
		if all, err = c.lastHour(name); err != nil {
			return nil, err
		}
	}
	d.Tiles = c.tiles(r, all)
	d.Pills = pillsOf(r, lately(all))
	d.Answer, err = c.answerQueue(r)
	return d, err
}

// lastHour returns a queue's traffic in the minutes of the last hour.
func (c *call) lastHour(name string) ([]bucket, error) {
	minutes, err := admin.Traffic(c.ctx, c.db, name, c.now.Add(-time.Hour))
	return buckets(minutes, c.now, hour, time.Minute), err
}

// runningRows returns the rows of running jobs, longest running first, and marks slow jobs.
func (c *call) runningRows(queue string, jobs []honker.JobInfo) ([]jobRow, error) {
	rows := c.rows(jobs)
	if len(rows) == 0 {
		return nil, nil
	}
	usual, _, err := admin.UsualRun(c.ctx, c.db, queue)
	for i, r := range rows {
		rows[i].Slow = !r.StartedAt.IsZero() && slowness(c.now.Sub(r.StartedAt), usual) > 0
	}
	slices.SortStableFunc(rows, func(a, b jobRow) int {
		if a.StartedAt.IsZero() != b.StartedAt.IsZero() {
			return boolean(a.StartedAt.IsZero()) - boolean(b.StartedAt.IsZero())
		}
		return a.StartedAt.Compare(b.StartedAt)
	})
	return rows, err
}
