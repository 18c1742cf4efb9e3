package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errDisk = errors.New("the disk is gone")

// refuseNext makes the next n commits of pool fail.
func refuseNext(t *testing.T, pool *sql.DB, n int) (end func()) {
	t.Helper()
	return pool.Driver().(interface{ RefuseCommits(func() error) func() }).RefuseCommits(func() error {
		if n--; n < 0 {
			return nil
		}
		return errDisk
	})
}

// A refused commit of any kind is rolled back. The caller gets the hook's error instead of a constraint error.
// Afterward, the gate is free and the connection is usable.
func TestRefuseCommits_RolledBack(t *testing.T) {
	const insert = `INSERT INTO t (v) VALUES (1)`
	ctx := context.Background()
	for name, write := range map[string]func(*sql.DB) error{
		"a statement": func(pool *sql.DB) error { _, err := pool.ExecContext(ctx, insert); return err },
		"RETURNING": func(pool *sql.DB) error {
			var v int64
			return pool.QueryRowContext(ctx, insert+` RETURNING v`).Scan(&v)
		},
		"a script": func(pool *sql.DB) error {
			_, err := pool.ExecContext(ctx, insert+`; INSERT INTO t (v) VALUES (2)`)
			return err
		},
		"BeginTx": func(pool *sql.DB) error {
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, insert)
			require.NoError(t, err)
			return tx.Commit()
		},
		"BEGIN as text": func(pool *sql.DB) error {
			conn, err := pool.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			perform(t, conn, "BEGIN", insert)
			_, err = conn.ExecContext(ctx, "COMMIT")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, pool := newPool(t, file(t), Config{})
			pool.SetMaxOpenConns(1)
			reported := c.Commits()
			end := refuseNext(t, pool, 1)
			err := write(pool)
			require.ErrorIs(t, err, errDisk)
			require.False(t, IsConstraint(err), "the application has broken nothing")
			require.Empty(t, values(t, pool))
			require.Equal(t, reported, c.Commits(), "nothing was committed")
			require.True(t, free(c))
			require.NoError(t, write(pool), "the next one is not refused")
			require.NotEmpty(t, values(t, pool))
			end()
		})
	}
}

// Reads and rollbacks don't count as commits. Once a hook has been ended, it refuses nothing, even if another hook
// has been set since.
func TestRefuseCommits_Ends(t *testing.T) {
	ctx := context.Background()
	_, pool := newPool(t, file(t), Config{})
	first := refuseNext(t, pool, 1)
	tx, err := pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	perform(t, tx, `INSERT INTO t (v) VALUES (1)`)
	require.NoError(t, tx.Rollback())
	tx, err = pool.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.Empty(t, values(t, tx))
	require.NoError(t, tx.Commit())
	second := refuseNext(t, pool, 1)
	first()
	_, err = pool.ExecContext(ctx, `INSERT INTO t (v) VALUES (2)`)
	require.ErrorIs(t, err, errDisk)
	second()
	refuseNext(t, pool, 1)()
	perform(t, pool, `INSERT INTO t (v) VALUES (3)`)
	require.Equal(t, []int64{3}, values(t, pool))
}

// If the commit of a batch is refused, all its ops fail, and each caller gets the error.
func TestRefuseCommits_Batch(t *testing.T) {
	s, stored := newScene(t)
	s.hold(t)
	outcomes := s.pile(t, multi(insert(2), insert(3)), insert(1), insert(4))
	end := s.connector.Driver().(wrappedDriver).RefuseCommits(func() error { return errDisk })
	s.connector.gate.leave()
	for _, outcome := range outcomes {
		require.ErrorIs(t, ends(t, "op", outcome), errDisk)
	}
	require.ErrorIs(t, s.Do(context.Background(), insert(1)), errDisk, "alone")
	require.Empty(t, stored())
	end()
	require.NoError(t, s.Do(context.Background(), insert(1)))
	require.Equal(t, []int64{1}, stored())
}
