package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/honker-go/honker"
	runflow "github.com/honker-go/honker/flow"
)

type runPageData struct {
	runflow.Detail
	Queue     string
	Class     string
	Answer    *answer
	Chart     *timeline
	Steps     []stepRow
	From, To  int // Steps are the steps From to To-1 of all, counted from 0
	Earlier   int // first step of the previous page, counted from 1; 0 on the first page
	Later     int // first step of the next page, counted from 1; 0 on the last page
	Arguments *payload
	Result    *payload
	Sent      []signalRow
	HasJob    bool // whether the file still has the job
	SeeParent bool // whether the operator may see the run that has called this run
	Awaits    string
	Over      bool
	Undone    bool // an undo is recorded
}

// stepRow is a step with its value prepared for display.
type stepRow struct {
	runflow.StepInfo
	Value   *payload // nil if there is none
	Took    string
	SeeCall bool // whether the operator may see the run that the step has called
	Restart bool // whether the run may restart from the step
}

type signalRow struct {
	Name  string
	Value payload
}

// stepsPerPage is the maximum number of steps on a run's page.
const stepsPerPage = 100

func runPage(c *call) serve {
	flow, id := c.params.name("flow"), c.params.name("id")
	from := c.params.integer("from", 0, 1<<31, 0)
	c.access.Queue = flowPrefix + flow
	return func() error {
		run, err := runflow.Get(c.ctx, c.db, flow, id)
		if errors.Is(err, honker.ErrNotFound) {
			return notFound("There is no such run, or it is no longer kept.")
		}
		if err != nil {
			return err
		}
		d := &runPageData{Detail: run, Queue: c.access.Queue, Class: runClasses[run.State], Over: !run.EndedAt.IsZero()}
		if err := c.fillRun(d, int(from)); err != nil {
			return err
		}
		return c.show(view{name: "run", nav: "flows", title: "Run " + cut(80, id), data: d, next: c.nextOfRun(d)})
	}
}

// fillRun adds to d the parts of the page that do not come from the run itself.
func (c *call) fillRun(d *runPageData, from int) error {
	job, err := c.db.Job(c.ctx, d.Job)
	switch {
	case errors.Is(err, honker.ErrNotFound):
	case err != nil:
		return err
	default:
		d.HasJob = true
		p := c.arguments(job, shortText)
		d.Arguments = &p
	}
	stored, err := honker.Result[rawJSON](c.ctx, c.db, d.Job)
	switch {
	case errors.Is(err, honker.ErrNotFound):
	case err != nil:
		return err
	default:
		p := c.stored(&honker.JobInfo{Queue: d.Queue, Payload: json.RawMessage(stored)}, shortText)
		d.Result = &p
	}
	d.SeeParent = d.ParentFlow != "" && c.can("look", flowPrefix+d.ParentFlow)
	for _, name := range slices.Sorted(maps.Keys(d.Signals)) {
		d.Sent = append(d.Sent, signalRow{name, c.runValue(d, d.Signals[name])})
	}
	c.addSteps(d, from)
	c.answerRun(d)
	return nil
}

// runValue returns a value of a run. A value that the codec has decoded is shown only to operators who may see it.
func (c *call) runValue(d *runPageData, value json.RawMessage) payload {
	if d.Decoded && !c.can("unseal", d.Queue) {
		return payload{Hidden: true}
	}
	return c.stored(&honker.JobInfo{Queue: d.Queue, Payload: value}, shortText)
}

// addSteps adds a page of steps that begins with step from, counted from 1, or the last page if from is 0.
func (c *call) addSteps(d *runPageData, from int) {
	all := d.Timeline
	if from == 0 {
		from = len(all) - stepsPerPage + 1
	}
	d.From = min(max(0, from-1), len(all))
	d.To = min(d.From+stepsPerPage, len(all))
	if d.From > 0 {
		d.Earlier = max(1, d.From+1-stepsPerPage)
	}
	if d.To < len(all) {
		d.Later = d.To + 1
	}
	d.Undone = slices.ContainsFunc(all, func(s runflow.StepInfo) bool { return s.Kind == "undo" })
	restarts := !d.Undone && (d.State == runflow.StateWaiting || d.State == runflow.StateFailed)
	for _, s := range all[d.From:d.To] {
		r := stepRow{StepInfo: s, Restart: restarts, SeeCall: s.CallFlow != "" && c.can("look", flowPrefix+s.CallFlow)}
		if s.Value != nil {
			p := c.runValue(d, s.Value)
			r.Value = &p
		}
		if !s.EndedAt.IsZero() {
			r.Took = measured(s.EndedAt.Sub(s.BeganAt))
		}
		d.Steps = append(d.Steps, r)
	}
	d.Chart = c.chartRun(d)
}

// chartRun returns a chart of the page's steps, or nil if they were too short to draw.
func (c *call) chartRun(d *runPageData) *timeline {
	t, from := &timeline{}, d.StartedAt
	if d.From > 0 && d.From < d.To {
		from = d.Timeline[d.From].BeganAt
	}
	last := from
	for i, s := range d.Timeline[d.From:d.To] {
		to, class := c.endOfStep(d, d.From+i), stepClass(s)
		note := measured(max(0, to.Sub(s.BeganAt)))
		if s.State != runflow.StepDone {
			note += " · " + string(s.State)
		}
		t.add(cut(24, s.Name), note, period{s.BeganAt, to, class})
		if to.After(last) {
			last = to
		}
	}
	waits := slices.ContainsFunc(d.Timeline, isWaiting)
	switch {
	case d.To < len(d.Timeline) || last.After(c.now):
	case d.State == runflow.StateRunning:
		t.add("runs", spanOf(c.now.Sub(last)), period{last, c.now, "now"})
	case d.State == runflow.StateWaiting && !waits && d.RunAt.After(c.now):
		t.add("backoff", spanOf(d.RunAt.Sub(c.now))+" left", period{last, d.RunAt, "wait"})
	case d.State == runflow.StateWaiting && !waits:
		t.add("waits", spanOf(c.now.Sub(last)), period{last, c.now, "held"})
	}
	return t.draw(from, c.now)
}

func isWaiting(s runflow.StepInfo) bool { return s.State == runflow.StepWaits }

// endOfStep returns the end of a step's bar. The end of a Wait that a signal has ended is not recorded, so its bar ends
// with the next step.
func (c *call) endOfStep(d *runPageData, i int) time.Time {
	s := d.Timeline[i]
	switch {
	case !s.EndedAt.IsZero():
		return s.EndedAt
	case s.Kind == "sleep":
		return s.Until
	case s.State != runflow.StepWaits && i+1 < len(d.Timeline):
		return d.Timeline[i+1].BeganAt
	case d.Over:
		return d.EndedAt
	}
	return c.now
}

func stepClass(s runflow.StepInfo) string {
	switch {
	case s.Kind == "undo":
		return "bad"
	case s.State == runflow.StepWaits && s.Kind != "sleep":
		return "held"
	case s.Kind == "sleep" || s.Kind == "wait" || s.Kind == "call":
		return "wait"
	}
	return "good"
}

// nextOfRun returns the time at which the page changes without a commit, or the zero time.
func (c *call) nextOfRun(d *runPageData) time.Time {
	if d.RunAt.After(c.now) {
		return d.RunAt
	}
	return time.Time{}
}

// answerRun says why the run does not go on, or how it has ended.
func (c *call) answerRun(d *runPageData) {
	a := &answer{}
	d.Answer = a
	switch d.State {
	case runflow.StateRunning:
		a.Class, a.Lead = "good", "A worker runs it"
	case runflow.StateDone:
		a.Class, a.Lead = "good", "Done after "+spanOf(d.EndedAt.Sub(d.StartedAt))
	case runflow.StateCancelled:
		a.Lead = "Cancelled after " + spanOf(d.EndedAt.Sub(d.StartedAt))
	case runflow.StateFailed:
		a.Class, a.Lead, a.Cause = "bad", "Failed after "+plural(d.Attempts, "attempt"), d.LastError
		if d.HasJob && c.can("requeue", d.Queue) {
			a.Notes = append(a.Notes, "Requeue makes it go on after its last step.")
			id := strconv.FormatInt(d.Job, 10)
			a.Remedies = append(a.Remedies, remedy{"requeue", "Requeue", [][2]string{{"id", id}}})
		}
	case runflow.StateWaiting:
		c.answerWaiting(d)
	}
	if d.Cancelled && !d.Over {
		a.Notes = append(a.Notes, "A cancellation was requested.")
	}
	if d.Undoing != "" && d.Over {
		a.Notes = append(a.Notes, "It was undone because of: "+d.Undoing)
	} else if d.Undoing != "" {
		a.Notes = append(a.Notes, "It is being undone because of: "+d.Undoing)
	}
}

func (c *call) answerWaiting(d *runPageData) {
	a := d.Answer
	for _, s := range slices.Backward(d.Timeline) {
		if !isWaiting(s) || !s.Until.IsZero() && !s.Until.After(c.now) {
			continue
		}
		left := spanOf(s.Until.Sub(c.now))
		switch s.Kind {
		case "sleep":
			a.Lead = fmt.Sprintf("It sleeps in %s for another %s", quoted(s.Name), left)
		case "wait":
			d.Awaits, a.Class, a.Lead = s.Name, "warn", "It waits for the signal "+quoted(s.Name)
			if !s.Until.IsZero() {
				a.Lead += ", for another " + left + " at most"
			}
		case "call":
			a.Lead = "It waits for the run that " + quoted(s.Name) + " has called"
			if c.can("look", flowPrefix+s.CallFlow) {
				a.link("The called run", c.link("run", values("flow", s.CallFlow, "id", s.CallID)), c.here())
			}
		default:
			a.Class, a.Lead, a.Cause = "bad", quoted(s.Name)+" is retried", d.LastError
		}
		return
	}
	switch {
	case d.RunAt.After(c.now) && d.LastError != "":
		a.Class, a.Lead, a.Cause = "warn", "The next attempt begins in "+spanOf(d.RunAt.Sub(c.now)), d.LastError
	case d.RunAt.After(c.now):
		a.Lead = "It starts in " + spanOf(d.RunAt.Sub(c.now))
	default:
		a.Class, a.Lead, a.Cause = "warn", "It waits for a worker", d.LastError
		a.link("Its job", c.link("job", values("id", d.Job)), c.here())
	}
}
