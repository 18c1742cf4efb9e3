package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
)

// answerJob sets the answer of a job's page. usual is the usual time of a handler of its queue, and others the same in
// words, or "" if it is unknown.
func (c *call) answerJob(d *jobPageData, usual time.Duration, others string) error {
	why, err := admin.Explain(c.ctx, c.db, d.ID)
	if err != nil {
		return err
	}
	if d.Answer, err = c.answerTo(why); err != nil {
		return err
	}
	switch d.Phase {
	case honker.PhaseRunning:
		return c.answerRunning(d, usual, others)
	case honker.PhaseDead:
		d.Answer.Lead = fmt.Sprintf("Dead for %s, after attempt %d of %d", spanOf(c.now.Sub(d.DiedAt)), d.Attempts, d.MaxAttempts)
		d.Answer.Cause, _, _ = strings.Cut(strings.TrimSpace(cut(400, d.LastError)), "\n")
	case honker.PhaseDone:
		d.Answer.Lead = fmt.Sprintf("Done %s, by attempt %d of %d", admin.FormatAgo(c.now.Sub(d.DoneAt)), d.Attempts, d.MaxAttempts)
	}
	c.nameReleased(d, why)
	if why.Ahead.N > 0 {
		d.Answer.Notes = append(d.Answer.Notes, plural(why.Ahead, "job")+" can be claimed before it.")
	}
	return nil
}

// answerRunning compares a running job with its queue, and says how to end it.
func (c *call) answerRunning(d *jobPageData, usual time.Duration, others string) error {
	a := d.Answer
	a.Notes = nil
	switch ran := c.now.Sub(d.StartedAt); {
	case d.StartedAt.IsZero():
		a.Lead = "It runs; the time of its start is unknown"
	case slowness(ran, usual) > 0:
		a.Class = "warn"
		a.Lead = fmt.Sprintf("It runs for %s, %s times as long as others of its queue, which take %s", spanOf(ran), num(slowness(ran, usual)), others)
	case others != "":
		a.Lead = fmt.Sprintf("It runs for %s; others take %s", spanOf(ran), others)
	default:
		a.Lead = "It runs for " + spanOf(ran)
	}
	if p := d.Progress; p != nil {
		a.Notes = append(a.Notes, fmt.Sprintf("Progress is %s, set %s.", progressWords(p), admin.FormatAgo(c.now.Sub(p.At))))
	}
	workers, err := admin.Workers(c.ctx, c.db)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(workers, func(w admin.WorkerInfo) bool { return w.ID == d.WorkerID && w.Queue == d.Queue })
	if i < 0 || workers[i].Foreign {
		a.Notes = append(a.Notes, fmt.Sprintf("Worker %s holds its claim, and must renew it within %s.", quoted(d.WorkerID), spanOf(d.ClaimExpiresAt.Sub(c.now))))
		return nil
	}
	w := workers[i]
	a.Notes = append(a.Notes, fmt.Sprintf("Worker %s, process %d on %s, is %s. Cancel ends the ctx of its handler; if the process hangs, stop it: the job runs again when its lease has ended.",
		quoted(w.ID), w.PID, w.Host, w.Alive))
	return nil
}

// stuckRatio is the number of usual runs from which a running job is called slow.
const stuckRatio = 10

// slowness returns how often the usual time fits into a run, or 0 if the run is not slow.
func slowness(ran, usual time.Duration) int64 {
	if usual <= 0 || ran < time.Minute || ran < stuckRatio*usual {
		return 0
	}
	return int64(ran / usual)
}

func progressWords(p *honker.Progress) string {
	text := num(p.Done)
	if p.Total > 0 {
		text += " of " + num(p.Total)
	}
	return text
}

// nameReleased says on the button of the only dead job that a job waits for that requeueing it lets all others go on.
func (c *call) nameReleased(d *jobPageData, why *admin.Explanation) {
	if d.Phase != honker.PhaseHeld || len(d.Answer.Remedies) != 1 || d.Answer.Remedies[0].Path != "requeue" {
		return
	}
	if len(why.Reasons) == 1 && len(why.Reasons[0].Jobs) == 1 {
		d.Answer.Remedies[0].Text += ", and all go on"
	}
}

// otherVerbs returns the verbs for a job that the answer does not offer.
func (a *answer) otherVerbs(job *honker.JobInfo) (verbs []bulkVerb) {
	id := strconv.FormatInt(job.ID, 10)
	for _, v := range verbsFor([]honker.Phase{job.Phase}) {
		offered := slices.ContainsFunc(a.Remedies, (&remedy{Path: v.Path, Fields: [][2]string{{"id", id}}}).same)
		if !offered && (v.Path != "run-now" || job.Phase == honker.PhaseScheduled) {
			verbs = append(verbs, v)
		}
	}
	return verbs
}
