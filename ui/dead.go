package ui

import (
	"html/template"
	"net/http"
	"net/url"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// deadPageData are the dead letters by what they have died of.
type deadPageData struct {
	Filter *admin.JobFilter
	Groups []deadGroup
	Looked honker.Count
	Queues []string
	Since  string
}

// deadGroup is a group with the filter that picks it.
type deadGroup struct {
	admin.DeadGroup
	Picks url.Values
	Spark template.HTML // of the last day
}

// groupsPerPage bounds the page of the dead letters.
const groupsPerPage = 100

func deadPage(c *call) serve {
	f := c.filter()
	return func() error {
		report, err := admin.DeadGroups(c.ctx, c.db, *f)
		if err != nil {
			return err
		}
		d := &deadPageData{Filter: f, Looked: report.Looked, Since: c.params.one("died_since")}
		for _, g := range report.Groups[:min(len(report.Groups), groupsPerPage)] {
			d.Groups = append(d.Groups, deadGroup{g, groupFilter(f, g), deaths(g.LastDay)})
		}
		if d.Queues, err = c.queueNames(); err != nil {
			return err
		}
		return c.show(view{name: "dead", nav: "dead", title: "Dead letters", data: d})
	}
}

// groupFilter is the filter of the page, for the jobs of one group.
func groupFilter(f *admin.JobFilter, g admin.DeadGroup) url.Values {
	of := *f
	of.Queues, of.Fingerprint, of.Phases, of.All = []string{g.Queue}, g.Fingerprint, []honker.Phase{honker.PhaseDead}, false
	return filterValues(&of)
}

// exportPage sends what a filter picks as JSON Lines, as admin.ExportJobs writes them.
func exportPage(c *call) serve {
	f := c.filter()
	if c.h.opts.Redact != nil {
		c.params.fault("export", "jobs are not exported, since some payloads are hidden")
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
		c.h.opts.Logger.Warn("honker ui: an export has ended early", "jobs", n, "error", err)
		panic(http.ErrAbortHandler) // cuts the connection: the browser must not take a part for all of it
	}
}
