package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// claimable begins the text for a claimable job.
const claimable = "can be claimed"

// ready explains a claimable job in terms of the workers that could claim it.
func (x *explainer) ready(ctx context.Context, ex *Explanation) error {
	j := ex.Job
	if j.Phase == honker.PhaseLapsed {
		ex.add(Reason{Code: ReasonLapsed, Who: j.WorkerID, Text: fmt.Sprintf(
			"worker %q has not renewed its claim, which expired at %s; any worker may claim the job again, attempt %s so far", j.WorkerID, x.at(j.ClaimExpiresAt), attempts(j))})
	}
	all, err := x.workersOf(ctx, j.Queue)
	if err != nil {
		return err
	}
	there, gone := living(all)
	switch {
	case len(there) == 0:
		ex.add(x.noWorker(j.Queue, gone))
	case !slices.ContainsFunc(there, hasRoom):
		ex.add(workersBusy(j.Queue, there))
	default:
		text, err := x.inTurn(ctx, ex)
		if err != nil {
			return err
		}
		ex.add(Reason{Code: ReasonInTurn, Text: text})
	}
	return nil
}

// workersOf returns the queue's workers and caches them for later calls on the same snapshot.
func (x *explainer) workersOf(ctx context.Context, queue string) (all []WorkerInfo, err error) {
	if all, known := x.workers[queue]; known {
		return all, nil
	}
	if all, err = workersOf(ctx, x.q, x.stores.Workers, queue, x.now); err == nil {
		x.workers[queue] = all
	}
	return all, err
}

// living splits workers into those that may be alive and those that were killed.
func living(all []WorkerInfo) (there, gone []WorkerInfo) {
	for _, w := range all {
		if w.Alive == Gone {
			gone = append(gone, w)
		} else {
			there = append(there, w)
		}
	}
	return there, gone
}

// hasRoom reports whether a worker may have capacity for another job. A foreign worker's number of
// slots is unknown.
func hasRoom(w WorkerInfo) bool { return w.Foreign || w.Running < w.Slots }

func (x *explainer) noWorker(queue string, gone []WorkerInfo) Reason {
	r := Reason{Code: ReasonNoWorker, Actions: []Action{{Verb: ActionListWorkers, Queue: queue}}}
	r.Text = claimable + ", but no worker of its queue is known: no process runs Work on it, and no other worker holds a job"
	if len(gone) > 0 {
		last := slices.MaxFunc(gone, func(a, b WorkerInfo) int { return a.Seen.Compare(b.Seen) })
		r.Who = last.ID
		r.Text = fmt.Sprintf(claimable+", but its queue has no worker: %q, process %d on %s, was killed; it was last seen at %s", last.ID, last.PID, last.Host, x.at(last.Seen))
	}
	return r
}

func workersBusy(queue string, there []WorkerInfo) Reason {
	slices.SortFunc(there, func(a, b WorkerInfo) int { return cmp.Compare(a.Oldest, b.Oldest) })
	r := Reason{Code: ReasonWorkersBusy, Actions: []Action{{Verb: ActionListWorkers, Queue: queue}}}
	names := make([]string, len(there))
	slots := 0
	for i, w := range there {
		names[i], slots = fmt.Sprintf("%q", w.ID), slots+w.Slots
		if r.Jobs = append(r.Jobs, w.Oldest); len(r.Jobs) > maxReasonJobs {
			r.Jobs = r.Jobs[:maxReasonJobs]
		}
	}
	r.Text = fmt.Sprintf(claimable+" when a handler is free: all %d handlers of %s are busy%s", slots, firstOf(names), strings.Replace(listed(r.Jobs), ", ", ", the oldest ", 1))
	return r
}

// trafficSpan is the period of traffic used to estimate a wait.
const trafficSpan = 10 * time.Minute

// inTurn describes how many jobs come first and estimates the wait from recent claims.
func (x *explainer) inTurn(ctx context.Context, ex *Explanation) (string, error) {
	switch {
	case ex.Ahead == honker.Count{}:
		return "is next: the next claim on the queue takes it", nil
	case ex.Ahead.More && ex.Ahead.N == 0:
		return claimable + ", after more than 1,000 jobs that the limits of their keys hold back", nil
	case ex.Ahead.More:
		return fmt.Sprintf(claimable+", after %s jobs before it", ex.Ahead), nil
	case x.brief:
		return fmt.Sprintf(claimable+", after %s before it", plural(ex.Ahead.N, "job")), nil
	}
	rows, err := x.stores.Minutes.List(ctx, x.q, ex.Job.Queue, x.now.Add(time.Minute-trafficSpan), time.Minute)
	if err != nil {
		return "", err
	}
	var claimed int64
	for _, m := range rows {
		claimed += m.Claimed
	}
	text := fmt.Sprintf(claimable+", after %s before it", plural(ex.Ahead.N, "job"))
	if claimed == 0 {
		return text, nil
	}
	wait := time.Duration(math.Ceil(float64(ex.Ahead.N)/float64(claimed)*trafficSpan.Seconds())) * time.Second
	return fmt.Sprintf("%s: about %s at the rate of the last %s", text, FormatAge(wait), FormatSpan(trafficSpan)), nil
}
