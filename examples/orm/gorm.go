package main

import (
	"context"
	"database/sql"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/honker-go/honker"
)

type gormShop struct {
	db       *gorm.DB
	receipts *honker.Queue[Receipt]
}

// newGORM opens GORM on honker's pool. Conn makes the dialect use that pool instead of its own
// driver.
func newGORM(pool *sql.DB, receipts *honker.Queue[Receipt]) (*gormShop, error) {
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), &gorm.Config{})
	return &gormShop{db, receipts}, err
}

func (s *gormShop) byVerb(ctx context.Context, o *Order) (job int64, err error) {
	err = s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
		if err := tx.Create(o).Error; err != nil {
			return err
		}
		// In a transaction, ConnPool is the *sql.Tx. The ConnPool of s.db would be the pool.
		if job, err = s.receipts.EnqueueTx(ctx, tx.Statement.ConnPool, Receipt{o.ID}); err != nil {
			return err
		}
		return charge(o)
	})
	return job, err
}

func (s *gormShop) bySQL(ctx context.Context, o *Order) (job int64, err error) {
	err = s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(o).Error; err != nil {
			return err
		}
		if err := tx.Raw(enqueue, o.ID).Scan(&job).Error; err != nil {
			return err
		}
		return charge(o)
	})
	return job, err
}

func (s *gormShop) printed(ctx context.Context, tx *sql.Tx, order int64) error {
	g := s.db.WithContext(ctx) // returns a DB with its own Statement, which is safe to change
	g.Statement.ConnPool = tx
	return g.Model(&Order{ID: order}).Update("printed", true).Error
}
