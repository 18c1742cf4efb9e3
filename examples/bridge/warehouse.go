package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/inbox"
)

//go:embed warehouse.sql
var warehouseSchema string

// warehouse is the receiving node.
type warehouse struct {
	db      *honker.DB
	packing *honker.Queue[order]
}

// runWarehouse receives orders and packs them until ctx is done.
func runWarehouse(ctx context.Context, c nodeConfig) error {
	db, err := openNode(ctx, c.dir, warehouseNode, warehouseSchema)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	w := &warehouse{db: db, packing: honker.NewQueue[order](db, "packing", nil)}
	return errors.Join(w.serve(ctx, c), db.Close())
}

func (w *warehouse) serve(ctx context.Context, c nodeConfig) error {
	in, err := inbox.New(w.db, &inbox.Options{
		Source:   shopNode,
		Secrets:  []string{c.secret},
		Observer: &inbox.Observer{Duplicate: w.countRepeated},
	})
	if err != nil {
		return err
	}
	_ = os.Remove(c.socket) // a killed process leaves its socket behind
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/orders", in.Handler(w.receive))
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second}
	return honker.Run(ctx,
		func(ctx context.Context) error {
			return w.packing.WorkTx(ctx, pack, &honker.WorkOptions{Lease: c.lease})
		},
		func(ctx context.Context) error {
			context.AfterFunc(ctx, func() { _ = server.Close() })
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	)
}

// receive stores an order and enqueues the job that packs it. Both happen in the transaction in
// which the inbox records the message.
func (w *warehouse) receive(ctx context.Context, tx *sql.Tx, m *inbox.Message) error {
	var o order
	if err := m.Decode(&o); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO received (id, customer, number, cents) VALUES (?, ?, ?, ?)`, o.ID, o.Customer, o.Number, o.Cents)
	if err != nil {
		return err
	}
	_, err = w.packing.EnqueueTx(ctx, tx, o)
	return err
}

// countRepeated records a message that was delivered again.
func (w *warehouse) countRepeated(r inbox.Received) {
	_, _ = w.db.SQL().Exec(`INSERT INTO repeated (id) VALUES (?)`, r.ID) // informational, so errors are ignored
}

// pack packs an order in the transaction that acks its job.
func pack(ctx context.Context, tx *sql.Tx, job *honker.Job[order]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO packed (id) VALUES (?)`, job.Args.ID)
	return err
}
