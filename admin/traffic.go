package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/traffic"
)

// Minute is what happened to the jobs of a queue in a minute, or in a step of several.
type Minute struct {
	Start    time.Time
	Enqueued int64 // added, by schedules too
	Claimed  int64
	Acked    int64
	Retried  int64
	Died     int64 // to the dead letters, for any reason
	Snoozed  int64

	// Wait and Ran are sums: of how long jobs could have begun before they were claimed, divide it by
	// Claimed; of how long the handlers of Work ran, divide it by Acked+Retried+Died. MaxWait is the longest
	// wait. The file has whole seconds for when a job could begin, so a wait may be up to a second more.
	Wait, Ran, MaxWait time.Duration
}

// OtherQueues is the queue of [Traffic] that stands for all beyond the hundred that have minutes of
// their own.
const OtherQueues = store.OtherQueues

// minuteStore are the statements about minutes.
type minuteStore interface {
	List(ctx context.Context, q engine.Querier, queue string, minute int64) ([]row.Minute, error)
	All(ctx context.Context, q engine.Querier, minute int64) ([]row.Minute, error)
	Steps(ctx context.Context, q engine.Querier, queue string, minute, step int64) ([]row.Minute, error)
	Waits(ctx context.Context, q engine.Querier, queue string, since, before int64) (wait, claimed int64, err error)
}

var minutes minuteStore = store.Minutes{}

// Traffic returns what happened to the jobs of a queue in each minute since, the oldest first; "" is
// all queues together. Minutes in which nothing did are left out. The file keeps seven days, and up to
// a hundred queues at a time: the others are [OtherQueues] together. A time before that, and
// the zero time, mean all that is kept. nil as the DB is [honker.ErrInvalid].
//
// It is for charts. Each process of this package adds what it did, but those with
// Options.NoTraffic: with a commit that it makes anyway, once a second, or when there was none for one or two
// seconds. A process that is killed loses what it had not yet added. What other bindings and SQL
// functions do is not in it, and neither are jobs that were cancelled, released, or lost to another worker.
func Traffic(ctx context.Context, db *honker.DB, queue string, since time.Time) ([]Minute, error) {
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, first int64) ([]row.Minute, error) {
		return minutes.List(ctx, q, queue, first)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficSteps is [Traffic] in steps of several minutes, for a chart of days: each Minute is the sum of the step that
// begins with its Start, and MaxWait the longest wait in it. Steps begin at multiples of themselves, counted from
// 1970 in UTC; the first one is whole. A step that is not of whole minutes is [honker.ErrInvalid].
func TrafficSteps(ctx context.Context, db *honker.DB, queue string, since time.Time, step time.Duration) ([]Minute, error) {
	n := int64(step / time.Minute)
	if n < 1 || step%time.Minute != 0 {
		return nil, engine.Wrap("traffic", queue, fmt.Errorf("%w: a step of %v is not one of whole minutes", honker.ErrInvalid, step))
	}
	rows, err := readMinutes(ctx, db, since, func(ctx context.Context, q engine.Querier, first int64) ([]row.Minute, error) {
		return minutes.Steps(ctx, q, queue, first/n*n, n)
	})
	return minutesOf(rows), engine.Wrap("traffic", queue, err)
}

// TrafficAll is [Traffic] of all queues at once, by queue, with "" and [OtherQueues]. It reads a row for each queue and
// minute, so it is for the last hour or so.
func TrafficAll(ctx context.Context, db *honker.DB, since time.Time) (map[string][]Minute, error) {
	rows, err := readMinutes(ctx, db, since, minutes.All)
	if err != nil {
		return nil, engine.Wrap("traffic", "", err)
	}
	all := make(map[string][]Minute)
	for _, r := range rows {
		all[r.Queue] = append(all[r.Queue], minuteOf(r))
	}
	return all, nil
}

// readMinutes calls list with the first minute since then that the file keeps.
func readMinutes(ctx context.Context, db *honker.DB, since time.Time,
	list func(ctx context.Context, q engine.Querier, first int64) ([]row.Minute, error)) (rows []row.Minute, err error) {
	err = read(ctx, db, func(ctx context.Context, q engine.Querier) (err error) {
		rows, err = list(ctx, q, max(since.Unix()/60, traffic.Before(time.Now())))
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
		Start: engine.Instant(r.Minute * 60), Enqueued: r.Enqueued, Claimed: r.Claimed, Acked: r.Acked, Retried: r.Retried,
		Died: r.Died, Snoozed: r.Snoozed, Wait: engine.Milliseconds(r.Wait), Ran: engine.Milliseconds(r.Ran),
		MaxWait: engine.Milliseconds(r.MaxWait),
	}
}
