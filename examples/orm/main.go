// Orm shows honker with GORM, sqlx and bun. It stores an order and its job in a transaction of the
// ORM, using the Go API and SQL. See README.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
)

// Order is a row of the table orders, mapped by all three ORMs.
type Order struct {
	ID      int64 `bun:",pk,autoincrement"`
	Item    string
	Cents   int
	Printed bool
}

const schema = `CREATE TABLE orders (
	id INTEGER PRIMARY KEY, item TEXT NOT NULL, cents INTEGER NOT NULL, printed BOOLEAN NOT NULL DEFAULT false)`

// Receipt is the payload of the job that prints the receipt of an order.
type Receipt struct {
	Order int64 `json:"order"`
}

// enqueue enqueues a Receipt in SQL. Its parameter is the order id. The arguments of honker_enqueue
// are queue, payload, run_at, delay, priority, max_attempts and expires.
const enqueue = `SELECT honker_enqueue('receipts', json_object('order', ?), NULL, NULL, 0, 25, NULL)`

// shop stores orders with an ORM. Both byVerb, which calls the Go API, and bySQL store an order and
// the job that prints its receipt in a single transaction. They return the job's id.
type shop interface {
	byVerb(ctx context.Context, o *Order) (job int64, err error)
	bySQL(ctx context.Context, o *Order) (job int64, err error)
	// printed marks an order as printed in tx, a transaction that honker began.
	printed(ctx context.Context, tx *sql.Tx, order int64) error
}

var errDeclined = errors.New("card declined")

// charge declines expensive orders. It is called after the order and its job are written.
func charge(o *Order) error {
	if o.Cents > 1000 {
		return errDeclined
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "orm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := honker.Open(ctx, filepath.Join(dir, "shop.db"), nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.SQL().ExecContext(ctx, schema); err != nil {
		return err
	}
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)
	g, err := newGORM(db.SQL(), receipts)
	if err != nil {
		return err
	}
	return errors.Join(
		demonstrate(ctx, stdout, db, "GORM", g, receipts),
		demonstrate(ctx, stdout, db, "sqlx", newSqlx(db.SQL(), receipts), receipts),
		demonstrate(ctx, stdout, db, "bun", newBun(db.SQL(), receipts), receipts),
		books(ctx, stdout, db),
	)
}

// demonstrate places orders while a worker prints their receipts.
func demonstrate(ctx context.Context, stdout io.Writer, db *honker.DB, name string, s shop, receipts *honker.Queue[Receipt]) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return honker.Run(ctx,
		func(ctx context.Context) error { return work(ctx, s, receipts) },
		func(ctx context.Context) error {
			defer stop()
			return errors.Join(
				place(ctx, stdout, db, name, "EnqueueTx", s.byVerb),
				place(ctx, stdout, db, name, "honker_enqueue", s.bySQL),
			)
		},
	)
}

// work runs a worker that marks orders as printed in the transaction that acks the job.
func work(ctx context.Context, s shop, receipts *honker.Queue[Receipt]) error {
	return receipts.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[Receipt]) error {
		if err := s.printed(ctx, tx, job.Args.Order); err != nil {
			return err
		}
		return job.SetResult("printed")
	}, &honker.WorkOptions{Workers: 1})
}

func place(ctx context.Context, stdout io.Writer, db *honker.DB, name, how string, order func(context.Context, *Order) (int64, error)) error {
	for _, o := range []Order{{Item: "tea", Cents: 450}, {Item: "caviar", Cents: 9900}} {
		job, err := order(ctx, &o)
		if errors.Is(err, errDeclined) {
			fmt.Fprintf(stdout, "%-4s  %-14s  %-6s  %v: no order, no job\n", name, how, o.Item, err)
			continue
		}
		if err != nil {
			return err
		}
		result, err := honker.WaitResult[string](ctx, db, job)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%-4s  %-14s  %-6s  order %d, job %d: %s\n", name, how, o.Item, o.ID, job, result)
	}
	return nil
}

// books prints the number of orders and the number of jobs left.
func books(ctx context.Context, stdout io.Writer, db *honker.DB) error {
	var orders, printed, jobs int
	err := db.SQL().QueryRowContext(ctx, `SELECT count(*), sum(printed), (SELECT count(*) FROM _honker_live) FROM orders`).
		Scan(&orders, &printed, &jobs)
	fmt.Fprintf(stdout, "%d orders, %d printed, %d jobs left\n", orders, printed, jobs)
	return err
}
