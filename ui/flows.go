package ui

import (
	"encoding/json"

	runflow "github.com/honker-go/honker/flow"
)

const flowPrefix = runflow.QueuePrefix

type flowsPageData struct {
	Runs   []runRow
	Flow   string
	State  string
	States []string
	Before int64
	Next   int64 // the next page lists runs with smaller jobs; 0 on the last page
}

// runRow is a run with the CSS class of its state.
type runRow struct {
	runflow.Run
	Class string
}

// runClasses maps the states of runs to the classes of badges.
var runClasses = map[runflow.State]string{
	runflow.StateRunning: "running", runflow.StateDone: "done", runflow.StateFailed: "dead", runflow.StateCancelled: "expired",
}

// runsPerPage is the maximum number of runs on the page.
const runsPerPage = 50

func flowsPage(c *call) serve {
	d := &flowsPageData{Flow: c.params.text("flow", maxName), States: []string{"any"}, Before: c.params.integer("before", 0, 1<<62, 0)}
	if d.Flow != "" {
		c.access.Queue = flowPrefix + d.Flow
	}
	for _, s := range runflow.States {
		d.States = append(d.States, string(s))
	}
	d.State = c.params.choice("state", d.States...)
	return func() error {
		opts := &runflow.ListOptions{Flow: d.Flow, Before: d.Before, Limit: runsPerPage + 1}
		if d.State != "any" {
			opts.State = runflow.State(d.State)
		}
		all, err := runflow.List(c.ctx, c.db, opts)
		if err != nil {
			return err
		}
		if len(all) > runsPerPage {
			all = all[:runsPerPage]
			d.Next = all[runsPerPage-1].Job
		}
		v := view{name: "flows", nav: "flows", title: "Flows", data: d}
		for _, r := range all {
			d.Runs = append(d.Runs, runRow{r, runClasses[r.State]})
			if r.RunAt.After(c.now) {
				v.next = sooner(v.next, r.RunAt)
			}
		}
		return c.show(v)
	}
}

// runOf returns the run of a job of package flow, or nil if the job has none.
func (c *call) runOf(job int64) (*runflow.Run, error) {
	all, err := runflow.List(c.ctx, c.db, &runflow.ListOptions{Before: job + 1, Limit: 1})
	if err != nil || len(all) == 0 || all[0].Job != job {
		return nil, err
	}
	return &all[0], nil
}

// runTarget reads the flow and the ID of a verb's run and stores the run's queue in the call's Access.
func (c *call) runTarget() (flow, id string) {
	flow, id = c.params.name("flow"), c.params.name("run")
	c.access.Queue = flowPrefix + flow
	return flow, id
}

func signalRunAction(c *call) serve {
	flow, id := c.runTarget()
	name, value, back := c.params.name("signal"), json.RawMessage(c.params.text("value", maxForm)), c.back()
	if !json.Valid(value) {
		c.params.fault("value", "must be JSON")
	}
	return c.changes(back, func() (bool, error) {
		err := runflow.Signal(c.ctx, c.db, flow, id, name, value)
		return err == nil, err
	})
}

func cancelRunAction(c *call) serve {
	flow, id := c.runTarget()
	return c.asks("Cancel the run "+quoted(cut(80, id)), "New steps fail, and the functions of its Undo calls run. Runs that it has called go on.", "Cancel the run",
		c.back(), func() (bool, error) { return runflow.Cancel(c.ctx, c.db, flow, id) })
}

func restartRunAction(c *call) serve {
	flow, id := c.runTarget()
	step := c.params.text("step", maxName)
	title, effect := "Restart the run "+quoted(cut(80, id)), "All steps are forgotten and run again, with their effects. Its signals stay."
	if step != "" {
		title, effect = title+" from "+quoted(cut(80, step)), "This step and all later steps are forgotten and run again, with their effects. Its signals stay."
	}
	return c.asks(title, effect, "Restart", c.back(), func() (bool, error) {
		err := runflow.RestartFrom(c.ctx, c.db, flow, id, step)
		return err == nil, err
	})
}
