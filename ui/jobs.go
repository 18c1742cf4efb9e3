package ui

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

var orders = map[string]admin.Order{"newest": admin.NewestFirst, "oldest": admin.OldestFirst, "claim": admin.ClaimOrder, "died": admin.LastDiedFirst}

// jobList is the template data for a list of jobs.
type jobList struct {
	Filter   *admin.JobFilter
	Order    string
	Jobs     []jobRow
	Count    honker.Count
	Counted  bool         // whether Count is set
	Search   *searchState // nil if all jobs were looked at or the page is full
	Next     url.Values
	First    url.Values
	Filtered url.Values // filter as URL parameters
	Verbs    []bulkVerb
	Phases   []phaseBox
	More     bool // whether a field in the collapsed part of the filter form is set
	Queues   []string

	Selected  int        // number of selected jobs on all pages
	Others    int        // number of selected jobs on other pages
	Elsewhere string     // packed IDs of the selected jobs on other pages
	Full      bool       // whether the selection has reached its limit
	Kept      url.Values // list parameters to keep in the form
	Unselect  url.Values // page parameters without the selection
}

// jobRow is a row in a job list.
type jobRow struct {
	honker.JobInfo
	Payload  payload
	Selected bool
	Slow     bool // whether it runs much longer than others of its queue
}

// bulkVerb is a verb that a job list offers.
type bulkVerb struct {
	Path, Text string
	Danger     bool
}

type phaseBox struct {
	Phase honker.Phase
	On    bool
}

// jobsPage lists the jobs that match a filter.
func jobsPage(c *call) serve {
	f := c.filter()
	order := c.params.choice("order", "newest", "oldest", "claim", "died")
	limit := c.params.integer("limit", 1, 200, 50)
	at, patient := c.params.position(), c.params.flag("patient")
	selection, _ := c.selection()
	turn := c.params.flag("selection")
	return func() error {
		if turn {
			return c.turnPage(selection)
		}
		l, err := c.listJobs(f, admin.PageOptions{Order: orders[order], Limit: int(limit)}, at, c.budget(patient))
		if err != nil {
			return err
		}
		l.Order = order
		l.addLinks(c.params.values)
		l.addSelection(selection, c.params.values)
		if l.Queues, err = c.queueNames(); err != nil {
			return err
		}
		return c.show(view{name: "jobs", nav: "jobs", title: "Jobs", data: l})
	}
}

func (c *call) listJobs(f *admin.JobFilter, opts admin.PageOptions, at position, budget time.Duration) (*jobList, error) {
	page, err := c.search(f, opts, &at, budget)
	if err != nil {
		return nil, err
	}
	l := &jobList{Filter: f, Jobs: c.rows(page.Jobs), Filtered: filterValues(f)}
	switch {
	case page.Next == "":
	case page.Early && len(page.Jobs) < opts.Limit:
		l.Search = &searchState{Searched: at.searched, On: at.String()}
		if l.Search.Of, err = c.searchable(f); err != nil {
			return nil, err
		}
	default:
		l.Next = url.Values{"after": {string(page.Next)}}
	}
	for _, p := range phases {
		l.Phases = append(l.Phases, phaseBox{p, slices.Contains(f.Phases, p)})
	}
	l.Verbs = verbsFor(f.Phases)
	l.More = f.Unique != "" || f.Worker != "" || f.MinAttempts != 0 || f.Requeue != 0 || len(f.Header) > 0 || f.Batch != 0 || f.Fingerprint != "" ||
		!f.CreatedSince.IsZero() || !f.CreatedBefore.IsZero() || !f.RunSince.IsZero() || !f.RunBefore.IsZero() ||
		!f.DiedSince.IsZero() || !f.DiedBefore.IsZero()
	return l, c.countJobs(l)
}

// countJobs sets l.Count if the jobs can be counted using indexes. It doesn't count jobs if the filter requires
// a search, because a search could take too long for a page.
func (c *call) countJobs(l *jobList) error {
	f := *l.Filter
	f.Queues, f.Phases, f.All = nil, nil, false
	if len(filterValues(&f)) > 0 {
		return nil
	}
	n, err := admin.CountJobs(c.ctx, c.db, *l.Filter, 0)
	l.Count, l.Counted = n, true
	return err
}

func (c *call) rows(jobs []honker.JobInfo) (rows []jobRow) {
	for _, j := range jobs {
		rows = append(rows, jobRow{JobInfo: j, Payload: c.stored(&j, shortText)})
	}
	return rows
}

// Form reports whether the page has a form for the selection. The form then includes the links to other pages.
func (l *jobList) Form() bool { return len(l.Jobs) > 0 || l.Selected > 0 }

// Continue returns the parameters of the page that continues a search.
func (l *jobList) Continue(s *searchState) url.Values {
	v := maps.Clone(l.Kept)
	v.Set("on", s.On)
	v.Set("patient", "1")
	return v
}

// addLinks sets the links to the first and next pages. The links keep this page's parameters.
func (l *jobList) addLinks(given url.Values) {
	of := withoutParams(given, slices.Concat(flashParams, []string{"after", "on", "patient", "db", "pick"})...)
	if given.Get("after") != "" || given.Get("on") != "" {
		l.First = of
	}
	if l.Next != nil {
		maps.Copy(l.Next, of)
	}
}

// verbsFor returns the verbs for jobs in the given phases. If of is empty, it means all phases. Live and dead
// jobs have different verbs.
func verbsFor(of []honker.Phase) (verbs []bulkVerb) {
	f := &admin.JobFilter{Phases: of}
	if len(of) == 0 || onlyPhases(f, honker.PhaseDead) {
		verbs = append(verbs, bulkVerb{"requeue", "Requeue", false}, bulkVerb{"discard", "Discard", true})
	}
	live := phases[:6]
	if len(of) == 0 || onlyPhases(f, live...) {
		verbs = append(verbs, bulkVerb{"run-now", "Run now", false}, bulkVerb{"cancel", "Cancel", true})
	}
	return verbs
}

// namesOffered is the maximum number of suggestions for a queue field.
const namesOffered = 200

// queueNames returns the names of queues that the user may see, as suggestions for a queue field.
func (c *call) queueNames() (names []string, err error) {
	queues, err := admin.Queues(c.ctx, c.db)
	for _, q := range queues[:min(len(queues), namesOffered)] {
		if !isNoText(q.Queue) && c.can("look", q.Queue) {
			names = append(names, q.Queue)
		}
	}
	return names, err
}

// Hidden returns filter parameters as name-value pairs for hidden form fields.
func (p *page) Hidden(v url.Values) (fields [][2]string) {
	for name, all := range v {
		for _, value := range all {
			fields = append(fields, [2]string{name, value})
		}
	}
	slices.SortFunc(fields, func(a, b [2]string) int {
		if a[0] != b[0] {
			return strings.Compare(a[0], b[0])
		}
		return strings.Compare(a[1], b[1])
	})
	return fields
}

// Link returns a relative link to a page with the given parameters.
func (p *page) Link(path string, v url.Values) string {
	return p.c.link(path, maps.Clone(v))
}

// Join formats IDs separated by commas.
func (p *page) Join(ids []int64) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ","
		}
		text += strconv.FormatInt(id, 10)
	}
	return text
}

// Orders returns the sort orders offered by a list's form.
func (p *page) Orders() []struct{ Name, Text string } {
	return []struct{ Name, Text string }{{"newest", "newest first"}, {"oldest", "oldest first"}, {"claim", "in order of claims"}, {"died", "latest death first"}}
}
