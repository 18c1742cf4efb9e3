package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// phases lists all phases in the order a job goes through them.
var phases = []honker.Phase{honker.PhaseReady, honker.PhaseScheduled, honker.PhaseRunning, honker.PhaseLapsed,
	honker.PhaseHeld, honker.PhaseExpired, honker.PhaseDead, honker.PhaseDone}

// filter reads a JobFilter from the parameters and stores it in the call's Access. Because lists, dry runs and
// verbs all call filter, they select the same jobs.
func (c *call) filter() *admin.JobFilter {
	p := c.params
	f := &admin.JobFilter{
		Queues: p.texts("queue", 100), IDs: p.ids("id"), Key: p.text("key", maxText), Unique: p.text("unique", maxText),
		Batch: p.integer("batch", 0, 1<<62, 0), Worker: p.text("worker", maxText), Error: p.text("error", maxText),
		Contains: p.text("contains", maxText), Where: p.pairs("where"), Header: p.pairs("header"),
		Fingerprint: p.text("fingerprint", maxText), MinAttempts: int(p.integer("attempts", 0, maxNumber, 0)),
		Requeue:      p.integer("requeue", 0, 1<<62, 0),
		CreatedSince: p.instant("created_since", c.now), CreatedBefore: p.instant("created_before", c.now),
		RunSince: p.instant("run_since", c.now), RunBefore: p.instant("run_before", c.now),
		DiedSince: p.instant("died_since", c.now), DiedBefore: p.instant("died_before", c.now),
		All: p.flag("all"),
	}
	for _, s := range p.texts("phase", len(phases)) {
		if !slices.Contains(phases, honker.Phase(s)) {
			p.fault("phase", "must be a phase of a job")
		}
		f.Phases = append(f.Phases, honker.Phase(s))
	}
	if c.h.opts.Redact != nil && (f.Contains != "" || len(f.Where) > 0) {
		p.fault("contains, where", "payloads cannot be searched, because some are hidden")
	}
	c.access.Filter = f
	if len(f.Queues) == 1 {
		c.access.Queue = f.Queues[0]
	}
	return f
}

// filterValues encodes a filter as URL parameters. Relative times become absolute.
func filterValues(f *admin.JobFilter) url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Add(name, value)
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	instant := func(name string, t time.Time) {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	for _, q := range f.Queues {
		set("queue", q)
	}
	for _, p := range f.Phases {
		set("phase", string(p))
	}
	var ids []string
	for _, id := range f.IDs {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	set("id", strings.Join(ids, ","))
	for name, value := range map[string]string{"key": f.Key, "unique": f.Unique, "worker": f.Worker, "error": f.Error,
		"contains": f.Contains, "fingerprint": f.Fingerprint} {
		set(name, value)
	}
	for name, value := range f.Where {
		set("where", name+"="+value)
	}
	for name, value := range f.Header {
		set("header", name+"="+value)
	}
	slices.Sort(v["where"])
	slices.Sort(v["header"])
	number("batch", f.Batch)
	number("attempts", int64(f.MinAttempts))
	number("requeue", f.Requeue)
	for name, t := range map[string]time.Time{"created_since": f.CreatedSince, "created_before": f.CreatedBefore,
		"run_since": f.RunSince, "run_before": f.RunBefore, "died_since": f.DiedSince, "died_before": f.DiedBefore} {
		instant(name, t)
	}
	if f.All {
		v.Set("all", "1")
	}
	return v
}

// onlyPhases reports whether the filter matches only jobs in the given phases.
func onlyPhases(f *admin.JobFilter, among ...honker.Phase) bool {
	if len(f.Phases) == 0 {
		return false
	}
	return !slices.ContainsFunc(f.Phases, func(p honker.Phase) bool { return !slices.Contains(among, p) })
}

// timeField is a form field for a time bound in a filter.
type timeField struct{ Name, Text, Value string }

// Times returns the form fields for a filter's time bounds.
func (p *page) Times(f *admin.JobFilter) (fields []timeField) {
	v := filterValues(f)
	for _, of := range [][2]string{{"created", "Enqueued"}, {"run", "To run"}, {"died", "Died"}} {
		for _, end := range []string{"since", "before"} {
			name := of[0] + "_" + end
			value := v.Get(name)
			if given := p.c.params.values.Get(name); value != "" && given != "" {
				value = given // keep the text as typed, so that 2h remains relative to now
			}
			fields = append(fields, timeField{name, of[1] + " " + end, value})
		}
	}
	return fields
}

// First returns the first value of a parameter, which is shown in a form field. The form keeps the Others in
// hidden fields.
func (p *page) First(v url.Values, name string) string { return v.Get(name) }

// Others returns all values of a parameter except the first.
func (p *page) Others(v url.Values, name string) []string { return v[name][min(1, len(v[name])):] }
