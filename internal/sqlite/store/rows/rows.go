// Package rows contains helpers shared by the store packages: running statements, reading their values,
// inserting many rows, creating tables and triggers, and listing statements for the query plan tests.
package rows

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Each runs query and calls scan for every row.
func Each(ctx context.Context, q row.Querier, query string, scan func(*sql.Rows) error, args ...any) error {
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
	return rows.Close() // reports errors that occur only at the end of a statement
}

// One scans the first row of query into dest. It returns false if there are no rows. It reads all rows, so that
// errors after the first row are reported too.
func One(ctx context.Context, q row.Querier, query string, args []any, dest ...any) (found bool, err error) {
	err = Each(ctx, q, query, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	}, args...)
	return found, err
}

// Affected runs a write and returns the number of rows changed.
func Affected(ctx context.Context, q row.Querier, query string, args ...any) (int, error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// ReturnedIDs runs a query for a single column of IDs. n is the expected number of rows.
func ReturnedIDs(ctx context.Context, q row.Querier, query string, n int, args ...any) ([]int64, error) {
	out := make([]int64, 0, n)
	err := Each(ctx, q, query, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		out = append(out, id)
		return err
	}, args...)
	return out, err
}

// Texts runs a query for a single column of text.
func Texts(ctx context.Context, q row.Querier, query string, args ...any) (out []string, err error) {
	err = Each(ctx, q, query, func(rows *sql.Rows) error {
		var s string
		err := rows.Scan(&s)
		out = append(out, s)
		return err
	}, args...)
	return out, err
}

// SequenceOf returns a query for the highest ID ever assigned in table, even if its row was deleted. It scans
// sqlite_sequence, which has a row for each table with AUTOINCREMENT.
func SequenceOf(table string) string {
	return `SELECT seq FROM sqlite_sequence WHERE name = '` + table + `'`
}

// HeadOf returns a query for a log's head, which is the highest ID ever assigned. A transaction assigns IDs when it
// writes, and there is a single writer, so all rows up to the head are visible or deleted. last is the query for the
// last row, which is used if the table has lost its sequence.
func HeadOf(sequence, last string) string {
	return `SELECT max(coalesce((` + sequence + `), 0), (` + last + `))`
}

// AddedSince runs a query for (id, name, key) of up to limit rows above after, preceded by a row with
// the table's sequence and a NULL name. It returns the names and keys, the number of rows, and the last
// id. The last id is less than after if the sequence went back, which happens when a backup is restored
// over the open file.
func AddedSince(ctx context.Context, q row.Querier, query string, after int64, limit int) (added row.Added, n int, last int64, err error) {
	added = make(row.Added)
	err = Each(ctx, q, query, func(rows *sql.Rows) error {
		var id int64
		var name, key sql.NullString
		if err := rows.Scan((*Number)(&id), &name, &key); err != nil {
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

// A Number scans an integer column that another binding may have written. SQLite allows values of any type in such a
// column, for example a sum that overflowed to a real. NULL and values that are not numbers become 0, because an
// unreadable job would block its queue.
type Number int64

// Scan implements sql.Scanner.
func (n *Number) Scan(v any) error {
	switch v := v.(type) {
	case int64:
		*n = Number(v)
	case float64:
		*n = Number(max(math.MinInt64, min(v, math.MaxInt64-1023))) // the last float64 below MaxInt64
	default:
		*n = 0
	}
	return nil
}

// A Moment scans a number that is compared with the time. As in SQLite, values that are not numbers are later than
// any time. So is NULL, which stands for a missing row.
type Moment int64

// Scan implements sql.Scanner.
func (m *Moment) Scan(v any) error {
	switch v.(type) {
	case int64, float64:
		return (*Number)(m).Scan(v)
	}
	*m = row.Unbounded
	return nil
}

// A Text scans a text column in which NULL means "".
type Text string

// Scan implements sql.Scanner.
func (t *Text) Scan(v any) error {
	if v == nil { // the usual case; the path below allocates
		*t = ""
		return nil
	}
	var s sql.NullString
	err := s.Scan(v)
	*t = Text(s.String)
	return err
}

// IDList encodes ids as a JSON array for json_each.
func IDList(ids []int64) string {
	b, _ := json.Marshal(ids) // integers cannot fail
	if ids == nil {
		return "[]"
	}
	return string(b)
}

// NameList encodes names as a JSON array for json_each.
func NameList(names []string) string {
	if names == nil {
		return "[]" // null would be a single NULL name
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(names) // strings cannot fail
	return b.String()
}

// Nullable returns unix, or NULL for zero. honker's columns store NULL for a missing time.
func Nullable(unix int64) any {
	if unix == 0 {
		return nil
	}
	return unix
}

// NullInt converts n to a parameter. It also works for queriers that bypass database/sql and do not know
// driver.Valuer.
func NullInt(n sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}

// NullText returns s, or NULL if s is empty.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}
