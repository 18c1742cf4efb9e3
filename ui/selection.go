package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker/admin"
)

// A selection is of jobs of several pages of a list. The URL of a page has those of the others as "selected"; the boxes
// of its own are "pick". Its form sends both, with "selection": to a verb, or to the list for another page.
var selectionParams = []string{"selected", "pick", "selection"}

// selection is what is selected by now, in the order of ids, and whether more was than there can be.
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

// selected is the filter of a verb on the selection: its ids, in the queues of the list. It completes the call's Access.
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

// backTo is a page to come back to, with a selection.
func backTo(page string, ids []int64) string {
	u, err := url.Parse(page)
	if err != nil {
		return page
	}
	q := u.Query()
	q.Set("selected", packIDs(ids))
	u.RawQuery = q.Encode()
	return u.String()
}

// turnPage leads from the form of a list to the page that it asks for, the URL of which has the selection.
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
	return c.lead(c.url("jobs", v))
}

// addSelection ticks the boxes of the jobs that are selected, and keeps the others for the form.
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
	l.Kept = withoutParams(l.Unselect, "after", "db")
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

// packIDs writes ids as the distances between them, to base 36: a thousand that are not far from one another take
// 2 kB of a URL, of which proxies let 8 through.
func packIDs(ids []int64) string {
	var parts []string
	at := int64(0)
	for _, id := range ids {
		parts = append(parts, strconv.FormatInt(id-at, 36))
		at = id
	}
	return strings.Join(parts, ".")
}

// packed are ids that packIDs has written.
func (p *params) packed(name string) (ids []int64) {
	s := p.one(name)
	if s == "" {
		return nil
	}
	at := int64(0)
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.ParseInt(part, 36, 64)
		if at += n; err != nil || n < 1 || at < 1 || len(ids) == maxList {
			p.fault(name, "it is no selection of up to %s jobs", num(maxList))
			return nil
		}
		ids = append(ids, at)
	}
	return ids
}
