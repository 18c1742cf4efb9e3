package ui

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// deadPageData is the template data for the page that groups dead letters by error.
type deadPageData struct {
	Filter   *admin.JobFilter
	Groups   []deadGroup
	Others   int // number of groups that are not shown
	Looked   honker.Count
	Counting bool      // a count runs, and Looked is a lower bound
	AsOf     time.Time // time of the count if it is not of now
	Queues   []string
	Since    string
	Spans    []deadSpan
	Jobs     url.Values // parameters for the list of the jobs
}

// deadSpan is a link to the dead letters of a period.
type deadSpan struct {
	Text string
	On   bool
	URL  string
}

// deadGroup is a group of dead letters along with a filter that selects them.
type deadGroup struct {
	admin.DeadGroup
	Jobs  honker.Count // a lower bound if not all jobs were examined
	Picks url.Values
	Parts []admin.ErrorPart
	Spark template.HTML // deaths in the last day
	Rate  string        // deaths in a minute; "" if there were none lately
	Ended bool          // no job has died in the last hour
	Fails bool          // the queue still fails most of its attempts
	Final bool          // most jobs died with attempts left, so further attempts cannot help
	After time.Duration // time from the start of the queue's workers to the first death, if that is short
}

// groupsPerPage is the maximum number of groups on the dead letter page.
const groupsPerPage = 50

// deadPerPage is the maximum number of dead jobs that a page groups before they have been counted. The page is reloaded
// after every commit, so it must be fast.
const deadPerPage = 1000

// deadSigned is the number of the newest dead jobs that tell whether a kept count is still true.
const deadSigned = 50

func deadPage(c *call) serve {
	f := c.filter()
	return func() error {
		d := &deadPageData{Filter: f, Since: c.params.one("died_since"), Jobs: filterValues(deadOf(*f))}
		report, next, err := c.deadGroups(f, d)
		if err != nil {
			return err
		}
		if d.Groups, err = c.deadRows(f, report); err != nil {
			return err
		}
		d.Others = max(0, len(report.Groups)-len(d.Groups))
		d.Looked = report.Looked
		d.Spans = c.deadSpans(d.Since)
		if d.Queues, err = c.queueNames(); err != nil {
			return err
		}
		return c.show(view{name: "dead", nav: "dead", title: "Dead letters", data: d, next: next})
	}
}

// deadOf restricts a filter to dead jobs.
func deadOf(f admin.JobFilter) *admin.JobFilter {
	f.Phases, f.All = []honker.Phase{honker.PhaseDead}, false
	return &f
}

// deadGroups groups the newest dead jobs. If there are more, it returns the last count of all jobs, if any.
// next is the time at which the page should be loaded again.
func (c *call) deadGroups(f *admin.JobFilter, d *deadPageData) (r *admin.DeadReport, next time.Time, err error) {
	key, most := withoutParams(c.params.values, slices.Concat(flashParams, []string{"db"})...).Encode(), deadPerPage
	if c.file.dead.knows(key) {
		most = deadSigned
	}
	newest, err := admin.DeadGroupsWithin(c.ctx, c.db, *f, most, pageBudget)
	if err != nil || !newest.Looked.More {
		return newest, next, err
	}
	counted, next := c.file.dead.report(c.h, c.db, key, *f, signatureOf(newest), c.now)
	if counted == nil {
		d.Counting = true
		return newest, next, nil
	}
	if c.now.Sub(counted.at) > 2*time.Second {
		d.AsOf = counted.at
	}
	return counted.DeadReport, next, nil
}

// deadSpans returns the links to the periods.
func (c *call) deadSpans(since string) (spans []deadSpan) {
	for _, s := range [][2]string{{"1h", "1h"}, {"24h", "24h"}, {"All", ""}} {
		v := withoutParams(c.params.values, slices.Concat(flashParams, []string{"db", "died_since"})...)
		if s[1] != "" {
			v.Set("died_since", s[1])
		}
		spans = append(spans, deadSpan{s[0], since == s[1], c.link("dead", v)})
	}
	return spans
}

// deadRows returns the groups to show with the facts about their queues. Groups with the most recent deaths come first.
func (c *call) deadRows(f *admin.JobFilter, r *admin.DeadReport) ([]deadGroup, error) {
	rows := groupsOf(f, r, len(r.Groups))
	slices.SortStableFunc(rows, func(a, b deadGroup) int { return cmp.Compare(b.Recent, a.Recent) })
	rows = rows[:min(len(rows), groupsPerPage)]
	if len(rows) == 0 {
		return nil, nil
	}
	traffic, err := admin.TrafficAll(c.ctx, c.db, c.now.Add(-recent*time.Minute))
	if err != nil {
		return nil, err
	}
	workers, err := admin.Workers(c.ctx, c.db)
	if err != nil {
		return nil, err
	}
	began := map[string]time.Time{}
	for _, w := range workers {
		if w.Alive != admin.Gone {
			began[w.Queue] = sooner(began[w.Queue], w.Since)
		}
	}
	for i := range rows {
		g := &rows[i]
		g.Fails = failingClass(flowOf(buckets(traffic[g.Queue], c.now, recent+1, time.Minute))) == "bad"
		g.Ended = c.now.Sub(g.Last) > time.Hour
		if after := g.First.Sub(began[g.Queue]); !began[g.Queue].IsZero() && after >= 0 && after < soonAfter && !r.Looked.More {
			g.After = max(time.Second, after.Truncate(time.Second))
		}
	}
	return rows, nil
}

// soonAfter is the time after the start of its workers in which the first death of a kind suggests that they caused it.
const soonAfter = 15 * time.Minute

// groupsOf returns the first groups of a report. The number of groups is limited to most.
func groupsOf(f *admin.JobFilter, r *admin.DeadReport, most int) (groups []deadGroup) {
	for _, g := range r.Groups[:min(len(r.Groups), most)] {
		row := deadGroup{DeadGroup: g, Jobs: honker.Count{N: g.N, More: r.Looked.More}, Picks: groupFilter(f, g),
			Parts: partsOf(g.Sample), Spark: deaths(g.LastDay), Final: 2*g.Left > g.N}
		if g.Recent > 0 {
			row.Rate = rateOf(g.Recent)
		}
		groups = append(groups, row)
	}
	return groups
}

// rateOf formats a number of deaths in the last ten minutes as a rate.
func rateOf(n int64) string {
	if n < recent {
		return "+ " + num(n) + " in 10m"
	}
	return "+ " + num((n+recent/2)/recent) + " / min"
}

// shownError is the number of bytes of an error that a row shows.
const shownError = 400

// partsOf returns the parts of an error to show.
func partsOf(text string) (parts []admin.ErrorPart) {
	left := shownError
	for _, p := range admin.ErrorParts(strings.ToValidUTF8(text, "�")) {
		p.Text = cut(left, p.Text)
		parts = append(parts, p)
		if left -= len(p.Text); left <= 0 {
			break
		}
	}
	return parts
}

// groupFilter returns URL parameters that restrict the page's filter to a group.
func groupFilter(f *admin.JobFilter, g admin.DeadGroup) url.Values {
	of := *f
	of.Queues, of.Fingerprint, of.Phases, of.All = []string{g.Queue}, g.Fingerprint, []honker.Phase{honker.PhaseDead}, false
	return filterValues(&of)
}

// exportPage sends the jobs that match a filter as JSON Lines, using admin.ExportJobs.
func exportPage(c *call) serve {
	f := c.filter()
	if c.h.opts.Redact != nil {
		c.params.fault("export", "jobs cannot be exported, because some payloads are hidden")
	}
	return func() error {
		h := c.w.Header()
		h.Set("Content-Type", "application/jsonl; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="jobs-`+c.now.UTC().Format("20060102-150405")+`.jsonl"`)
		w := &deadlineWriter{w: c.w}
		n, err := admin.ExportJobs(c.ctx, c.db, *f, w)
		if err == nil {
			return nil
		}
		if n == 0 && !w.began {
			h.Del("Content-Disposition")
			return err
		}
		c.h.opts.Logger.Warn("honker ui: an export ended early", "jobs", n, "error", err)
		panic(http.ErrAbortHandler) // abort the connection so that the browser reports an incomplete download
	}
}
