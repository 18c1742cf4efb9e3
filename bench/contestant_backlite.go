package main

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/mikestefanello/backlite"
)

// backlites is backlite on a single connection, which avoids SQLITE_BUSY. It does not poll: its
// workers are woken only by enqueues of the same process.
func backlites() Contestant {
	return Contestant{
		Name:  "backlite",
		About: "its README's settings, ReleaseAfter 10 min, SetMaxOpenConns(1); best with 100 workers, since its fetcher sleeps 100 ms while none is free; deaf to other processes",
		Best:  100,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openBacklite(ctx, path, d)
		},
	}
}

type backliteQueue struct {
	pool   *sql.DB
	client atomic.Pointer[backlite.Client] // the working client, so that an enqueue can wake it
}

type backliteTask struct{ payload }

// Config implements backlite.Task.
func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "bench", MaxAttempts: 3, Timeout: time.Minute, Backoff: time.Second}
}

func openBacklite(ctx context.Context, path string, d Durability) (*backliteQueue, error) {
	pool, err := openSingle(ctx, path, d, "")
	if err != nil {
		return nil, err
	}
	b := &backliteQueue{pool: pool}
	client, err := b.connect(1, func(context.Context, backliteTask) error { return nil })
	if err != nil {
		return nil, err
	}
	return b, client.Install()
}

func (b *backliteQueue) connect(workers int, handle func(context.Context, backliteTask) error) (*backlite.Client, error) {
	client, err := backlite.NewClient(backlite.ClientConfig{DB: b.pool, NumWorkers: workers, ReleaseAfter: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	client.Register(backlite.NewQueue(handle))
	b.client.Store(client)
	return client, nil
}

func (b *backliteQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := b.client.Load().Add(backliteTask{newPayload(n)}).Ctx(ctx).Save()
	return err
}

func (b *backliteQueue) EnqueueBatch(ctx context.Context, n int) error {
	tasks := make([]backlite.Task, n)
	for i := range tasks {
		tasks[i] = backliteTask{newPayload(int64(i))}
	}
	_, err := b.client.Load().Add(tasks...).Ctx(ctx).Save()
	return err
}

func (b *backliteQueue) EnqueueTx(ctx context.Context) error {
	client := b.client.Load()
	err := inTx(ctx, b.pool, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		_, err := client.Add(backliteTask{newPayload(0)}).Ctx(ctx).Tx(tx).Save()
		return err
	})
	return err
}

func (b *backliteQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return b.work(ctx, workers, func(_ context.Context, t backliteTask) error {
		handle(t.N)
		return nil
	})
}

func (b *backliteQueue) work(ctx context.Context, workers int, handle func(context.Context, backliteTask) error) error {
	client, err := b.connect(workers, handle)
	if err != nil {
		return err
	}
	client.Start(context.WithoutCancel(ctx))
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	client.Stop(stop)
	return nil
}

// WorkTx inserts the receipt in a separate transaction, because backlite cannot ack in the caller's
// transaction.
func (b *backliteQueue) WorkTx(ctx context.Context, workers int, handle func(n int64)) error {
	return b.work(ctx, workers, func(ctx context.Context, t backliteTask) error {
		_, err := b.pool.ExecContext(ctx, insertReceipt, t.N)
		handle(t.N)
		return err
	})
}

var backliteFill = map[Kind]string{
	Due: `INSERT INTO backlite_tasks (id, created_at, queue, task)
SELECT lower(hex(randomblob(16))), unixepoch() * 1000, 'bench', ?2 FROM n`,
	InFlight: `INSERT INTO backlite_tasks (id, created_at, queue, task, claimed_at, attempts)
SELECT lower(hex(randomblob(16))), unixepoch() * 1000, 'bench', ?2, unixepoch() * 1000, 1 FROM n`,
	Delayed: `INSERT INTO backlite_tasks (id, created_at, queue, task, wait_until)
SELECT lower(hex(randomblob(16))), unixepoch() * 1000, 'bench', ?2, (unixepoch() + 100000) * 1000 FROM n`,
	Dead: `INSERT INTO backlite_tasks_completed (id, created_at, queue, attempts, succeeded, task)
SELECT lower(hex(randomblob(16))), unixepoch() * 1000, 'bench', 3, 0, ?2 FROM n`,
}

func (b *backliteQueue) Fill(ctx context.Context, kind Kind, n int) error {
	_, err := b.pool.ExecContext(ctx, numbers+backliteFill[kind], n, []byte(payloadText(0)))
	return err
}

func (b *backliteQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, b.pool, "backlite_tasks")
}

// Idle runs the single dispatcher that serves all queues of a client. There are no listeners.
func (b *backliteQueue) Idle(ctx context.Context, _, _ int) error {
	return b.Work(ctx, 10, func(int64) {})
}

func (b *backliteQueue) SQL() *sql.DB { return b.pool }

func (b *backliteQueue) Close() error { return b.pool.Close() }
