package main

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/honker-go/honker"
)

type bunShop struct {
	db       *bun.DB
	receipts *honker.Queue[Receipt]
}

func newBun(pool *sql.DB, receipts *honker.Queue[Receipt]) *bunShop {
	return &bunShop{bun.NewDB(pool, sqlitedialect.New()), receipts}
}

func (s *bunShop) byVerb(ctx context.Context, o *Order) (job int64, err error) {
	err = s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
		if _, err := tx.NewInsert().Model(o).Exec(ctx); err != nil {
			return err
		}
		// bun's Tx interpolates arguments and numbers placeholders from 0. EnqueueTx therefore
		// needs the *sql.Tx that it wraps.
		if job, err = s.receipts.EnqueueTx(ctx, tx.Tx, Receipt{o.ID}); err != nil {
			return err
		}
		return charge(o)
	})
	return job, err
}

func (s *bunShop) bySQL(ctx context.Context, o *Order) (job int64, err error) {
	err = s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(o).Exec(ctx); err != nil {
			return err
		}
		if err := tx.NewRaw(enqueue, o.ID).Scan(ctx, &job); err != nil {
			return err
		}
		return charge(o)
	})
	return job, err
}

func (s *bunShop) printed(ctx context.Context, tx *sql.Tx, order int64) error {
	_, err := s.db.NewUpdate().Conn(tx).Model(&Order{ID: order, Printed: true}).Column("printed").WherePK().Exec(ctx)
	return err
}
