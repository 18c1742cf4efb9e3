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
	"sync/atomic"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

//go:embed schema.sql
var schema string

// names lists the customers. Each needs its own partition, because a customer that is down holds up
// its partition.
var names = []string{"acme", "blau", "cora"}

const (
	unreliable = "blau"
	partitions = 16
)

// webhook is the payload of a message.
type webhook struct {
	Customer string `json:"customer"`
	Order    int64  `json:"order"`
	Number   int64  `json:"number"` // 1, 2, 3 … for each customer
}

// shop places orders and sends webhooks to its customers.
type shop struct {
	config
	db        *honker.DB
	relay     *relay.Relay
	hooks     *relay.Queue
	customers []*customer
	placed    atomic.Bool // all orders have been placed
	w         io.Writer
}

func open(ctx context.Context, c config, w io.Writer) (*shop, error) {
	// The display shows failed deliveries. They need not be logged.
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

// serve reports whether all webhooks have arrived. If err is nil, the delivered webhooks are in
// order and all others are still waiting.
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

// deliverTo returns a handler that posts each message to the endpoint of its customer.
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
			return relay.Reject(fmt.Errorf("unknown customer %q", hook.Customer))
		}
		return sink(ctx, m)
	}
}

// work places orders, relays webhooks and shows the progress, until all webhooks have arrived.
func (s *shop) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return honker.Run(ctx, s.placeOrders, s.relay.Run, func(ctx context.Context) error {
		defer stop()
		return s.watch(ctx)
	})
}

// placeOrders places the orders that are still missing. Earlier runs may have placed some.
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

// unlessEnded returns nil if ctx is done, and err otherwise.
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

// watch shows the progress until all webhooks have arrived or ctx is done.
func (s *shop) watch(ctx context.Context) error {
	d := newDisplay(s.w)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		placed := s.placed.Load() // must be read first: the standings then include every webhook
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
