package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"

	"modernc.org/sqlite"
)

// Tables of the application.
const (
	businessSchema = `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, total INTEGER);
CREATE TABLE IF NOT EXISTS receipts (id INTEGER PRIMARY KEY, job INTEGER);
CREATE TABLE IF NOT EXISTS noise (id INTEGER PRIMARY KEY, at INTEGER)`
	insertOrder   = `INSERT INTO orders (customer, total) VALUES ('c', 100)`
	insertReceipt = `INSERT INTO receipts (job) VALUES (?)`
	insertNoise   = `INSERT INTO noise (at) VALUES (?)`
)

// openPool opens a file with the settings that all peers recommend: WAL, a busy timeout, and BEGIN
// IMMEDIATE for transactions that write.
func openPool(path string, d Durability) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(" + string(d) + ")",
	}}
	return sql.Open("sqlite", "file:"+path+"?"+q.Encode())
}

// openSingle is openPool with a single connection and the given schema. River, goqite and
// watermill-sqlite recommend SetMaxOpenConns(1), and backlite gets no SQLITE_BUSY with it.
func openSingle(ctx context.Context, path string, d Durability, schema string) (*sql.DB, error) {
	pool, err := openPool(path, d)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	if _, err = pool.ExecContext(ctx, businessSchema+";"+schema); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return pool, nil
}

// inTx runs f in a transaction of database/sql.
func inTx(ctx context.Context, pool *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func count(ctx context.Context, pool *sql.DB, rows string) (n int, err error) {
	err = pool.QueryRowContext(ctx, "SELECT count(*) FROM "+rows).Scan(&n)
	return n, err
}

// isBusy reports whether err is SQLITE_BUSY or any of its extended codes.
func isBusy(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()&0xff == 5
	}
	return err != nil && strings.Contains(err.Error(), "SQLITE_BUSY")
}

const numbers = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) `
