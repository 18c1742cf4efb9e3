package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A queue is failing if more than half of its attempts in failingSpan have failed, and there were more than
// leastAttempts.
const (
	failingSpan   = 10 * time.Minute
	leastAttempts = 20
	failingFrom   = 3 * time.Hour // the beginning is looked for in this period, at about 1 ms an hour
	mostFailing   = 5             // maximum number of queues whose cause and beginning are looked for
	sampledErrors = 50            // errors of each kind of job that are compared, at about 10 µs each
)

// failure describes the failed attempts of a queue.
type failure struct {
	Attempts, Failed int64
	Since            time.Time // zero if unknown
	Cause            string    // commonest error; "" if unknown
}

// add adds the attempts of a minute. Deaths beyond the claims are jobs that expired before an attempt.
func (f *failure) add(m row.Minute) {
	failed := m.Retried + min(m.Died, max(0, m.Claimed-m.Acked-m.Retried))
	f.Failed += failed
	f.Attempts += m.Acked + failed
}

// failing reports whether the queue is failing.
func (f *failure) failing() bool { return f.Attempts > leastAttempts && f.Failed*2 > f.Attempts }

func (f *failure) text() string {
	return fmt.Sprintf("%d %% of %s failed in the last %d minutes", f.Failed*100/f.Attempts, plural(f.Attempts, "attempt"), failingSpan/time.Minute)
}

// find looks for the beginning and the cause.
func (f *failure) find(ctx context.Context, q engine.Querier, s *engine.Stores, queue string, now time.Time) error {
	minutes, err := s.Minutes.List(ctx, q, queue, now.Add(-failingFrom), time.Minute)
	if err != nil {
		return err
	}
	f.Since = failingSince(minutes)
	failed, err := s.Problems.Errors(ctx, q, queue, now.Add(-failingSpan), sampledErrors, now)
	f.Cause = commonest(failed)
	return err
}

// firstMinute returns the start of the first minute in failingSpan.
func firstMinute(now time.Time) time.Time { return now.Add(time.Minute - failingSpan) }

// failingSince returns the first minute since which most attempts have failed. Up to failingSpan of minutes
// in which most attempts succeed do not end the failure.
func failingSince(minutes []row.Minute) (since time.Time) {
	for _, m := range slices.Backward(minutes) {
		var f failure
		f.add(m)
		switch {
		case f.Failed*2 > f.Attempts:
			since = m.Start
		case f.Attempts > 0 && since.Sub(m.Start) > failingSpan:
			return since
		}
	}
	return since
}

// commonest returns the first line of the first error of the commonest kind.
func commonest(failed []row.FailedJob) string {
	counts, first := make(map[string]int), make(map[string]string)
	var most string
	for _, f := range failed {
		kind := fingerprint(f.Error)
		if counts[kind]++; counts[kind] == 1 {
			first[kind] = f.Error
		}
		if counts[kind] > counts[most] {
			most = kind
		}
	}
	return firstLine(first[most])
}

// firstLine returns the first line of an error, cut to the length that a fingerprint covers.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(line[:min(len(line), maxKind)], "")
}

// failing reports queues that fail most of their attempts, except paused queues.
func (s *search) failing(ctx context.Context, stats []engine.QueueStats) error {
	minutes, err := s.engine.Stores.Minutes.All(ctx, s.q, firstMinute(s.now))
	if err != nil {
		return err
	}
	failures := make(map[string]*failure)
	for _, m := range minutes {
		if failures[m.Queue] == nil {
			failures[m.Queue] = new(failure)
		}
		failures[m.Queue].add(m)
	}
	delete(failures, row.AllQueues)
	delete(failures, row.OtherQueues)
	for _, st := range stats {
		if st.Pause != nil {
			delete(failures, st.Queue)
		}
	}
	maps.DeleteFunc(failures, func(_ string, f *failure) bool { return !f.failing() })
	queues := slices.SortedFunc(maps.Keys(failures), func(a, b string) int {
		return cmp.Or(cmp.Compare(failures[b].Failed, failures[a].Failed), cmp.Compare(a, b))
	})
	for i, queue := range queues {
		f := failures[queue]
		if i < mostFailing {
			if err := f.find(ctx, s.q, &s.engine.Stores, queue, s.now); err != nil {
				return err
			}
		}
		s.add(Problem{Code: ProblemFailing, Queue: queue, Since: f.Since, N: honker.Count{N: f.Failed}, Cause: f.Cause,
			Text: queue + ": " + f.text(),
			Actions: []Action{{Verb: ActionListJobs, Queue: queue, Phase: honker.PhaseScheduled},
				{Verb: ActionGroupDead, Queue: queue, Since: youngDeaths}, {Verb: ActionPauseQueue, Queue: queue}}})
	}
	return nil
}

// failing adds a reason if the queue fails most of its attempts.
func (x *explainer) failing(ctx context.Context, ex *Explanation, queue string) error {
	minutes, err := x.stores.Minutes.List(ctx, x.q, queue, firstMinute(x.now), time.Minute)
	if err != nil {
		return err
	}
	var f failure
	for _, m := range minutes {
		f.add(m)
	}
	if !f.failing() {
		return nil
	}
	if err := f.find(ctx, x.q, x.stores, queue, x.now); err != nil {
		return err
	}
	r := Reason{Code: ReasonFailing, Text: f.text(), Actions: []Action{{Verb: ActionGroupDead, Queue: queue, Since: youngDeaths}, {Verb: ActionPauseQueue, Queue: queue}}}
	if !f.Since.IsZero() {
		r.Text += fmt.Sprintf(", and most since %s", x.at(f.Since))
	}
	if f.Cause != "" {
		r.Text += ": " + quoted(f.Cause)
	}
	ex.add(r)
	return nil
}
