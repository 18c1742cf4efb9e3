package watch

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/wake"
)

// watchFile watches a real file. other stands in for another process's connection.
func watchFile(t *testing.T, cfg Config) (w *Watcher, c *sqlite.Connector, other *sql.DB, looks chan wake.Reason) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "x.db")
	c, err := sqlite.NewConnector(path, sqlite.Config{BusyTimeout: patient})
	require.NoError(t, err)
	pool := sql.OpenDB(c)
	other, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	_, err = pool.Exec(`CREATE TABLE t (v)`)
	require.NoError(t, err)
	looks = make(chan wake.Reason, 10_000)
	cfg.Path, cfg.Version, cfg.Identity, cfg.Commits = path, sqlite.NewChange(pool), c.CheckIdentity, c.Commits
	cfg.Changed = func(why wake.Reason, _ wake.Signals) int { looks <- why; return 1 }
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Lost == nil {
		cfg.Lost = func(err error) { t.Errorf("lost: %v", err) }
	}
	w = New(cfg)
	w.AddWaiter(1)
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, pool.Close())
		require.NoError(t, other.Close())
	})
	next(t, looks)
	drain(looks)
	return w, c, other, looks
}

func next(t *testing.T, looks <-chan wake.Reason) wake.Reason {
	t.Helper()
	select {
	case why := <-looks:
		return why
	case <-time.After(patient):
		t.Fatal("no look")
		return ""
	}
}

// drain waits until there have been no looks for a while, and returns how many there were before that.
func drain(looks <-chan wake.Reason) (n int) {
	for {
		select {
		case <-looks:
			n++
		case <-time.After(150 * time.Millisecond):
			return n
		}
	}
}

func write(t *testing.T, pool *sql.DB) {
	t.Helper()
	_, err := pool.Exec(`INSERT INTO t VALUES (1)`)
	require.NoError(t, err)
}

// Commits by another connection are noticed, and nothing else is reported.
func TestWatcher_Changed_OtherConnection(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"by events alone": {Notices: true, Poll: time.Hour},
		"by events":       {Notices: true, Poll: time.Millisecond},
		"by polling":      {Poll: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, other, looks := watchFile(t, cfg)
			for range 20 {
				write(t, other)
				require.Equal(t, wake.Commit, next(t, looks))
				quietFor := time.After(3 * time.Millisecond)
				<-quietFor
			}
			drain(looks)

			// A rollback is not reported.
			tx, err := other.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			_, err = tx.Exec(`INSERT INTO t VALUES (2)`)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			require.NoError(t, other.QueryRow(`SELECT count(*) FROM t`).Scan(new(int)))
			_, err = other.Exec(`UPDATE t SET v = 3 WHERE v = 2`)
			require.NoError(t, err)
			require.Zero(t, drain(looks))
		})
	}
}

// The commits in a burst are noticed, as is a single commit after it.
func TestWatcher_Burst(t *testing.T) {
	t.Parallel()
	_, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Millisecond})
	for range 3 {
		until := time.Now().Add(100 * time.Millisecond)
		commits := 0
		for ; commits == 0 || time.Now().Before(until); commits++ {
			write(t, other)
		}
		require.Equal(t, wake.Commit, next(t, looks))
		require.Less(t, drain(looks), commits)
		// After the burst, a single commit is noticed, with or without events.
		write(t, other)
		require.Equal(t, wake.Commit, next(t, looks))
		drain(looks)
	}
}

// A long Poll assumes that there are events. A burst turns them off, and must not keep the watcher from looking for
// that long.
func TestWatcher_Burst_LongPoll(t *testing.T) {
	t.Parallel()
	_, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Hour})
	until := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(until) {
		write(t, other)
	}
	drain(looks)
	write(t, other)
	select {
	case why := <-looks:
		require.Equal(t, wake.Commit, why)
	case <-time.After(patient): // the next look by timer comes in an hour
		t.Fatal("not noticed any more")
	}
}

// The watcher ends when the file is replaced, even without an event. It takes at most five seconds; see
// TestWatcher_Listening_LongestPause.
func TestWatcher_Lost_File(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(dir, file string) error{
		"renamed": func(_, file string) error {
			return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
		},
		"removed":              func(_, file string) error { return os.Remove(file) },
		"another renamed over": func(_, file string) error { return os.Rename(file+".new", file) },
		"folder renamed":       func(dir, _ string) error { return os.Rename(dir, dir+".old") },
		"folder above renamed": func(dir, _ string) error { return os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost := make(chan error, 1)
			_, c, _, _ := watchFile(t, Config{Notices: true, Poll: time.Millisecond, Lost: func(err error) { lost <- err }})
			require.NoError(t, os.WriteFile(c.Path()+".new", nil, 0o600))
			<-time.After(2 * time.Second) // the pauses grow
			require.NoError(t, replace(filepath.Dir(c.Path()), c.Path()))
			select {
			case err := <-lost:
				require.ErrorIs(t, err, engine.ErrDatabaseReplaced)
			case <-time.After(patient):
				t.Fatal("not noticed")
			}
		})
	}
}

// With a long Poll, the event for the database file is enough.
func TestWatcher_Lost_ByEvent(t *testing.T) {
	lost := make(chan error, 1)
	_, c, _, _ := watchFile(t, Config{Notices: true, Poll: time.Hour, Lost: func(err error) { lost <- err }})
	require.NoError(t, os.Rename(c.Path(), c.Path()+".old"))
	require.NoError(t, os.WriteFile(c.Path(), nil, 0o600))
	select {
	case err := <-lost:
		require.ErrorIs(t, err, engine.ErrDatabaseReplaced)
	case <-time.After(patient):
		t.Fatal("not noticed")
	}
}

// If the pool's only connection is lent to a caller, Close must not wait for it.
func TestWatcher_Close_LentConnection(t *testing.T) {
	pool, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db"))
	require.NoError(t, err)
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	conn, err := pool.Conn(context.Background())
	require.NoError(t, err)
	w := New(Config{
		Version:  sqlite.NewChange(pool),
		Identity: func() error { return nil },
		Commits:  func() int64 { return 0 },
		Poll:     time.Millisecond,
		Changed:  func(wake.Reason, wake.Signals) int { return 1 },
		Lost:     func(error) {},
		Logger:   slog.New(slog.DiscardHandler),
	})
	w.AddWaiter(1)
	time.Sleep(20 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(patient):
		t.Error("Close waits for a connection")
	}
	require.NoError(t, conn.Close())
}
