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

// Attach uses the application's existing pool, with any SQLite driver.
func ExampleAttach() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	pool, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close() // the caller still owns the pool

	db, err := honker.Attach(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	emails := honker.NewQueue[string](db, "emails", nil)
	tx, _ := pool.BeginTx(ctx, nil) // for example, the transaction of an ORM
	emails.EnqueueTx(ctx, tx, "ada@example.com")
	fmt.Println(tx.Commit())

	jobs, err := emails.Claim(ctx, "mailer", 1)
	fmt.Println(jobs[0].Args, err)
	// Output:
	// <nil>
	// ada@example.com <nil>
}

// Receipt is the payload of a job that sends the receipt of an order.
type Receipt struct{ Order int }

// The job exists if the transaction commits. After a rollback it does not.
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

	// The job exists if the transaction commits. After a rollback it does not.
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, 17); err != nil {
			return err
		}
		_, err := receipts.EnqueueTx(ctx, tx, Receipt{Order: 17})
		return err
	})
	fmt.Println("stored:", err)

	// Work blocks until ctx ends and running handlers have finished. It may run in any number of processes.
	err = receipts.Work(ctx, func(ctx context.Context, job *honker.Job[Receipt]) error {
		return send(ctx, job.Args) // nil acks the job; an error retries it with backoff
	}, nil)
	fmt.Println("drained:", err)
	// Output:
	// stored: <nil>
	// receipt of order 17
	// drained: <nil>
}

// The error that a handler returns decides how its job continues.
func ExampleRetryAfter() {
	err := errors.New("the mail server is down")
	steer := map[string]func() error{
		"later": func() error {
			return honker.RetryAfter(time.Minute, err) // retried after a minute, whatever the backoff
		},
		"not now": func() error {
			return honker.Snooze(time.Hour) // retried in an hour; this attempt does not count
		},
		"never": func() error {
			return honker.Reject(err) // dead-lettered at once
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

// A business row and its follow-up job are written in the same transaction. Either both exist or neither.
func ExampleDB_Tx() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SQL().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE)`)
	receipts := honker.NewQueue[string](db, "receipts", nil)

	order := func(item string) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := receipts.EnqueueTx(ctx, tx, item); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO orders (item) VALUES (?)`, item)
			return err
		})
	}
	fmt.Println("tea:", order("tea"))
	fmt.Println("tea again failed:", order("tea") != nil)

	jobs, _ := receipts.Claim(ctx, "printer", 10)
	fmt.Println("receipts:", len(jobs))
	// Output:
	// tea: <nil>
	// tea again failed: true
	// receipts: 1
}

func ExampleDB_Tx_plainVerb() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.Notify(ctx, "news", "hello") // would wait for its own caller
		return err
	})
	fmt.Println(errors.Is(err, honker.ErrInTx))
	fmt.Println(err)
	// Output:
	// true
	// honker: notify "news": called inside DB.Tx: use the Tx form: NotifyTx
}

func ExampleDB_Listen() {
	ctx := context.Background()
	path, remove := scratch()
	defer remove()
	db, err := honker.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	db.Notify(ctx, "prices", "nobody hears this")
	prices, err := db.Listen(ctx, "prices") // messages from now on, by any process
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()

	db.Notify(ctx, "prices", map[string]int{"tea": 395})
	db.Notify(ctx, "weather", "rain")
	db.Notify(ctx, "prices", map[string]int{"tea": 410})

	for n, err := range prices.All(ctx) {
		var price struct{ Tea int }
		if err != nil || n.Decode(&price) != nil {
			log.Fatal(err)
		}
		fmt.Println("tea costs", price.Tea)
		if price.Tea > 400 {
			break
		}
	}
	// Output:
	// tea costs 395
	// tea costs 410
}
