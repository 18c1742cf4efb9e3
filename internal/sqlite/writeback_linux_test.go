package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// handles returns how many file descriptors for path this process has open.
func handles(t *testing.T, path string) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == path {
			n++
		}
	}
	return n
}

// A growing WAL is kept open and written back.
func TestWriteback_GrowingLog(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     Config
		journal string
		held    int // by SQLite and by writeback
	}{
		"NORMAL":           {Config{}, "WAL", 2},
		"FULL":             {Config{Full: true}, "WAL", 1},
		"rollback journal": {Config{}, "DELETE", 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			_, pool := newPool(t, path, c.cfg)
			pool.SetMaxOpenConns(1)
			perform(t, pool, `PRAGMA journal_mode = `+c.journal)
			for range 2 * writebackEvery {
				perform(t, pool, `INSERT INTO t DEFAULT VALUES`)
			}
			require.Equal(t, c.held, handles(t, path+"-wal"))
			require.NoError(t, pool.Close())
			require.Zero(t, handles(t, path+"-wal"))
		})
	}
}

// A connector's connections share a file descriptor for the WAL, and the last connection closes it.
func TestWriteback_OncePerConnector(t *testing.T) {
	path := file(t)
	c, pool := newPool(t, path, Config{})
	perform(t, pool, `PRAGMA journal_mode = WAL`)
	conns := []*sql.Conn{borrow(t, pool), borrow(t, pool), borrow(t, pool)}
	for range writebackEvery {
		for _, conn := range conns {
			perform(t, conn, `INSERT INTO t DEFAULT VALUES`)
		}
	}
	require.Equal(t, 3, c.writeback.conns)
	require.Equal(t, 3+1, handles(t, path+"-wal"), "SQLite has one for each connection")
	pool.SetMaxIdleConns(-1) // close returned connections
	for i, conn := range conns {
		require.NoError(t, conn.Close())
		require.Equal(t, i < 2, c.writeback.file != nil)
	}
	require.Zero(t, handles(t, path+"-wal"))
}

// startWriteback succeeds on an open file and fails on a closed file.
func TestWriteback_Starts(t *testing.T) {
	f, err := os.Create(file(t))
	require.NoError(t, err)
	_, err = f.WriteString("text")
	require.NoError(t, err)
	require.NoError(t, startWriteback(f))
	require.NoError(t, f.Close())
	require.Error(t, startWriteback(f), "what is closed has nothing to write")
}
