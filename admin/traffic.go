package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/traffic"
)

// Minute counts the events of a queue in a minute, or in a longer step.
type Minute struct {
	Start    time.Time
	Enqueued int64 // includes jobs of schedules
	Claimed  int64
	Acked    int64
	Retried  int64
	Died     int64 // moved to the dead letters for any reason
	Snoozed  int64

	// Wait is the sum of the times that jobs were ready before they were claimed; divide it by Claimed.
	// MaxWait is the longest of these times. Ready times are stored in whole seconds, so a wait may be up
	// to a second too long. Ran is the sum of the run times of the handlers of Work; divide it by
	// Acked+Retried+Died.
	Wait, Ran, MaxWait time.Duration
}

// OtherQueues is the queue of [Traffic] that sums up the queues beyond the first hundred.
const OtherQueues = row.OtherQueues

// Traffic returns the minutes of a queue since the given time, oldest first. The queue "" stands for all
// queues together. Minutes without traffic are omitted. The file keeps seven days and up to a hundred
// queues at a time; [OtherQueues] holds the sum of the others. The zero time, or a time before the seven
// days, selects everything that is kept. Traffic returns [honker.ErrInvalid] if db is nil.
//
// The numbers are meant for charts. Each process that uses this package adds its own numbers, unless
// Options.NoTraffic is set. It adds them once a second to a commit that it makes anyway, or in a commit of
// their own after up to two seconds without any. A process that is killed loses the numbers that it has
// not added yet. Other bindings and the SQL functions do not count. Cancelled and released jobs, and jobs
// lost to another worker, are not counted either.
func Traffic(ctx context.Context, db *honker.DB, queue string, since time.Time) ([]Minute, error) {
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error) {
		return s.List(ctx, q, queue, since, time.Minute)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficSteps is like [Traffic] in steps of several minutes, for charts of days. Each Minute is the sum of
// a step that begins at its Start; MaxWait is the longest wait in the step. Steps are aligned to multiples
// of step since 1970 in UTC. The first step is complete even if it begins before since. TrafficSteps
// returns [honker.ErrInvalid] if step is not a positive number of whole minutes.
func TrafficSteps(ctx context.Context, db *honker.DB, queue string, since time.Time, step time.Duration) ([]Minute, error) {
	if step < time.Minute || step%time.Minute != 0 {
		return nil, engine.Wrap("traffic", queue, fmt.Errorf("%w: step must be a positive number of whole minutes, but is %v", honker.ErrInvalid, step))
	}
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error) {
		return s.List(ctx, q, queue, since, step)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficAll is like [Traffic] for all queues at once. The map has a key for each queue, "" and
// [OtherQueues]. TrafficAll reads a row for each queue and minute, so since should be within the last hour
// or so.
func TrafficAll(ctx context.Context, db *honker.DB, since time.Time) (map[string][]Minute, error) {
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error) {
		return s.All(ctx, q, since)
	})
	if err != nil {
		return nil, engine.Wrap("traffic", "", err)
	}
	all := make(map[string][]Minute)
	for _, r := range rows {
		all[r.Queue] = append(all[r.Queue], minuteOf(r))
	}
	return all, nil
}

// readMinutes calls list with the time since which to read. It is since, or the time since which minutes
// are kept.
func readMinutes(ctx context.Context, db *honker.DB, since time.Time,
	list func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error)) (rows []row.Minute, err error) {
	err = read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		rows, err = list(ctx, q, s.Minutes, later(since, time.Now().Add(-traffic.Kept)))
		return err
	})
	return rows, err
}

func minutesOf(rows []row.Minute) []Minute {
	all := make([]Minute, len(rows))
	for i, r := range rows {
		all[i] = minuteOf(r)
	}
	return all
}

func minuteOf(r row.Minute) Minute {
	return Minute{
		Start: r.Start, Enqueued: r.Enqueued, Claimed: r.Claimed, Acked: r.Acked, Retried: r.Retried,
		Died: r.Died, Snoozed: r.Snoozed, Wait: r.Wait, Ran: r.Ran, MaxWait: r.MaxWait,
	}
}
