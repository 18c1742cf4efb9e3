package main

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Both databases accept these statements.
const (
	sqlInsertOrder = `INSERT INTO orders (id, line, job, customer, email, currency, total_cents, placed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO NOTHING`

	sqlInsertItem = `INSERT INTO order_items (order_id, position, sku, qty, price_cents)
VALUES ($1, $2, $3, $4, $5)`

	sqlLineOf = `SELECT line FROM orders WHERE id = $1`
)

// errKnown is returned for a line that an earlier run has stored.
var errKnown = errors.New("stored by an earlier run")

// insertOrder stores o, which was read from the given line of the input. It returns a refusal if a
// constraint rejects the order, and errKnown if an earlier run has stored it.
func (k database) insertOrder(ctx context.Context, tx *sql.Tx, o Order, line int, job int64) error {
	done, err := tx.ExecContext(ctx, sqlInsertOrder, o.ID, line, job,
		o.Customer, o.Email, o.Currency, o.TotalCents, o.PlacedAt.Format(time.RFC3339))
	if err != nil {
		return k.refused(err)
	}
	n, err := done.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return conflict(ctx, tx, o.ID, line)
	}
	return k.insertItems(ctx, tx, o)
}

func (k database) insertItems(ctx context.Context, tx *sql.Tx, o Order) error {
	for i, item := range o.Items {
		if _, err := tx.ExecContext(ctx, sqlInsertItem, o.ID, i, item.SKU, item.Qty, item.PriceCents); err != nil {
			return k.refused(err)
		}
	}
	return nil
}

// conflict distinguishes an order of an earlier run from another order with the same id.
func conflict(ctx context.Context, tx *sql.Tx, id string, line int) error {
	var stored int
	if err := tx.QueryRowContext(ctx, sqlLineOf, id).Scan(&stored); err != nil {
		return err
	}
	if stored == line {
		return errKnown
	}
	return duplicateID
}

// refused converts a violated CHECK constraint to the refusal of the same name.
func (k database) refused(err error) error {
	if name := k.constraint(err); name != "" {
		return refusal(name)
	}
	return err
}
