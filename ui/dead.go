package ui

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// deadPageData are the dead letters by what they have died of.
type deadPageData struct {
	Filter *admin.JobFilter
	Groups []deadGroup
	Looked honker.Count
	More   url.Values // the parameters that look at more; nil: there is none, or this page does
	Queues []string
	Since  string
}

// deadGroup is a group with the filter that picks it.
type deadGroup struct {
	admin.DeadGroup
	Jobs  honker.Count // a lower bound, where there are more than were looked at
	Picks url.Values
	Spark template.HTML // of the last day
}

// groupsPerPage bounds the page of the dead letters.
const groupsPerPage = 100

// deadPerPage are the dead jobs that a page groups, unless it is asked to look at more: it follows the file, and is
// to take no longer than others.
const deadPerPage = 2000

func deadPage(c *call) serve {
	f := c.filter()
	more := c.params.flag("more")
	return func() error {
		report, err := c.deadGroups(f, more)
		if err != nil {
			return err
		}
		d := &deadPageData{Filter: f, Groups: groupsOf(f, report, groupsPerPage), Looked: report.Looked, Since: c.params.one("died_since")}
		if report.Looked.More && !more {
			d.More = withoutParams(c.params.values, slices.Concat(flashParams, []string{"db"})...)
			d.More.Set("more", "1")
		}
		if d.Queues, err = c.queueNames(); err != nil {
			return err
		}
		return c.show(view{name: "dead", nav: "dead", title: "Dead letters", data: d})
	}
}

// deadGroups groups what a page has the time for, or all that admin.DeadGroups looks at.
func (c *call) deadGroups(f *admin.JobFilter, all bool) (*admin.DeadReport, error) {
	if all {
		return admin.DeadGroups(c.ctx, c.db, *f)
	}
	return admin.DeadGroupsWithin(c.ctx, c.db, *f, deadPerPage, pageBudget)
}

// groupsOf are the first groups of a report, up to most.
func groupsOf(f *admin.JobFilter, r *admin.DeadReport, most int) (groups []deadGroup) {
	for _, g := range r.Groups[:min(len(r.Groups), most)] {
		n := honker.Count{N: g.N, More: r.Looked.More}
		groups = append(groups, deadGroup{g, n, groupFilter(f, g), deaths(g.LastDay)})
	}
	return groups
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
