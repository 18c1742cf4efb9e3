package ui

import (
	"github.com/honker-go/honker/admin"
)

// wrong is a problem with the page that shows it.
type wrong struct {
	admin.Problem
	URL string
}

// problemsShown bounds the list: the worst are first, and `honker doctor` prints all.
const problemsShown = 25

// problems are what is wrong, the most severe first, and how many more there are.
func (c *call) problems() (all []wrong, more int, err error) {
	found, err := admin.Problems(c.ctx, c.db)
	for _, p := range found[:min(len(found), problemsShown)] {
		all = append(all, wrong{p, c.problemURL(p)})
	}
	return all, len(found) - len(all), err
}

// problemURL is the page on which a problem can be looked at.
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
