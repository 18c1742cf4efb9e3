package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// An attached pool supports everything that an opened file supports.
func TestDB_Attach_DoesAll(t *testing.T) {
	testkit.FileOnly(t)
	for _, journal := range []string{"WAL", "DELETE"} {
		for _, conns := range []int{1, 2, 0} {
			t.Run(fmt.Sprint(journal, conns), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "app.db")
				testkit.MakeApplication(t, path)
				pool := testkit.OpenPool(t, path)
				pool.SetMaxOpenConns(conns)
				testkit.ExecAll(t, pool, `PRAGMA journal_mode=`+journal)
				db, err := honker.Attach(context.Background(), pool, nil)
				require.NoError(t, err)
				testkit.UseAll(t, db, testkit.OpenPool(t, path))
				require.NoError(t, db.Check(context.Background()))
				require.NoError(t, db.Close())
				require.EqualValues(t, 1, testkit.QueryInt(t, pool, `SELECT count(*) FROM orders`), "the pool is still open")
			})
		}
	}
}

// File system notifications would stop a bubble's clock forever. Open returns an error instead of hanging.
func TestOpen_InBubble_Refused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeFile(t, path)
	quiet := &honker.Options{NoFileNotices: true, PollInterval: time.Hour}
	for name, open := range map[string]func(*testing.T, *honker.Options) (*honker.DB, error){
		"opened": func(t *testing.T, o *honker.Options) (*honker.DB, error) { return honker.Open(t.Context(), path, o) },
		"attached": func(t *testing.T, o *honker.Options) (*honker.DB, error) {
			return honker.Attach(t.Context(), testkit.OpenPool(t, path), o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := open(t, nil)
				require.ErrorIs(t, err, honker.ErrUnsupported)
				require.ErrorContains(t, err, "honkertest")
				require.ErrorContains(t, err, "NoFileNotices")
				db, err := open(t, quiet)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				for _, err := range honker.NewQueue[int](db, "jobs", nil).Jobs(ctx, "w") {
					require.NoError(t, err)
				}
				require.NoError(t, db.Close(), "the hour has passed")
			})
		})
	}
}

// Transactions on an attached pool wait for each other.
func TestDB_Attach_TxsWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeFile(t, path)             // in WAL mode
	pool, err := sql.Open("sqlite", path) // with the driver's defaults, statements don't wait for locks
	require.NoError(t, err)
	defer pool.Close()
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	ended := make(chan error, 20)
	for range cap(ended) {
		go func() {
			ended <- db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 1)
				return err
			})
		}()
	}
	for range cap(ended) {
		assert.NoError(t, <-ended)
	}
}

// A read may wait for a connection that the application has borrowed. The wait ends when ctx does and, if the read
// belongs to a loop, when the DB is closed.
func TestAttach_ReadWaitsForAConnection(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	testkit.MakeFile(t, path)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	defer db.Close()
	lent, err := pool.Conn(context.Background())
	require.NoError(t, err)
	defer lent.Close()

	q, why := honker.NewQueue[int](db, "jobs", nil), errors.New("why")
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	for _, read := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := q.Get(ctx, 1); return err },
		func(ctx context.Context) error { _, err := q.Claim(ctx, "w", 1); return err },
		func(ctx context.Context) error { _, err := db.Listen(ctx, "news"); return err },
	} {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		go func() { ended <- read(ctx) }()
		err := testkit.Within(context.Background(), ended, testkit.Timeout)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "honker: ")
	}
	go func() { _, err := honker.WaitResult[int](ctx, db, 1); ended <- err }()
	time.Sleep(20 * time.Millisecond)
	cancel(why)
	require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), why)

	go func() {
		ended <- q.Work(context.Background(), func(context.Context, *honker.Job[int]) error { return nil }, nil)
	}()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, db.Close())
	require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), honker.ErrClosed)
}

// DB.Tx's transaction may hold the pool's only connection. A plain verb inside it is rejected before it waits for
// that connection.
func TestAttach_OneConnection_InTx(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	testkit.MakeFile(t, path)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(context.Background(), pool, nil)
	require.NoError(t, err)
	defer db.Close()
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	g := s.Group("g", nil)
	m := enrol(t, g, "m")
	from, to := testkit.DoublingStreams(db)
	ignore := func(context.Context, *honker.Event[int]) error { return nil }
	for name, verb := range map[string]func(context.Context) error{
		"claim":       func(ctx context.Context) error { _, err := q.Claim(ctx, "w", 1); return err },
		"jobs":        func(ctx context.Context) error { return testkit.LastError(q.Jobs(ctx, "w")) },
		"work":        func(ctx context.Context) error { return q.Work(ctx, testkit.Succeed, nil) },
		"wait result": func(ctx context.Context) error { _, err := honker.WaitResult[int](ctx, db, 1); return err },
		"lock":        func(ctx context.Context) error { _, err := db.Lock(ctx, "l", nil); return err },
		"try lock":    func(ctx context.Context) error { _, err := db.TryLock(ctx, "l", nil); return err },
		"rate limit":  func(ctx context.Context) error { _, err := db.RateLimit("r", 1, time.Second).Allow(ctx); return err },
		"rate wait":   func(ctx context.Context) error { return db.RateLimit("r", 1, time.Second).Wait(ctx) },
		"subscribe":   func(ctx context.Context) error { return testkit.LastError(s.Subscribe(ctx, "c", nil)) },
		"consume":     func(ctx context.Context) error { return s.Consume(ctx, "c", ignore, nil) },
		"pipe":        func(ctx context.Context) error { return honker.Pipe(ctx, from, "c", to, testkit.Double) },
		"compact":     func(ctx context.Context) error { _, err := s.Compact(ctx); return err },
		"join":        func(ctx context.Context) error { _, err := g.Join(ctx, "n"); return err },
		"group claim": func(ctx context.Context) error { _, err := m.Claim(ctx, 1); return err },
		"all":         func(ctx context.Context) error { return testkit.LastError(m.All(ctx)) },
		"leave":       func(ctx context.Context) error { return m.Leave(ctx) },
		"redeliver":   func(ctx context.Context) error { _, err := g.Redeliver(ctx, 1); return err },
		"discard":     func(ctx context.Context) error { _, err := g.Discard(ctx, 1); return err },
		"group work": func(ctx context.Context) error {
			return g.Work(ctx, func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
		},
		"scheduler": func(ctx context.Context) error { return db.Scheduler().Run(ctx) },
		"trigger":   func(ctx context.Context) error { _, err := db.Scheduler().Trigger(ctx, "s"); return err },
		"maintain":  func(ctx context.Context) error { return db.Maintain(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			err := db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, _ *sql.Tx) error { return verb(ctx) })
			require.ErrorIs(t, err, honker.ErrInTx)
		})
	}
}

// A read inside DB.Tx runs in the transaction, which holds the pool's only connection. A read with a different ctx
// can't find the transaction and fails after BusyTimeout.
func TestAttach_OneConnection_ReadInTx(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	testkit.MakeFile(t, path)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(context.Background(), pool, &honker.Options{BusyTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	outer := testkit.Context(t, testkit.Timeout)
	require.NoError(t, db.Tx(outer, func(ctx context.Context, tx *sql.Tx) error {
		id, err := q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		_, err = q.Get(ctx, id)
		require.NoError(t, err)
		_, err = db.Scheduler().List(ctx)
		require.NoError(t, err)
		_, err = q.Get(outer, id)
		require.ErrorIs(t, err, honker.ErrBusy)
		require.ErrorContains(t, err, "no connection of the pool became free within 50ms")
		require.ErrorIs(t, db.Tx(outer, func(context.Context, *sql.Tx) error { return nil }), honker.ErrBusy)
		return nil
	}))
}

// Pool settings that cause trouble are logged as warnings. Settings that cost time, or that occasionally make the
// application's own statements fail, are logged at Info with a remedy. Other settings aren't mentioned.
func TestAttach_Warnings(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for settings, want := range map[string]string{
		"_pragma=journal_mode(WAL)":                                `level=INFO msg="honker: the pool has no busy timeout: `,
		"_pragma=busy_timeout(100)":                                `level=INFO msg="honker: the database uses a rollback journal: `,
		"_pragma=busy_timeout(100)&_pragma=journal_mode(TRUNCATE)": `level=INFO msg="honker: the database uses a rollback journal: `,
		"": `level=WARN msg="honker: the pool has a rollback journal and no busy timeout`,
		"_pragma=busy_timeout(1)&_pragma=journal_mode(WAL)&cache=shared": `level=WARN msg="honker: the connections of the pool share a cache`,
		"_pragma=busy_timeout(1)&_pragma=journal_mode(WAL)&mode=rwc":     "",
	} {
		for _, conns := range []int{0, 2, 1} {
			t.Run(fmt.Sprint(settings, " ", conns), func(t *testing.T) {
				pool, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?"+settings)
				require.NoError(t, err)
				defer pool.Close()
				pool.SetMaxOpenConns(conns)
				before := testkit.QueryInt(t, pool, `PRAGMA cache_size`)
				log := new(testkit.Log)
				db, err := honker.Attach(t.Context(), pool, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
				require.NoError(t, err)
				defer db.Close()
				lines := 0
				if want != "" && (conns != 1 || !strings.Contains(settings, "cache=shared")) {
					lines = 1
				}
				require.Equal(t, lines, log.Times("level="))
				require.Equal(t, lines, log.Times(want)*lines)
				require.Equal(t, before, testkit.QueryInt(t, pool, `PRAGMA cache_size`))
			})
		}
	}
}
