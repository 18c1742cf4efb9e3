package honker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A hook sets up each connection of the application's pools and of honker's own: here a
// pragma, a temporary table and a hook of the driver.
func TestOptions_OnConnect(t *testing.T) {
	var commits atomic.Int64
	opts := &honker.Options{OnConnect: func(ctx context.Context, conn driver.Conn) error {
		conn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 { commits.Add(1); return 0 })
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, `PRAGMA recursive_triggers = ON; CREATE TEMP TABLE mine (a)`, nil)
		return err
	}}
	path := filepath.Join(t.TempDir(), "a.db")
	db := honkertest.OpenFile(t, path, opts)
	connector, err := honker.Connector(path, opts)
	require.NoError(t, err)
	fed := sql.OpenDB(connector)
	defer fed.Close()
	ctx := testkit.Context(t, testkit.Timeout)
	for name, pool := range map[string]*sql.DB{"SQL": db.SQL(), "Connector": fed} {
		for range 2 { // two connections at a time
			conn, err := pool.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			var on int
			require.NoError(t, conn.QueryRowContext(ctx, `PRAGMA recursive_triggers`).Scan(&on), name)
			require.Equal(t, 1, on, name)
			_, err = conn.ExecContext(ctx, `INSERT INTO mine VALUES (1)`)
			require.NoError(t, err, name)
		}
	}
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT a FROM mine`)
		return err
	}))
	before := commits.Load()
	_, err = honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.NoError(t, err)
	require.Greater(t, commits.Load(), before)
}

func TestOptions_OnConnect_Error(t *testing.T) {
	refused := errors.New("refused")
	opts := &honker.Options{OnConnect: func(context.Context, driver.Conn) error { return refused }}
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := honker.Open(testkit.Context(t, testkit.Timeout), path, opts)
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "OnConnect")
	connector, err := honker.Connector(path, opts)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	defer pool.Close()
	require.ErrorIs(t, pool.Ping(), refused)
}
