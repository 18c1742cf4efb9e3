package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

const (
	sqlTime = `SELECT clock_timestamp()`
	sqlPID  = `SELECT pg_backend_pid()`

	// SET LOCAL takes no parameters. Statements without parameters go to the server in a single message.
	sqlBegin    = `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = `
	sqlCommit   = `COMMIT`
	sqlRollback = `ROLLBACK`

	// The identity of the cluster, the database and the schema's table. It fails nowhere, because an error would end
	// the caller's transaction.
	sqlWhere = `SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
  (SELECT oid FROM pg_database WHERE datname = current_database()), coalesce(to_regclass($1)::oid, 0))`

	sqlTimeline = `SELECT honker.timeline()`
	sqlFollow   = `SELECT honker.follow()`

	sqlWhereAndWake = sqlWhere + `, honker.wake($2, '')`
)

// ServerTime returns the server's current time.
func ServerTime(ctx context.Context, q row.Querier) (at time.Time, err error) {
	_, err = pgsql.One(ctx, q, sqlTime, nil, &at)
	return at, err
}

// BackendPID returns the server's number of the connection that runs the statement. It prepares nothing.
func BackendPID(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, sqlPID, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// sqlLimitLocks does nothing behind a pooler, whose connection to the server would keep the setting for other clients.
const sqlLimitLocks = `SELECT set_config('lock_timeout', $1, false), set_config('jit', 'off', false) WHERE pg_backend_pid()::text = $2`

// LimitLocks lets the statements of a new connection wait for a lock no longer than d. They are not compiled, which takes
// longer than the statements themselves. LimitLocks prepares nothing.
func LimitLocks(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	limit, pid := strconv.FormatInt(max(1, d.Milliseconds()), 10), strconv.FormatUint(uint64(conn.PgConn().PID()), 10)
	_, err := conn.Exec(ctx, sqlLimitLocks, pgx.QueryExecModeExec, limit, pid)
	return err
}

// preparedName is the name of the statement of PrepareInTurn. It is always the same, so that a pooler's connections do
// not collect such statements.
const preparedName = "honker_open"

// PrepareInTurn lets two connections prepare a statement with the same name and use it a few times. If both are sessions
// of their own, the statement is gone afterwards.
func PrepareInTurn(ctx context.Context, one, two *pgx.Conn) error {
	both := []*pgx.Conn{one, two}
	for _, c := range both {
		if _, err := c.Prepare(ctx, preparedName, sqlPID); err != nil {
			return err
		}
	}
	for range 3 {
		for _, c := range both {
			if _, err := c.Exec(ctx, preparedName); err != nil {
				return err
			}
		}
	}
	return errors.Join(one.Deallocate(ctx, preparedName), two.Deallocate(ctx, preparedName))
}

// Begin starts a transaction on conn, in one round trip. Its statements wait for a lock no longer than limit.
func Begin(ctx context.Context, conn *sql.Conn, limit time.Duration) error {
	_, err := conn.ExecContext(ctx, sqlBegin+strconv.FormatInt(max(1, limit.Milliseconds()), 10))
	return err
}

// Commit commits conn's transaction. It returns pgx.ErrTxCommitRollback if a failed statement has ended the transaction.
func Commit(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(c any) error {
		done, err := c.(*stdlib.Conn).Conn().Exec(ctx, sqlCommit)
		if err == nil && done.String() == sqlRollback {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

// Rollback ends conn's transaction without its changes.
func Rollback(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, sqlRollback)
	return err
}

// Where identifies the database that q is connected to, and the schema s in it.
func Where(ctx context.Context, q row.Querier, s pgsql.Schema) (where string, err error) {
	_, err = pgsql.One(ctx, q, sqlWhere, []any{pgx.Identifier{string(s), "meta"}.Sanitize()}, &where)
	return where, err
}

// Timeline returns the timeline of the server's log, or "" if it is not known. Another timeline means that commits may be
// missing. Unless reading is set, numbers that missing commits may have used are then used no more.
func Timeline(ctx context.Context, q row.Querier, s pgsql.Schema, reading bool) (timeline string, err error) {
	query := sqlFollow
	if reading {
		query = sqlTimeline
	}
	_, err = pgsql.One(ctx, q, s.SQL(query), nil, &timeline)
	return timeline, err
}

// WhereAndWake is Where in an application's transaction. The commit of the transaction also tells the processes that
// wait for any of signals.
func WhereAndWake(ctx context.Context, q row.Querier, s pgsql.Schema, signals wake.Signals) (where string, err error) {
	if signals == 0 {
		return Where(ctx, q, s)
	}
	var told bool
	_, err = pgsql.One(ctx, q, s.SQL(sqlWhereAndWake), []any{pgx.Identifier{string(s), "meta"}.Sanitize(), int64(signals)}, &where, &told)
	return where, err
}

// The savepoint for a part of a transaction, such as a message in a relay's batch.
const (
	savepoint  = `SAVEPOINT honker_message`
	rollbackTo = `ROLLBACK TO SAVEPOINT honker_message`
	release    = `RELEASE SAVEPOINT honker_message`
)

// Savepoint starts the savepoint that EndSavepoint ends.
func Savepoint(ctx context.Context, q row.Querier) error {
	_, err := q.ExecContext(ctx, savepoint)
	return err
}

// EndSavepoint keeps or undoes the writes since Savepoint. An error means that the transaction was ended or lost.
func EndSavepoint(ctx context.Context, q row.Querier, keep bool) (err error) {
	if !keep {
		_, err = q.ExecContext(ctx, rollbackTo)
	}
	if err == nil {
		_, err = q.ExecContext(ctx, release)
	}
	if err != nil {
		return errors.Join(errors.New("the transaction was ended or lost"), err)
	}
	return nil
}

// InTransaction returns an error unless q is in an open transaction. A savepoint outside of a transaction is an error.
func InTransaction(ctx context.Context, q row.Querier) error {
	if err := Savepoint(ctx, q); err != nil {
		return err
	}
	return EndSavepoint(ctx, q, true)
}

// invariants hold between any two transactions.
var invariants = []struct{ rule, query string }{
	{"a job in the table of waiting and running jobs is not dead", `SELECT 'job ' || j.id FROM honker.job j JOIN honker.dead d ON d.id = j.id`},
	{"an id of a job has been drawn from the sequence", `SELECT 'job ' || id FROM honker.job WHERE id > ` + jobs.LastJob},
	{"a lease of a relay's partition has an owner", `SELECT 'partition ' || queue || '/' || partition FROM honker.relay_partition WHERE (owner = '') <> (lease_until IS NULL)`},
	{"a message of a relay waits or is dead, not both", `SELECT 'message ' || id FROM honker.relay_dead JOIN honker.relay_message USING (family, queue, partition, id)`},
	{"a job of dispatch runs as itself, or as one of its copies", `SELECT 'job ' || s.job_id FROM honker.sent_job s WHERE s.run_id <> s.job_id
  AND NOT EXISTS (SELECT FROM honker.sent_copy c WHERE c.job_id = s.run_id AND c.sent_id = s.job_id)`},
	{"a claimed job of dispatch has no other copies", `SELECT 'job ' || s.job_id FROM honker.sent_job s JOIN honker.job j ON j.id IN (SELECT honker.live_copies(s.job_id))
  GROUP BY s.job_id HAVING count(*) > 1 AND bool_or(j.state = 1)`},
	{"a job of dispatch has ended if it is not live", `SELECT 'job ' || s.job_id FROM honker.sent_job s
  WHERE (s.ended_at IS NULL) <> EXISTS (SELECT FROM honker.job j WHERE j.id = s.run_id) AND s.held_until IS NULL`},
	{"a message expires after its receipt", `SELECT 'message ' || id || ' of ' || source FROM honker.received WHERE expires_at < received_at`},
}

// Violations returns the violations of honker's rules in s.
func Violations(ctx context.Context, q row.Querier, s pgsql.Schema) (broken []string, err error) {
	for _, i := range invariants {
		found, err := pgsql.Texts(ctx, q, s.SQL(i.query))
		if err != nil {
			return nil, err
		}
		for _, text := range found {
			broken = append(broken, fmt.Sprintf("%s: %s", i.rule, text))
		}
	}
	return broken, nil
}
