package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
)

var errOdd = errors.New("odd")

func put(ctx context.Context, q row.Querier, v any) error {
	_, err := q.ExecContext(ctx, `INSERT INTO t (v) VALUES (?1)`, v)
	return err
}

func write(effect Effect, name string, run func(put func(any) error, args []driver.Value) error) Function {
	return Function{name, 1, effect, func(ctx context.Context, q row.Querier, _ time.Time, args []driver.Value) (driver.Value, error) {
		return args[0], run(func(v any) error { return put(ctx, q, v) }, args)
	}}
}

func look(name string, args int, effect Effect, run func(ctx context.Context, q row.Querier, now time.Time, args []driver.Value) (driver.Value, error)) Function {
	return Function{name, args, effect, run}
}

// testFunctions cover every effect and every kind of failure.
var testFunctions = NewFunctions([]Function{
	write(WritesOnce, "put", func(put func(any) error, args []driver.Value) error { return put(args[0]) }),
	write(Writes, "put_two", func(put func(any) error, args []driver.Value) error {
		if err := put(args[0]); err != nil {
			return err
		}
		return put(args[0].(int64) + 1)
	}),
	write(Writes, "put_and_fail", func(put func(any) error, args []driver.Value) error { return errors.Join(put(args[0]), errOdd) }),
	write(Writes, "put_and_panic", func(put func(any) error, args []driver.Value) error {
		_ = put(args[0])
		panic("oh")
	}),
	look("size", 0, Reads, func(ctx context.Context, q row.Querier, _ time.Time, _ []driver.Value) (driver.Value, error) {
		var n int64
		err := scanOne(ctx, q, `SELECT count(*) FROM t`, &n)
		return n, err
	}),
	look("same", 1, Pure, func(_ context.Context, _ row.Querier, _ time.Time, args []driver.Value) (driver.Value, error) {
		return args[0], nil
	}),
	look("same", 2, Pure, func(_ context.Context, _ row.Querier, _ time.Time, args []driver.Value) (driver.Value, error) {
		return args[1], nil
	}),
	look("clock", 0, Reads, func(_ context.Context, _ row.Querier, now time.Time, _ []driver.Value) (driver.Value, error) {
		return now.Unix(), nil
	}),
})

func withFunctions(t testing.TB) (*Connector, *sql.DB) {
	t.Helper()
	return newPool(t, file(t), Config{Functions: testFunctions})
}

// ask returns the single value of query.
func ask(q row.Querier, query string) (v any, err error) {
	return v, scanOne(context.Background(), q, query, &v)
}

func requireValue(t testing.TB, q row.Querier, want any, query string) {
	t.Helper()
	got, err := ask(q, query)
	require.NoError(t, err, query)
	require.Equal(t, want, got, query)
}

// Functions can read, write and return the time.
func TestFunction_ReadWriteTime(t *testing.T) {
	_, pool := withFunctions(t)
	requireValue(t, pool, int64(1), `SELECT put(1)`)
	requireValue(t, pool, int64(5), `WITH x(v) AS (VALUES (5)) SELECT put_two(v) FROM x`)
	requireValue(t, pool, int64(9), `INSERT INTO t (v) VALUES (8) RETURNING put(9)`)
	perform(t, pool, `SELECT put(10)`, `UPDATE t SET v = put(11) + 1 WHERE v = 10`)
	require.Equal(t, []int64{1, 5, 6, 8, 9, 11, 12}, values(t, pool))
	requireValue(t, pool, int64(7), `SELECT size()`)
	now := time.Now().Unix()
	got, err := ask(pool, `SELECT clock()`)
	require.NoError(t, err)
	require.InDelta(t, now, got, 5)
}

// Arguments and results keep their storage class.
func TestFunction_StorageClass(t *testing.T) {
	_, pool := withFunctions(t)
	for text, want := range map[string]any{`NULL`: nil, `-3`: int64(-3), `2.5`: 2.5, `'x'`: "x", `''`: "",
		`x'00ff'`: []byte{0, 255}, `x''`: []byte(nil), `'a' || char(0) || 'b'`: "a\x00b"} {
		requireValue(t, pool, want, `SELECT same(`+text+`)`)
		requireValue(t, pool, want, `SELECT same(1, `+text+`)`)
	}
}

// A call with the wrong number of arguments is an error.
func TestFunction_ArgumentCount(t *testing.T) {
	_, pool := withFunctions(t)
	for _, query := range []string{`SELECT put()`, `SELECT put(1, 2)`, `SELECT same()`, `SELECT same(1, 2, 3)`, `SELECT size(1)`} {
		_, err := ask(pool, query)
		require.ErrorContains(t, err, "wrong number of arguments to function", query)
	}
	require.Empty(t, values(t, pool))
}

// A failing function leaves no changes behind, and its own error is returned.
func TestFunction_Fails(t *testing.T) {
	c, pool := withFunctions(t)
	for query, is := range map[string]func(error) bool{
		`SELECT put_and_fail(1)`:                                                       func(err error) bool { return errors.Is(err, errOdd) },
		`SELECT put_two(v) FROM (SELECT 1 AS v UNION ALL SELECT 2)`:                    IsConstraint,
		`SELECT put(v) FROM (SELECT 1 AS v UNION ALL SELECT 1)`:                        IsConstraint,
		`SELECT put_and_panic(1)`:                                                      func(err error) bool { return strings.Contains(err.Error(), "panic: oh") },
		`INSERT INTO t (v) SELECT put_and_fail(1)`:                                     func(err error) bool { return errors.Is(err, errOdd) },
		`INSERT INTO t (v) SELECT 5 UNION ALL SELECT put_and_fail(1)`:                  func(err error) bool { return errors.Is(err, errOdd) },
		`INSERT INTO t (v) VALUES (7) RETURNING put_and_fail(1)`:                       func(err error) bool { return errors.Is(err, errOdd) },
		`INSERT INTO t (v) SELECT put(v) + 10 FROM (SELECT 1 AS v UNION ALL SELECT 1)`: IsConstraint,
	} {
		_, err := ask(pool, query)
		require.True(t, is(err), "%s: %v", query, err)
		_, err = pool.Exec(query)
		require.True(t, is(err), "%s: %v", query, err)
		require.Empty(t, values(t, pool), query)
		require.True(t, free(c))
	}
	requireValue(t, pool, int64(1), `SELECT put(1)`)
}

// In a transaction, only a failed call is undone and the rest can be committed. If the surrounding statement writes,
// that is impossible, and the transaction fails.
func TestFunction_FailsInTx(t *testing.T) {
	_, pool := withFunctions(t)
	for query, stays := range map[string]bool{
		`SELECT put_and_fail(1)`:                   true,
		`SELECT put(v) FROM (SELECT 50 AS v)`:      true,
		`INSERT INTO t (v) SELECT put_and_fail(1)`: false,
		`UPDATE t SET v = put_and_fail(1)`:         false,
		`INSERT INTO t (v) SELECT put(50)`:         true,
	} {
		perform(t, pool, `DELETE FROM t`)
		tx, err := pool.Begin()
		require.NoError(t, err)
		perform(t, tx, `INSERT INTO t (v) VALUES (50)`)
		_, err = tx.Exec(query)
		require.Error(t, err, query)
		err = tx.Commit()
		require.Equal(t, stays, err == nil, "%s: %v", query, err)
		if stays {
			require.Equal(t, []int64{50}, values(t, pool), query)
		} else {
			require.Empty(t, values(t, pool), query)
		}
	}
}

// A rollback undoes changes made by functions.
func TestFunction_Rollback(t *testing.T) {
	_, pool := withFunctions(t)
	tx, err := pool.Begin()
	require.NoError(t, err)
	requireValue(t, tx, int64(1), `SELECT put_two(1)`)
	requireValue(t, tx, int64(3), `SELECT put(3)`)
	requireValue(t, tx, int64(3), `SELECT size()`)
	require.NoError(t, tx.Rollback())
	require.Empty(t, values(t, pool))
}

// Read-only transactions reject functions that write.
func TestFunction_ReadOnlyTx(t *testing.T) {
	_, pool := withFunctions(t)
	tx, err := pool.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	for _, query := range []string{`SELECT put(1)`, `SELECT put_two(1)`} {
		_, err := ask(tx, query)
		require.ErrorIs(t, err, engine.ErrInvalid, query)
		require.ErrorContains(t, err, "read-only")
	}
	requireValue(t, tx, int64(0), `SELECT size()`)
	require.NoError(t, tx.Commit())
	require.Empty(t, values(t, pool))
}

// A function can be called recursively through a trigger, which runs the same statements while the
// outer statements run.
func TestFunction_Nested(t *testing.T) {
	_, pool := withFunctions(t)
	perform(t, pool, `CREATE TRIGGER again AFTER INSERT ON t WHEN NEW.v IN (1, 11) BEGIN SELECT put_two(NEW.v + 10), size(); END`)
	requireValue(t, pool, int64(1), `SELECT put(1)`)
	require.Equal(t, []int64{1, 11, 12, 21, 22}, values(t, pool))
	perform(t, pool, `DELETE FROM t`, `INSERT INTO t (v) VALUES (1)`)
	require.Equal(t, []int64{1, 11, 12, 21, 22}, values(t, pool))
}

// A writing call hidden by a view is atomic, and its commit is reported.
func TestFunction_HiddenInView(t *testing.T) {
	c, pool := withFunctions(t)
	perform(t, pool, `CREATE VIEW good AS SELECT put_two(1) AS v`, `CREATE VIEW bad AS SELECT put_and_fail(5) AS v`)
	before := c.Commits()
	requireValue(t, pool, int64(1), `SELECT v FROM good`)
	require.Greater(t, c.Commits(), before)
	_, err := ask(pool, `SELECT v FROM bad`)
	require.ErrorIs(t, err, errOdd)
	require.Equal(t, []int64{1, 2}, values(t, pool))
	perform(t, pool, `DELETE FROM t`, `SELECT v FROM good`)
	require.Equal(t, []int64{1, 2}, values(t, pool))
}

// commitElsewhere returns a function that has another connection commit, as a second writer might between a
// statement's first read and its first write.
func commitElsewhere(other *sql.DB) Function {
	return Function{"commit_elsewhere", 1, Reads, func(_ context.Context, _ row.Querier, _ time.Time, args []driver.Value) (driver.Value, error) {
		_, err := other.Exec(`INSERT INTO t (v) VALUES ((SELECT max(v) FROM t) + 100)`)
		if err != nil && !IsBusy(err) { // busy, as it should be: the statement already holds the write lock
			return nil, err
		}
		return args[0], nil
	}}
}

// A SELECT from a view begins with a read snapshot. A writing call in the view must not fail
// because a second writer has committed since.
func TestFunction_HiddenByView_SecondWriter(t *testing.T) {
	path := file(t)
	functions := []Function{commitElsewhere(foreign(t, path))}
	for _, forms := range testFunctions.byName {
		for _, f := range forms {
			functions = append(functions, *f)
		}
	}
	c, pool := newPool(t, path, Config{Functions: NewFunctions(functions)})
	perform(t, pool, `PRAGMA journal_mode = WAL`, `INSERT INTO t (v) VALUES (0)`,
		`CREATE VIEW hidden AS SELECT put_two(commit_elsewhere(n) * 1000) AS v FROM (SELECT count(*) AS n FROM t)`)
	own := borrow(t, pool)
	before := c.Commits()
	requireValue(t, own, int64(2000), `SELECT v FROM hidden`) // computed again, including the second writer's row
	require.Equal(t, []int64{0, 100, 2000, 2001}, values(t, own))
	require.Equal(t, before+1, c.Commits())
	require.True(t, free(c))

	perform(t, own, `DELETE FROM t WHERE v > 1`)
	perform(t, own, `SELECT v FROM hidden`)
	require.Equal(t, []int64{0, 1000, 1001}, values(t, own), "known to write by now, it holds the lock from the start")
	perform(t, own, `DELETE FROM t WHERE v > 1`)
	requireValue(t, own, int64(2000), `WITH w AS (SELECT v FROM hidden) SELECT v FROM w`)
	require.Equal(t, []int64{0, 100, 2000, 2001}, values(t, own), "another text, which has to be found out about")

	prepared, err := own.PrepareContext(context.Background(), `SELECT v + ? FROM hidden`)
	require.NoError(t, err)
	defer prepared.Close()
	perform(t, own, `DELETE FROM t WHERE v > 1`)
	var v int64
	require.NoError(t, prepared.QueryRow(5).Scan(&v))
	require.EqualValues(t, 2005, v)
	require.True(t, free(c))
}

// A statement cannot run again once the caller has received rows from it.
func TestFunction_HiddenByView_AfterFirstRow(t *testing.T) {
	c, pool := withFunctions(t)
	perform(t, pool, `CREATE VIEW late AS SELECT CASE column1 WHEN 1 THEN 1 ELSE put(column1) END AS v FROM (VALUES (1), (2))`)
	rows, err := pool.Query(`SELECT v FROM late`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), engine.ErrInvalid)
	require.ErrorContains(t, rows.Err(), "begin a transaction first")
	require.NoError(t, rows.Close())
	require.Empty(t, values(t, pool))
	require.True(t, free(c))
	perform(t, pool, `SELECT v FROM late`) // Exec returns no rows
	tx, err := pool.Begin()
	require.NoError(t, err)
	perform(t, tx, `DELETE FROM t`)
	require.Equal(t, []int64{1, 2}, numbers(t, tx, `SELECT v FROM late`))
	require.NoError(t, tx.Commit())
	require.Equal(t, []int64{2}, values(t, pool))
}

// In a script, each call is atomic by itself.
func TestFunction_Script(t *testing.T) {
	c, pool := withFunctions(t)
	_, err := pool.Exec(`SELECT put_two(1); SELECT put_and_fail(5); SELECT put(7)`)
	require.ErrorIs(t, err, errOdd)
	require.Equal(t, []int64{1, 2}, values(t, pool))
	require.True(t, free(c))
}

// The rows of a writing call are returned after the commit, so that reading them slowly doesn't block other writers.
func TestFunction_RowsHoldNothing(t *testing.T) {
	c, pool := withFunctions(t)
	rows, err := pool.Query(`SELECT put(column1) AS p, 'x' AS x FROM (VALUES (1), (2), (3))`)
	require.NoError(t, err)
	require.True(t, free(c))
	require.Equal(t, []int64{1, 2, 3}, values(t, pool))
	columns, err := rows.Columns()
	require.NoError(t, err)
	require.Equal(t, []string{"p", "x"}, columns)
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	require.Empty(t, types[0].DatabaseTypeName())
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	require.Len(t, values(t, pool), 3)
}

// A call commits once and is reported once.
func TestFunction_CommitsOnce(t *testing.T) {
	c, pool := withFunctions(t)
	for _, query := range []string{`SELECT put_two(1)`, `SELECT put(column1) FROM (VALUES (3), (4))`} {
		before := c.Commits()
		perform(t, pool, query)
		require.Equal(t, before+1, c.Commits(), query)
	}
	before := c.Commits()
	requireValue(t, pool, int64(4), `SELECT size()`)
	require.Equal(t, before, c.Commits(), "reading commits nothing")
}

// Functions that only read, and words that merely look like a call, don't take the gate.
func TestFunction_TakesGate(t *testing.T) {
	c, pool := withFunctions(t)
	require.True(t, c.gate.tryEnter())
	defer c.gate.leave()
	requireValue(t, pool, int64(0), `SELECT size()`)
	requireValue(t, pool, int64(1), `SELECT 1 AS put`)
	limited, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for _, query := range []string{`SELECT put(1)`, `select "PUT" (1)`, "SELECT `put`(1)", `SELECT [put_two] (1)`} {
		require.ErrorIs(t, pool.QueryRowContext(limited, query).Scan(new(int)), context.DeadlineExceeded, query)
	}
	require.Empty(t, values(t, pool))
}

// A ctx that ends between rows undoes the calls.
func TestFunction_CtxBetweenRows(t *testing.T) {
	c, pool := withFunctions(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := NewFunctions([]Function{write(WritesOnce, "put_and_cancel", func(put func(any) error, args []driver.Value) error {
		cancel()
		return put(args[0])
	})})
	_, own := newPool(t, c.Path(), Config{Functions: stop})
	_, err := own.QueryContext(ctx, `SELECT put_and_cancel(column1) FROM (VALUES (1), (2))`)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, values(t, pool))
}

// Concurrent calls never fail with a busy error. A call holds the write lock from the start, so it doesn't matter if
// another process writes after the statement has started.
func TestFunction_NeverBusy(t *testing.T) {
	_, pool := withFunctions(t)
	other := foreign(t, pathOf(t, pool))
	perform(t, other, `PRAGMA busy_timeout = 5000`)
	var wg sync.WaitGroup
	const each = 25
	for g := range 8 {
		wg.Go(func() {
			for i := range each {
				query := fmt.Sprintf(`SELECT put_two(%d) FROM (SELECT count(*) FROM t)`, 2*(g*each+i))
				if _, err := pool.Exec(query); err != nil {
					t.Errorf("%s: %v", query, err)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range each {
			_, _ = other.Exec(`INSERT INTO t (v) VALUES (?)`, -1-i)
		}
	})
	wg.Wait()
	require.Len(t, numbers(t, pool, `SELECT v FROM t WHERE v >= 0`), 2*8*each)
}

func pathOf(t testing.TB, q row.Querier) string {
	t.Helper()
	path, err := MainFile(context.Background(), q)
	require.NoError(t, err)
	return path
}

// The hook gets the driver's connection, which does not wait for the gate.
func TestConnector_OnConnect(t *testing.T) {
	var called int
	var broken func(ctx context.Context, conn driver.Conn) error
	c, err := NewConnector(file(t), Config{BusyTimeout: time.Second, OnConnect: func(ctx context.Context, conn driver.Conn) error {
		called++
		if broken != nil {
			return broken(ctx, conn)
		}
		_, ok := conn.(sqlite.HookRegisterer)
		require.True(t, ok)
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, `PRAGMA recursive_triggers = ON; CREATE TEMP TABLE mine (a)`, nil)
		return err
	}})
	require.NoError(t, err)
	require.True(t, c.gate.tryEnter(), "a writer is at work")
	pool := sql.OpenDB(c)
	defer pool.Close()
	a, b := borrow(t, pool), borrow(t, pool)
	c.gate.leave()
	for _, conn := range []*sql.Conn{a, b} {
		requireValue(t, conn, int64(1), `PRAGMA recursive_triggers`)
		perform(t, conn, `INSERT INTO mine VALUES (1)`)
	}
	require.Equal(t, 2, called)
	readers := sql.OpenDB(c.Readers())
	defer readers.Close()
	requireValue(t, readers, int64(0), `PRAGMA recursive_triggers`)
	require.Equal(t, 2, called, "not for readers")

	for name, hook := range map[string]func(ctx context.Context, conn driver.Conn) error{
		"an error": func(context.Context, driver.Conn) error { return errOdd },
		"a panic":  func(context.Context, driver.Conn) error { panic("oh") },
		"an open transaction": func(ctx context.Context, conn driver.Conn) error {
			_, err := conn.(driver.ExecerContext).ExecContext(ctx, `BEGIN`, nil)
			return err
		},
	} {
		broken = hook
		files := openFiles(t)
		_, err := pool.Conn(context.Background())
		require.ErrorContains(t, err, "OnConnect: ", name)
		require.Equal(t, files, openFiles(t), name)
		require.Equal(t, name == "an error", errors.Is(err, errOdd))
		require.Equal(t, name == "an open transaction", errors.Is(err, engine.ErrInvalid))
	}
	broken = nil
	perform(t, borrow(t, pool), `SELECT a FROM mine`)
}

// Connections reuse registered functions, because the driver never releases them.
func TestFunction_NoLeak(t *testing.T) {
	table := NewFunctions([]Function{{"no_op", 0, Reads, func(context.Context, row.Querier, time.Time, []driver.Value) (driver.Value, error) {
		return nil, nil
	}}})
	path := file(t)
	files := 0
	for i := range 200 {
		connector, err := NewConnector(path, Config{Functions: table, BusyTimeout: time.Second})
		require.NoError(t, err)
		pool := sql.OpenDB(connector)
		a, b := borrow(t, pool), borrow(t, pool)
		requireValue(t, a, nil, `SELECT no_op()`)
		requireValue(t, b, nil, `SELECT no_op()`)
		require.NoError(t, errors.Join(a.Close(), b.Close(), pool.Close()))
		if i == 0 {
			files = openFiles(t)
		}
	}
	require.Len(t, table.free, 2)
	for _, s := range table.free {
		require.Nil(t, s.conn)
	}
	require.Equal(t, files, openFiles(t))
}

// openFiles returns the number of file descriptors that this process has open, on systems that list them.
func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all)
}
