package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/honker-go/honker"
)

// Receipt is the payload of a job, stored as JSON.
type Receipt struct {
	Order int64
	Item  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func()) error {
	db, err := honker.Open(ctx, "app.db", nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.SQL().ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT)`); err != nil {
		return err
	}
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)

	// The order and its job are committed together, or not at all.
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var id int64
		if err := tx.QueryRowContext(ctx, `INSERT INTO orders (item) VALUES (?) RETURNING id`, "tea").Scan(&id); err != nil {
			return err
		}
		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: id, Item: "tea"})
		return err
	})
	if err != nil {
		return err
	}

	// Work blocks until ctx ends and running handlers have finished. Any number of processes
	// can work the same queue.
	return receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
		fmt.Println("receipt for order", job.Args.Order, job.Args.Item)
		stop()     // one receipt is enough here; a service goes on until it is told to stop
		return nil // nil acks the job, an error retries it with backoff
	}, nil)
}
