package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPostgresTuned is River with the shortest FetchCooldown that it accepts, and with the FetchPollInterval of its own
// benchmark, riverbench. With polls each second, it worked backlogs more slowly.
func riverPostgresTuned() Contestant {
	return Contestant{
		Name:  "River tuned",
		About: "riverpgxv5 on a pgxpool of 70, FetchCooldown 1 ms, which is its minimum, FetchPollInterval 20 ms as in its own benchmark, InsertManyFast",
		Open:  openRiverPostgres(river.Config{FetchCooldown: time.Millisecond, FetchPollInterval: 20 * time.Millisecond}),
	}
}

// riverPostgres is River with its default intervals.
func riverPostgres() Contestant {
	return Contestant{
		Name:  "River",
		About: "riverpgxv5 on a pgxpool of 70, defaults (FetchCooldown 100 ms, FetchPollInterval 1 s), InsertManyFast",
		Poll:  100 * time.Millisecond, // it starts a job at once if the last fetch was longer ago than the cooldown
		Open:  openRiverPostgres(river.Config{}),
	}
}

type riverPostgresQueue struct {
	*database
	driver *riverpgxv5.Driver
	config river.Config
	insert *river.Client[pgx.Tx]
}

func openRiverPostgres(config river.Config) func(ctx context.Context, path string, d Durability) (Queue, error) {
	config.Logger = slog.New(slog.DiscardHandler)
	return func(ctx context.Context, path string, d Durability) (Queue, error) {
		db, err := openDatabase(ctx, path, d)
		if err != nil {
			return nil, err
		}
		r := &riverPostgresQueue{database: db, driver: riverpgxv5.New(db.pool), config: config}
		if db.made {
			migrator, err := rivermigrate.New(r.driver, &rivermigrate.Config{Logger: config.Logger})
			if err != nil {
				return nil, err
			}
			if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
				return nil, err
			}
		}
		r.insert, err = river.NewClient(r.driver, &r.config)
		return r, err
	}
}

func (r *riverPostgresQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := r.insert.Insert(ctx, riverArgs{newPayload(n)}, nil)
	return err
}

func (r *riverPostgresQueue) EnqueueBatch(ctx context.Context, n int) error {
	return r.EnqueueNumbers(ctx, 0, n)
}

func (r *riverPostgresQueue) EnqueueNumbers(ctx context.Context, first int64, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = riverArgs{newPayload(first + int64(i))}
	}
	_, err := r.insert.InsertManyFast(ctx, params)
	return err
}

func (r *riverPostgresQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return r.work(ctx, map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, handle)
}

func (r *riverPostgresQueue) work(ctx context.Context, queues map[string]river.QueueConfig, handle func(n int64)) error {
	config := r.config
	config.Queues = queues
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		handle(job.Args.N)
		return nil
	}))
	client, err := river.NewClient(r.driver, &config)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := client.StopAndCancel(stop); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (r *riverPostgresQueue) Idle(ctx context.Context, queues, _ int) error {
	all := map[string]river.QueueConfig{}
	for i := range queues {
		all[idleQueue(i)] = river.QueueConfig{MaxWorkers: 2}
	}
	return r.work(ctx, all, func(int64) {})
}

func (r *riverPostgresQueue) Age(ctx context.Context, n int) error {
	return r.age(ctx, n, `INSERT INTO river_job (args, kind, max_attempts) SELECT $2::text::jsonb, 'bench', 25 FROM generate_series(1, $1::int)`,
		`UPDATE river_job SET state = 'running', attempt = 1, attempted_at = now(), attempted_by = '{bench}' WHERE state = 'available'`,
		`UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running'`)
}

func (r *riverPostgresQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, r.sql, "river_job WHERE state IN ('available', 'running', 'retryable')")
}
