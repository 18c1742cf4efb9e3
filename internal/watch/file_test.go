package watch

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/sqlite"
)

// watchFile watches a real file. other is another process's connection, as good as.
func watchFile(t *testing.T, cfg Config) (w *Watcher, c *sqlite.Connector, other *sql.DB, looks chan Cause) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	c, err := sqlite.NewConnector(path, sqlite.Config{BusyTimeout: patient})
	require.NoError(t, err)
	pool := sql.OpenDB(c)
	other, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	_, err = pool.Exec(`CREATE TABLE t (v)`)
	require.NoError(t, err)
	looks = make(chan Cause, 10_000)
	cfg.Path, cfg.Version, cfg.Identity, cfg.Commits = path, sqlite.NewChange(pool), c.CheckIdentity, c.Commits
	cfg.Look = func(why Cause) { looks <- why }
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Dead == nil {
		cfg.Dead = func(err error) { t.Errorf("dead: %v", err) }
	}
	w = New(cfg)
	w.Wait()
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.NoError(t, pool.Close())
		require.NoError(t, other.Close())
	})
	next(t, looks)
	quiet(looks)
	return w, c, other, looks
}

func next(t *testing.T, looks <-chan Cause) Cause {
	t.Helper()
	select {
	case why := <-looks:
		return why
	case <-time.After(patient):
		t.Fatal("nobody looked")
		return ""
	}
}

// quiet waits until nobody has looked for a while, and returns how many did before.
func quiet(looks <-chan Cause) (n int) {
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

func TestACommitOfAnotherConnectionIsSeen(t *testing.T) {
	for name, cfg := range map[string]Config{
		"by notices alone": {Notices: true, Poll: time.Hour},
		"by notices":       {Notices: true, Poll: time.Millisecond},
		"by polling":       {Poll: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, other, looks := watchFile(t, cfg)
			for range 20 {
				write(t, other)
				require.Equal(t, Commit, next(t, looks))
				quietFor := time.After(3 * time.Millisecond)
				<-quietFor
			}
			quiet(looks)

			// What changes nothing is nothing.
			tx, err := other.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			_, err = tx.Exec(`INSERT INTO t VALUES (2)`)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			require.NoError(t, other.QueryRow(`SELECT count(*) FROM t`).Scan(new(int)))
			_, err = other.Exec(`UPDATE t SET v = 3 WHERE v = 2`)
			require.NoError(t, err)
			require.Zero(t, quiet(looks))
		})
	}
}

func TestAStormIsFollowedAndItsEndIsSeen(t *testing.T) {
	_, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Millisecond})
	for range 3 {
		until := time.Now().Add(100 * time.Millisecond)
		commits := 0
		for ; time.Now().Before(until); commits++ {
			write(t, other)
		}
		seen := quiet(looks)
		require.Positive(t, seen)
		require.LessOrEqual(t, seen, commits)
		// The calm after it: a single commit is heard, by whatever means.
		write(t, other)
		require.Equal(t, Commit, next(t, looks))
		quiet(looks)
	}
}

// A long PollInterval is for where there are notices. A storm must not leave the
// watcher deaf for so long.
func TestAStormDoesNotDeafenAWatcherThatHardlyPolls(t *testing.T) {
	_, _, other, looks := watchFile(t, Config{Notices: true, Poll: time.Hour})
	until := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(until) {
		write(t, other)
	}
	quiet(looks)
	write(t, other)
	select {
	case why := <-looks:
		require.Equal(t, Commit, why)
	case <-time.After(3 * time.Second):
		t.Fatal("not heard any more")
	}
}

func TestAFileThatWasReplacedEndsTheWatch(t *testing.T) {
	dead := make(chan error, 1)
	_, c, _, _ := watchFile(t, Config{Notices: true, Poll: time.Hour, Dead: func(err error) { dead <- err }})
	require.NoError(t, os.Rename(c.Path(), c.Path()+".old"))
	require.NoError(t, os.WriteFile(c.Path(), nil, 0o600))
	select {
	case err := <-dead:
		require.ErrorIs(t, err, sqlite.ErrReplaced)
	case <-time.After(patient):
		t.Fatal("not noticed")
	}
}

// The pool's only connection may be lent to somebody who is about to close: the
// watcher must not wait for it then.
func TestCloseDoesNotWaitForAConnectionThatIsLent(t *testing.T) {
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
		Look:     func(Cause) {},
		Dead:     func(error) {},
		Logger:   slog.New(slog.DiscardHandler),
	})
	w.Wait()
	time.Sleep(20 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(2 * time.Second):
		t.Error("Close waits for a connection")
	}
	require.NoError(t, conn.Close())
}
