package ui

import (
	"strconv"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// trouble is a row of the overview: the problems of a code, with the way to solve them.
type trouble struct {
	admin.ProblemGroup
	Actions []admin.Action // of the largest problem
	URL     string         // page about the problems
	Look    string         // text of the link to URL
	Chips   []chip         // largest problems, if there are several
	Others  int            // number of problems without a chip
	Remedy  *remedy
}

// chip is a queue, schedule or consumer with a problem.
type chip struct {
	Name string
	N    honker.Count
	URL  string
}

// remedy is a verb that solves a problem, as a form.
type remedy struct {
	Path, Text string
	Fields     [][2]string
}

const (
	problemsShown = 8 // maximum number of rows; `honker doctor` prints all problems
	chipsShown    = 4
)

// troubles returns the rows for the groups of problems, and the number of groups omitted.
func (c *call) troubles(groups []admin.ProblemGroup) (rows []trouble, more int) {
	for _, g := range groups[:min(len(groups), problemsShown)] {
		rows = append(rows, c.troubleOf(g))
	}
	return rows, len(groups) - len(rows)
}

func (c *call) troubleOf(g admin.ProblemGroup) trouble {
	first := g.Problems[0]
	t := trouble{ProblemGroup: g, Actions: first.Actions, URL: c.problemURL(first), Look: "Open"}
	if len(g.Problems) == 1 {
		t.Remedy = c.remedyOf(first)
		return t
	}
	t.URL, t.Look = c.groupURL(g), "Show them"
	for _, p := range g.Problems[:min(len(g.Problems), chipsShown)] {
		t.Chips = append(t.Chips, chip{problemName(p), p.N, c.problemURL(p)})
	}
	t.Others = len(g.Problems) - len(t.Chips)
	return t
}

// problemName returns the name of the object that a problem is about.
func problemName(p admin.Problem) string {
	name := p.Queue
	if name == "" {
		name = p.Topic
	}
	switch {
	case p.Name == "":
		return name
	case name == "":
		return p.Name
	}
	return name + " → " + p.Name
}

// remedyOf returns the verb of this dashboard that solves the problem, or nil if there is none or it is not allowed.
func (c *call) remedyOf(p admin.Problem) *remedy {
	var r *remedy
	if p.Code == admin.ProblemNotMaintained {
		r = &remedy{"maintain", "Maintain now", nil}
	}
	for _, do := range p.Actions {
		if r == nil {
			r = actionRemedy(do)
		}
	}
	if r == nil || isNoText(p.Queue) || !c.can(r.Path, p.Queue) {
		return nil
	}
	return r
}

// leadOf returns a sentence about the groups of problems.
func leadOf(groups []admin.ProblemGroup) string {
	errors := 0
	for _, g := range groups {
		errors += boolean(g.Severity == admin.SeverityError)
	}
	needs, warnings := plural(errors, "problem")+" need you", plural(len(groups)-errors, "warning")
	if errors == 1 {
		needs = "1 problem needs you"
	}
	switch {
	case len(groups) == 0:
		return ""
	case errors == 0:
		return warnings
	case errors == len(groups):
		return needs
	}
	return needs + " · " + warnings
}

// groupURL returns a link to a page that lists the problems of a group.
func (c *call) groupURL(g admin.ProblemGroup) string {
	switch g.Code {
	case admin.ProblemDead:
		return c.link("dead", values("died_since", "1h"))
	case admin.ProblemOverdue, admin.ProblemScheduleMissed:
		return c.link("schedules", nil)
	case admin.ProblemBehind, admin.ProblemSlow, admin.ProblemPinned:
		return c.link("streams", nil)
	case admin.ProblemRelayStuck, admin.ProblemRelayDead:
		return c.link("relays", nil)
	}
	if g.Problems[0].Queue != "" {
		return c.link("queues", values("problem", g.Code))
	}
	return c.link("file", nil)
}

// problemURL returns a link to a page about the problem.
func (c *call) problemURL(p admin.Problem) string {
	switch p.Code {
	case admin.ProblemDead:
		return c.link("dead", values("queue", p.Queue, "died_since", "1h"))
	case admin.ProblemStuck:
		return c.link("job", values("id", p.Actions[0].Job))
	case admin.ProblemLapsed:
		return c.link("jobs", values("queue", p.Queue, "phase", "lapsed"))
	case admin.ProblemHeld:
		return c.link("jobs", values("queue", p.Queue, "key", p.Name, "phase", "held"))
	case admin.ProblemWaitsForDead:
		return c.link("jobs", values("queue", p.Queue, "phase", "held"))
	case admin.ProblemOverdue, admin.ProblemScheduleMissed:
		return c.link("schedules", nil)
	case admin.ProblemRelayStuck, admin.ProblemRelayDead:
		return c.actionURL(p.Actions[0])
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
	case admin.ActionTriggerSchedule:
		return c.link("schedules", nil)
	case admin.ActionShowLimits:
		return c.link("queue", values("name", do.Queue, "form", "limits")) + "#limits"
	case admin.ActionShowRelay:
		return c.link("relay", values("family", do.Name, "name", do.Queue))
	case admin.ActionCheckFile, admin.ActionShowSizes:
		return c.link("file", nil)
	}
	switch {
	case do.Job != 0:
		return c.link("job", values("id", do.Job))
	case do.Queue != "":
		return c.link("queue", values("name", do.Queue))
	case do.Topic != "":
		return c.link("stream", values("topic", do.Topic))
	}
	return ""
}

// actionRemedy returns the verb that takes the action, or nil if the action is to look at a page.
func actionRemedy(do admin.Action) *remedy {
	switch do.Verb {
	case admin.ActionRequeueJob:
		return &remedy{"requeue", "Requeue " + strconv.FormatInt(do.Job, 10), [][2]string{{"id", strconv.FormatInt(do.Job, 10)}}}
	case admin.ActionTriggerSchedule:
		return &remedy{"trigger", "Fire now", [][2]string{{"schedule", do.Name}}}
	case admin.ActionRunJobNow:
		return &remedy{"run-now", "Run " + strconv.FormatInt(do.Job, 10) + " now", [][2]string{{"id", strconv.FormatInt(do.Job, 10)}}}
	case admin.ActionPauseQueue:
		return &remedy{"pause", "Pause for 30m", [][2]string{{"queue", do.Queue}, {"for", "30m"}}}
	case admin.ActionResumePaused:
		if do.Key != "" {
			return &remedy{"resume", "Resume the key", [][2]string{{"queue", do.Queue}, {"key", do.Key}}}
		}
		return &remedy{"resume", "Resume", [][2]string{{"queue", do.Queue}}}
	}
	return nil
}
