package main

import (
	"context"
	"database/sql"
	"fmt"
)

// The two tables of honker's that are read here belong to its file format, which is
// public: _honker_live has the jobs that wait or run, _honker_dead the dead letters.
const (
	sqlBooks = `SELECT
  (SELECT count(*) FROM orders),
  (SELECT count(*) FROM _honker_live WHERE queue = ?1 AND state = 'pending'),
  (SELECT count(*) FROM _honker_live WHERE queue = ?1 AND state = 'processing'),
  (SELECT count(*) FROM _honker_dead WHERE queue = ?1)`

	sqlAudit = `SELECT id,
  EXISTS (SELECT 1 FROM _honker_live WHERE id = job),
  EXISTS (SELECT 1 FROM _honker_dead WHERE id = job)
FROM orders`
)

// books are the counts of the file at one moment.
type books struct{ orders, waiting, running, dead int }

func readBooks(ctx context.Context, db *sql.DB) (b books, err error) {
	row := db.QueryRowContext(ctx, sqlBooks, receiptQueue)
	return b, row.Scan(&b.orders, &b.waiting, &b.running, &b.dead)
}

func (b books) idle() bool { return b.waiting+b.running == 0 }

// printed needs no look at the folder: a job that is gone has been acked.
func (b books) printed() int { return b.orders - b.waiting - b.running - b.dead }

// audit holds the orders against the receipts, one by one.
type audit struct {
	orders, receipts, dead int
	open                   int // the job still waits or runs
	wrong                  []string
}

// standing is where the database sees an order's job; neither means acked.
type standing struct {
	id         string
	live, dead bool
}

// newAudit reads the database before the folder: an ack follows its file, so an order
// without its job has its receipt by then, even if other processes are at work.
func newAudit(ctx context.Context, db *sql.DB, folder *receipts) (*audit, error) {
	orders, err := readStandings(ctx, db)
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
		a.wrong = append(a.wrong, "a receipt without an order: "+id)
	}
	return a, nil
}

func readStandings(ctx context.Context, db *sql.DB) ([]standing, error) {
	rows, err := db.QueryContext(ctx, sqlAudit)
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

// add counts an order that has exactly one of: an open job, a dead letter, a receipt.
// An open job may have its receipt already, from before a kill.
func (a *audit) add(o standing, printed bool) {
	switch {
	case o.live:
		a.open++
	case o.dead && printed:
		a.wrong = append(a.wrong, "a receipt and a dead letter: "+o.id)
	case o.dead:
		a.dead++
	case printed:
		a.receipts++
	default:
		a.wrong = append(a.wrong, "neither a receipt nor a dead letter: "+o.id)
	}
}

// err is nil when the books balance.
func (a *audit) err() error {
	if len(a.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the books do not balance: %d of %d orders, first: %s", len(a.wrong), a.orders, a.wrong[0])
}
