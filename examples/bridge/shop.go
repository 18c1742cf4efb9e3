package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

//go:embed shop.sql
var shopSchema string

// customers place the orders in turn.
var customers = []string{"acme", "blau", "cora"}

// shop is the sending node.
type shop struct {
	nodeConfig
	db     *honker.DB
	relay  *relay.Relay
	orders *relay.Queue
}

// runShop places orders and relays them until ctx is done.
func runShop(ctx context.Context, c nodeConfig) error {
	db, err := openNode(ctx, c.dir, shopNode, shopSchema)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	s := newShop(c, db)
	s.orders.Handle(relay.HTTP(throughSocket(c.socket), "http://warehouse/orders", &relay.HTTPOptions{
		Secret: c.secret,
		Source: shopNode, // namespaces the message ids, so that two shops cannot collide
	}), relay.Lease(c.lease, c.lease/4))
	return errors.Join(honker.Run(ctx, s.placeOrders, s.relay.Run), db.Close())
}

func newShop(c nodeConfig, db *honker.DB) *shop {
	s := &shop{nodeConfig: c, db: db}
	s.relay = relay.New(db, &relay.Options{Profile: relay.LowLatency, RetryMax: 200 * time.Millisecond})
	s.orders = s.relay.Queue("orders", 4)
	return s
}

// throughSocket returns a client that reaches the warehouse through its Unix socket. Over TCP,
// http.DefaultClient would be enough.
func throughSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// burst is the number of orders placed at once. It leaves some in flight when a node is killed.
const burst = 20

// placeOrders places the orders that are still missing. Earlier processes may have placed some.
func (s *shop) placeOrders(ctx context.Context) error {
	var placed int
	if err := s.db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM orders`).Scan(&placed); err != nil {
		return err
	}
	for ; placed < s.nodeConfig.orders; placed++ {
		if err := s.place(ctx, customers[placed%len(customers)]); err != nil {
			return err
		}
		if s.rate == 0 || placed%burst != 0 {
			continue
		}
		select {
		case <-time.After(burst * time.Second / time.Duration(s.rate)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// place commits an order together with its message.
func (s *shop) place(ctx context.Context, customer string) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		o := order{Customer: customer}
		err := tx.QueryRowContext(ctx, `INSERT INTO orders (customer, number, cents)
			SELECT ?1, 1 + count(*), 100 + abs(random() % 10000) FROM orders WHERE customer = ?1 RETURNING id, number, cents`, customer).
			Scan(&o.ID, &o.Number, &o.Cents)
		if err != nil {
			return err
		}
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		_, err = s.orders.SendTx(ctx, tx, relay.Outgoing{Key: customer, Payload: body})
		return err
	})
}
