package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
)

// Receipt is what the job of a stored order is about.
type Receipt struct{ Order int }

// Commit and the job exists; roll back and it never did.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	path, remove := scratch()
	defer remove()
	send := func(_ context.Context, r Receipt) error {
		fmt.Println("receipt of order", r.Order)
		stop()
		return nil
	}

	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)

	// Commit and the job exists; roll back and it never did.
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, 17); err != nil {
			return err
		}
		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: 17})
		return err
	})
	fmt.Println("stored:", err)

	// Blocks until ctx ends and the work is drained. Runs in any number of processes.
	err = receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
		return send(ctx, job.Args) // nil acks, an error retries with backoff
	}, nil)
	fmt.Println("drained:", err)
	// Output:
	// stored: <nil>
	// receipt of order 17
	// drained: <nil>
}

// What a handler returns says how its job goes on.
func ExampleRetryAfter() {
	err := errors.New("the mail server is down")
	steer := map[string]func() error{
		"later": func() error {
			return honker.RetryAfter(time.Minute, err) // later, whatever the backoff
		},
		"not now": func() error {
			return honker.Snooze(time.Hour) // later, and this attempt does not count
		},
		"never": func() error {
			return honker.Reject(err) // to the dead letters
		},
	}
	fmt.Println("later:", steer["later"]())
	fmt.Println("not now:", steer["not now"]())
	fmt.Println("never:", steer["never"]())
	// Output:
	// later: the mail server is down
	// not now: snooze for 1h0m0s
	// never: the mail server is down
}
