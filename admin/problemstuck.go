package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A job is stuck if its handler has run for more than stuckAge and for stuckTimes the queue's average of the last day.
const (
	stuckAge   = 5 * time.Minute
	stuckTimes = 10
)

// stuck reports queues with jobs that run much longer than usual. Queues in which no attempt has ended in the last day are
// not examined.
func (s *search) stuck(ctx context.Context) error {
	started, err := s.engine.Stores.Jobs.Started(ctx, s.q, "", s.now)
	if err != nil {
		return err
	}
	byQueue := make(map[string][]row.Started)
	var queues []string // by their longest running jobs
	for _, j := range started {
		if s.now.Sub(j.At) <= stuckAge {
			break // the others are younger
		}
		if byQueue[j.Queue] == nil {
			queues = append(queues, j.Queue)
		}
		byQueue[j.Queue] = append(byQueue[j.Queue], j)
	}
	for _, queue := range queues[:min(len(queues), mostUsual)] {
		usual, known, err := usualRun(ctx, s.q, s.engine, queue, s.now)
		if err != nil {
			return err
		}
		if known {
			s.stuckJobs(byQueue[queue], usual)
		}
	}
	return nil
}

// stuckJobs reports the jobs of a queue that have run for stuckTimes usual. all begins with the longest running.
func (s *search) stuckJobs(all []row.Started, usual time.Duration) {
	var n int64
	for n < int64(len(all)) && s.now.Sub(all[n].At) > stuckTimes*usual {
		n++
	}
	if n == 0 {
		return
	}
	first := all[0]
	text := fmt.Sprintf("%s: job %d has run for %s", first.Queue, first.ID, FormatSpan(RoundSpan(s.now.Sub(first.At))))
	if n > 1 {
		text = fmt.Sprintf("%s: %s run too long: job %d for %s", first.Queue, jobs(honker.Count{N: n}), first.ID, FormatSpan(RoundSpan(s.now.Sub(first.At))))
	}
	text += fmt.Sprintf(" on worker %s, others take %s on average", first.Worker, FormatSpan(RoundSpan(max(usual, time.Millisecond))))
	s.add(Problem{Code: ProblemStuck, Queue: first.Queue, Since: first.At, N: honker.Count{N: n}, Text: text,
		Actions: []Action{{Verb: ActionShowJob, Job: first.ID}, {Verb: ActionCancelRunning, Job: first.ID}}})
}

// UsualRun returns the average time that handlers of a queue have run, over the attempts that ended in the last day. known
// is false if there are none, or if their times were not counted. It reads a row per minute, but only the last minutes if it was
// called shortly before. It returns [honker.ErrInvalid] if db is nil.
func UsualRun(ctx context.Context, db *honker.DB, queue string) (usual time.Duration, known bool, err error) {
	err = read(ctx, db, func(ctx context.Context, q engine.Querier, _ *engine.Stores) (err error) {
		usual, known, err = usualRun(ctx, q, engine.Of(db), queue, clock(db))
		return err
	})
	return usual, known, engine.Wrap("read the usual run time", queue, err)
}

// settledAfter is the age from which the counts of a minute no longer change. Processes write their counts within seconds.
const settledAfter = 2 * time.Minute

func usualRun(ctx context.Context, q engine.Querier, e *engine.Engine, queue string, now time.Time) (usual time.Duration, known bool, err error) {
	settled := now.Add(-settledAfter)
	past, err := e.Sums(ctx, q, queue, now.Add(-usualSpan), settled)
	if err != nil {
		return 0, false, err
	}
	recent, err := e.Stores.Minutes.List(ctx, q, queue, settled, time.Minute)
	var ran time.Duration
	var ended int64
	for _, m := range append(recent, past) {
		ran += m.Ran
		ended += m.Acked + m.Retried + m.Died
	}
	if err != nil || ended == 0 {
		return 0, false, err
	}
	return (ran / time.Duration(ended)).Truncate(time.Millisecond), true, nil
}
