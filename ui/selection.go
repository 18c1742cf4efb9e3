package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker/admin"
)

// selectionParams lists the parameters of a selection, which may contain jobs from several pages of a list.
// "selected" holds the jobs selected on other pages, and "pick" holds the boxes checked on this page. The list's
// form sends both together with "selection", either to a verb or to another page of the list.
var selectionParams = []string{"selected", "pick", "selection"}

// selection returns the IDs of the selected jobs in ascending order. more reports whether any were dropped because
// there were more than maxList.
func (c *call) selection() (ids []int64, more bool) {
	ids = c.params.packed("selected")
	for _, id := range c.params.ids("pick") {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	more = len(ids) > maxList
	ids = ids[:min(len(ids), maxList)]
	slices.Sort(ids)
	return ids, more
}

// selected returns the filter for a verb on the selection and stores it in the call's Access. The filter contains
// the selected IDs and the list's queues.
func (c *call) selected(list *admin.JobFilter) *admin.JobFilter {
	ids, more := c.selection()
	switch {
	case more:
		c.params.fault("pick", "more than %s jobs are selected", num(maxList))
	case len(ids) == 0:
		c.params.fault("pick", "no job is selected")
	}
	c.access.Filter = &admin.JobFilter{IDs: ids, Queues: list.Queues}
	return c.access.Filter
}

// backTo returns the URL page with a selection.
func backTo(page string, ids []int64) string { return with(page, "selected", packIDs(ids)) }

// turnPage redirects from a list's form to the requested page and puts the selection into the page's
// URL.
func (c *call) turnPage(ids []int64) error {
	v := url.Values{}
	for name, value := range c.params.values {
		if name != "back" && !slices.Contains(selectionParams, name) {
			v[name] = value
		}
	}
	if len(ids) > 0 {
		v.Set("selected", packIDs(ids))
	}
	if v.Has("on") {
		v.Set("patient", "1") // the operator has asked to go on
	}
	return c.lead(c.url("jobs", v))
}

// addSelection checks the boxes of the selected jobs on this page and stores the other selected IDs for the form.
func (l *jobList) addSelection(ids []int64, given url.Values) {
	var others []int64
	for _, id := range ids {
		i := slices.IndexFunc(l.Jobs, func(j jobRow) bool { return j.ID == id })
		if i < 0 {
			others = append(others, id)
			continue
		}
		l.Jobs[i].Selected = true
	}
	l.Selected, l.Others, l.Elsewhere, l.Full = len(ids), len(others), packIDs(others), len(ids) == maxList
	l.Unselect = withoutParams(given, slices.Concat(selectionParams, flashParams)...)
	l.Kept = withoutParams(l.Unselect, "after", "on", "patient", "db")
}

func withoutParams(given url.Values, names ...string) url.Values {
	kept := url.Values{}
	for name, value := range given {
		if !slices.Contains(names, name) {
			kept[name] = value
		}
	}
	return kept
}

// packIDs encodes the differences between consecutive IDs in base 36. A thousand IDs that are close together take
// about 2 KiB. Proxies allow URLs of up to 8 KiB.
func packIDs(ids []int64) string {
	var parts []string
	at := int64(0)
	for _, id := range ids {
		parts = append(parts, strconv.FormatInt(id-at, 36))
		at = id
	}
	return strings.Join(parts, ".")
}

// packed decodes IDs encoded by packIDs.
func (p *params) packed(name string) (ids []int64) {
	s := p.one(name)
	if s == "" {
		return nil
	}
	at := int64(0)
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.ParseInt(part, 36, 64)
		if at += n; err != nil || n < 1 || at < 1 || len(ids) == maxList {
			p.fault(name, "must be a selection of up to %s jobs", num(maxList))
			return nil
		}
		ids = append(ids, at)
	}
	return ids
}
