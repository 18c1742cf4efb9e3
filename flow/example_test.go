package flow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/flow"
)

// An order is paid, approved and shipped. If the process dies, any process that works on the flow goes on after the last
// step. The refused order is refunded.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, closeDB := openExample(ctx)
	defer closeDB()

	orders := flow.New(db, "order", func(ctx context.Context, item string) (string, error) {
		charge, err := flow.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return "charge for " + item, nil // call the bank with flow.Key(ctx, "charge"): a crash repeats the step
		})
		if err != nil {
			return "", err
		}
		flow.Undo(ctx, "charge", func(context.Context) error {
			fmt.Println("refund of the", charge)
			return nil
		})
		if err := flow.Sleep(ctx, "cooling off", 10*time.Millisecond); err != nil { // a week holds no worker either
			return "", err
		}
		approved, err := flow.Wait[bool](ctx, "approved", 72*time.Hour)
		if err == nil && !approved {
			err = honker.Reject(errors.New("the order was refused"))
		}
		if err != nil {
			return "", err
		}
		return flow.StepTx(ctx, "ship", func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO parcels VALUES (?)`, item) // takes effect exactly once
			return "parcel with " + item, err
		})
	}, nil)
	worked := make(chan error, 1)
	go func() { worked <- orders.Work(ctx, nil) }()

	for _, item := range []string{"tea", "sofa"} {
		_, err := orders.Start(ctx, item, item)
		if err == nil {
			err = flow.Signal(ctx, db, "order", item, "approved", item == "tea")
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(orders.Result(ctx, item))
	}
	stop()
	fmt.Println(<-worked)
	// Output:
	// parcel with tea <nil>
	// refund of the charge for sofa
	//  honker: flow wait for the result of "order/sofa": run "sofa" of flow "order" failed after 1 attempts: the order was refused
	// <nil>
}

// A run starts, and is signalled, if and only if the caller's transaction commits.
func ExampleFlow_StartTx() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, closeDB := openExample(ctx)
	defer closeDB()

	parcels := flow.New(db, "parcel", func(ctx context.Context, item string) (string, error) {
		receiver, err := flow.Wait[string](ctx, "address", 0)
		return item + " to " + receiver, err
	}, nil)
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO parcels VALUES (?)`, "tea"); err != nil {
			return err
		}
		if _, err := parcels.StartTx(ctx, tx, "parcel-1", "tea"); err != nil {
			return err
		}
		return flow.SignalTx(ctx, tx, db, "parcel", "parcel-1", "address", "Ann")
	})
	if err != nil {
		log.Fatal(err)
	}
	worked := make(chan error, 1)
	go func() { worked <- parcels.Work(ctx, nil) }()
	fmt.Println(parcels.Result(ctx, "parcel-1"))
	stop()
	fmt.Println(<-worked)
	// Output:
	// tea to Ann <nil>
	// <nil>
}

// A flow calls another. A Workers runs both.
func ExampleCall() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, closeDB := openExample(ctx)
	defer closeDB()

	shipping := flow.New(db, "shipping", func(ctx context.Context, item string) (string, error) {
		return "parcel with " + item, nil
	}, nil)
	orders := flow.New(db, "order", func(ctx context.Context, item string) (string, error) {
		return flow.Call(ctx, "ship", shipping, item)
	}, nil)
	w := honker.NewWorkers(db, nil)
	flow.Handle(w, orders)
	flow.Handle(w, shipping)
	worked := make(chan error, 1)
	go func() { worked <- w.Work(ctx, nil) }()

	if _, err := orders.Start(ctx, "order-1", "tea"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders.Result(ctx, "order-1"))
	fmt.Println(shipping.Result(ctx, "order-1/ship"))
	stop()
	fmt.Println(<-worked)
	// Output:
	// parcel with tea <nil>
	// parcel with tea <nil>
	// <nil>
}

// openExample opens a file with a table of parcels. An application would open a path such as "app.db".
func openExample(ctx context.Context) (db *honker.DB, closeDB func()) {
	dir, err := os.MkdirTemp("", "honker-example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = honker.Open(ctx, filepath.Join(dir, "app.db"), nil)
	if err == nil {
		_, err = db.SQL().ExecContext(ctx, `CREATE TABLE parcels (item TEXT)`)
	}
	if err != nil {
		log.Fatal(err)
	}
	return db, func() { _ = errors.Join(db.Close(), os.RemoveAll(dir)) }
}
