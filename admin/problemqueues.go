package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// queues checks each queue by its statistics.
func (s *search) queues(ctx context.Context, stats []engine.QueueStats) error {
	var worked map[string]bool // set only if a queue is late, because computing it examines every running job
	asked := 0                 // number of times the usual wait was looked up
	for _, st := range stats {
		if st.Pause != nil {
			s.oldPause(st.Queue, "", *st.Pause)
			continue
		}
		if err := s.lapsed(ctx, st); err != nil {
			return err
		}
		ready := st.OldestReady
		if ready.IsZero() || s.now.Sub(ready) <= waitsLong {
			continue
		}
		if worked == nil {
			var err error
			if worked, err = s.worked(ctx); err != nil {
				return err
			}
		}
		asked++
		usual, known, err := s.usualWait(ctx, st.Queue, ready, asked)
		if err != nil {
			return err
		}
		s.late(st, ready, worked[st.Queue], usual, known)
	}
	return nil
}

// worked returns the queues with a worker that is or may be alive.
func (s *search) worked(ctx context.Context) (map[string]bool, error) {
	all, err := workersOf(ctx, s.q, s.engine.Stores.Workers, "", s.now)
	worked := make(map[string]bool, len(all))
	for _, w := range all {
		if w.Alive != Gone {
			worked[w.Queue] = true
		}
	}
	return worked, err
}

// usualWait returns the average wait of the queue's jobs in the day before ready. It gives up if
// mostUsual queues have been looked up.
func (s *search) usualWait(ctx context.Context, queue string, ready time.Time, asked int) (usual time.Duration, known bool, err error) {
	if asked > mostUsual {
		return 0, false, nil
	}
	m, err := s.engine.Sums(ctx, s.q, queue, ready.Add(-usualSpan), ready)
	if err != nil || m.Claimed == 0 {
		return 0, false, err
	}
	return (m.Wait / time.Duration(m.Claimed)).Truncate(time.Millisecond), true, nil
}

// late reports a queue whose oldest ready job has waited too long. The caller has checked that the
// job has waited for at least a minute.
func (s *search) late(st engine.QueueStats, ready time.Time, worked bool, usual time.Duration, known bool) {
	limit := lateUnknown
	switch {
	case known:
		limit = max(waitsLong, lateTimes*usual)
	case !worked:
		limit = waitsLong
	}
	if s.now.Sub(ready) <= limit {
		return
	}
	p := Problem{Code: ProblemNoWorker, Queue: st.Queue, Since: ready, N: honker.Count(st.Ready)}
	list := Action{Verb: ActionListJobs, Queue: st.Queue, Phase: honker.PhaseReady}
	workers := Action{Verb: ActionListWorkers, Queue: st.Queue}
	p.Text = fmt.Sprintf("%s: %s ready, but no worker runs", st.Queue, jobs(p.N))
	p.Actions = []Action{workers, list}
	if worked {
		p.Code = ProblemLate
		p.Text = fmt.Sprintf("%s: %s ready, and the workers do not keep up", st.Queue, jobs(p.N))
		p.Actions = []Action{list, workers}
	}
	if worked && known {
		p.Text += fmt.Sprintf(" (average wait %s)", FormatSpan(RoundSpan(max(usual, time.Millisecond))))
	}
	s.add(p)
}

// lapsed reports claims that expired more than a minute ago. A live worker would have claimed their jobs
// by now.
func (s *search) lapsed(ctx context.Context, st engine.QueueStats) error {
	if st.Lapsed == (row.Count{}) {
		return nil
	}
	since, err := s.engine.Stores.Problems.LapsedSince(ctx, s.q, st.Queue, s.now)
	if err != nil || since.IsZero() || since.Unix() >= s.now.Add(-waitsLong).Unix() {
		return err
	}
	n := honker.Count(st.Lapsed)
	s.add(Problem{Code: ProblemLapsed, Queue: st.Queue, Since: since, N: n,
		Text:    fmt.Sprintf("%s: %s lapsed: a worker died or hangs, and no other worker has taken over", st.Queue, jobs(n)),
		Actions: []Action{{Verb: ActionListJobs, Queue: st.Queue, Phase: honker.PhaseLapsed}, {Verb: ActionListWorkers, Queue: st.Queue}}})
	return nil
}

// oldPause reports a queue or key that was paused long ago without an end time.
func (s *search) oldPause(queue, key string, p row.Pause) {
	since := p.Since
	if !p.Until.IsZero() || s.now.Sub(since) <= pausedFor {
		return
	}
	text := queue + ": paused"
	if key != "" {
		text = fmt.Sprintf("%s: key %q paused", queue, key)
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	s.add(Problem{Code: ProblemPaused, Queue: queue, Name: key, Since: since, Text: text + ", without an end",
		Actions: []Action{{Verb: ActionResumePaused, Queue: queue, Key: key}}})
}

func (s *search) waitsForDead(all []row.DeadMembers) {
	for _, d := range all {
		p := Problem{Code: ProblemWaitsForDead, Queue: d.Queue, Since: d.Since, N: honker.Count{N: d.N}}
		of := "a dead batch member"
		if d.Member != 0 {
			of = fmt.Sprintf("job %d, which is dead", d.Member)
			p.Actions = []Action{{Verb: ActionShowJob, Job: d.Member}, {Verb: ActionRequeueJob, Job: d.Member}}
		}
		p.Text = fmt.Sprintf("%s: job %d waits for %s", d.Queue, d.Waiter, of)
		if d.N > 1 {
			p.Text = fmt.Sprintf("%s: %s wait for dead jobs: job %d for %s", d.Queue, jobs(p.N), d.Waiter, of)
		}
		s.add(p)
	}
}

func (s *search) heldFree(all []row.HeldKey) {
	for _, k := range all {
		n := honker.Count{N: k.N}
		s.add(Problem{Code: ProblemHeld, Queue: k.Queue, Name: k.Key, N: n, Actions: []Action{{Verb: ActionCheckFile}},
			Text: fmt.Sprintf("%s: %s held for key %q, which has room; this is a bug in honker, please report it", k.Queue, jobs(n), k.Key)})
	}
}

func (s *search) deaths(all []row.QueueDeaths) {
	for _, d := range all {
		n := honker.Count(d.N)
		s.add(Problem{Code: ProblemDead, Queue: d.Queue, Since: d.First, N: n,
			Text:    fmt.Sprintf("%s: %s died in the last hour", d.Queue, jobs(n)),
			Actions: []Action{{Verb: ActionGroupDead, Queue: d.Queue, Since: youngDeaths}}})
	}
}
