package main

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/honker-go/honker"
)

type sqlxShop struct {
	db       *sqlx.DB
	receipts *honker.Queue[Receipt]
}

// newSqlx opens sqlx on honker's pool. sqlx uses the driver name only to choose the style of
// placeholders.
func newSqlx(pool *sql.DB, receipts *honker.Queue[Receipt]) *sqlxShop {
	return &sqlxShop{sqlx.NewDb(pool, "sqlite3"), receipts}
}

func (s *sqlxShop) byVerb(ctx context.Context, o *Order) (job int64, err error) {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // a no-op after Commit
	if err := insert(ctx, tx, o); err != nil {
		return 0, err
	}
	if job, err = s.receipts.EnqueueTx(ctx, tx, Receipt{o.ID}); err != nil {
		return 0, err
	}
	if err := charge(o); err != nil {
		return 0, err
	}
	return job, tx.Commit()
}

func (s *sqlxShop) bySQL(ctx context.Context, o *Order) (job int64, err error) {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := insert(ctx, tx, o); err != nil {
		return 0, err
	}
	if err := tx.GetContext(ctx, &job, enqueue, o.ID); err != nil {
		return 0, err
	}
	if err := charge(o); err != nil {
		return 0, err
	}
	return job, tx.Commit()
}

func insert(ctx context.Context, tx *sqlx.Tx, o *Order) error {
	res, err := tx.NamedExecContext(ctx, `INSERT INTO orders (item, cents) VALUES (:item, :cents)`, o)
	if err != nil {
		return err
	}
	o.ID, err = res.LastInsertId()
	return err
}

func (s *sqlxShop) printed(ctx context.Context, tx *sql.Tx, order int64) error {
	x := &sqlx.Tx{Tx: tx, Mapper: s.db.Mapper}
	_, err := x.NamedExecContext(ctx, `UPDATE orders SET printed = true WHERE id = :id`, Order{ID: order})
	return err
}
