package store_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/sqlite/store/dispatches"
	"github.com/honker-go/honker/internal/sqlite/store/flows"
	"github.com/honker-go/honker/internal/sqlite/store/inboxes"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/moves"
	"github.com/honker-go/honker/internal/sqlite/store/relays"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

var seedFlag = flag.Uint64("seed", 0, "repeat the random tables of a failed run")

// ctx has no Done channel. If it had, the driver would start a goroutine for each statement.
var ctx = context.Background()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seed returns the run's seed and prints it if the test fails.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", s)
	return s
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "app.db") }

// open opens path like the library does, but doesn't bootstrap the file.
func open(t *testing.T, path string) *sql.DB {
	t.Helper()
	connector, err := sqlite.NewConnector(path, sqlite.Config{BusyTimeout: 5 * time.Second, AnyFilesystem: true})
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// bootstrap runs Bootstrap in a write transaction, like the library does.
func bootstrap(db *sql.DB, ddl string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := schema.Bootstrap(ctx, tx, ddl); err != nil {
		return err
	}
	return tx.Commit()
}

// openFresh creates a file that only this library has used.
func openFresh(t *testing.T) *sql.DB {
	t.Helper()
	return openBootstrapped(t, newPath(t))
}

func openBootstrapped(t *testing.T, path string) *sql.DB {
	t.Helper()
	db := open(t, path)
	require.NoError(t, bootstrap(db, schema.Schema))
	return db
}

// withRelay creates a relay's tables, which the library creates on the first write.
func withRelay(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	_, _, err := relays.Relays{}.Register(ctx, db, "made", 1, time.UnixMilli(1))
	require.NoError(t, err)
	exec(t, db, `DELETE FROM _honkerx_relay_queues`)
	exec(t, db, `DELETE FROM _honkerx_relay_partitions`)
	return db
}

// withCompacted creates the table of topics that have lost events, which the library creates when events are first
// lost.
func withCompacted(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	exec(t, db, `INSERT INTO _honker_stream (offset, topic, payload) VALUES (1, 't', '1')`)
	done, err := streams.Retentions{}.Compact(ctx, db, row.Compaction{Topic: "t", Policy: 1, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 1, done.Deleted)
	return db
}

// withDispatch creates package dispatch's tables, which the library creates on the first write.
func withDispatch(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	_, err := dispatches.Dispatches{}.Add(ctx, db, row.Sent{ID: 1, Queue: "made", ReplyQueue: "replies"}, time.UnixMilli(1))
	require.NoError(t, err)
	require.NoError(t, dispatches.Dispatches{}.AddTwins(ctx, db, 1, []int64{2}))
	exec(t, db, `DELETE FROM _honkerx_dispatch_twins`)
	exec(t, db, `DELETE FROM _honkerx_dispatch_jobs`)
	return db
}

// withInbox creates the inbox table, which the library creates for the first message.
func withInbox(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	_, err := inboxes.Inboxes{}.Receive(ctx, db, "shop", "1", time.UnixMilli(1), time.UnixMilli(1))
	require.NoError(t, err)
	exec(t, db, `DELETE FROM _honkerx_inbox_received`)
	return db
}

// withFlows creates package flow's tables, which the library creates for the first run.
func withFlows(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	require.NoError(t, flows.Flows{}.Prepare(ctx, db))
	return db
}

// withMoving creates the table of parcels, which a move creates.
func withMoving(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	_, err := moves.Moves{}.Begin(ctx, db, row.Mover{})
	require.NoError(t, err)
	return db
}

// openShared creates a file that was first opened by a honker binding, with honker's own indexes.
func openShared(t *testing.T) *sql.DB {
	t.Helper()
	path := newPath(t)
	honkerBootstrap(t, openPlain(t, path))
	return openBootstrapped(t, path)
}

// openPlain opens path the way an application without honker would, with only the driver.
func openPlain(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	exec(t, db, `PRAGMA busy_timeout = 5000`)
	return db
}

// begin starts a transaction that is rolled back at the end of the test, so its rows never reach the disk.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func exec(t *testing.T, q row.Querier, query string, args ...any) {
	t.Helper()
	_, err := q.ExecContext(ctx, query, args...)
	require.NoError(t, err, query)
}

// lines returns the rows of query, each formatted as a line of text.
func lines(t *testing.T, q row.Querier, query string, args ...any) []string {
	t.Helper()
	r, err := q.QueryContext(ctx, query, args...)
	require.NoError(t, err, query)
	defer r.Close()
	columns, err := r.Columns()
	require.NoError(t, err)
	values := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	out := []string{}
	for r.Next() {
		require.NoError(t, r.Scan(into...))
		out = append(out, line(values))
	}
	require.NoError(t, r.Err())
	return out
}

func line(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = "NULL"
		if v != nil {
			texts[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(texts, "|")
}

// value returns the only column of the only row of query.
func value(t *testing.T, q row.Querier, query string, args ...any) string {
	t.Helper()
	all := lines(t, q, query, args...)
	require.Len(t, all, 1, query)
	return all[0]
}

// dump returns every row of every table. Tests compare dumps to show that nothing has changed.
func dump(t *testing.T, q row.Querier) []string {
	t.Helper()
	var out []string
	for _, table := range lines(t, q, `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`) {
		for _, l := range lines(t, q, `SELECT * FROM `+table+` ORDER BY 1, 2`) {
			out = append(out, table+": "+l)
		}
	}
	return out
}

// claim, ready, states and nextClaim are like ClaimAt, ReadyAt, StatesAt and NextClaimAt but take
// whole seconds.
func claim(q row.Querier, queue, worker string, n int, now, expires int64) ([]*row.Job, []row.Death, error) {
	return jobs.Jobs{}.ClaimAt(ctx, q, queue, worker, n, inMS(now), expires)
}

func ready(q row.Querier, queue string, now int64) (bool, error) {
	return jobs.Jobs{}.ReadyAt(ctx, q, queue, inMS(now))
}

func states(q row.Querier, queues []string, now int64) ([]row.QueueState, error) {
	return jobs.Jobs{}.StatesAt(ctx, q, queues, inMS(now))
}

func nextClaim(q row.Querier, queue string, now int64) (int64, error) {
	return jobs.Jobs{}.NextClaimAt(ctx, q, queue, inMS(now))
}

// inMS converts a Unix second to milliseconds, saturating at the maximum.
func inMS(unix int64) int64 {
	if unix > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return unix * 1000
}

// ackMany and renew are like AckMany and Renew but take whole seconds.
func ackMany(q row.Querier, queue string, ids []int64, worker string, now int64) (int, error) {
	n, _, err := jobs.Jobs{}.AckMany(ctx, q, row.AckMany{Queue: queue, Worker: worker, IDs: ids}, time.Unix(now, 0))
	return n, err
}

func renew(q row.Querier, ids []int64, worker string, now, expires int64) ([]int64, error) {
	r := row.Renewal{Worker: worker, IDs: ids, Lease: time.Duration(expires-now) * time.Second}
	return jobs.Jobs{}.Renew(ctx, q, r, time.Unix(now, 0))
}
