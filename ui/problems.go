package ui

import (
	"github.com/honker-go/honker/admin"
)

// wrong is a problem along with a link to a page about it.
type wrong struct {
	admin.Problem
	URL string
}

// problemsShown is the maximum number of problems shown. The list starts with the most severe. `honker doctor`
// prints all problems.
const problemsShown = 25

// problems returns the current problems, most severe first, and the number of problems omitted.
func (c *call) problems() (all []wrong, more int, err error) {
	found, err := admin.Problems(c.ctx, c.db)
	for _, p := range found[:min(len(found), problemsShown)] {
		all = append(all, wrong{p, c.problemURL(p)})
	}
	return all, len(found) - len(all), err
}

// problemURL returns a link to a page about the problem.
func (c *call) problemURL(p admin.Problem) string {
	switch p.Code {
	case admin.ProblemDead:
		return c.link("dead", values("queue", p.Queue, "died_since", "1h"))
	case admin.ProblemLapsed:
		return c.link("jobs", values("queue", p.Queue, "phase", "lapsed"))
	case admin.ProblemHeld:
		return c.link("jobs", values("queue", p.Queue, "key", p.Name, "phase", "held"))
	case admin.ProblemWaitsForDead:
		return c.link("jobs", values("queue", p.Queue, "phase", "held"))
	case admin.ProblemOverdue:
		return c.link("schedules", nil)
	}
	switch {
	case p.Queue != "":
		return c.link("queue", values("name", p.Queue))
	case p.Topic != "":
		return c.link("stream", values("topic", p.Topic))
	}
	return c.link("file", nil)
}

// ActionURL returns a link to the page where an operator can take the action. It returns "" if that is the
// current page.
func (p *page) ActionURL(do admin.Action) string {
	if url := p.c.actionURL(do); url != p.Here() {
		return url
	}
	return ""
}

func (c *call) actionURL(do admin.Action) string {
	switch do.Verb {
	case admin.ActionListJobs:
		return c.link("jobs", values("queue", do.Queue, "phase", do.Phase))
	case admin.ActionGroupDead:
		return c.link("dead", values("queue", do.Queue, "died_since", admin.FormatSpan(do.Since)))
	case admin.ActionCheckFile:
		return c.link("file", nil)
	}
	switch {
	case do.Job != 0:
		return c.link("job", values("id", do.Job))
	case do.Queue != "":
		return c.link("queue", values("name", do.Queue))
	}
	return ""
}
