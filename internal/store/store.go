// Package store holds every SQL statement that honker runs, as methods of one stateless
// type per noun: Jobs, Streams, Locks and so on.
//
// A method takes a Querier to run on and the time, as unix seconds where it compares with
// honker's columns and as milliseconds where with our own. It knows no clock, no goroutine
// and no policy, and it begins and commits nothing: what takes several statements is atomic
// in the caller's transaction.
//
// A comment over a statement names the index that it goes by; the plans are golden files.
// A LIMIT is written "?3 + 0", because SQLite looks at the value of a bare parameter when it
// plans, and plans anew each time another value is bound.
package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
)

// ErrNotFound reports that the row that a statement needs does not exist.
var ErrNotFound = errors.New("not found")

// Querier is a connection or a transaction on which a statement runs.
type Querier = sqlite.Querier

// each runs query and calls scan for every row.
func each(ctx context.Context, q Querier, query string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close() // reports what only the end of a statement finds out
}

// one scans the first row of query into dest; false when there is none. It reads to the end
// all the same, so that an error after the first row is reported.
func one(ctx context.Context, q Querier, query string, args []any, dest ...any) (found bool, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	}, args...)
	return found, err
}

// affected runs a write and returns the number of rows it changed.
func affected(ctx context.Context, q Querier, query string, args ...any) (int, error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// texts runs a query for one column of text.
func texts(ctx context.Context, q Querier, query string, args ...any) (out []string, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var s string
		err := rows.Scan(&s)
		out = append(out, s)
		return err
	}, args...)
	return out, err
}

// sequenceOf is the last id that a table has given out, also where its rows are deleted. It is
// a read of a table with a row for each such table.
func sequenceOf(table string) string {
	return `SELECT seq FROM sqlite_sequence WHERE name = '` + table + `'`
}

// addedSince runs a query for (id, name, key) of up to limit rows above after, and before them
// the table's sequence with NULL for the name. It returns what they added, how many they are,
// and the last id: less than after where the sequence went back, as it does when a backup is
// restored over the open file.
func addedSince(ctx context.Context, q Querier, query string, after int64, limit int) (added row.Added, n int, last int64, err error) {
	added = make(row.Added)
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var id int64
		var name, key sql.NullString
		if err := rows.Scan((*number)(&id), &name, &key); err != nil {
			return err
		}
		if !name.Valid {
			last = min(id, after)
			return nil
		}
		n, last = n+1, id
		added.Add(name.String, key.String)
		return nil
	}, after, limit)
	return added, n, last, err
}

// number reads an integer as another binding may have left it: SQLite keeps a value of any
// type in an integer column, such as a sum that overflowed to a real. NULL is 0. Such a value
// must not make a job unreadable, which would stop its queue.
type number int64

// Scan implements sql.Scanner.
func (n *number) Scan(v any) error {
	switch v := v.(type) {
	case int64:
		*n = number(v)
	case float64:
		*n = number(max(math.MinInt64, min(v, math.MaxInt64-1023))) // the last float64 below it
	default:
		*n = 0
	}
	return nil
}

// moment is a number that is compared with the time as SQLite does it: what is no number is
// later than any. NULL, which stands for no row, is as late.
type moment int64

// Scan implements sql.Scanner.
func (m *moment) Scan(v any) error {
	switch v.(type) {
	case int64, float64:
		return (*number)(m).Scan(v)
	}
	*m = Unbounded
	return nil
}

// text reads a text of which NULL is "".
type text string

// Scan implements sql.Scanner.
func (t *text) Scan(v any) error {
	if v == nil { // as mostly; the rest allocates
		*t = ""
		return nil
	}
	var s sql.NullString
	err := s.Scan(v)
	*t = text(s.String)
	return err
}

// idList passes ids as one parameter, for json_each.
func idList(ids []int64) string {
	b, _ := json.Marshal(ids) // integers cannot fail
	if ids == nil {
		return "[]"
	}
	return string(b)
}

// nameList passes names as one parameter, for json_each.
func nameList(names []string) string {
	if names == nil {
		return "[]" // null would be one name, NULL
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(names) // strings cannot fail
	return b.String()
}

// nullable is NULL for zero: a time that does not exist is NULL in honker's columns.
func nullable(unix int64) any {
	if unix == 0 {
		return nil
	}
	return unix
}

// nullInt is n as a parameter, also where database/sql is not in between.
func nullInt(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}
