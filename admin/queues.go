package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Queues returns the statistics of every queue that has jobs or dead letters or is paused, sorted by name.
// All counts come from the same snapshot. Each queue costs as much as a call to [honker.Queue.Stats], and
// large counts are cached in the same way. Pause is always current. OldestReady and NextAt are current if
// there are at most 100 queues. With more queues, they are cached for 50 times as long as the lookup took,
// which is half a second for 500 queues.
//
// Queues stops waiting when ctx is done. It returns [honker.ErrInvalid] if db is nil.
func Queues(ctx context.Context, db *honker.DB) ([]honker.QueueStats, error) {
	e, err := engineOf(db)
	if err != nil {
		return nil, engine.Wrap("list queues", "", err)
	}
	all, err := statsOf(ctx, e, "")
	return all, engine.Wrap("list queues", "", err)
}

// LimitedQueues is like [Queues] but returns only queues with limits (see
// [honker.Queue.SetLimits]), including empty queues.
func LimitedQueues(ctx context.Context, db *honker.DB) ([]honker.QueueStats, error) {
	all, err := limitedQueues(ctx, db)
	return all, engine.Wrap("list limits", "", err)
}

func limitedQueues(ctx context.Context, db *honker.DB) (limited []honker.QueueStats, err error) {
	e, err := engineOf(db)
	if err != nil {
		return nil, err
	}
	all, err := statsOf(ctx, e, "")
	if err != nil {
		return nil, err
	}
	var limits map[string]row.QueueLimits
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		limits, err = e.Stores.Limits.All(ctx, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Limits != (honker.Limits{}) {
			limited = append(limited, s)
			delete(limits, s.Queue)
		}
	}
	for queue := range limits {
		empty, err := statsOf(ctx, e, queue)
		if err != nil {
			return nil, err
		}
		limited = append(limited, empty...)
	}
	slices.SortFunc(limited, func(a, b honker.QueueStats) int { return strings.Compare(a.Queue, b.Queue) })
	return limited, nil
}

// statsOf returns the statistics of a queue, or of all queues if queue is "".
func statsOf(ctx context.Context, e *engine.Engine, queue string) ([]honker.QueueStats, error) {
	rows, err := e.Stats(ctx, queue)
	if err != nil {
		return nil, err
	}
	all := make([]honker.QueueStats, len(rows))
	for i, row := range rows {
		all[i] = engine.View().Stats(row).(honker.QueueStats)
	}
	return all, nil
}

// read calls f with a connection from db. If f fails, read may call it again.
func read(ctx context.Context, db *honker.DB, f func(ctx context.Context, q engine.Querier, s *engine.Stores) error) error {
	e, err := engineOf(db)
	if err != nil {
		return err
	}
	return e.Read(ctx, func(ctx context.Context, q engine.Querier) error { return f(ctx, q, &e.Stores) })
}

// clock returns the time of db's clock. db must have an engine, as it has within read.
func clock(db *honker.DB) time.Time { return engine.Of(db).Now() }

// engineOf returns db's engine, or ErrInvalid if db is nil.
func engineOf(db *honker.DB) (*engine.Engine, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: nil *honker.DB", honker.ErrInvalid)
	}
	return engine.Of(db), nil
}
