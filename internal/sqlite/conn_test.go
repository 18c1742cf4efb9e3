package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/stretchr/testify/require"
)

// inside runs f with the wrapped connection of c.
func inside(t *testing.T, c *sql.Conn, f func(*conn)) {
	t.Helper()
	require.NoError(t, c.Raw(func(raw any) error { f(raw.(*conn)); return nil }))
}

// The same statement may run inside a loop over its own rows.
func TestConn_Stmt_Nested(t *testing.T) {
	_, pool := newPool(t, file(t), Config{})
	own := borrow(t, pool)
	perform(t, own, `INSERT INTO t (v) VALUES (1), (2), (3)`)
	const query = `SELECT v FROM t WHERE v >= ? ORDER BY v`
	for range 3 { // the cached statement is used again each time
		outer, err := own.QueryContext(context.Background(), query, 1)
		require.NoError(t, err)
		pairs := 0
		for outer.Next() {
			var a int
			require.NoError(t, outer.Scan(&a))
			inner, err := own.QueryContext(context.Background(), query, a)
			require.NoError(t, err)
			for inner.Next() {
				var b int
				require.NoError(t, inner.Scan(&b))
				require.GreaterOrEqual(t, b, a)
				pairs++
			}
			require.NoError(t, inner.Close())
		}
		require.NoError(t, outer.Err())
		require.NoError(t, outer.Close())
		require.Equal(t, 3+2+1, pairs)
	}
	inside(t, own, func(c *conn) {
		require.Contains(t, c.cache.byText, query)
		require.False(t, c.cache.byText[query].inUse)
	})
}

// A connection's statement cache is limited in size.
func TestConn_Stmt_CacheBounded(t *testing.T) {
	_, pool := newPool(t, file(t), Config{})
	own := borrow(t, pool)
	open, err := own.QueryContext(context.Background(), `VALUES (1), (2)`) // in use throughout the test
	require.NoError(t, err)
	require.True(t, open.Next())
	var more []*sql.Rows
	for i := range 3 * cacheSize {
		query := fmt.Sprintf(`SELECT %d`, i)
		require.Equal(t, []int64{int64(i)}, numbers(t, own, query))
		rows, err := own.QueryContext(context.Background(), query+` AS held`)
		require.NoError(t, err)
		more = append(more, rows)
	}
	inside(t, own, func(c *conn) { require.LessOrEqual(t, len(c.cache.byText), cacheSize) })
	for i, rows := range more {
		require.True(t, rows.Next())
		var n int
		require.NoError(t, rows.Scan(&n))
		require.Equal(t, i, n, "rows of a statement that there was no room for")
		require.NoError(t, rows.Close())
	}
	require.True(t, open.Next())
	require.NoError(t, open.Close())
	require.Equal(t, []int64{0}, numbers(t, own, `SELECT 0`), "an evicted one comes back")
}

// Statements that usually run only once are not cached.
func TestConn_Stmt_OnceNotKept(t *testing.T) {
	_, pool := newPool(t, file(t), Config{})
	own := borrow(t, pool)
	for _, query := range []string{
		`CREATE TABLE u (a)`, `DROP TABLE u`, `PRAGMA user_version = 3`, `PRAGMA user_version`,
		`INSERT INTO t (v) VALUES (1)`, `SELECT v FROM t`, `BEGIN IMMEDIATE`, `COMMIT`,
	} {
		perform(t, own, query)
		inside(t, own, func(c *conn) {
			if verbOf(query) == vOther {
				require.NotContains(t, c.cache.byText, query)
			} else {
				require.Contains(t, c.cache.byText, query)
			}
		})
	}
	require.Equal(t, []int64{3}, numbers(t, own, `PRAGMA user_version`))
}

// A cached statement sees changes made to the schema since it was prepared.
func TestConn_Stmt_SchemaChange(t *testing.T) {
	_, pool := newPool(t, file(t), Config{})
	own := borrow(t, pool)
	perform(t, own, `CREATE TABLE u (a)`, `INSERT INTO u VALUES (1)`)
	require.Equal(t, []int64{1}, numbers(t, own, `SELECT * FROM u`))
	perform(t, borrow(t, pool), `DROP TABLE u`, `CREATE TABLE u (b, c)`, `INSERT INTO u VALUES (2, 3)`)
	rows, err := own.QueryContext(context.Background(), `SELECT * FROM u`)
	require.NoError(t, err)
	columns, err := rows.Columns()
	require.NoError(t, err)
	require.Equal(t, []string{"b", "c"}, columns)
	require.NoError(t, rows.Close())
}

// A statement's verb is found even after spaces and comments.
func TestConn_Stmt_Verb(t *testing.T) {
	for query, want := range map[string]verb{
		"":                              vOther,
		"SELECT 1":                      vRead,
		" \n\tselect(1)":                vRead,
		"VALUES (1)":                    vRead,
		"insert into t values (1)":      vWrite,
		"REPLACE INTO t VALUES (1)":     vWrite,
		"WITH a AS (SELECT 1) SELECT 1": vRead,
		"with recursive a(x) as not materialized (select ')' -- )\n), b as(values(1))values(1)": vRead,
		"WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a RETURNING a":                        vWrite,
		"WITH a(x) AS (VALUES (1)),b AS(SELECT 1)UPDATE t SET a = (SELECT 1)":                   vWrite,
		"/* WITH */ WITH [select] AS (SELECT 1) DELETE FROM t":                                  vWrite,
		"WITH replace AS (SELECT 1) SELECT * FROM replace":                                      vRead,
		"WITH a AS (SELECT 1) REPLACE INTO t SELECT * FROM a":                                   vWrite,
		"INSERT INTO t VALUES ('a;b') RETURNING \"c;\"; -- ;":                                   vWrite,
		"INSERT INTO t VALUES (1); ROLLBACK":                                                    vOther,
		"SELECT 'it''s;' -- ; \n;":                                                              vRead,
		"SELECT '":                                                                              vRead,
		"/* a":                                                                                  vOther,
		";":                                                                                     vOther,
		"UPDATE t SET a = 1":                                                                    vWrite,
		"DELETE FROM t":                                                                         vWrite,
		"SAVEPOINT a":                                                                           vSavepoint,
		"release a":                                                                             vSavepoint,
		"BEGIN":                                                                                 vBegin,
		"begin;":                                                                                vBegin,
		"BEGIN TRANSACTION":                                                                     vBegin,
		" BEGIN  DEFERRED\tTRANSACTION ; ":                                                      vBegin,
		"BEGIN IMMEDIATE":                                                                       vBeginNow,
		"begin immediate transaction;":                                                          vBeginNow,
		"BEGIN EXCLUSIVE":                                                                       vBeginNow,
		"COMMIT":                                                                                vCommit,
		"commit transaction;":                                                                   vCommit,
		"END":                                                                                   vCommit,
		"END TRANSACTION":                                                                       vCommit,
		"ROLLBACK":                                                                              vRollback,
		"rollback transaction":                                                                  vRollback,
		"ROLLBACK TO a":                                                                         vOther,
		"ROLLBACK TRANSACTION TO a":                                                             vOther,
		"BEGIN; INSERT INTO t VALUES (1); COMMIT":                                               vOther,
		"BEGINNING":                                                                             vOther,
		"PRAGMA user_version":                                                                   vOther,
		dataVersion:                                                                             vRead,
		"CREATE TABLE t (a)":                                                                    vOther,
		"EXPLAIN SELECT 1":                                                                      vOther,
	} {
		require.Equal(t, want, verbOf(query), query)
	}
}

// A transaction begun as text holds the gate.
func TestConn_TextTx_HoldsGate(t *testing.T) {
	for _, begin := range []string{"BEGIN IMMEDIATE", "begin exclusive transaction;"} {
		for end, stays := range map[string]bool{"COMMIT": true, "end;": true, "ROLLBACK": false, "": false} {
			t.Run(begin+" … "+end, func(t *testing.T) {
				c, pool := newPool(t, file(t), Config{})
				own := borrow(t, pool)
				before := c.Commits()
				perform(t, own, begin, `INSERT INTO t (v) VALUES (1)`)
				require.False(t, free(c))
				if end != "" {
					perform(t, own, end)
					require.True(t, free(c))
				}
				// If the transaction isn't ended, the connection returns to the pool with it open.
				require.NoError(t, own.Close())
				require.True(t, free(c))
				perform(t, pool, `INSERT INTO t (v) VALUES (2)`)
				want, commits := []int64{2}, 1
				if stays {
					want, commits = []int64{1, 2}, 2
				}
				require.Equal(t, want, values(t, pool))
				require.EqualValues(t, commits, c.Commits()-before)
			})
		}
	}
}

// COMMIT, ROLLBACK and SAVEPOINT outside a transaction are invalid.
func TestConn_TextTx_OutOfPlace(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	own := borrow(t, pool)
	for _, query := range []string{"COMMIT", "ROLLBACK", "SAVEPOINT a"} {
		_, err := own.ExecContext(context.Background(), query)
		require.ErrorIs(t, err, engine.ErrInvalid, query)
	}
	perform(t, own, "BEGIN IMMEDIATE")
	_, err := own.ExecContext(context.Background(), "BEGIN")
	require.ErrorIs(t, err, engine.ErrInvalid)
	perform(t, own, "SAVEPOINT a", `INSERT INTO t (v) VALUES (1)`, "ROLLBACK TO a", "RELEASE a", "COMMIT")
	require.Empty(t, values(t, pool))
	require.True(t, free(c))
}

// Tools may put a comment next to a statement. A BEGIN with a comment must be recognized or
// rejected. Otherwise the next borrower of the connection and all other writers would be stuck.
func TestConn_TextTx_Comment(t *testing.T) {
	for _, begin := range []string{
		"/* traceparent */ BEGIN IMMEDIATE", "BEGIN IMMEDIATE -- traced", "-- traced\nBEGIN IMMEDIATE", "BEGIN IMMEDIATE; INSERT INTO t (v) VALUES (7)",
		"BEGIN; INSERT INTO t (v) VALUES (7); INSERT INTO missing VALUES (1); COMMIT", // a script that fails halfway
	} {
		t.Run(begin, func(t *testing.T) {
			c, pool := newPool(t, file(t), Config{BusyTimeout: 200 * time.Millisecond})
			own := borrow(t, pool)
			_, err := own.ExecContext(context.Background(), begin)
			if err == nil && !free(c) {
				perform(t, own, `INSERT INTO t (v) VALUES (1)`, "COMMIT")
				require.Contains(t, values(t, pool), int64(1))
			}
			require.NoError(t, own.Close())
			other := borrow(t, pool)
			second := borrow(t, pool)
			perform(t, other, `INSERT INTO t (v) VALUES (2)`)
			require.Contains(t, values(t, second), int64(2), "acknowledged, and not to be seen")
			perform(t, second, `INSERT INTO t (v) VALUES (3)`)
			require.True(t, free(c))
		})
	}
}

// OnCommit is called for every commit, and for nothing else.
func TestConn_OnCommit(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	perform(t, borrow(t, pool), `SELECT 1`)
	before := c.Commits()
	var heard int
	c.OnCommit(func() { heard++ })
	ctx := context.Background()
	perform(t, pool, `INSERT INTO t (v) VALUES (1)`)
	require.Equal(t, 1, heard)
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	perform(t, tx, `INSERT INTO t (v) VALUES (2)`)
	require.Equal(t, 1, heard)
	require.NoError(t, tx.Commit())
	require.Equal(t, 2, heard)
	tx, err = pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	perform(t, tx, `INSERT INTO t (v) VALUES (3)`)
	require.NoError(t, tx.Rollback())
	tx, err = pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, values(t, tx))
	require.NoError(t, tx.Commit())
	_, err = pool.ExecContext(ctx, `INSERT INTO t (v) VALUES (1)`)
	require.Error(t, err)
	require.Equal(t, 2, heard)
	require.Equal(t, []int64{4}, numbers(t, pool, `INSERT INTO t (v) VALUES (4) RETURNING v`))
	require.Equal(t, 3, heard)
	require.EqualValues(t, heard, c.Commits()-before)
}

// Two processes can write concurrently without an error.
func TestConn_TwoProcesses(t *testing.T) {
	path := file(t)
	_, one := newPool(t, path, Config{})
	_, two := newPool(t, path, Config{}) // a separate gate, as in another process
	var all sync.WaitGroup
	const writers, each = 3, 40
	for i := range 2 * writers {
		pool := []*sql.DB{one, two}[i%2]
		all.Go(func() {
			for range each {
				tx, err := pool.BeginTx(context.Background(), nil)
				if err == nil {
					_, err = tx.ExecContext(context.Background(), `INSERT INTO t (v) SELECT count(*) FROM t`)
					err = errors.Join(err, tx.Commit())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, []int64{2 * writers * each}, numbers(t, one, `SELECT count(*) FROM t`))
}

// Readers see commits and cannot write.
func TestConn_Readers(t *testing.T) {
	c, pool := withFunctions(t)
	looks := sql.OpenDB(c.Readers())
	t.Cleanup(func() { require.NoError(t, looks.Close()) })
	change := NewChange(looks)
	t.Cleanup(func() { require.NoError(t, change.Close()) })
	before, err := change.Version(context.Background())
	require.NoError(t, err)
	perform(t, pool, `INSERT INTO t (v) VALUES (1)`)
	after, err := change.Version(context.Background())
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	_, err = looks.Exec(`INSERT INTO t (v) VALUES (2)`)
	require.True(t, IsReadOnly(err), err)
	_, err = ask(looks, `SELECT put(3)`)
	require.ErrorContains(t, err, "no such function")
	require.Equal(t, []int64{1}, values(t, looks))
}

// firstBroken is a connector whose first connection is permanently broken.
type firstBroken struct {
	driver.Connector
	opened int
}

func (f *firstBroken) Connect(ctx context.Context) (driver.Conn, error) {
	f.opened++
	c, err := f.Connector.Connect(ctx)
	if f.opened == 1 {
		return broken{c}, err
	}
	return c, err
}

type broken struct{ driver.Conn }

func (broken) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, errOdd
}

// Change opens another connection if its own is broken.
func TestConn_Changes_Reconnect(t *testing.T) {
	c, _ := newPool(t, file(t), Config{})
	looks := sql.OpenDB(&firstBroken{Connector: c.Readers()})
	t.Cleanup(func() { require.NoError(t, looks.Close()) })
	change := NewChange(looks)
	_, err := change.Version(context.Background())
	require.ErrorIs(t, err, errOdd)
	_, err = change.Version(context.Background())
	require.NoError(t, err)
	require.NoError(t, change.Close())
}

// All reads of a snapshot see the same state, and no transaction is left open. Inside a
// transaction, the snapshot is that transaction.
func TestSnapshot_OneMoment(t *testing.T) {
	ctx := context.Background()
	_, pool := newPool(t, file(t), Config{})
	perform(t, pool, `PRAGMA journal_mode = WAL`)
	conn := borrow(t, pool)
	require.NoError(t, Snapshot(ctx, conn, func(context.Context) error {
		require.Empty(t, values(t, conn))
		perform(t, pool, `INSERT INTO t (v) VALUES (1)`)
		require.Empty(t, values(t, conn))
		return nil
	}))
	require.Len(t, values(t, conn), 1)
	perform(t, conn, `INSERT INTO t (v) VALUES (2)`)
	require.Error(t, Snapshot(ctx, conn, func(context.Context) error { return errors.New("no") }))
	perform(t, conn, `INSERT INTO t (v) VALUES (3)`)

	tx, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, Snapshot(ctx, tx, func(context.Context) error {
		perform(t, tx, `INSERT INTO t (v) VALUES (4)`)
		return nil
	}))
	require.NoError(t, tx.Commit())
	require.Equal(t, []int64{1, 2, 3, 4}, values(t, pool))
}
