package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

//go:embed schema.sql
var schema string

// names of the customers. No two of them share one of the partitions, or the one that is down would
// hold up the other.
var names = []string{"acme", "blau", "cora"}

const (
	unreliable = "blau"
	partitions = 16
)

// webhook is the payload of a message.
type webhook struct {
	Customer string `json:"customer"`
	Order    int64  `json:"order"`
	Number   int64  `json:"number"` // of the customer's orders
}

// shop takes orders and tells its customers.
type shop struct {
	config
	db        *honker.DB
	relay     *relay.Relay
	hooks     *relay.Queue
	customers []*customer
	placed    atomic.Bool // all orders
	w         io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*shop, error) {
	// Failures of a customer stand in its line, and need no line in the log.
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := honker.Open(ctx, c.db, &honker.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	s := &shop{config: c, db: db, w: w}
	s.relay = relay.New(db, &relay.Options{Profile: relay.LowLatency, RetryMax: time.Second})
	s.hooks = s.relay.Queue("webhooks", partitions)
	if _, err := db.SQL().ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("create tables: %w", err), db.Close())
	}
	for _, name := range names {
		one, err := newCustomer(c.db, name)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.customers = append(s.customers, one)
	}
	return s, nil
}

func (s *shop) close() error {
	err := s.db.Close()
	for _, c := range s.customers {
		err = errors.Join(err, c.ledger.Close())
	}
	return err
}

// serve tells whether all webhooks have arrived. Without an error those that have are in order, and
// those that have not wait.
func (s *shop) serve(ctx context.Context) (all bool, err error) {
	began := time.Now()
	host, err := listen(s.customers, downtime{began.Add(time.Second), began.Add(time.Second + s.down)})
	if err != nil {
		return false, err
	}
	defer host.Close()
	s.hooks.Handle(s.deliverTo(host.url), relay.Lease(s.lease, s.lease/5))
	if err := s.work(ctx); err != nil {
		return false, err
	}
	t, err := readTable(context.WithoutCancel(ctx), s)
	if err != nil {
		return false, err
	}
	t.print(s.w)
	fmt.Fprintf(s.w, "It took %v.\n", time.Since(began).Round(time.Millisecond))
	return t.waiting() == 0, t.err()
}

// deliverTo posts each message to its customer's endpoint on a host.
func (s *shop) deliverTo(host string) func(context.Context, *relay.Message) error {
	sinks := make(map[string]func(context.Context, *relay.Message) error)
	for _, c := range s.customers {
		sinks[c.name] = relay.HTTP(nil, host+"/"+c.name, &relay.HTTPOptions{Secret: c.secret, Timeout: 2 * time.Second})
	}
	return func(ctx context.Context, m *relay.Message) error {
		var hook webhook
		if err := json.Unmarshal(m.Payload, &hook); err != nil {
			return relay.Reject(err)
		}
		sink, ok := sinks[hook.Customer]
		if !ok {
			return relay.Reject(fmt.Errorf("there is no customer %q", hook.Customer))
		}
		return sink(ctx, m)
	}
}

// work places orders, relays webhooks and shows how far they are. An error of one ends all.
func (s *shop) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	parts := []func(context.Context) error{s.placeOrders, s.relay.Run, s.watch}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			errs[i] = part(ctx)
			if errs[i] != nil || i == len(parts)-1 {
				stop()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// placeOrders goes on after those that earlier runs have placed.
func (s *shop) placeOrders(ctx context.Context) error {
	var done int
	if err := s.db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&done); err != nil {
		return unlessEnded(ctx, err)
	}
	for ; done < s.orders; done++ {
		if err := s.place(ctx, names[done%len(names)]); err != nil {
			return unlessEnded(ctx, err)
		}
		if s.rate == 0 {
			continue
		}
		select {
		case <-time.After(time.Second / time.Duration(s.rate)):
		case <-ctx.Done():
			return nil
		}
	}
	s.placed.Store(true)
	return nil
}

// unlessEnded is err, unless it comes of the end of ctx.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// place commits an order together with its webhook.
func (s *shop) place(ctx context.Context, name string) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		hook := webhook{Customer: name}
		err := tx.QueryRowContext(ctx, `INSERT INTO orders (customer, number)
			SELECT ?1, 1 + count(*) FROM orders WHERE customer = ?1 RETURNING id, number`, name).Scan(&hook.Order, &hook.Number)
		if err != nil {
			return err
		}
		body, err := json.Marshal(hook)
		if err != nil {
			return err
		}
		_, err = s.hooks.SendTx(ctx, tx, relay.Outgoing{Key: name, Payload: body})
		return err
	})
}

// watch shows how far each customer is until all webhooks have arrived or ctx ends.
func (s *shop) watch(ctx context.Context) error {
	d := newDisplay(s.w)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		placed := s.placed.Load() // before what waits, which then is all of it
		all, err := readStandings(context.WithoutCancel(ctx), s)
		if err != nil {
			return err
		}
		done := placed && waitingOf(all) == 0
		d.show(all, done)
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
