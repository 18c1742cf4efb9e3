// Flow runs orders as functions that survive: an order is paid, waits for an approval, is shipped by a flow of its own,
// and is undone if it fails. If the program is killed and started again, it goes on. See README.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
	"github.com/honker-go/honker/ui"
)

// config holds the values of the flags.
type config struct {
	db, ui         string
	approval, pack time.Duration
	lease          time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 1 if the run fails, 2 for invalid flags.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c config
	f := flag.NewFlagSet("flow", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.db, "db", filepath.Join(os.TempDir(), "honker-flow.db"), "database `file`, which a later run goes on with")
	f.StringVar(&c.ui, "ui", "", "serve the dashboard on this `address` until the program is interrupted")
	f.DurationVar(&c.approval, "approval", 2*time.Second, "time until an order is approved or refused")
	f.DurationVar(&c.pack, "pack", 3*time.Second, "time that packing takes")
	f.DurationVar(&c.lease, "lease", 5*time.Second, "lease of the runs; those of a killed process wait this long")
	if f.Parse(args) != nil {
		return 2
	}
	if err := serve(ctx, c, stdout); err != nil {
		fmt.Fprintln(stderr, "flow:", err)
		return 1
	}
	return 0
}

// shop holds the flows and the services that they use.
type shop struct {
	db       *honker.DB
	bank     bank
	packing  time.Duration
	orders   *flow.Flow[Order, string]
	shipping *flow.Flow[Order, string]
}

// orders are the orders of the example.
var orders = []Order{{"order-1", "tea", 20}, {"order-2", "desk", 300}, {"order-3", "sofa", 500}, {"order-4", "vase", 40}}

func serve(ctx context.Context, c config, stdout io.Writer) error {
	db, err := honker.Open(ctx, c.db, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	s := &shop{db: db, bank: bank{path: c.db + ".bank"}, packing: c.pack}
	s.orders = flow.New(db, "order", s.order, nil)
	s.shipping = flow.New(db, "ship", s.ship, nil)
	if err := s.prepare(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() {
		w := honker.NewWorkers(db, nil)
		flow.Handle(w, s.orders)
		flow.Handle(w, s.shipping)
		worked <- w.Work(working, &honker.WorkOptions{Lease: c.lease})
	}()
	served := make(chan error, 1)
	if c.ui == "" {
		served <- nil
	} else {
		go func() { served <- s.dashboard(working, c.ui, stdout) }()
	}
	err = s.show(ctx, c, stdout)
	if err != nil {
		stop()
	}
	err = errors.Join(err, <-served)
	stop()
	if err = errors.Join(err, <-worked); ctx.Err() != nil {
		return nil // interrupted
	}
	return err
}

// prepare creates the tables and starts the orders, in a single transaction. Orders of an earlier run exist already.
func (s *shop) prepare(ctx context.Context) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, stmt := range []string{
			`CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, n INTEGER NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS parcels (parcel TEXT NOT NULL)`,
			`INSERT INTO stock VALUES ('tea', 9), ('desk', 9), ('sofa', 9), ('vase', 9) ON CONFLICT DO NOTHING`,
		} {
			if _, err := tx.ExecContext(ctx, stmt); err != nil {
				return err
			}
		}
		for _, o := range orders {
			if _, err := s.orders.StartTx(ctx, tx, o.ID, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// giveBack undoes the step "reserve". It marks the order in its transaction, because an undo may run again after a crash.
func (s *shop) giveBack(ctx context.Context, o Order) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS given_back (id TEXT PRIMARY KEY)`)
		if err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, `INSERT INTO given_back VALUES (?) ON CONFLICT DO NOTHING`, o.ID)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE stock SET n = n + 1 WHERE item = ?`, o.Item)
		return err
	})
}

// show decides about the orders, and prints how each has ended.
func (s *shop) show(ctx context.Context, c config, stdout io.Writer) error {
	select {
	case <-time.After(c.approval):
	case <-ctx.Done():
		return nil
	}
	for _, o := range orders {
		err := flow.Signal(ctx, s.db, "order", o.ID, "approved", o.Total < 400)
		if err != nil && !errors.Is(err, flow.ErrSignalled) && !errors.Is(err, honker.ErrNotFound) {
			return err
		}
	}
	for _, o := range orders {
		parcel, err := s.orders.Result(ctx, o.ID)
		var failed *flow.FailedError
		switch {
		case errors.As(err, &failed):
			fmt.Fprintf(stdout, "%s: undone: %s\n", o.ID, failed.LastError)
		case err != nil:
			return err
		default:
			fmt.Fprintf(stdout, "%s: %s\n", o.ID, parcel)
		}
	}
	return nil
}

// dashboard serves the dashboard until ctx ends.
func (s *shop) dashboard(ctx context.Context, address string, stdout io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "the dashboard is at http://%s\n", listener.Addr())
	pages := ui.New(s.db, &ui.Options{Authorize: ui.ReadOnly, Title: "flow"})
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(pages.Close) // open pages would delay Shutdown
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
