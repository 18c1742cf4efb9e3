package ui_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// recorder is a connector that records its connections' queries while on is set.
type recorder struct {
	path string
	mu   sync.Mutex
	on   bool
	read map[string]bool
}

func (r *recorder) Driver() driver.Driver { return new(sqlite.Driver) }

func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.Driver().Open("file:" + r.path + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	return &recorded{conn, r}, err
}

func (r *recorder) note(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.read[query] = true
	}
}

// while returns the queries that run during f.
func (r *recorder) while(f func()) []string {
	set := func(on bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.on = on
	}
	r.read = map[string]bool{}
	set(true)
	f()
	set(false)
	return slices.Sorted(maps.Keys(r.read))
}

type recorded struct {
	driver.Conn
	to *recorder
}

func (c *recorded) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.to.note(query)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *recorded) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *recorded) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.to.note(query)
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *recorded) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

// small lists the tables with a row per queue, topic, worker, lock and so on. Other tables grow with the work done.
var small = []string{"_honker_locks", "_honker_rate_limits", "_honker_scheduler_tasks", "_honkerx_schedules", "_honker_stream_consumers", "_honkerx_consumers",
	"_honkerx_meta", "_honkerx_queues", "_honkerx_retention", "_honkerx_workers", "_honkerx_groups", "_honkerx_group_members",
	"_honkerx_relay_queues", "_honkerx_relay_partitions", "_honkerx_dispatch_presence"}

var (
	scans   = regexp.MustCompile(`\bSCAN (\w+)`)
	aliases = regexp.MustCompile(`(_honker\w+) AS (\w+)`)
	numbers = regexp.MustCompile(`\?(\d*)`)
)

// fault returns an error message if a statement reads a growing table in full, and "" otherwise. A scan in index
// order that is bounded by a LIMIT is allowed.
func fault(query, plan string) string {
	tables := map[string]string{}
	for _, m := range aliases.FindAllStringSubmatch(query, -1) {
		tables[m[2]] = m[1]
	}
	for _, m := range scans.FindAllStringSubmatch(plan, -1) {
		table := m[1]
		if of := tables[table]; of != "" {
			table = of
		}
		bounded := strings.Contains(query, "LIMIT") && !strings.Contains(plan, "FOR ORDER BY")
		if strings.HasPrefix(table, "_honker") && !slices.Contains(small, table) && !bounded {
			return "reads the whole of " + table
		}
	}
	return ""
}

// plan returns SQLite's query plan, one line per step.
func plan(t *testing.T, pool *sql.DB, query string) string {
	t.Helper()
	n := 0
	for _, m := range numbers.FindAllStringSubmatch(query, -1) {
		i, err := strconv.Atoi(m[1])
		if err != nil {
			i = n + 1
		}
		n = max(n, i)
	}
	rows, err := pool.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+query, make([]any, n)...)
	require.NoError(t, err, query)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		lines = append(lines, detail)
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}

// attached returns a file whose queries are recorded.
func attached(t *testing.T) (*honker.DB, *sql.DB, *recorder) {
	t.Helper()
	r := &recorder{path: filepath.Join(t.TempDir(), "app.db")}
	pool := sql.OpenDB(r)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, pool, r
}

// No page reads a growing table in full. All statements use an index or stop at a limit. Their plans are in
// internal/sqlite/store/testdata/plans.golden.
func TestPages_Plans(t *testing.T) {
	testkit.FileOnly(t)
	db, pool, r := attached(t)
	something(t, db)
	require.NoError(t, queue(db, "mails").SetLimits(context.Background(), honker.Limits{Running: 3, PerKey: 1}))
	h := dashboard(t, db, nil)
	read := r.while(func() {
		crawl(t, h)
		for _, filter := range []string{"contains=ann", "where=to%3Dann", "error=host", "key=k", "unique=u", "worker=w", "batch=1", "header=trace%3Dt1",
			"id=1,2", "attempts=1", "fingerprint=48ac435ab835309e", "phase=dead", "phase=ready&queue=mails", "phase=running", "phase=scheduled",
			"phase=held", "phase=done", "created_since=1h", "run_before=1h", "died_since=1h"} {
			require.Equal(t, http.StatusOK, get(h, "/jobs?"+filter).Code, filter)
			require.Less(t, get(h, "/dead?"+filter).Code, 500, filter)
			form, err := url.ParseQuery(filter)
			require.NoError(t, err)
			for _, verb := range []string{"requeue", "discard", "bury", "cancel", "run-now"} { // dry runs
				require.Less(t, ask(h, http.MethodPost, "/"+verb, form).Code, 500, "%s %s", verb, filter)
			}
		}
		for _, order := range []string{"oldest", "died", "claim&queue=mails", "died&queue=mails&queue=other"} {
			require.Equal(t, http.StatusOK, get(h, "/jobs?order="+order).Code, order)
		}
	})
	require.Greater(t, len(read), 60)
	for _, query := range read {
		if !strings.Contains(query, "_honker") {
			continue // not a query on honker's tables
		}
		p := plan(t, pool, query)
		require.Empty(t, fault(query, p), "%s\n%s", query, p)
	}
}

// fault detects statements that read a growing table in full.
func TestPages_PlansFound(t *testing.T) {
	testkit.FileOnly(t)
	_, pool, _ := attached(t)
	for query, want := range map[string]string{
		"SELECT count(*) FROM _honker_live":                                      "reads the whole of _honker_live",
		"SELECT j.id FROM _honker_dead AS j WHERE j.last_error = ?1":             "reads the whole of _honker_dead",
		"SELECT id FROM _honker_dead ORDER BY last_error LIMIT ?1":               "reads the whole of _honker_dead",
		"SELECT id FROM _honker_dead WHERE last_error = ?1 ORDER BY id LIMIT ?2": "",
		"SELECT id FROM _honker_live WHERE id = ?1":                              "",
		"SELECT name FROM _honker_scheduler_tasks":                               "",
	} {
		require.Equal(t, want, fault(query, plan(t, pool, query)), query)
	}
}
