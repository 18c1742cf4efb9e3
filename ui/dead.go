package ui

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// deadPageData is the template data for the page that groups dead letters by error.
type deadPageData struct {
	Filter *admin.JobFilter
	Groups []deadGroup
	Looked honker.Count
	More   url.Values // parameters for a page that groups more jobs; nil if there are no more jobs or this is already that page
	Queues []string
	Since  string
}

// deadGroup is a group of dead letters along with a filter that selects them.
type deadGroup struct {
	admin.DeadGroup
	Jobs  honker.Count // a lower bound if not all jobs were examined
	Picks url.Values
	Spark template.HTML // deaths in the last day
}

// groupsPerPage is the maximum number of groups on the dead letter page.
const groupsPerPage = 100

// deadPerPage is the maximum number of dead jobs that a page groups by default. The page is reloaded after
// every commit, so it must be fast.
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

// deadGroups groups the dead jobs. If all is false, it stops after deadPerPage jobs or pageBudget.
func (c *call) deadGroups(f *admin.JobFilter, all bool) (*admin.DeadReport, error) {
	if all {
		return admin.DeadGroups(c.ctx, c.db, *f)
	}
	return admin.DeadGroupsWithin(c.ctx, c.db, *f, deadPerPage, pageBudget)
}

// groupsOf returns the first groups of a report. The number of groups is limited to most.
func groupsOf(f *admin.JobFilter, r *admin.DeadReport, most int) (groups []deadGroup) {
	for _, g := range r.Groups[:min(len(r.Groups), most)] {
		n := honker.Count{N: g.N, More: r.Looked.More}
		groups = append(groups, deadGroup{g, n, groupFilter(f, g), deaths(g.LastDay)})
	}
	return groups
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
