package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"
)

// goqiteDefault is goqite with its jobs.Runner, which polls every 100 ms.
func goqiteDefault() Contestant {
	return Contestant{
		Name:  "goqite",
		About: "jobs.Runner with its defaults (polls every 100 ms), README's SetMaxOpenConns(1)",
		Best:  10,
		Poll:  100 * time.Millisecond,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			q, err := openGoqite(ctx, path, d)
			return &goqiteRunner{q}, err
		},
	}
}

// goqiteTuned is goqite with loops of ReceiveAndWait and Delete at an interval of 1 ms. They were
// faster than a jobs.Runner with that interval.
func goqiteTuned() Contestant {
	return Contestant{
		Name:  "goqite tuned",
		About: "loops of ReceiveAndWait(1 ms) and Delete, README's SetMaxOpenConns(1)",
		Best:  1,
		Poll:  time.Millisecond,
		Open: func(ctx context.Context, path string, d Durability) (Queue, error) {
			return openGoqite(ctx, path, d)
		},
	}
}

type goqiteQueue struct {
	pool  *sql.DB
	queue *goqite.Queue
}

// goqiteSchema is schema_sqlite.sql of goqite, which its package does not export.
const goqiteSchema = `create table if not exists goqite (
  id text primary key default ('m_' || lower(hex(randomblob(16)))),
  created text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  updated text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  queue text not null,
  body blob not null,
  timeout text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  received integer not null default 0,
  priority integer not null default 0
) strict;
create trigger if not exists goqite_updated_timestamp after update on goqite begin
  update goqite set updated = strftime('%Y-%m-%dT%H:%M:%fZ') where id = old.id;
end;
create index if not exists goqite_queue_priority_created_idx on goqite (queue, priority desc, created);`

func openGoqite(ctx context.Context, path string, d Durability) (*goqiteQueue, error) {
	pool, err := openSingle(ctx, path, d, goqiteSchema)
	if err != nil {
		return nil, err
	}
	return &goqiteQueue{pool, goqite.New(goqite.NewOpts{DB: pool, Name: "bench", Timeout: time.Minute})}, nil
}

func goqiteMessage(n int64) goqite.Message { return goqite.Message{Body: []byte(payloadText(n))} }

func (g *goqiteQueue) Enqueue(ctx context.Context, n int64) error {
	return g.queue.Send(ctx, goqiteMessage(n))
}

func (g *goqiteQueue) EnqueueElsewhere(ctx context.Context) error {
	return goqite.New(goqite.NewOpts{DB: g.pool, Name: elsewhere}).Send(ctx, goqiteMessage(0))
}

func (g *goqiteQueue) EnqueueBatch(ctx context.Context, n int) error {
	return inTx(ctx, g.pool, func(tx *sql.Tx) error {
		for i := range n {
			if err := g.queue.SendTx(ctx, tx, goqiteMessage(int64(i))); err != nil {
				return err
			}
		}
		return nil
	})
}

func (g *goqiteQueue) EnqueueTx(ctx context.Context) error {
	return inTx(ctx, g.pool, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		return g.queue.SendTx(ctx, tx, goqiteMessage(0))
	})
}

func (g *goqiteQueue) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return g.loops(ctx, workers, func(m *goqite.Message, n int64) error {
		handle(n)
		return g.queue.Delete(ctx, m.ID)
	})
}

// WorkTx deletes the message in the transaction that inserts its receipt.
func (g *goqiteQueue) WorkTx(ctx context.Context, workers int, handle func(n int64)) error {
	return g.loops(ctx, workers, func(m *goqite.Message, n int64) error {
		defer handle(n)
		return inTx(ctx, g.pool, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertReceipt, n); err != nil {
				return err
			}
			return g.queue.DeleteTx(ctx, tx, m.ID)
		})
	})
}

func (g *goqiteQueue) loops(ctx context.Context, workers int, run func(m *goqite.Message, n int64) error) error {
	var all sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		all.Go(func() { errs[i] = g.loop(ctx, run) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (g *goqiteQueue) loop(ctx context.Context, run func(m *goqite.Message, n int64) error) error {
	for ctx.Err() == nil {
		m, err := g.queue.ReceiveAndWait(ctx, time.Millisecond)
		if err == nil && m != nil {
			var n int64
			if n, err = readPayload(m.Body); err == nil {
				err = run(m, n)
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (g *goqiteQueue) ClaimAck(ctx context.Context) error {
	m, err := g.queue.Receive(ctx)
	if err == nil && m == nil {
		err = errors.New("received nothing")
	}
	if err != nil {
		return err
	}
	return g.queue.Delete(ctx, m.ID)
}

const goqiteTime = `strftime('%Y-%m-%dT%H:%M:%fZ', `

var goqiteFill = map[Kind]string{
	Due:      `INSERT INTO goqite (queue, body) SELECT 'bench', ?2 FROM n`,
	InFlight: `INSERT INTO goqite (queue, body, received, timeout) SELECT 'bench', ?2, 1, ` + goqiteTime + `'now', '+1 day') FROM n`,
	Delayed:  `INSERT INTO goqite (queue, body, priority, timeout) SELECT 'bench', ?2, 9, ` + goqiteTime + `'now', '+1 day') FROM n`,
	Dead:     `INSERT INTO goqite (queue, body, received) SELECT 'bench', ?2, 3 FROM n`, // these remain in the table
}

func (g *goqiteQueue) Fill(ctx context.Context, kind Kind, n int) error {
	_, err := g.pool.ExecContext(ctx, numbers+goqiteFill[kind], n, []byte(payloadText(0)))
	return err
}

func (g *goqiteQueue) Unfinished(ctx context.Context) (int, error) {
	return count(ctx, g.pool, "goqite")
}

func (g *goqiteQueue) Idle(ctx context.Context, queues, _ int) error {
	return g.eachQueue(queues, func(q *goqiteQueue) error { return q.Work(ctx, 1, func(int64) {}) })
}

func (g *goqiteQueue) eachQueue(queues int, idle func(q *goqiteQueue) error) error {
	var all sync.WaitGroup
	errs := make([]error, queues)
	for i := range queues {
		q := &goqiteQueue{g.pool, goqite.New(goqite.NewOpts{DB: g.pool, Name: idleQueue(i)})}
		all.Go(func() { errs[i] = idle(q) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (g *goqiteQueue) SQL() *sql.DB { return g.pool }

func (g *goqiteQueue) Close() error { return g.pool.Close() }

// goqiteRunner is goqite with its own workers.
type goqiteRunner struct{ *goqiteQueue }

func (g *goqiteRunner) Enqueue(ctx context.Context, n int64) error {
	_, err := jobs.Create(ctx, g.queue, "bench", goqiteMessage(n))
	return err
}

func (g *goqiteRunner) EnqueueBatch(ctx context.Context, n int) error {
	return inTx(ctx, g.pool, func(tx *sql.Tx) error {
		for i := range n {
			if _, err := jobs.CreateTx(ctx, tx, g.queue, "bench", goqiteMessage(int64(i))); err != nil {
				return err
			}
		}
		return nil
	})
}

func (g *goqiteRunner) EnqueueTx(ctx context.Context) error {
	return inTx(ctx, g.pool, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
			return err
		}
		_, err := jobs.CreateTx(ctx, tx, g.queue, "bench", goqiteMessage(0))
		return err
	})
}

func (g *goqiteRunner) Work(ctx context.Context, workers int, handle func(n int64)) error {
	return g.run(ctx, workers, func(_ context.Context, n int64) error {
		handle(n)
		return nil
	})
}

// WorkTx inserts the receipt in a separate transaction, because the runner acks on its own.
func (g *goqiteRunner) WorkTx(ctx context.Context, workers int, handle func(n int64)) error {
	return g.run(ctx, workers, func(ctx context.Context, n int64) error {
		defer handle(n)
		_, err := g.pool.ExecContext(ctx, insertReceipt, n)
		return err
	})
}

func (g *goqiteRunner) run(ctx context.Context, workers int, f func(ctx context.Context, n int64) error) error {
	r := jobs.NewRunner(jobs.NewRunnerOpts{Queue: g.queue, Limit: workers})
	r.Register("bench", func(ctx context.Context, m []byte) error {
		n, err := readPayload(m)
		if err != nil {
			return err
		}
		return f(ctx, n)
	})
	r.Start(ctx)
	return nil
}

func (g *goqiteRunner) Idle(ctx context.Context, queues, _ int) error {
	return g.eachQueue(queues, func(q *goqiteQueue) error {
		return (&goqiteRunner{q}).Work(ctx, 1, func(int64) {})
	})
}

// ClaimAck is not supported: the runner wraps its messages in an envelope.
func (g *goqiteRunner) ClaimAck(context.Context) error {
	return fmt.Errorf("%w: see goqite tuned", errNA)
}
