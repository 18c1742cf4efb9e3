package testkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// QueryInt returns the integer selected by query.
func QueryInt(t testing.TB, pool *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, pool.QueryRowContext(context.Background(), on(pool, query), args...).Scan(&n), query)
	return n
}

// ExecAll runs statements.
func ExecAll(t testing.TB, pool *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := pool.ExecContext(context.Background(), on(pool, s))
		require.NoError(t, err, s)
	}
}

// Numbers returns a WITH clause that defines a table some(n) containing the numbers from 1 to n.
func Numbers(n int) string {
	return fmt.Sprintf(`WITH RECURSIVE some(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < %d) `, n)
}

// Exec runs a statement without honker, to put the file into a particular state.
func Exec(t testing.TB, db *honker.DB, query string, args ...any) {
	t.Helper()
	_, err := db.SQL().ExecContext(context.Background(), on(db.SQL(), query), args...)
	require.NoError(t, err, query)
}

// Querier is implemented by *sql.DB, *sql.Tx and *sql.Conn.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Rows returns the rows of query, each formatted as a line.
func Rows(q Querier, query string, args ...any) (lines []string, err error) {
	rows, err := q.QueryContext(context.Background(), on(q, query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		cells := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		lines = append(lines, lineOf(cells))
	}
	return lines, errors.Join(rows.Err(), rows.Close())
}

func lineOf(cells []sql.NullString) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = c.String; !c.Valid {
			texts[i] = "NULL"
		}
	}
	return strings.Join(texts, "|")
}

// Dump returns all rows of all tables, sorted.
func Dump(t testing.TB, q Querier) (all []string) {
	t.Helper()
	tables, err := Rows(q, listTables)
	require.NoError(t, err)
	for _, table := range tables {
		rows, err := Rows(q, `SELECT '`+table+`', * FROM `+table)
		require.NoError(t, err)
		all = append(all, rows...)
	}
	slices.Sort(all)
	return all
}
