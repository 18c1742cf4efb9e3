package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/stretchr/testify/require"
)

// requireLost checks that tx accepts no further statements, commits nothing, and leaves nothing
// behind.
func requireLost(t *testing.T, c *Connector, pool *sql.DB, tx *sql.Tx) {
	t.Helper()
	ctx := context.Background()
	_, err := tx.ExecContext(ctx, `INSERT INTO t (v) VALUES (99)`)
	require.Error(t, err)
	_, err = tx.QueryContext(ctx, `SELECT 1`) //nolint:sqlclosecheck // there are none
	require.Error(t, err)
	_, err = tx.QueryContext(ctx, `INSERT INTO t (v) VALUES (98) RETURNING v`) //nolint:sqlclosecheck // there are none
	require.Error(t, err)
	require.Error(t, checkOwner(ctx, tx, c.Identity().Info()), "a verb in it must know as well")
	require.Error(t, tx.Commit())
	require.Empty(t, values(t, pool))
	require.True(t, free(c))
	perform(t, pool, `INSERT INTO t (v) VALUES (5)`)
}

// A transaction ended by an error is lost as a whole.
func TestTx_TakenAway(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	exec := func(ctx context.Context, query string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, query); return err }
	}
	query := func(ctx context.Context, query string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, query)
			if err == nil {
				err = errors.Join(rows.Err(), rows.Close())
			}
			return err
		}
	}
	ctx := context.Background()
	for name, step := range map[string]func(*sql.Tx) error{
		"INSERT OR ROLLBACK":           exec(ctx, `INSERT OR ROLLBACK INTO t (id, v) VALUES (1, 1)`),
		"INSERT OR ROLLBACK RETURNING": query(ctx, `INSERT OR ROLLBACK INTO t (id, v) VALUES (1, 1) RETURNING v`),
		"a trigger's ROLLBACK":         exec(ctx, `INSERT INTO t (v) VALUES (13)`),
		"a trigger's ROLLBACK, asked":  query(ctx, `INSERT INTO t (v) VALUES (13) RETURNING v`),
	} {
		t.Run(name, func(t *testing.T) {
			c, pool := newPool(t, file(t), Config{})
			perform(t, pool, `CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.v = 13 BEGIN SELECT RAISE(ROLLBACK, 'no'); END`)
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			perform(t, tx, `INSERT INTO t (id, v) VALUES (1, 2)`)
			require.Error(t, step(tx))
			requireLost(t, c, pool, tx)
		})
	}
	// database/sql itself may not pass a statement with such a ctx to the driver. In that case the transaction
	// continues and is complete.
	t.Run("a prepared one", func(t *testing.T) {
		c, pool := newPool(t, file(t), Config{})
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		perform(t, tx, `INSERT INTO t (id, v) VALUES (1, 2)`)
		insert, err := tx.PrepareContext(ctx, `INSERT OR ROLLBACK INTO t (id, v) VALUES (1, ?)`)
		require.NoError(t, err)
		_, err = insert.ExecContext(ctx, 3)
		require.Error(t, err)
		requireLost(t, c, pool, tx)
	})
	_ = ended
}

// A ctx that ends during a transaction never splits it. With the plain driver, a ctx that ends during a statement
// rolls back earlier statements, and later statements are committed separately.
func TestTx_Ctx_NeverSplits(t *testing.T) {
	for name, statement := range map[string]string{
		"before a statement": "",
		"inside a statement": `INSERT INTO t (v) WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) SELECT i FROM n`,
	} {
		t.Run(name, func(t *testing.T) {
			c, pool := newPool(t, file(t), Config{})
			tx, err := pool.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			perform(t, tx, `INSERT INTO t (v) VALUES (1)`)
			ctx, cancel := context.WithCancel(context.Background())
			if statement == "" {
				cancel()
				statement = `INSERT INTO t (v) VALUES (2)`
			} else {
				time.AfterFunc(5*time.Millisecond, cancel)
				_, _ = tx.ExecContext(ctx, statement)
				eventually(t, "the ctx has ended", func() bool { return ctx.Err() != nil })
			}
			_, err = tx.ExecContext(ctx, statement)
			require.ErrorIs(t, err, context.Canceled)
			if _, err = tx.ExecContext(context.Background(), `INSERT INTO t (v) VALUES (3)`); err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, tx.Commit(), context.Canceled)
				require.Empty(t, values(t, pool))
			} else { // the driver never saw the statement, so nothing was lost
				require.NoError(t, tx.Commit())
				require.Contains(t, values(t, pool), int64(1))
			}
			require.True(t, free(c))
		})
	}
}

// A transaction ends with the ctx passed to BeginTx.
func TestTx_Ctx_OfBegin(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	ctx, cancel := context.WithCancel(context.Background())
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	perform(t, tx, `INSERT INTO t (v) VALUES (1)`)
	cancel()
	require.Error(t, tx.Commit())
	eventually(t, "the gate is free", func() bool { return free(c) })
	require.Empty(t, values(t, pool))
	_, err = pool.BeginTx(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, free(c))
}

// Waiting for another process fails with ErrBusy after BusyTimeout.
func TestTx_OtherProcess_Busy(t *testing.T) {
	path := file(t)
	c, pool := newPool(t, path, Config{BusyTimeout: 100 * time.Millisecond})
	perform(t, borrow(t, pool), `SELECT 1`)
	other := borrow(t, foreign(t, path))
	perform(t, other, "BEGIN IMMEDIATE")
	for name, write := range map[string]func() error{
		"Exec":      func() error { _, err := pool.Exec(`INSERT INTO t (v) VALUES (1)`); return err },
		"Query":     func() error { return pool.QueryRow(`INSERT INTO t (v) VALUES (1) RETURNING v`).Scan(new(int)) },
		"BeginTx":   func() error { _, err := pool.BeginTx(context.Background(), nil); return err },
		"committer": func() error { return doOnce(pool, c.cfg.BusyTimeout, context.Background()) },
	} {
		began := time.Now()
		require.ErrorIs(t, write(), engine.ErrBusy, name)
		require.GreaterOrEqual(t, time.Since(began), 90*time.Millisecond, name)
		require.Less(t, time.Since(began), patient, name)
		require.True(t, free(c), name)
	}
	perform(t, other, "COMMIT")
	perform(t, pool, `INSERT INTO t (v) VALUES (1)`)
}

func doOnce(pool *sql.DB, limit time.Duration, ctx context.Context) error {
	s := NewCommitter(OwnPool(pool), limit)
	defer s.Close()
	return s.Do(ctx, multi(insert(1)))
}

// Waiting for a writer ends with ctx, whether the writer is in another process or in this one.
func TestTx_OtherProcess_Ctx(t *testing.T) {
	path := file(t)
	c, pool := newPool(t, path, Config{BusyTimeout: patient})
	perform(t, borrow(t, pool), `SELECT 1`)
	other := borrow(t, foreign(t, path))
	perform(t, other, "BEGIN IMMEDIATE")
	for name, write := range map[string]func(context.Context) error{
		"Exec": func(ctx context.Context) error {
			_, err := pool.ExecContext(ctx, `INSERT INTO t (v) VALUES (1)`)
			return err
		},
		"BeginTx":   func(ctx context.Context) error { _, err := pool.BeginTx(ctx, nil); return err },
		"committer": func(ctx context.Context) error { return doOnce(pool, patient, ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			began := time.Now()
			require.ErrorIs(t, write(ctx), context.DeadlineExceeded)
			require.Less(t, time.Since(began), patient/2)
			require.True(t, free(c))
		})
	}
	perform(t, other, "ROLLBACK")
	require.Empty(t, values(t, pool))
}

// In WAL mode, a reader doesn't wait for a writer, even to open its connection.
func TestTx_ReaderNeedsNoGate(t *testing.T) {
	c, pool := newPool(t, file(t), Config{BusyTimeout: 200 * time.Millisecond})
	tx, err := pool.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	perform(t, tx, `INSERT INTO t (v) VALUES (1)`)
	before := c.Commits()
	for range 3 {
		conn := borrow(t, pool) // a new connection each time
		require.Empty(t, values(t, conn))
	}
	require.Zero(t, c.Commits()-before, "to open a connection is no commit")
	require.NoError(t, tx.Commit())
}

// A permit is used at most once, and only for its own file.
func TestTx_Permit_Once(t *testing.T) {
	ctx := context.Background()
	one, onePool := newPool(t, file(t), Config{BusyTimeout: 100 * time.Millisecond})
	two, twoPool := newPool(t, file(t), Config{BusyTimeout: 100 * time.Millisecond})
	reserved, permit, err := one.Reserve(ctx)
	require.NoError(t, err)
	require.False(t, free(one))

	tx, err := twoPool.BeginTx(reserved, nil)
	require.NoError(t, err)
	require.True(t, permit.held, "the other file has a gate of its own")
	require.False(t, free(two))
	require.NoError(t, tx.Rollback())

	tx, err = onePool.BeginTx(reserved, nil)
	require.NoError(t, err)
	require.False(t, permit.held)
	_, err = onePool.BeginTx(reserved, nil)
	require.ErrorIs(t, err, engine.ErrBusy, "it was good for one")
	permit.Release()
	require.False(t, free(one), "a no-op: the transaction has it")
	require.NoError(t, tx.Commit())
	require.True(t, free(one))

	_, permit, err = one.Reserve(ctx)
	require.NoError(t, err)
	permit.Release()
	permit.Release()
	require.True(t, free(one))
}

// A permit can be used on a connection opened under it.
func TestTx_Permit_ConnOpening(t *testing.T) {
	c, err := NewConnector(file(t), Config{BusyTimeout: time.Second})
	require.NoError(t, err)
	pool := sql.OpenDB(c) // without any open connections
	defer pool.Close()
	reserved, permit, err := c.Reserve(context.Background())
	require.NoError(t, err)
	conn, err := pool.Conn(reserved)
	require.NoError(t, err)
	require.True(t, permit.held)
	require.NoError(t, conn.Close())
	permit.Release()
	require.True(t, free(c))
}

func checkOwner(ctx context.Context, q row.Querier, info os.FileInfo) error {
	_, err := CheckOwner(ctx, q, info, nil)
	return err
}

// CheckOwner recognizes which file a transaction belongs to.
func TestTx_CheckOwner(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	c, pool := newPool(t, path, Config{})
	_, elsewhere := newPool(t, file(t), Config{})
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(path, link))
	_, linked := newPool(t, link, Config{})
	for name, pool := range map[string]*sql.DB{"ours": pool, "ours by a link": linked, "a driver's": foreign(t, path)} {
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err, name)
		require.NoError(t, checkOwner(ctx, tx, c.Identity().Info()), name)
		require.NoError(t, tx.Rollback(), name)
	}
	for name, pool := range map[string]*sql.DB{"ours": elsewhere, "a driver's": foreign(t, file(t))} {
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err, name)
		perform(t, tx, `CREATE TABLE IF NOT EXISTS u (a)`)
		require.ErrorIs(t, checkOwner(ctx, tx, c.Identity().Info()), engine.ErrInvalid, name)
		require.NoError(t, tx.Rollback(), name)
	}
	require.ErrorIs(t, checkOwner(ctx, foreign(t, ":memory:"), c.Identity().Info()), engine.ErrUnsupported)
	// The probe runs no statement, but reports a lost transaction.
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, checkOwner(ended, tx, c.Identity().Info()), context.Canceled)
	require.NoError(t, tx.Rollback())
}

// counting substitutes arguments into the text and counts from 0, as bun does. Parameters without an argument are
// kept.
type counting struct{ row.Querier }

var numbered = regexp.MustCompile(`\?\d+`)

func (c counting) text(query string, args []any) string {
	return numbered.ReplaceAllStringFunc(query, func(p string) string {
		if n, err := strconv.Atoi(p[1:]); err == nil && n < len(args) {
			return fmt.Sprint(args[n])
		}
		return p
	})
}

func (c counting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Querier.ExecContext(ctx, c.text(query, args))
}

func (c counting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.Querier.QueryContext(ctx, c.text(query, args))
}

// shifting binds arguments in reverse order, without any statement failing.
type shifting struct{ row.Querier }

func (s shifting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	slices.Reverse(args)
	return s.Querier.QueryContext(ctx, query, args...)
}

// commenting puts a comment before each statement, as tracing tools do.
type commenting struct{ row.Querier }

func (c commenting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Querier.ExecContext(ctx, "/* traced */ "+query, args...)
}

func TestCheckOwner_RewrittenParameters(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	c, pool := newPool(t, path, Config{})
	for name, pool := range map[string]*sql.DB{"ours": pool, "a driver's": foreign(t, path)} {
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err, name)
		err = checkOwner(ctx, counting{tx}, c.Identity().Info())
		require.ErrorIs(t, err, engine.ErrInvalid, name)
		require.ErrorContains(t, err, "pass the *sql.Tx that it wraps", name)
		require.NoError(t, checkOwner(ctx, struct{ row.Querier }{tx}, c.Identity().Info()), "%s: a wrapper that changes nothing", name)
		require.NoError(t, checkOwner(ctx, commenting{tx}, c.Identity().Info()), name)
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, checkOwner(ctx, tx, c.Identity().Info()), sql.ErrTxDone, name)
	}
	tx, err := foreign(t, path).BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.ErrorIs(t, checkOwner(ctx, shifting{tx}, c.Identity().Info()), errRewritten)
}

// The probe also works as a prepared statement, and distinguishes a pool from a transaction.
func TestCheckOwner_Prepared(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	var o owner
	ctx := context.WithValue(context.Background(), ownerKey{}, &o)
	own := borrow(t, pool)
	ask, err := own.PrepareContext(ctx, probe)
	require.NoError(t, err)
	defer ask.Close()
	_, err = ask.ExecContext(ctx, probeArg)
	require.NoError(t, err)
	require.Same(t, c, o.connector)
	require.False(t, o.open)
	require.ErrorIs(t, checkOwner(context.Background(), pool, c.Identity().Info()), engine.ErrInvalid)
	perform(t, own, `BEGIN IMMEDIATE`)
	_, err = ask.ExecContext(ctx, probeArg)
	require.NoError(t, err)
	require.True(t, o.open)
	perform(t, own, `ROLLBACK`)
}

// A read-only transaction accepts every kind of reading statement, including WITH.
func TestTx_ReadOnly_AnyStatement(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	perform(t, pool, `INSERT INTO t (v) VALUES (7)`)
	writer, err := pool.BeginTx(context.Background(), nil) // does not block readers
	require.NoError(t, err)
	tx, err := pool.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	for _, query := range []string{
		`SELECT v FROM t`, `WITH a AS (SELECT v FROM t) SELECT v FROM a`, `/* traced */ SELECT v FROM t`,
		`WITH RECURSIVE a(v) AS (SELECT v FROM t UNION ALL SELECT v + 1 FROM a WHERE v < 7) SELECT v FROM a`, `VALUES (7)`,
	} {
		require.Equal(t, []int64{7}, numbers(t, tx, query), query)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, writer.Rollback())
	require.True(t, free(c))
}

// A statement that writes and returns rows waits for the gate, and leaves it before its rows are read.
func TestTx_WriterWithRows_Gate(t *testing.T) {
	c, pool := newPool(t, file(t), Config{BusyTimeout: 30 * time.Millisecond})
	perform(t, pool, `PRAGMA journal_mode = WAL`)
	for v, query := range []string{
		`INSERT INTO t (v) VALUES (0), (10) RETURNING v`, `WITH a(v) AS (SELECT 1) INSERT INTO t (v) SELECT v FROM a RETURNING v`,
		`UPDATE t SET v = 2 WHERE v = 1 RETURNING v`, `DELETE FROM t WHERE v = 10 RETURNING v - 7`,
	} {
		tx, err := pool.BeginTx(context.Background(), nil)
		require.NoError(t, err)
		_, err = pool.QueryContext(context.Background(), query) //nolint:sqlclosecheck,rowserrcheck // there are none
		require.ErrorIs(t, err, engine.ErrBusy, query)
		require.ErrorContains(t, err, "if this goroutine began it, use the Tx form")
		require.NoError(t, tx.Rollback())

		before := c.Commits()
		rows, err := pool.QueryContext(context.Background(), query)
		require.NoError(t, err, query)
		require.True(t, free(c), query)
		require.Equal(t, before+1, c.Commits(), query)
		var got int
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&got))
		require.Equal(t, v, got, query)
		require.NoError(t, rows.Close())
	}
	require.Equal(t, []int64{0, 2}, values(t, pool))
}

// COMMIT and ROLLBACK as text cannot end a sql.Tx. The transaction fails, and nothing is committed.
func TestTx_Managed_TextRefused(t *testing.T) {
	c, pool := newPool(t, file(t), Config{})
	ctx := context.Background()
	type run = func(tx *sql.Tx, text string) error
	for how, end := range map[string]run{
		"Exec":  func(tx *sql.Tx, text string) error { _, err := tx.Exec(text); return err },
		"Query": func(tx *sql.Tx, text string) error { _, err := tx.Query(text); return err }, //nolint:sqlclosecheck,rowserrcheck // there are none
		"prepared": func(tx *sql.Tx, text string) error {
			s, err := tx.Prepare(text)
			require.NoError(t, err)
			_, err = s.Exec()
			return err
		},
	} {
		for _, text := range []string{"ROLLBACK", " rollback transaction;", "COMMIT", "/* done */ End;", "-- now\ncommit -- it",
			"ROLLBACK; BEGIN IMMEDIATE", "SELECT 1; COMMIT; BEGIN", "END; SELECT 1"} {
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			perform(t, tx, `INSERT INTO t (v) VALUES (1)`)
			require.ErrorIs(t, end(tx, text), engine.ErrInvalid, "%s %q", how, text)
			_, err = tx.Exec(`INSERT INTO t (v) VALUES (2)`)
			require.ErrorIs(t, err, engine.ErrInvalid, "%s %q", how, text)
			require.ErrorContains(t, tx.Commit(), "nothing was committed", "%s %q", how, text)
			require.True(t, free(c))
		}
	}
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	perform(t, tx, `CREATE TABLE u (v); CREATE TRIGGER more AFTER INSERT ON t BEGIN INSERT INTO u VALUES (';'); END;`,
		"SAVEPOINT a", "ROLLBACK TO a", "RELEASE a")
	require.NoError(t, tx.Commit())
	require.Empty(t, values(t, pool))
}
