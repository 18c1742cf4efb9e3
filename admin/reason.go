package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/row"
)

// ReasonCode identifies a kind of Reason.
type ReasonCode string

// Reasons that make claims skip a job.
const (
	ReasonExpired    ReasonCode = "expired"     // its start deadline has passed, or will have passed before it can start
	ReasonExhausted  ReasonCode = "exhausted"   // it has no attempts left; the next claim dead-letters it
	ReasonWaitsFor   ReasonCode = "waits_for"   // it is waiting for other jobs or a batch
	ReasonPaused     ReasonCode = "paused"      // its queue or key is paused
	ReasonKeyLimit   ReasonCode = "key_limit"   // Limits.PerKey or InOrder
	ReasonQueueLimit ReasonCode = "queue_limit" // Limits.Running
	ReasonKeyRate    ReasonCode = "key_rate"    // Limits.KeyRate
	ReasonQueueRate  ReasonCode = "queue_rate"  // Limits.Rate
	ReasonNotDue     ReasonCode = "not_due"     // it is delayed or waiting for a retry
)

// Reasons that do not prevent a claim, and the states of jobs that are not waiting.
const (
	ReasonInTurn      ReasonCode = "in_turn"      // claimable, but other jobs come first
	ReasonNoWorker    ReasonCode = "no_worker"    // claimable, but no worker of its queue is known
	ReasonWorkersBusy ReasonCode = "workers_busy" // claimable, but all workers are at capacity
	ReasonLapsed      ReasonCode = "lapsed"       // claimable, because its worker has not renewed its claim
	ReasonUndecodable ReasonCode = "undecodable"  // the payload is not JSON; a claim dead-letters the job
	ReasonClock       ReasonCode = "clock"        // its timestamps are inconsistent with this machine's clock
	ReasonFailing     ReasonCode = "failing"      // most of the queue's attempts fail; a reason of queues only
	ReasonRunning     ReasonCode = "running"
	ReasonDead        ReasonCode = "dead"
	ReasonDone        ReasonCode = "done"
	ReasonGone        ReasonCode = "gone"  // it has been removed from the file
	ReasonNever       ReasonCode = "never" // the file has not assigned this id yet
)

// reasonRank orders reasons that end at the same time. Reasons with ranks from 0 to below rankReady prevent
// a claim.
var reasonRank = map[ReasonCode]int{
	ReasonFailing: -1, ReasonExhausted: 0, ReasonExpired: 1, ReasonWaitsFor: 2, ReasonPaused: 3, ReasonKeyLimit: 4, ReasonQueueLimit: 5,
	ReasonKeyRate: 6, ReasonQueueRate: 7, ReasonNotDue: 8,
	ReasonRunning: rankReady, ReasonDead: rankReady, ReasonDone: rankReady, ReasonGone: rankReady, ReasonNever: rankReady,
	ReasonUndecodable: rankReady + 1, ReasonLapsed: rankReady + 2,
	ReasonNoWorker: rankReady + 3, ReasonWorkersBusy: rankReady + 3, ReasonInTurn: rankReady + 3, ReasonClock: rankReady + 4,
}

const rankReady = 100

func (x *explainer) running(j *honker.JobInfo) Reason {
	return Reason{Code: ReasonRunning, Who: j.WorkerID, Until: j.ClaimExpiresAt.Add(time.Second),
		Text: fmt.Sprintf("is running: worker %q holds its claim until %s unless it renews it, attempt %s", j.WorkerID, x.at(j.ClaimExpiresAt), attempts(j))}
}

func queueRuns(n int64, by row.Occupants) Reason {
	ids := all(by)
	text := fmt.Sprintf("%s are running%s", plural(n, "job"), listed(ids))
	if n == 1 {
		text = fmt.Sprintf("job %d is running, and no other job of the queue", ids[0])
	}
	return Reason{Code: ReasonRunning, Jobs: ids, Text: text + stillRun(by)}
}

// stillRun describes cancelled jobs that still count against the queue's limits.
func stillRun(by row.Occupants) string {
	switch len(by.Cancelled) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; job %d was cancelled, but its handler has not returned", by.Cancelled[0])
	}
	return fmt.Sprintf("; %s were cancelled, but their handlers have not returned", named(by.Cancelled))
}

func canBeClaimed(n honker.Count, first int64) string {
	if n == (honker.Count{N: 1}) {
		return fmt.Sprintf("job %d can be claimed", first)
	}
	return fmt.Sprintf("%s can be claimed, job %d first", jobs(n), first)
}

func (x *explainer) dead(j *honker.JobInfo) Reason {
	return Reason{Code: ReasonDead, Actions: []Action{{Verb: ActionRequeueJob, Job: j.ID}},
		Text: fmt.Sprintf("has been dead since %s, after attempt %s: %s; requeue it to run it again under its id", x.at(j.DiedAt), attempts(j), quoted(j.LastError))}
}

func (x *explainer) done(j *honker.JobInfo) Reason {
	return Reason{Code: ReasonDone, Who: j.WorkerID,
		Text: fmt.Sprintf("is done: worker %q acked attempt %s at %s", j.WorkerID, attempts(j), x.at(j.DoneAt))}
}

// goneReason explains why the file has no job with the given ID.
func goneReason(id, highest int64) Reason {
	if id < 1 || id > highest {
		return Reason{Code: ReasonNever, Text: fmt.Sprintf("has never existed: the highest id assigned so far is %d", highest)}
	}
	return Reason{Code: ReasonGone, Text: "is gone: it was acked, cancelled or discarded, and the file keeps no record of it (see SetRetention)"}
}

// over explains a job that can no longer run. It returns nil for all other jobs.
func (x *explainer) over(j *honker.JobInfo) *Reason {
	expired := !j.ExpiresAt.IsZero() && !j.ExpiresAt.After(x.now)
	switch {
	case expired && j.Phase == honker.PhaseExpired && j.WorkerID != "":
		return &Reason{Code: ReasonExpired, Text: fmt.Sprintf(
			"had to start by %s, but the claim of worker %q has expired; the next claim on the queue dead-letters it", x.at(j.ExpiresAt), j.WorkerID)}
	case expired:
		return &Reason{Code: ReasonExpired, Text: fmt.Sprintf(
			"had to start by %s; Maintain, SweepExpired or a claim will dead-letter it", x.at(j.ExpiresAt))}
	case j.Attempts >= j.MaxAttempts && j.RunAt.After(x.now):
		return &Reason{Code: ReasonExhausted, Text: fmt.Sprintf("has no attempts left, %s; the first claim after %s dead-letters it", attempts(j), x.at(j.RunAt))}
	case j.Attempts >= j.MaxAttempts:
		return &Reason{Code: ReasonExhausted, Text: fmt.Sprintf("has no attempts left, %s; the next claim on the queue dead-letters it", attempts(j))}
	}
	return nil
}

func (x *explainer) expiresBefore(j *honker.JobInfo, start time.Time) Reason {
	return Reason{Code: ReasonExpired, Text: fmt.Sprintf("must start by %s, but cannot start before %s", x.at(j.ExpiresAt), x.at(start))}
}

// edgeReasons explains the jobs that a job waits for. Dead jobs get a separate reason because an operator
// must deal with them.
func edgeReasons(edges []row.Edge) (reasons []Reason) {
	for _, dead := range []bool{true, false} {
		var ids []int64
		for _, e := range edges {
			if e.Job != 0 && e.Dead == dead {
				ids = append(ids, e.Job)
			}
		}
		if len(ids) == 0 {
			continue
		}
		r := waitsForJobs(ids, dead)
		r.Text = "waits for " + named(ids)
		switch {
		case dead && len(ids) == 1:
			r.Text += ", which is dead; requeue it, or cancel this job"
		case dead:
			r.Text += ", which are dead; requeue them, or cancel this job"
		}
		reasons = append(reasons, r)
	}
	return reasons
}

// waitsForJobs returns a reason that suggests an action for each of the first three jobs.
func waitsForJobs(ids []int64, dead bool) Reason {
	r := Reason{Code: ReasonWaitsFor, Jobs: ids[:min(len(ids), maxReasonJobs)]}
	for _, id := range ids[:min(len(ids), 3)] {
		if dead {
			r.Actions = append(r.Actions, Action{Verb: ActionRequeueJob, Job: id})
		} else {
			r.Actions = append(r.Actions, Action{Verb: ActionExplainJob, Job: id})
		}
	}
	return r
}

// waitsForBatch explains a batch that a job waits for. ids are its dead members, or its unfinished members
// if none is dead.
func waitsForBatch(b row.Batch, e row.Edge, ids []int64) Reason {
	r := waitsForJobs(ids, b.Dead > 0)
	r.Text = fmt.Sprintf("waits for batch %d", e.Batch)
	if b.Name != "" {
		r.Text += fmt.Sprintf(" %q", b.Name)
	}
	r.Text += fmt.Sprintf(": %d of its %s are waiting or running", b.Live, plural(b.Total, "member"))
	switch {
	case b.Dead == 1:
		r.Text += ", and 1 is dead: " + named(ids)
	case b.Dead > 1:
		r.Text += fmt.Sprintf(", and %d are dead: %s", b.Dead, named(ids))
	}
	if b.Open {
		r.Text += ", and it is not sealed"
	}
	return r
}

func successorReason(j *honker.JobInfo, after int64) Reason {
	return Reason{Code: ReasonWaitsFor, Jobs: []int64{after}, Actions: []Action{{Verb: ActionExplainJob, Job: after}},
		Text: fmt.Sprintf("waits for the end of job %d, which holds its unique key %q (RunAgain)", after, j.Unique)}
}

// notDue explains a job that is not due. If the job's key is paused, the job already has a reason.
func (x *explainer) notDue(j *honker.JobInfo, found *row.Explained) []Reason {
	switch {
	case found.Side.Reserved:
		return []Reason{x.keyRate(&found.Queue, j.Key, j.RunAt)}
	case found.Side.Paused && found.Forecast.KeyPause != nil:
		return nil
	}
	r := Reason{Code: ReasonNotDue, Until: j.RunAt, Actions: []Action{{Verb: ActionRunJobNow, Job: j.ID}}}
	switch {
	case j.Attempts == 0 && j.LastError == "":
		r.Text = fmt.Sprintf("is not due before %s", x.at(j.RunAt))
	case j.LastError == "":
		r.Text = fmt.Sprintf("waits until %s for attempt %d of %d", x.at(j.RunAt), j.Attempts+1, j.MaxAttempts)
	default:
		r.Text = fmt.Sprintf("waits until %s for attempt %d of %d; the last error was %s", x.at(j.RunAt), j.Attempts+1, j.MaxAttempts, quoted(j.LastError))
	}
	return []Reason{r}
}

// paused explains the pause of a queue, or of a key if key is not empty.
func (x *explainer) paused(queue, key string, p *row.Pause) Reason {
	r := Reason{Code: ReasonPaused, Who: p.By, Actions: []Action{{Verb: ActionResumePaused, Queue: queue, Key: key}}}
	object := fmt.Sprintf("queue %q", queue)
	if key != "" {
		object = fmt.Sprintf("key %q", key)
	}
	r.Text = fmt.Sprintf("its %s has been paused since %s", object, x.at(p.Since))
	if p.By != "" {
		r.Text += " by " + p.By
	}
	if !p.Until.IsZero() {
		r.Until = p.Until
		r.Text += ", until " + x.at(r.Until)
	}
	if p.Reason != "" {
		r.Text += ": " + p.Reason
	}
	return r
}

func queueLimit(o *row.QueueForecast, s *row.JobForecast, by row.Occupants) Reason {
	ids := all(by)
	r := Reason{Code: ReasonQueueLimit, Jobs: ids, Actions: []Action{{Verb: ActionShowLimits, Queue: o.Name}}}
	r.Text = fmt.Sprintf("its queue is full: %d of %d running%s", o.Running, o.Limits.Running, listed(ids))
	if s.Ahead.N > 0 && o.Running < o.Limits.Running {
		r.Text = fmt.Sprintf("its queue will be full after the jobs before it start: %d of %d running", o.Running, o.Limits.Running)
	}
	r.Text += stillRun(by)
	return r
}

func keyLimit(o *row.QueueForecast, key string, s *row.JobForecast, by row.Occupants) Reason {
	ids := all(by)
	r := Reason{Code: ReasonKeyLimit, Jobs: ids, Actions: []Action{{Verb: ActionListKeys, Queue: o.Name}}}
	most := o.Limits.PerKey
	if o.Limits.InOrder {
		most = 1
	}
	r.Text = fmt.Sprintf("its key %q is full: %d of %d running%s", key, len(ids), most, listed(ids))
	if int64(len(ids)) < min(most, s.KeyRunning) {
		r.Text = fmt.Sprintf("its key %q will be full after the jobs before it start: %d of %d running", key, len(ids), most)
	}
	r.Text += stillRun(by)
	return r
}

func keyOrder(key string, first int64) Reason {
	return Reason{Code: ReasonKeyLimit, Jobs: []int64{first}, Actions: []Action{{Verb: ActionExplainJob, Job: first}},
		Text: fmt.Sprintf("jobs of its key %q run in order, and job %d comes first", key, first)}
}

func (x *explainer) queueRate(o *row.QueueForecast, s *row.JobForecast) Reason {
	r := Reason{Code: ReasonQueueRate, Until: s.Next, Actions: []Action{{Verb: ActionShowLimits, Queue: o.Name}}}
	r.Text = fmt.Sprintf("its queue may start %s", per(o.Limits.Rate))
	if !r.Until.IsZero() {
		r.Text += ", the next at " + x.at(r.Until)
	}
	if s.Ahead.N > 0 {
		r.Text += fmt.Sprintf("; this job follows %s and can start at about %s", plural(s.Ahead.N, "job"), x.at(s.About))
	}
	return r
}

func (x *explainer) keyRate(o *row.QueueForecast, key string, start time.Time) Reason {
	return Reason{Code: ReasonKeyRate, Until: start, Actions: []Action{{Verb: ActionShowLimits, Queue: o.Name}},
		Text: fmt.Sprintf("its key %q may start %s; this job can start at %s", key, per(o.Limits.KeyRate), x.at(start))}
}

const (
	clockSlack = 5 * time.Second
	farFuture  = 10 * 365 * 24 * time.Hour
)

// odd reports defects in the job itself. Other programs may have stored a BLOB or text that is not
// JSON.
func (x *explainer) odd(j *honker.JobInfo, stored any) (reasons []Reason) {
	if _, isText := stored.(string); !isText || !json.Valid(j.Payload) {
		reasons = append(reasons, Reason{Code: ReasonUndecodable, Actions: []Action{{Verb: ActionShowJob, Job: j.ID}},
			Text: "its payload is not JSON text; a worker of this library dead-letters the job when it claims it"})
	}
	if d := j.CreatedAt.Sub(x.now); d > clockSlack {
		reasons = append(reasons, Reason{Code: ReasonClock, Text: fmt.Sprintf(
			"was enqueued at %s by another machine, whose clock is ahead of the clock of this machine", x.at(j.CreatedAt))})
	}
	if d := j.RunAt.Sub(x.now); d > farFuture {
		reasons = append(reasons, Reason{Code: ReasonClock, Actions: []Action{{Verb: ActionRunJobNow, Job: j.ID}},
			Text: fmt.Sprintf("its run time is in the year %d; it may have been written in milliseconds instead of seconds", j.RunAt.UTC().Year())})
	}
	return reasons
}

// at formats t and the time until or since t. The date is omitted if t is today.
func (x *explainer) at(t time.Time) string {
	layout := "2006-01-02 15:04:05 UTC"
	if t.UTC().Format(time.DateOnly) == x.now.UTC().Format(time.DateOnly) {
		layout = "15:04:05 UTC"
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format(layout), FormatAgo(x.now.Sub(t)))
}

// per describes a rate in words.
func per(r row.StartRate) string {
	text := fmt.Sprintf("%s every %s", plural(r.N, "job"), FormatSpan(r.Per))
	if r.Burst > 1 {
		text += fmt.Sprintf(", %d at once", r.Burst)
	}
	return text
}

func attempts(j *honker.JobInfo) string { return fmt.Sprintf("%d of %d", j.Attempts, j.MaxAttempts) }
