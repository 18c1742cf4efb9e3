package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Queues returns what lies in each queue that has jobs or dead letters, or is paused, by name, all
// counted at one moment. It costs what [honker.Queue.Stats] costs for each queue, and keeps large counts for as
// long as that does. OldestReady and NextAt are new, but those of more than 100 queues are kept for fifty
// times as long as it took to look them up, half a second for 500; Pause is always new. A read that
// blocks ends with ctx. nil as the DB is [honker.ErrInvalid].
func Queues(ctx context.Context, db *honker.DB) ([]honker.QueueStats, error) {
	e, err := engineOf(db)
	if err != nil {
		return nil, engine.Wrap("list queues", "", err)
	}
	all, err := statsOf(ctx, e, "")
	return all, engine.Wrap("list queues", "", err)
}

// LimitedQueues is like [Queues] for the queues that have limits, see [honker.Queue.SetLimits], whether there is a job in
// them or not.
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
		limits, err = e.Limits.All(ctx, q)
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

// statsOf returns the statistics of a queue, or of all for "".
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

// read runs f on a connection of db. It may run again after an error.
func read(ctx context.Context, db *honker.DB, f func(ctx context.Context, q engine.Querier) error) error {
	e, err := engineOf(db)
	if err != nil {
		return err
	}
	return e.Read(ctx, f)
}

// engineOf is the engine of db, for every function of the package.
func engineOf(db *honker.DB) (*engine.Engine, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: nil *honker.DB", honker.ErrInvalid)
	}
	return engine.Of(db), nil
}
