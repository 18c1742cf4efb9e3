package honkerpg_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
)

type Receipt struct{ Order int64 }

// A call that returns ErrUncertain can be repeated if the database recognizes the repetition: by a unique key of the
// job, or by a key of the application's own table.
func ExampleOpen_uncertain() {
	ctx := context.Background()
	db, err := honkerpg.Open(ctx, "postgres://app@localhost/app", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	receipts := honker.NewQueue[Receipt](db, "receipts", nil)
	if err := place(ctx, db, receipts, 17); err != nil {
		log.Fatal(err)
	}
	if err := receipt(ctx, receipts, 18); err != nil {
		log.Fatal(err)
	}
}

// receipt enqueues the receipt of an order once, however often it is called.
func receipt(ctx context.Context, receipts *honker.Queue[Receipt], order int64) error {
	for {
		_, err := receipts.Enqueue(ctx, Receipt{order},
			honker.Unique(fmt.Sprint(order), &honker.Uniqueness{For: 24 * time.Hour}))
		if !errors.Is(err, honker.ErrUncertain) {
			return err
		}
	}
}

// place stores an order and enqueues its receipt, or does neither. The caller chooses the order's ID.
func place(ctx context.Context, db *honker.DB, receipts *honker.Queue[Receipt], order int64) error {
	for {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			done, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1) ON CONFLICT DO NOTHING`, order)
			if err != nil {
				return err
			}
			if n, err := done.RowsAffected(); n == 0 || err != nil {
				return err // it was stored before
			}
			_, err = receipts.EnqueueTx(ctx, tx, Receipt{order})
			return err
		})
		if !errors.Is(err, honker.ErrUncertain) {
			return err
		}
	}
}
