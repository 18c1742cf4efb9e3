package main

import (
	"context"
	"log/slog"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

// honkerPostgres is module honkerpg with default options.
func honkerPostgres() Contestant {
	return Contestant{
		Name:  honkerName,
		About: "honkerpg, the defaults (two pools of up to 16 connections)",
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			db, err := openDatabase(ctx, path, d)
			if err != nil {
				return nil, err
			}
			own, err := honkerpg.Open(ctx, db.dsn, &honkerpg.Options{Options: honker.Options{Logger: slog.New(slog.DiscardHandler)}})
			return &honkerPostgresQueue{honkerQueue{own, honker.NewQueue[payload](own, "bench", nil), honker.NewStream[payload](own, "bench", nil)}, db}, err
		},
	}
}

// honkerPostgresQueue uses the same handles as honkerQueue. db is for the statements of the suite.
type honkerPostgresQueue struct {
	honkerQueue
	suite *database
}

func (h *honkerPostgresQueue) EnqueueNumbers(ctx context.Context, first int64, n int) error {
	args := make([]payload, n)
	for i := range args {
		args[i] = newPayload(first + int64(i))
	}
	_, err := h.queue.EnqueueMany(ctx, args)
	return err
}

func (h *honkerPostgresQueue) Age(ctx context.Context, n int) error {
	return h.suite.age(ctx, n, `INSERT INTO honker.job (queue, payload, run_at, created_at) SELECT 'bench', $2, clock_timestamp(), clock_timestamp() FROM generate_series(1, $1::int)`,
		`UPDATE honker.job SET state = 1, worker = 'aged', lease_until = clock_timestamp() + interval '1 minute', attempts = 1`, `DELETE FROM honker.job`)
}

func (h *honkerPostgresQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, h.suite.sql, "honker.job")
}

func (h *honkerPostgresQueue) Close() error {
	if err := h.honkerQueue.Close(); err != nil {
		return err
	}
	return h.suite.Close()
}
