package pgsql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/internal/row"
)

// One scans the first row of a query into dest. It returns false if there is none.
func One(ctx context.Context, q row.Querier, query string, args []any, dest ...any) (found bool, err error) {
	err = Each(ctx, q, query, func(r *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	}, args...)
	return found, err
}

// Replan is the first argument of a statement whose plan the server must not keep. A plan that was made while a table was
// nearly empty reads the whole table, until the next analyze. Functions do not need it, as they forbid such plans.
const Replan = pgx.QueryExecModeCacheDescribe

// Each calls f for each row of a query. It reads all rows before it returns nil, so that an error of the server
// after the last row is not lost.
func Each(ctx context.Context, q row.Querier, query string, f func(r *sql.Rows) error, args ...any) error {
	r, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	for r.Next() {
		if err := f(r); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	return errors.Join(r.Err(), r.Close())
}

// Affected runs a statement and returns the number of rows that it has changed.
func Affected(ctx context.Context, q row.Querier, query string, args ...any) (int, error) {
	done, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := done.RowsAffected()
	return int(n), err
}

// IDs returns the ids that a query returns.
func IDs(ctx context.Context, q row.Querier, query string, args ...any) (all []int64, err error) {
	err = Each(ctx, q, query, func(r *sql.Rows) error {
		var id int64
		err := r.Scan(&id)
		all = append(all, id)
		return err
	}, args...)
	return all, err
}

// Texts returns the texts that a query returns.
func Texts(ctx context.Context, q row.Querier, query string) (all []string, err error) {
	err = Each(ctx, q, query, func(r *sql.Rows) error {
		var text string
		err := r.Scan(&text)
		all = append(all, text)
		return err
	})
	return all, err
}

// The range of times that a timestamptz can hold, with room for a retention or a timeout.
var (
	firstTime = time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(290000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Stamp returns t as a timestamptz holds it: in microseconds, rounded down, and within its range.
func Stamp(t time.Time) time.Time {
	switch {
	case t.Before(firstTime):
		t = firstTime
	case t.After(lastTime):
		t = lastTime
	}
	return t.Truncate(time.Microsecond)
}

// StampUp is stamp, but rounds up. It is for the end of a span that must not be shorter than requested.
func StampUp(t time.Time) time.Time { return Stamp(t.Add(time.Microsecond - 1)) }

// Instant returns a stored time as a row shows it: local, and within the years that package row allows.
func Instant(t sql.NullTime) time.Time {
	switch {
	case !t.Valid:
		return time.Time{}
	case t.Time.Before(row.Instant(-1 << 62)):
		return row.Instant(-1 << 62)
	case t.Time.After(row.Instant(1 << 62)):
		return row.Instant(1 << 62)
	}
	return t.Time.Local()
}

// Shown returns a stored time that this process has just written.
func Shown(t time.Time) time.Time { return Instant(sql.NullTime{Time: t, Valid: true}) }

// List returns values as an array, which is empty and not NULL if there are none.
func List[V any](values []V) []V {
	if values == nil {
		return []V{}
	}
	return values
}

// Interval follows a parameter in microseconds, $n, and makes an interval of it.
const Interval = `::bigint * interval '1 microsecond'`

// Microseconds returns a span rounded up to microseconds, or NULL for nil.
func Microseconds(d *time.Duration) (n sql.NullInt64) {
	if d != nil {
		n = sql.NullInt64{Int64: int64((*d + time.Microsecond - 1) / time.Microsecond), Valid: true}
	}
	return n
}

// OrNull returns v, or NULL unless valid is set. It is for elements of arrays: without prepared statements, pgx knows no
// type of PostgreSQL for a slice of sql.NullString and the like.
func OrNull[V any](v V, valid bool) *V {
	if !valid {
		return nil
	}
	return &v
}
