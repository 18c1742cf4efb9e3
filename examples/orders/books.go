package main

import (
	"context"
	"database/sql"
	"fmt"
)

// books holds counts from a single snapshot of the database.
type books struct{ orders, waiting, running, dead int }

func readBooks(ctx context.Context, db *sql.DB, kind database) (b books, err error) {
	row := db.QueryRowContext(ctx, kind.books, receiptQueue)
	return b, row.Scan(&b.orders, &b.waiting, &b.running, &b.dead)
}

func (b books) idle() bool { return b.waiting+b.running == 0 }

// printed returns the number of receipts. It need not read the directory, because a job is deleted
// only when it is acked.
func (b books) printed() int { return b.orders - b.waiting - b.running - b.dead }

// audit compares the orders with the receipts individually.
type audit struct {
	orders, receipts, dead int
	open                   int // orders whose job is still waiting or running
	wrong                  []string
}

// standing is the state of an order's job. If neither flag is set, the job was acked.
type standing struct {
	id         string
	live, dead bool
}

// newAudit must read the database before the directory. The receipt is written before the ack, so
// an order without a job has its receipt by then, even while other processes are working.
func newAudit(ctx context.Context, db *sql.DB, kind database, folder *receipts) (*audit, error) {
	orders, err := readStandings(ctx, db, kind.audit)
	if err != nil {
		return nil, err
	}
	printed, err := folder.list()
	if err != nil {
		return nil, err
	}
	a := &audit{orders: len(orders)}
	for _, o := range orders {
		a.add(o, printed[o.id])
		delete(printed, o.id)
	}
	for id := range printed {
		a.wrong = append(a.wrong, "receipt without an order: "+id)
	}
	return a, nil
}

func readStandings(ctx context.Context, db *sql.DB, query string) ([]standing, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var orders []standing
	for rows.Next() {
		var o standing
		if err := rows.Scan(&o.id, &o.live, &o.dead); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// add counts an order. It must have exactly one of an open job, a dead letter and a receipt, except
// that an open job may already have its receipt after a kill.
func (a *audit) add(o standing, printed bool) {
	switch {
	case o.live:
		a.open++
	case o.dead && printed:
		a.wrong = append(a.wrong, "both a receipt and a dead letter: "+o.id)
	case o.dead:
		a.dead++
	case printed:
		a.receipts++
	default:
		a.wrong = append(a.wrong, "neither a receipt nor a dead letter: "+o.id)
	}
}

// err returns nil if the books balance.
func (a *audit) err() error {
	if len(a.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the books do not balance: %d of %d orders, first: %s", len(a.wrong), a.orders, a.wrong[0])
}
