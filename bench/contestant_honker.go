package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"

	"github.com/honker-go/honker"
)

// honkers is this project with default options.
func honkers() Contestant {
	return Contestant{
		Name:  honkerName,
		About: "the defaults; DB.Tx for the caller's transaction",
		Best:  8,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openHonker(ctx, path, d)
		},
	}
}

const honkerName = "honker"

type honkerQueue struct {
	db     *honker.DB
	queue  *honker.Queue[payload]
	stream *honker.Stream[payload]
}

func openHonker(ctx context.Context, path string, d Durability) (*honkerQueue, error) {
	opts := &honker.Options{Durability: honker.Normal, Logger: slog.New(slog.DiscardHandler)}
	if d == Full {
		opts.Durability = honker.Full
	}
	db, err := honker.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	_, err = db.SQL().ExecContext(ctx, businessSchema)
	return &honkerQueue{db, honker.NewQueue[payload](db, "bench", nil), honker.NewStream[payload](db, "bench", nil)}, err
}

func (h *honkerQueue) Enqueue(ctx context.Context, n int64) error {
	_, err := h.queue.Enqueue(ctx, newPayload(n))
	return err
}

func (h *honkerQueue) EnqueueElsewhere(ctx context.Context) error {
	_, err := honker.NewQueue[payload](h.db, elsewhere, nil).Enqueue(ctx, newPayload(0))
	return err
}

func (h *honkerQueue) EnqueueBatch(ctx context.Context, n int) error {
	_, err := h.queue.EnqueueMany(ctx, payloads(n))
	return err
}

func (h *honkerQueue) EnqueueTx(ctx context.Context) error {
	return h.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		_, err := h.queue.EnqueueTx(ctx, tx, newPayload(0))
		return err
	})
}

func (h *honkerQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return h.queue.Work(ctx, func(_ context.Context, job *honker.Job[payload]) error {
		handle(job.Args.N)
		return nil
	}, &honker.WorkOptions{Workers: workers})
}

func (h *honkerQueue) WorkTx(ctx context.Context, workers int, handle func(n int64)) error {
	return h.queue.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[payload]) error {
		_, err := tx.ExecContext(ctx, insertReceipt, job.ID)
		handle(job.Args.N)
		return err
	}, &honker.WorkOptions{Workers: workers})
}

func (h *honkerQueue) ClaimAck(ctx context.Context) error {
	jobs, err := h.queue.Claim(ctx, "bench", 1)
	if err == nil && len(jobs) != 1 {
		err = fmt.Errorf("claimed %d jobs", len(jobs))
	}
	if err != nil {
		return err
	}
	return jobs[0].Ack(ctx)
}

// honkerFill has statements that add jobs to the queue "bench". Jobs in flight are held by another
// worker, and delayed jobs have a higher priority.
var honkerFill = map[Kind]string{
	Due: `INSERT INTO _honker_live (queue, payload, run_at, created_at) SELECT 'bench', ?2, unixepoch() - 10, unixepoch() FROM n`,
	InFlight: `INSERT INTO _honker_live (queue, payload, state, worker_id, claim_expires_at, attempts, run_at)
SELECT 'bench', ?2, 'processing', 'other', unixepoch() + 100000, 1, unixepoch() - 50 FROM n`,
	Delayed: `INSERT INTO _honker_live (queue, payload, priority, run_at) SELECT 'bench', ?2, 9, unixepoch() + 100000 FROM n`,
	Dead:    `INSERT INTO _honker_dead (id, queue, payload) SELECT i + 1000000000, 'bench', ?2 FROM n`,
}

func fillHonker(ctx context.Context, pool *sql.DB, kind Kind, n int) error {
	_, err := pool.ExecContext(ctx, numbers+honkerFill[kind], n, payloadText(0))
	return err
}

func (h *honkerQueue) Fill(ctx context.Context, kind Kind, n int) error {
	return fillHonker(ctx, h.db.SQL(), kind, n)
}

func (h *honkerQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, h.db.SQL(), "_honker_live")
}

func (h *honkerQueue) Idle(ctx context.Context, queues, listeners int) error {
	var all sync.WaitGroup
	for i := range queues {
		q := honker.NewQueue[payload](h.db, idleQueue(i), nil)
		all.Go(func() { _ = q.Work(ctx, func(context.Context, *honker.Job[payload]) error { return nil }, nil) })
	}
	for i := range listeners {
		l, err := h.db.Listen(ctx, fmt.Sprintf("channel-%d", i))
		if err != nil {
			return err
		}
		all.Go(func() {
			for range l.All(ctx) {
				continue
			}
		})
	}
	all.Wait()
	return nil
}

func (h *honkerQueue) Publish(ctx context.Context, n int64) error {
	_, err := h.stream.Publish(ctx, newPayload(n))
	return err
}

func (h *honkerQueue) PublishBatch(ctx context.Context, n int) error {
	_, _, err := h.stream.PublishMany(ctx, payloads(n))
	return err
}

func (h *honkerQueue) Subscribe(ctx context.Context, consumer string, handle func(n int64)) error {
	for event, err := range h.stream.Subscribe(ctx, consumer, nil) {
		if err != nil {
			return err
		}
		handle(event.Data.N)
	}
	return nil
}

func (h *honkerQueue) SubscribeAcking(ctx context.Context, consumer string, handle func(n int64)) error {
	for event, err := range h.stream.Subscribe(ctx, consumer, &honker.SubscribeOptions{SaveEvery: -1, SaveInterval: -1}) {
		if err != nil {
			return err
		}
		if err := event.Ack(ctx); err != nil {
			return err
		}
		handle(event.Data.N)
	}
	return nil
}

func (h *honkerQueue) PublishKey(ctx context.Context, n int) error {
	_, err := h.stream.Publish(ctx, newPayload(int64(n)), honker.EventKey(fmt.Sprint(n)))
	return err
}

func (h *honkerQueue) SubscribeKeys(ctx context.Context, subscribers int, handle func(n int)) error {
	return each(subscribers, func(i int) error {
		only := &honker.SubscribeOptions{Filter: honker.KeyIs(fmt.Sprint(i))}
		for _, err := range h.stream.Subscribe(ctx, fmt.Sprint("subscriber-", i), only) {
			if err != nil {
				return err
			}
			handle(i)
		}
		return nil
	})
}

func (h *honkerQueue) Member(ctx context.Context, group, member string, handle func(n int64)) error {
	return h.stream.Group(group, nil).Work(ctx, func(_ context.Context, d *honker.Delivery[payload]) error {
		handle(d.Data.N)
		return nil
	}, &honker.GroupWorkOptions{Member: member, Workers: 1})
}

func (h *honkerQueue) SQL() *sql.DB { return h.db.SQL() }

func (h *honkerQueue) Close() error { return h.db.Close() }
