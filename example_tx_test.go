package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/honker-go/honker"
)

// A business row and the job that follows from it, in one transaction: either both
// exist or neither.
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
	// honker: notify "news": called inside a transaction of its own caller: use NotifyTx inside DB.Tx
}
