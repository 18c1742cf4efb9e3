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

// Webhook is a call of a customer's endpoint.
type Webhook struct {
	Tenant string
	Number int
}

// few is how much the customers have to do that are not noisy.
const few = 10

// tenants are the customers.
var tenants = []string{"acme", "bolt", "crux"}

// service works off the queues of one file by two handles of it, as two processes would.
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

// scenario is a queue with its limits and the endpoints that its jobs call.
type scenario struct {
	*service
	queue     *honker.Queue[Webhook]
	endpoints endpoints
	began     time.Time
	questions []*question
}

func (s *service) newScenario(ctx context.Context, queue string, l honker.Limits) (*scenario, error) {
	sc := &scenario{service: s, queue: newQueue(s.dbs[0], queue), endpoints: newEndpoints(s.work), began: time.Now()}
	return sc, sc.queue.SetLimits(ctx, l) // in the file, so it holds for both handles
}

func newQueue(db *honker.DB, name string) *honker.Queue[Webhook] {
	return honker.NewQueue[Webhook](db, name, &honker.QueueOptions{MaxAttempts: 3})
}

// enqueue adds n webhooks of a customer, with the customer for their key, and returns the last.
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

// workers is how many handlers each handle of the file has.
const workers = 8

// deliver works the queue off and shows how it goes, until nothing is left.
func (sc *scenario) deliver(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(sc.dbs))
	for _, db := range sc.dbs {
		go func() {
			ended <- newQueue(db, sc.queue.Name()).Work(working, sc.endpoints.handle, &honker.WorkOptions{Workers: workers})
			stop() // Work ends before its ctx only when it has failed
		}()
	}
	err := sc.watch(working)
	stop()
	for range sc.dbs {
		err = errors.Join(err, <-ended)
	}
	return errors.Join(err, ctx.Err())
}

// look is how often the scenario looks whether all is done, and show after how many looks it says so.
const (
	look = 50 * time.Millisecond
	show = 8
)

// watch waits until no job waits or runs.
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

// lying reports whether there are jobs of a key. A key that is paused and has none is told of too.
func lying(keys []honker.KeyStats) bool {
	for _, k := range keys {
		if k.Running+k.Held+k.Waiting > 0 {
			return true
		}
	}
	return false
}

// dead counts the jobs of the queue that have been given up.
func (sc *scenario) dead(ctx context.Context) (int64, error) {
	stats, err := sc.queue.Stats(ctx)
	return stats.Dead.N, err
}

func (sc *scenario) say(format string, args ...any) { fmt.Fprintf(sc.w, format+"\n", args...) }
