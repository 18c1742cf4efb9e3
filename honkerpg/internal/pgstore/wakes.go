package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

const (
	sqlChannel = `SELECT honker.channel()`

	sqlAttend = `SELECT resolve, number, moment FROM honker.attend($1, $2)`

	sqlLeave = `DELETE FROM honker.process WHERE id = $1`

	// A notice needs no flush of the log.
	sqlNotice = `SELECT honker.wake($1, $2), set_config('synchronous_commit', 'off', true)`

	sqlEcho = `SELECT pg_notify($1, $2)`
)

// Channel returns the channel of the schema's notices.
func Channel(ctx context.Context, q row.Querier, s pgsql.Schema) (name string, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlChannel), nil, &name)
	return name, err
}

// Attend begins a look: it returns the work that commits have left. If signals is not nil, it also registers the process
// as waiting for them, so that commits of others send it notices. moment differs after a commit of anybody.
func Attend(ctx context.Context, q row.Querier, s pgsql.Schema, process string, signals *wake.Signals) (left pgsql.Work, moment string, err error) {
	var waits *int64
	if signals != nil {
		n := int64(*signals)
		waits = &n
	}
	var resolve, number bool
	if _, err := pgsql.One(ctx, q, s.SQL(sqlAttend), []any{process, waits}, &resolve, &number, &moment); err != nil {
		return 0, "", err
	}
	if resolve {
		left |= pgsql.Resolve
	}
	if number {
		left |= pgsql.Number
	}
	return left, moment, nil
}

// EndAttend removes the registration of a process.
func EndAttend(ctx context.Context, q row.Querier, s pgsql.Schema, process string) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlLeave), process)
	return err
}

// Notice tells the processes that wait for any of signals, except sender. told means that there are any.
func Notice(ctx context.Context, q row.Querier, s pgsql.Schema, signals wake.Signals, sender string) (told bool, err error) {
	var ignored string
	_, err = pgsql.One(ctx, q, s.SQL(sqlNotice), []any{int64(signals), sender}, &told, &ignored)
	return told, err
}

// Echo sends a notice to the process that is given as its text.
func Echo(ctx context.Context, q row.Querier, channel, text string) error {
	_, err := q.ExecContext(ctx, sqlEcho, channel, text)
	return err
}

// Dropped reports an error of a statement on a table, function or schema that does not exist.
func Dropped(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "3F000", "42P01", "42883": // invalid_schema_name, undefined_table, undefined_function
		return true
	}
	return false
}
