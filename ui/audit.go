package ui

import (
	"encoding/json"
	"slices"

	"github.com/honker-go/honker/admin"
)

type auditPageData struct {
	Entries []auditRow
	Next    int64 // the next page lists entries with smaller IDs; 0 on the last page
	First   bool
}

type auditRow struct {
	admin.AuditEntry
	Text  string  // the change in words, truncated
	Undo  *remedy // nil if the change cannot be undone
	Picks string  // link to the jobs that now match the filter; "" if the verb has no JobFilter
}

// ofJobs lists the verbs that take a JobFilter.
var ofJobs = []string{"requeue", "discard", "bury", "cancel", "run now"}

func auditPage(c *call) serve {
	before := c.params.integer("before", 0, 1<<62, 0)
	return func() error {
		const rows = 100
		entries, err := admin.Audit(c.ctx, c.db, &admin.AuditOptions{Before: before, Limit: rows})
		if err != nil {
			return err
		}
		d := &auditPageData{First: before == 0}
		for _, e := range entries {
			d.Entries = append(d.Entries, c.auditRow(e))
		}
		if len(entries) == rows {
			d.Next = entries[rows-1].ID
		}
		return c.show(view{name: "audit", nav: "audit", title: "Audit", data: d})
	}
}

func (c *call) auditRow(e admin.AuditEntry) auditRow {
	row := auditRow{AuditEntry: e}
	row.Text, _ = clip(e.String(), 400)
	var f admin.JobFilter
	if slices.Contains(ofJobs, e.Verb) && json.Unmarshal(e.Filter, &f) == nil {
		row.Picks = c.link("jobs", filterValues(&f))
	}
	if e.Verb == "requeue" {
		row.Undo = c.undoOf(requeuedBy(e))
	}
	return row
}
