package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
)

// jobStore are the statements about jobs.
type jobStore interface {
	AllStats(ctx context.Context, q engine.Querier, now int64) ([]store.QueueStats, error)
}

var jobs jobStore = store.Jobs{}

// Queues returns what lies in each queue that has jobs or dead letters, by name, all of one
// moment. It costs what [honker.Queue.Stats] costs for each queue. A read that blocks ends with ctx.
// nil as the DB is [honker.ErrInvalid].
func Queues(ctx context.Context, db *honker.DB) ([]honker.QueueStats, error) {
	var all []honker.QueueStats
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		now := time.Now()
		rows, err := jobs.AllStats(ctx, q, now.Unix())
		all = make([]honker.QueueStats, len(rows))
		for i, row := range rows {
			all[i] = engine.View().Stats(row, now).(honker.QueueStats)
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list queues", "", err)
	}
	return all, nil
}

// read runs f on a connection of db. It may run again after an error.
func read(ctx context.Context, db *honker.DB, f func(ctx context.Context, q engine.Querier) error) error {
	if db == nil {
		return fmt.Errorf("%w: nil *honker.DB", honker.ErrInvalid)
	}
	return engine.Of(db).Read(ctx, f)
}
