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

// Minute holds a queue's statistics for a minute or a longer step.
type Minute struct {
	Start    time.Time
	Enqueued int64 // includes jobs added by schedules
	Claimed  int64
	Acked    int64
	Retried  int64
	Died     int64 // moved to the dead letters for any reason
	Snoozed  int64

	// Wait is the total time that jobs were ready before being claimed. The average is Wait/Claimed, and
	// MaxWait is the maximum. Ready times are stored in whole seconds, so a wait may be up to a second
	// too long or, for a delayed job, too short. Ran is the total run time of handlers called by Work. The average is
	// Ran/(Acked+Retried+Died).
	Wait, Ran, MaxWait time.Duration
}

// OtherQueues is the queue name under which [Traffic] combines all queues beyond the first hundred.
const OtherQueues = row.OtherQueues

// Traffic returns a queue's statistics per minute since the given time, oldest first. The queue ""
// stands for all queues combined. Minutes without traffic are omitted. The file keeps seven days of
// statistics for up to a hundred queues at a time; the remaining queues are combined in [OtherQueues].
// The zero time selects everything that is kept. Traffic returns [honker.ErrInvalid] if db is nil.
//
// The numbers are meant for charts, not for accounting. Each process using this library writes its own
// counts unless Options.NoTraffic is set. Once a second it adds them to a regular commit, or makes a
// separate commit if there has been none for two seconds. A process that is killed loses the counts that
// it has not written yet. Jobs handled by other bindings or by the SQL functions are not counted, nor are
// jobs that were cancelled, released or lost to another worker.
func Traffic(ctx context.Context, db *honker.DB, queue string, since time.Time) ([]Minute, error) {
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error) {
		return s.List(ctx, q, queue, since, time.Minute)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficSteps is like [Traffic] but combines several minutes into a step, for charts that cover days. Each
// Minute has the totals of the step beginning at its Start; MaxWait is the longest wait in the step. Steps
// are aligned to multiples of step since the Unix epoch. The first step is complete even if it begins
// before since. TrafficSteps returns [honker.ErrInvalid] if step is not a positive number of whole minutes.
func TrafficSteps(ctx context.Context, db *honker.DB, queue string, since time.Time, step time.Duration) ([]Minute, error) {
	if step < time.Minute || step%time.Minute != 0 {
		return nil, engine.Wrap("traffic", queue, fmt.Errorf("%w: step must be a positive number of whole minutes, but is %v", honker.ErrInvalid, step))
	}
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error) {
		return s.List(ctx, q, queue, since, step)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficAll is like [Traffic] but returns all queues at once, keyed by queue name. The map also has the
// keys "" and [OtherQueues]. TrafficAll reads a row per queue and minute, so since should be within the
// last hour or so.
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

// readMinutes calls list with since, or with the start of the retention period if since is earlier.
func readMinutes(ctx context.Context, db *honker.DB, since time.Time,
	list func(ctx context.Context, q engine.Querier, s engine.MinuteStore, since time.Time) ([]row.Minute, error)) (rows []row.Minute, err error) {
	err = read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		rows, err = list(ctx, q, s.Minutes, later(since, clock(db).Add(-traffic.Kept)))
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
