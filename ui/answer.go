package ui

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// answer is the box at the top of a job's or queue's page. It says why nothing runs, or how the job ended, and offers
// the verbs that change that.
type answer struct {
	Class    string // "bad", "warn", "good" or ""
	Lead     string
	Cause    string // error message
	Notes    []string
	Remedies []remedy
	Links    []Link // to pages about the cause
}

// notesShown is the maximum number of further reasons in an answer.
const notesShown = 3

// answerTo returns the answer that an explanation gives: its first reason, the other reasons as notes, and the actions
// of all.
func (c *call) answerTo(why *admin.Explanation) (*answer, error) {
	a := &answer{Lead: sentence(why.Text)}
	for i, r := range why.Reasons {
		text := sentence(r.Text)
		if why.Job != nil {
			text = aboutJob(r.Text)
		}
		switch {
		case i == 0:
			a.Lead = text
		case i <= notesShown:
			a.Notes = append(a.Notes, text+".")
		}
		if err := c.offer(a, r.Actions); err != nil {
			return nil, err
		}
	}
	if len(why.Reasons) > 0 {
		a.Class = reasonClasses[why.Reasons[0].Code]
		if a.Class == "" && slices.ContainsFunc(why.Reasons[0].Actions, func(do admin.Action) bool { return do.Verb == admin.ActionRequeueJob }) {
			a.Class = "bad" // it waits for a dead job
		}
	}
	return a, nil
}

// reasonClasses maps reasons to the color of their answer.
var reasonClasses = map[admin.ReasonCode]string{
	admin.ReasonExpired: "bad", admin.ReasonExhausted: "bad", admin.ReasonDead: "bad", admin.ReasonUndecodable: "bad", admin.ReasonFailing: "bad",
	admin.ReasonNoWorker: "bad", admin.ReasonPaused: "warn", admin.ReasonLapsed: "warn", admin.ReasonClock: "warn",
	admin.ReasonRunning: "good", admin.ReasonDone: "good",
}

// sentence returns text with an upper-case first letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// aboutJob returns a reason as a sentence about a job. Most reasons are predicates, such as "waits for job 7".
func aboutJob(reason string) string {
	word, _, _ := strings.Cut(reason, " ")
	if slices.Contains([]string{"its", "job", "jobs", "worker"}, word) {
		return sentence(reason)
	}
	return "It " + reason
}

// offer adds an action to the answer: as a form if the operator may do it here, else as a link to the page for it.
func (c *call) offer(a *answer, actions []admin.Action) error {
	for _, do := range actions {
		r := actionRemedy(do)
		if r == nil {
			a.link(lookText(do), c.actionURL(do), c.here())
			continue
		}
		queue, err := c.queueOfAction(do)
		if err != nil {
			return err
		}
		if !isNoText(queue) && c.can(r.Path, queue) && !slices.ContainsFunc(a.Remedies, r.same) {
			a.Remedies = append(a.Remedies, *r)
		}
	}
	return nil
}

// lookText returns the text of a link to the page where an action can be taken.
func lookText(do admin.Action) string {
	switch do.Verb {
	case admin.ActionShowJob, admin.ActionExplainJob:
		return "Job " + strconv.FormatInt(do.Job, 10)
	case admin.ActionListJobs:
		return "The " + string(do.Phase) + " jobs"
	case admin.ActionListWorkers:
		return "Its workers"
	case admin.ActionGroupDead:
		return "The errors"
	case admin.ActionShowLimits:
		return "Change the limits"
	}
	return sentence(do.String())
}

// queueOfAction returns the queue whose jobs an action changes. It returns "" if the action's job no longer exists.
func (c *call) queueOfAction(do admin.Action) (string, error) {
	if do.Job == 0 {
		return do.Queue, nil
	}
	job, err := c.db.Job(c.ctx, do.Job)
	if errors.Is(err, honker.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return job.Queue, nil
}

// link adds a link unless the answer has it already or it leads to the page itself.
func (a *answer) link(text, url, here string) {
	if url != "" && url != here && !slices.ContainsFunc(a.Links, func(l Link) bool { return l.URL == url }) {
		a.Links = append(a.Links, Link{text, url})
	}
}

// same reports whether two remedies send the same form.
func (r *remedy) same(other remedy) bool {
	return r.Path == other.Path && slices.Equal(r.Fields, other.Fields)
}
