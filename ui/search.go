package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// A search for jobs goes on over several requests. Each request looks at jobs for a short time and returns the position
// for the next, together with the jobs found so far. The page's script asks for the next request by itself; without
// scripts, a link does.

// Budgets of a request that searches.
var (
	// pageBudget is the maximum duration of a page's search. It is small because only one search runs at a time and open
	// pages repeat their searches after every commit.
	pageBudget = 30 * time.Millisecond
	// stepBudget is the budget of a request by the script for the next part of a search.
	stepBudget = 250 * time.Millisecond
	// patientBudget is the budget of a request by the link that continues a search.
	patientBudget = 2 * time.Second
	// turnBudget is the part of these budgets after which other searches get their turn.
	turnBudget = 100 * time.Millisecond
)

// searchHeader marks a request by the script for the next part of a search.
const searchHeader = "Honker-Search"

// maxPosition is the maximum length of an encoded position, which contains a cursor and up to 200 IDs.
const maxPosition = 8 << 10

// position is the place at which a search continues.
type position struct {
	searched int64   // number of jobs that were looked at
	found    []int64 // matching jobs, in ascending order
	after    admin.Cursor
}

// String encodes the position as a parameter.
func (p *position) String() string {
	return strconv.FormatInt(p.searched, 10) + "~" + packIDs(p.found) + "~" + string(p.after)
}

// position returns the position in the parameter "on", or in "after", which begins a page.
func (p *params) position() (at position) {
	at.after = admin.Cursor(p.text("after", 4096))
	text := p.text("on", maxPosition)
	if text == "" {
		return at
	}
	parts := strings.SplitN(text, "~", 3)
	n, err := strconv.ParseInt(parts[0], 10, 64)
	if len(parts) != 3 || err != nil || n < 0 {
		p.fault("on", "must be a position of a search")
		return at
	}
	packed := &params{values: url.Values{"on": {parts[1]}}}
	at = position{n, packed.packed("on"), admin.Cursor(parts[2])}
	p.faults = append(p.faults, packed.faults...)
	return at
}

// budget returns the maximum duration of the request's search.
func (c *call) budget(patient bool) time.Duration {
	switch {
	case c.r.Header.Get(searchHeader) != "":
		return stepBudget
	case patient && !c.fragment:
		return patientBudget
	}
	return pageBudget
}

// search adds the jobs to page that are found within budget from the position at, and advances the position.
func (c *call) search(f *admin.JobFilter, opts admin.PageOptions, at *position, budget time.Duration) (*admin.JobPage, error) {
	page, err := c.found(f, opts, at.found)
	if err != nil {
		return nil, err
	}
	limit := opts.Limit
	opts.Budget = min(turnBudget, budget)
	for began := time.Now(); len(page.Jobs) < limit; {
		opts.After, opts.Limit = at.after, limit-len(page.Jobs)
		part, err := admin.ListJobs(c.ctx, c.db, *f, &opts)
		if err != nil {
			return nil, err
		}
		addJobs(page, part.Jobs)
		at.searched, at.after, page.Early = at.searched+part.Scanned, part.Next, part.Early
		if part.Next == "" || time.Since(began) >= budget {
			break
		}
	}
	page.Next, page.Scanned = at.after, at.searched
	at.found = nil
	for _, j := range page.Jobs {
		at.found = append(at.found, j.ID)
	}
	slices.Sort(at.found)
	return page, nil
}

// found returns a page with the given jobs that still match.
func (c *call) found(f *admin.JobFilter, opts admin.PageOptions, ids []int64) (*admin.JobPage, error) {
	if len(ids) == 0 {
		return &admin.JobPage{}, nil
	}
	again := *f
	again.IDs = ids
	opts.After, opts.Budget = "", 0 // the default is plenty for a page of jobs
	page, err := admin.ListJobs(c.ctx, c.db, again, &opts)
	if err != nil {
		return nil, err
	}
	page.Next, page.Early = "", false
	return page, nil
}

// addJobs appends jobs to a page. A live job may have changed its place, so it omits jobs that the page has already.
func addJobs(page *admin.JobPage, jobs []honker.JobInfo) {
	for _, j := range jobs {
		if !slices.ContainsFunc(page.Jobs, func(other honker.JobInfo) bool { return other.ID == j.ID }) {
			page.Jobs = append(page.Jobs, j)
		}
	}
}

// searchable returns the number of jobs that a search with the filter may have to look at. Done jobs are not counted.
func (c *call) searchable(f *admin.JobFilter) (total honker.Count, err error) {
	queues, err := admin.Queues(c.ctx, c.db)
	for _, q := range queues {
		if len(f.Queues) > 0 && !slices.Contains(f.Queues, q.Queue) {
			continue
		}
		for phase, n := range map[honker.Phase]honker.Count{honker.PhaseReady: q.Ready, honker.PhaseScheduled: q.Scheduled, honker.PhaseRunning: q.Running,
			honker.PhaseLapsed: q.Lapsed, honker.PhaseHeld: q.Held, honker.PhaseExpired: q.Expired, honker.PhaseDead: q.Dead} {
			if len(f.Phases) == 0 || slices.Contains(f.Phases, phase) {
				total = sum(total, n)
			}
		}
	}
	return total, err
}

// searchState describes a search that has not looked at all jobs.
type searchState struct {
	Searched int64
	Of       honker.Count // number of jobs to look at; zero if it is unknown
	On       string       // encoded position
}

// Text says how far the search is.
func (s *searchState) Text() string {
	text := fmt.Sprintf("Searched %s", plural(s.Searched, "job"))
	if s.Of.N > s.Searched {
		text = fmt.Sprintf("Searched %s of %s", num(s.Searched), plural(s.Of, "job"))
	}
	return text
}
