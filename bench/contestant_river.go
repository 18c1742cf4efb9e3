package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// riverDefault is River with its default intervals.
func riverDefault() Contestant {
	return Contestant{
		Name:  "River",
		About: "riversqlite, defaults (FetchCooldown 100 ms, FetchPollInterval 1 s), SetMaxOpenConns(1) as its driver advises",
		Best:  100, // as in River's examples
		Poll:  time.Second,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openRiver(ctx, path, d, river.Config{})
		},
	}
}

// riverTuned is River with the intervals and the number of workers of its own benchmark,
// riverbench.
func riverTuned() Contestant {
	return Contestant{
		Name:  "River tuned",
		About: "riversqlite, the settings of River's own benchmark (FetchCooldown 2 ms, FetchPollInterval 20 ms, best with 2,000 workers), InsertManyFast, SetMaxOpenConns(1)",
		Best:  2000,
		Poll:  20 * time.Millisecond,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openRiver(ctx, path, d, river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond})
		},
	}
}

type riverQueue struct {
	pool   *sql.DB
	driver *riversqlite.Driver
	config river.Config
	insert *river.Client[*sql.Tx]
}

type riverArgs struct{ payload }

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "bench" }

func openRiver(ctx context.Context, path string, d Durability, config river.Config) (*riverQueue, error) {
	pool, err := openSingle(ctx, path, d, "")
	if err != nil {
		return nil, err
	}
	config.Logger = slog.New(slog.DiscardHandler)
	r := &riverQueue{pool: pool, driver: riversqlite.New(pool), config: config}
	migrator, err := rivermigrate.New(r.driver, &rivermigrate.Config{Logger: config.Logger})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	r.insert, err = river.NewClient(r.driver, &config)
	return r, err
}

func (r *riverQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := r.insert.Insert(ctx, riverArgs{newPayload(n)}, nil)
	return err
}

func (r *riverQueue) EnqueueElsewhere(ctx context.Context) error {
	_, err := r.insert.Insert(ctx, riverArgs{newPayload(0)}, &river.InsertOpts{Queue: elsewhere})
	return err
}

func (r *riverQueue) EnqueueBatch(ctx context.Context, n int) error {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = riverArgs{newPayload(int64(i))}
	}
	_, err := r.insert.InsertManyFast(ctx, params)
	return err
}

func (r *riverQueue) EnqueueTx(ctx context.Context) error {
	return inTx(ctx, r.pool, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		_, err := r.insert.InsertTx(ctx, tx, riverArgs{newPayload(0)}, nil)
		return err
	})
}

func (r *riverQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return r.work(ctx, map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		func(_ context.Context, job *river.Job[riverArgs]) error {
			handle(job.Args.N)
			return nil
		})
}

// WorkTx completes the job in the transaction that inserts its receipt.
func (r *riverQueue) WorkTx(ctx context.Context, workers int, handle func(n int64)) error {
	return r.work(ctx, map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		func(ctx context.Context, job *river.Job[riverArgs]) error {
			defer handle(job.Args.N)
			return inTx(ctx, r.pool, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insertReceipt, job.ID); err != nil {
					return err
				}
				_, err := river.JobCompleteTx[*riversqlite.Driver](ctx, tx, job)
				return err
			})
		})
}

func (r *riverQueue) work(ctx context.Context, queues map[string]river.QueueConfig, f func(context.Context, *river.Job[riverArgs]) error) error {
	config := r.config
	config.Queues = queues
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(f))
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

var riverFill = map[Kind]string{
	Due: `INSERT INTO river_job (args, kind, max_attempts) SELECT jsonb(?2), 'bench', 25 FROM n`,
	InFlight: `INSERT INTO river_job (args, kind, max_attempts, state, attempt, attempted_at)
SELECT jsonb(?2), 'bench', 25, 'running', 1, CURRENT_TIMESTAMP FROM n`,
	Delayed: `INSERT INTO river_job (args, kind, max_attempts, state, scheduled_at)
SELECT jsonb(?2), 'bench', 25, 'scheduled', datetime('now', '+1 day') FROM n`,
	Dead: `INSERT INTO river_job (args, kind, max_attempts, state, finalized_at)
SELECT jsonb(?2), 'bench', 25, 'discarded', CURRENT_TIMESTAMP FROM n`,
}

func (r *riverQueue) Fill(ctx context.Context, kind Kind, n int) error {
	_, err := r.pool.ExecContext(ctx, numbers+riverFill[kind], n, payloadText(0))
	return err
}

func (r *riverQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, r.pool, "river_job WHERE state IN ('available', 'running', 'retryable')")
}

func (r *riverQueue) Idle(ctx context.Context, queues, _ int) error {
	all := map[string]river.QueueConfig{}
	for i := range queues {
		all[idleQueue(i)] = river.QueueConfig{MaxWorkers: 2}
	}
	return r.work(ctx, all, func(context.Context, *river.Job[riverArgs]) error { return nil })
}

func (r *riverQueue) SQL() *sql.DB { return r.pool }

func (r *riverQueue) Close() error { return r.pool.Close() }
