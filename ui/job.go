package ui

import (
	"errors"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	runflow "github.com/honker-go/honker/flow"
)

// jobPageData is the template data for a job's page.
type jobPageData struct {
	*honker.JobInfo
	Payload   payload
	Arguments template.HTML // laid out, with links
	Result    *payload      // nil if there is no result
	Whole     bool          // whether to show up to longText bytes of each piece of text
	Answer    *answer
	Timeline  *timeline
	Workflow  *workflow
	Links     []Link
	Verbs     []bulkVerb
	Error     string
	Cut       bool // whether Error is truncated
	Pause     *honker.Pause
	Failed    []attemptRow
	Headers   [][2]string
	Run       *runflow.Run // run of package flow; nil for none
}

// attemptRow is a failed attempt with its text truncated.
type attemptRow struct {
	admin.Attempt
	Error, Log string
}

func jobPage(c *call) serve {
	id := c.params.id("id")
	whole := c.params.flag("whole")
	job, err := c.job(id)
	return func() error {
		if errors.Is(err, honker.ErrNotFound) {
			return c.gone(id)
		}
		if err != nil {
			return err
		}
		d, err := c.jobData(job, whole)
		if err != nil {
			return err
		}
		v := view{name: "job", nav: "jobs", title: "Job " + c.params.one("id"), data: d}
		switch job.Phase {
		case honker.PhaseScheduled:
			v.next = job.RunAt
		case honker.PhaseRunning:
			v.next = job.ClaimExpiresAt.Add(time.Second)
		}
		return c.show(v)
	}
}

// job reads a job and stores its queue in the call's Access.
func (c *call) job(id int64) (*honker.JobInfo, error) {
	if id == 0 {
		return nil, nil // the parameter is invalid; params.err will report it
	}
	job, err := c.db.Job(c.ctx, id)
	if err == nil {
		c.access.Queue = job.Queue
	}
	return job, err
}

// gone returns an error that explains why the file does not contain a job.
func (c *call) gone(id int64) error {
	why, err := admin.Explain(c.ctx, c.db, id)
	if err != nil {
		return err
	}
	return notFound(why.Text)
}

func (c *call) jobData(job *honker.JobInfo, whole bool) (*jobPageData, error) {
	limit := shortText
	if whole {
		limit = longText
	}
	d := &jobPageData{JobInfo: job, Whole: whole, Payload: c.arguments(job, limit), Headers: sorted(job.Headers)}
	d.Arguments = c.linked(d.Payload, job.Queue)
	d.Error, d.Cut = clip(job.LastError, limit)
	if c.h.opts.Links != nil {
		d.Links = safeLinks(c.h.opts.Links(job))
	}
	all, err := c.attempts(job.ID)
	if err != nil {
		return nil, err
	}
	d.addAttempts(all, limit)
	usual, known, err := admin.UsualRun(c.ctx, c.db, job.Queue)
	if err != nil {
		return nil, err
	}
	others := ""
	if known {
		others = spanOf(max(usual, time.Millisecond))
	}
	d.Timeline = timelineOf(job, all, c.now, others)
	if d.Pause, err = c.pauseOf(job.Queue); err != nil {
		return nil, err
	}
	if strings.HasPrefix(job.Queue, flowPrefix) {
		if d.Run, err = c.runOf(job.ID); err != nil {
			return nil, err
		}
	}
	if d.Workflow, err = c.workflow(job.ID); err != nil {
		return nil, err
	}
	if err := c.answerJob(d, usual, others); err != nil {
		return nil, err
	}
	d.Verbs = d.Answer.otherVerbs(job)
	return d, c.jobResult(d, limit)
}

// pauseOf returns a queue's pause, or nil if it is not paused. A queue whose name is not valid text
// cannot be paused.
func (c *call) pauseOf(queue string) (*honker.Pause, error) {
	if isNoText(queue) {
		return nil, nil
	}
	stats, err := queueOf(c.db, queue).Stats(c.ctx)
	if err != nil {
		return nil, err
	}
	return stats.Pause, nil
}

// safeLinks clears URLs with an unsafe scheme, such as javascript.
func safeLinks(all []Link) []Link {
	for i, l := range all {
		u, err := url.Parse(l.URL)
		if err != nil || !slices.Contains([]string{"http", "https", "mailto"}, u.Scheme) {
			all[i].URL = ""
		}
	}
	return all
}

// attempts returns a job's failed attempts, oldest first. It ignores ErrNotFound, because the job may have ended since it
// was read.
func (c *call) attempts(id int64) ([]admin.Attempt, error) {
	all, err := admin.Attempts(c.ctx, c.db, id)
	if errors.Is(err, honker.ErrNotFound) {
		return nil, nil
	}
	return all, err
}

// addAttempts adds the failed attempts, newest first.
func (d *jobPageData) addAttempts(all []admin.Attempt, limit int) {
	for _, a := range slices.Backward(all) {
		row := attemptRow{Attempt: a}
		row.Error, _ = clip(a.Error, limit)
		row.Log, _ = clip(a.Log, limit)
		d.Failed = append(d.Failed, row)
	}
}

// sorted returns the key-value pairs of a map, sorted by key.
func sorted(of map[string]string) (pairs [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		pairs = append(pairs, [2]string{name, of[name]})
	}
	return pairs
}

// jobResult adds the job's result, if any.
func (c *call) jobResult(d *jobPageData, limit int) error {
	stored, err := honker.Result[rawJSON](c.ctx, c.db, d.ID)
	if errors.Is(err, honker.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	p := c.payloadOf(d.Queue, stored, limit)
	d.Result = &p
	return nil
}

// PayloadBytes returns the stored size of the arguments in bytes.
func (d *jobPageData) PayloadBytes() int64 { return int64(d.Payload.Bytes) }
