//go:build unix

package pgbackend_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/locks"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
)

// acquire returns an op that takes a lock.
func acquire(schema pgsql.Schema, name string) engine.OpFunc {
	return func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, token, err := locks.Locks{Schema: schema}.Acquire(ctx, q, name, "me", time.Hour, now)
		if err == nil && token == 0 {
			err = errors.New("the lock is held")
		}
		return err
	}
}

// held returns the number of held locks.
func held(t *testing.T, b *pgbackend.Backend, schema pgsql.Schema) (n int) {
	t.Helper()
	require.NoError(t, b.Read(t.Context(), false, func(ctx context.Context, q engine.Querier) error {
		all, err := locks.Locks{Schema: schema}.Held(ctx, q, "", b.Now())
		n = len(all)
		return err
	}))
	return n
}

// cutter makes connections that end while a message is under way: before it is sent, or before its answer arrives.
type cutter struct {
	beforeCommit, beforeAnswer atomic.Bool
	on                         atomic.Value // text in the message; a commit if there is none
}

// matches reports whether p is the message.
func (c *cutter) matches(p []byte) bool {
	on, _ := c.on.Load().(string)
	return bytes.Contains(bytes.ToLower(p), []byte(cmp.Or(on, "commit\x00")))
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &cutConn{Conn: conn, cutter: c}, err
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c *cutConn) Write(p []byte) (int, error) {
	if !c.cutter.matches(p) {
		return c.Conn.Write(p)
	}
	if c.cutter.beforeCommit.CompareAndSwap(true, false) {
		_ = c.Close()
		return 1, io.ErrClosedPipe // a part may have been sent
	}
	n, err := c.Conn.Write(p)
	if c.cutter.beforeAnswer.CompareAndSwap(true, false) {
		_, _ = c.Read(make([]byte, 1)) // the server has committed
		_ = c.Close()
	}
	return n, err
}

// A commit whose answer is lost is reported as uncertain, whether it took effect or not. A write with a new
// connection then succeeds.
func TestBackend_Write_ReportsAnUncertainCommit(t *testing.T) {
	schema, cut := pgsql.Schema(pgtest.Schema(t)), new(cutter)
	b := open(t, schema, func(c *pgx.ConnConfig) { c.DialFunc = cut.dial })
	cut.beforeAnswer.Store(true)
	require.ErrorIs(t, b.Write(t.Context(), acquire(schema, "a")), engine.ErrUncertain)
	require.Equal(t, 1, held(t, b, schema), "it took effect")

	cut.beforeCommit.Store(true)
	require.ErrorIs(t, b.Write(t.Context(), acquire(schema, "b")), engine.ErrUncertain)
	require.Equal(t, 1, held(t, b, schema), "it did not take effect")

	require.NoError(t, b.Write(t.Context(), acquire(schema, "b")))
	tx, err := b.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Close()
	require.NoError(t, acquire(schema, "c")(t.Context(), tx.SQL(), b.Now()))
	cut.beforeAnswer.Store(true)
	require.ErrorIs(t, tx.Commit(), engine.ErrUncertain)
	require.Equal(t, 3, held(t, b, schema))

	cut.on.Store("alone") // a statement that commits by itself
	cut.beforeAnswer.Store(true)
	require.ErrorIs(t, b.Write(t.Context(), engine.SingleOp(acquire(schema, "alone"))), engine.ErrUncertain)
	require.Equal(t, 4, held(t, b, schema))
}

// An error of the op itself, or of the server, is certain, and nothing is written.
func TestBackend_Write_RollsBack(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	failed := errors.New("failed")
	err := b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		require.NoError(t, acquire(schema, "a")(ctx, q, now))
		return failed
	}))
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, engine.ErrUncertain)
	single := engine.SingleOp(func(ctx context.Context, q engine.Querier, _ time.Time) error { return failed })
	require.Equal(t, failed, b.Write(t.Context(), single))
	err = b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := q.ExecContext(ctx, `SELECT nothing`)
		require.Error(t, err)
		return nil // the op hides the error that has ended the transaction
	}))
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrUncertain)
	require.Zero(t, held(t, b, schema))
}

// terminate ends the connection that q runs on, before it can commit.
func terminate(ctx context.Context, q engine.Querier) error {
	_, err := q.ExecContext(ctx, `SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)`)
	return err
}

// A connection that the server ends before a commit is no error for the caller: ops, reads and the beginning of a
// transaction run again on another connection.
func TestBackend_RunsAgainOnAnotherConnection(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	runs := 0
	once := func(ctx context.Context, q engine.Querier) error {
		if runs++; runs == 1 {
			return terminate(ctx, q)
		}
		return nil
	}
	op := func(ctx context.Context, q engine.Querier, now time.Time) error {
		if err := once(ctx, q); err != nil {
			return err
		}
		return acquire(schema, time.Now().String())(ctx, q, now)
	}
	for i, write := range []engine.Op{engine.OpFunc(op), engine.SingleOp(op)} {
		runs = 0
		require.NoError(t, b.Write(t.Context(), write))
		require.Equal(t, 2, runs)
		require.Equal(t, i+1, held(t, b, schema))
	}
	for _, oneMoment := range []bool{true, false} {
		runs = 0
		require.NoError(t, b.Read(t.Context(), oneMoment, once))
		require.Equal(t, 2, runs)
	}
	require.NoError(t, b.Read(t.Context(), false, func(ctx context.Context, q engine.Querier) error {
		_, err := q.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()`)
		return err
	}))
	tx, err := b.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, acquire(schema, "begun")(t.Context(), tx.SQL(), b.Now()))
	require.NoError(t, tx.Commit())
	tx.Close()
	require.Equal(t, 3, held(t, b, schema))
}

// An op that has committed a statement before its connection was lost is uncertain, even if the server has answered.
func TestBackend_Write_UncertainAfterAStatement(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	err := b.Write(t.Context(), engine.SingleOp(func(ctx context.Context, q engine.Querier, now time.Time) error {
		if err := acquire(schema, "a")(ctx, q, now); err != nil {
			return err
		}
		return terminate(ctx, q)
	}))
	require.ErrorIs(t, err, engine.ErrUncertain)
	require.Equal(t, 1, held(t, b, schema))
}

// A transaction whose ctx ends before its commit is rolled back, and that is certain.
func TestBackend_Begin_ContextEnds(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := b.Begin(ctx)
	require.NoError(t, err)
	defer tx.Close()
	require.NoError(t, acquire(schema, "a")(ctx, tx.SQL(), b.Now()))
	cancel()
	err = tx.Commit()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, engine.ErrUncertain)
	tx.Close()
	require.Zero(t, held(t, b, schema))
}

// A server that stays away is reported when the busy timeout has passed, or when the caller's ctx ends.
func TestBackend_Write_ServerAway(t *testing.T) {
	var away atomic.Bool
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, func(c *pgx.ConnConfig) {
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("nobody is there")
			}
			return dial(ctx, network, address)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	away.Store(true)
	err := b.Write(ctx, engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error {
		runs++
		time.AfterFunc(100*time.Millisecond, cancel)
		return terminate(ctx, q)
	}))
	require.ErrorContains(t, err, "nobody is there")
	require.NotErrorIs(t, err, engine.ErrUncertain)
	require.Equal(t, 1, runs)
	away.Store(false)
	require.NoError(t, b.Write(t.Context(), acquire(schema, "a")))
}

// Two ops that deadlock both succeed: the op that the server ends runs again.
func TestBackend_Write_RunsAgainAfterADeadlock(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	rates := locks.RateLimits{Schema: schema}
	var both, done sync.WaitGroup
	both.Add(2)
	var runs atomic.Int32
	for _, names := range [][]string{{"x", "y"}, {"y", "x"}} {
		var first sync.Once
		done.Go(func() {
			require.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
				runs.Add(1)
				_, err := rates.Take(ctx, q, names[0], now.Truncate(24*time.Hour), 100)
				first.Do(func() { both.Done(); both.Wait() })
				if err == nil {
					_, err = rates.Take(ctx, q, names[1], now.Truncate(24*time.Hour), 100)
				}
				return err
			})))
		})
	}
	done.Wait()
	require.GreaterOrEqual(t, runs.Load(), int32(3)) // more if the second run was as quick as the op that had waited
}

// A read at one moment does not see a commit that comes between two of its statements. Another read does.
func TestBackend_Read_SeesOneMoment(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	for _, oneMoment := range []bool{true, false} {
		before := held(t, b, schema)
		require.NoError(t, b.Read(t.Context(), oneMoment, func(ctx context.Context, q engine.Querier) error {
			held := locks.Locks{Schema: schema}
			all, err := held.Held(ctx, q, "", b.Now())
			require.Len(t, all, before)
			require.NoError(t, err)
			require.NoError(t, b.Write(t.Context(), acquire(schema, time.Now().String())))
			all, err = held.Held(ctx, q, "", b.Now())
			require.Equal(t, oneMoment, len(all) == before)
			return err
		}))
	}
}

// A transaction of this backend and of another pool on its database can be joined. A transaction that has ended, of
// another database, and a pool cannot. A refusal leaves the transaction usable.
func TestBackend_CheckTx(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b, other := open(t, schema, nil), open(t, pgsql.Schema(pgtest.Schema(t)), nil)
	begin := func(database string) *sql.Tx {
		config, err := pgx.ParseConfig(pgtest.DSN(t))
		require.NoError(t, err)
		config.Database = cmp.Or(database, config.Database)
		pool := stdlib.OpenDB(*config)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		_, err = b.CheckTx(t.Context(), pool, nil)
		require.ErrorIs(t, err, engine.ErrInvalid, "a pool is no transaction")
		tx, err := pool.Begin()
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	tx, err := b.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Close()
	called := 0
	for range 2 {
		seen, err := b.CheckTx(t.Context(), tx.SQL(), map[any]func(){"k": func() { called++ }})
		require.NoError(t, err)
		require.True(t, seen)
	}
	elsewhere := begin("template1")
	_, err = b.CheckTx(t.Context(), elsewhere, nil)
	require.ErrorIs(t, err, engine.ErrInvalid, "another database")
	_, err = elsewhere.ExecContext(t.Context(), `SELECT 1`)
	require.NoError(t, err)
	require.NoError(t, acquire(schema, "a")(t.Context(), tx.SQL(), b.Now()))
	require.Zero(t, called)
	require.NoError(t, tx.Commit())
	require.Equal(t, 1, called)
	_, err = other.CheckTx(t.Context(), tx.SQL(), nil)
	require.ErrorIs(t, err, engine.ErrInvalid, "it has ended")

	foreign := begin("")
	for _, q := range []engine.Querier{foreign, struct{ engine.Querier }{foreign}} {
		seen, err := b.CheckTx(t.Context(), q, nil)
		require.NoError(t, err)
		require.False(t, seen)
	}
	require.NoError(t, acquire(schema, "b")(t.Context(), foreign, b.Now()))
	require.NoError(t, foreign.Commit())
	require.Equal(t, 2, held(t, b, schema))
}

// A savepoint undoes a part of a transaction, even after an error of the server.
func TestBackend_Savepoint(t *testing.T) {
	schema := pgsql.Schema(pgtest.Schema(t))
	b := open(t, schema, nil)
	require.NoError(t, b.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		for name, keep := range map[string]bool{"kept": true, "undone": false} {
			end, err := b.Savepoint(ctx, q)
			require.NoError(t, err)
			require.NoError(t, acquire(schema, name)(ctx, q, now))
			if !keep {
				_, err := q.ExecContext(ctx, `SELECT nothing`)
				require.Error(t, err)
			}
			require.NoError(t, end(ctx, keep))
		}
		return nil
	})))
	require.Equal(t, 1, held(t, b, schema))
	broken, err := b.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, broken)
}
