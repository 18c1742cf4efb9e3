package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
)

// Webhook is the payload of a job: a call of a customer's endpoint.
type Webhook struct {
	Tenant string
	Number int
}

// few is the number of jobs for a quiet customer.
const few = 10

// tenants lists the customers.
var tenants = []string{"acme", "bolt", "crux"}

// service works the queues through two handles of the same database, as two processes would.
type service struct {
	config
	dbs [2]*honker.DB
	w   io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*service, error) {
	if err := os.MkdirAll(filepath.Dir(c.db), 0o755); err != nil {
		return nil, err
	}
	s := &service{config: c, w: w}
	for i := range s.dbs {
		db, err := honker.Open(ctx, c.db, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.dbs[i] = db
	}
	return s, nil
}

func (s *service) close() (err error) {
	for _, db := range s.dbs {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// scenario is a queue with limits and the endpoints that its jobs call.
type scenario struct {
	*service
	queue     *honker.Queue[Webhook]
	endpoints endpoints
	began     time.Time
	questions []*question
}

func (s *service) newScenario(ctx context.Context, queue string, l honker.Limits) (*scenario, error) {
	sc := &scenario{service: s, queue: newQueue(s.dbs[0], queue), endpoints: newEndpoints(s.work), began: time.Now()}
	return sc, sc.queue.SetLimits(ctx, l) // stored in the database, so it applies to both handles
}

func newQueue(db *honker.DB, name string) *honker.Queue[Webhook] {
	return honker.NewQueue[Webhook](db, name, &honker.QueueOptions{MaxAttempts: 3})
}

// enqueue adds n webhooks with the customer as their key. It returns the id of the last job.
func (sc *scenario) enqueue(ctx context.Context, tenant string, n int) (last int64, err error) {
	hooks := make([]Webhook, n)
	for i := range hooks {
		hooks[i] = Webhook{tenant, i + 1}
	}
	ids, err := sc.queue.EnqueueMany(ctx, hooks, honker.Key(tenant))
	if err != nil {
		return 0, err
	}
	return ids[len(ids)-1], nil
}

// workers is the number of concurrent jobs per handle.
const workers = 8

// deliver works the queue through both handles and shows the progress until the queue is empty.
func (sc *scenario) deliver(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	loops := []func(context.Context) error{func(ctx context.Context) error {
		defer stop()
		return sc.watch(ctx)
	}}
	for _, db := range sc.dbs {
		loops = append(loops, func(ctx context.Context) error {
			return newQueue(db, sc.queue.Name()).Work(ctx, sc.endpoints.handle, &honker.WorkOptions{Workers: workers})
		})
	}
	return errors.Join(honker.Run(working, loops...), ctx.Err())
}

// look is the polling interval. The progress is printed every show polls.
const (
	look = 50 * time.Millisecond
	show = 8
)

// watch waits until no job is waiting or running.
func (sc *scenario) watch(ctx context.Context) error {
	ticks := time.NewTicker(look)
	defer ticks.Stop()
	for i := 1; ctx.Err() == nil; i++ {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		keys, err := sc.queue.Keys(ctx)
		if err != nil {
			return err
		}
		if err := sc.explain(ctx); err != nil {
			return err
		}
		if i%show == 0 {
			sc.printKeys(keys)
		}
		if !lying(keys) {
			return nil
		}
	}
	return nil
}

// lying reports whether any jobs are left. A paused key is listed even if it has no jobs.
func lying(keys []honker.KeyStats) bool {
	for _, k := range keys {
		if k.Running+k.Held+k.Waiting > 0 {
			return true
		}
	}
	return false
}

// dead returns the number of dead jobs in the queue.
func (sc *scenario) dead(ctx context.Context) (int64, error) {
	stats, err := sc.queue.Stats(ctx)
	return stats.Dead.N, err
}

func (sc *scenario) say(format string, args ...any) { fmt.Fprintf(sc.w, format+"\n", args...) }
