package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/traffic"
)

// Minute is what happened to the jobs of a queue in a minute.
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
	List(ctx context.Context, q engine.Querier, queue string, minute int64) ([]store.Minute, error)
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
	var all []Minute
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		first := max(since.Unix()/60, traffic.Before(time.Now()))
		rows, err := minutes.List(ctx, q, queue, first)
		all = make([]Minute, len(rows))
		for i, r := range rows {
			all[i] = Minute{
				Start: engine.Instant(r.Minute * 60), Enqueued: r.Enqueued, Claimed: r.Claimed, Acked: r.Acked, Retried: r.Retried,
				Died: r.Died, Snoozed: r.Snoozed, Wait: engine.Milliseconds(r.Wait), Ran: engine.Milliseconds(r.Ran),
				MaxWait: engine.Milliseconds(r.MaxWait),
			}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("traffic", queue, err)
	}
	return all, nil
}
