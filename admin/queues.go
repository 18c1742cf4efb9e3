package admin

import (
	"context"
	"fmt"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
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
	rows, err := e.Stats(ctx, "")
	if err != nil {
		return nil, engine.Wrap("list queues", "", err)
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
