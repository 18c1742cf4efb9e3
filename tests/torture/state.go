//go:build unix

package torture

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"net/url"

	"github.com/honker-go/honker/internal/testkit"
)

// state is a hash of the contents of all tables in a file. It is "" for a file without tables.
type state string

// State returns a hash of the contents of all tables.
func State(ctx context.Context, pool *sql.DB) (string, error) {
	s, err := stateOf(ctx, pool)
	return string(s), err
}

// stateOf reads the tables one by one, so nothing may write meanwhile. The traffic counts are left
// out, because they are written together with any commit, or on their own.
func stateOf(ctx context.Context, pool *sql.DB) (state, error) {
	tables, err := column[string](ctx, pool, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> '_honkerx_minutes' ORDER BY name`)
	if err != nil || len(tables) == 0 {
		return "", err
	}
	hash := sha256.New()
	for _, table := range tables {
		fmt.Fprintf(hash, "\n%s\n", table)
		if err := eachRow(ctx, pool, `SELECT * FROM "`+table+`"`, func(row []any) { fmt.Fprintf(hash, "%v\n", row) }); err != nil {
			return "", fmt.Errorf("%s: %w", table, err)
		}
	}
	return state(fmt.Sprintf("%x", hash.Sum(nil)[:12])), nil
}

// eachRow calls see for each row of a query. see must not keep the slice.
func eachRow(ctx context.Context, pool *sql.DB, query string, see func([]any)) error {
	rows, err := pool.QueryContext(ctx, testkit.On(pool, query))
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, pointers := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		pointers[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(pointers...); err != nil {
			return err
		}
		see(values)
	}
	return rows.Err()
}

// column returns the values of a query with a single column.
func column[T any](ctx context.Context, pool *sql.DB, query string, args ...any) (out []T, err error) {
	rows, err := pool.QueryContext(ctx, testkit.On(pool, query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// one returns the value of a query with a single row and column.
func one[T any](ctx context.Context, pool *sql.DB, query string, args ...any) (v T, err error) {
	err = pool.QueryRowContext(ctx, testkit.On(pool, query), args...).Scan(&v)
	return v, err
}

// plain opens the file at path as another program would, without honker, but with the same driver.
func plain(path string, pragmas ...string) (*sql.DB, error) {
	query := url.Values{"_pragma": append([]string{"busy_timeout(5000)"}, pragmas...)}
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: query.Encode()}
	pool, err := sql.Open("sqlite", u.String())
	if err == nil {
		pool.SetMaxOpenConns(1)
	}
	return pool, err
}
