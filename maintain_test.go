package honker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// maintained runs f with a DB in a bubble.
func maintained(t *testing.T, opts honker.Options, f func(t *testing.T, db *honker.DB, log *testkit.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := new(testkit.Log)
		opts.NoFileNotices, opts.PollInterval, opts.Logger = true, time.Second, slog.New(slog.NewTextHandler(log, nil))
		f(t, honkertest.Open(t, &opts), log)
	})
}

// maintain runs a single round of Maintain in a bubble.
func maintain(t testing.TB, db *honker.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Every: time.Minute}))
}

// Maintain settles overdue jobs in queues without workers.
func TestMaintain_Jobs_Overdue(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, log *testkit.Log) {
		var last, again, running int64
		for _, queue := range []string{"a", "b"} {
			q := honker.NewQueue[int](db, queue, &honker.QueueOptions{Lease: time.Minute})
			last = testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
			again = testkit.Enqueue(t, q, 2, honker.MaxAttempts(2))
			require.Len(t, testkit.Claim(t, q, 2), 2)
			time.Sleep(30 * time.Second)
			running = testkit.Enqueue(t, q, 3, honker.MaxAttempts(1))
			require.Len(t, testkit.Claim(t, q, 1), 1)
		}
		testkit.Exec(t, db, testkit.Numbers(2500)+`INSERT INTO _honker_live (queue, payload, state, attempts, max_attempts, worker_id, claim_expires_at, run_at)
SELECT 'large', '0', 'processing', 1, 1, 'w', ?1 - n, 0 FROM some`, time.Now().Unix())
		time.Sleep(45 * time.Second)
		maintain(t, db)
		q := honker.NewQueue[int](db, "b", nil)
		dead := testkit.GetJob(t, q, last)
		require.Equal(t, honker.StateDead, dead.State)
		require.Equal(t, "max attempts exceeded", dead.LastError)
		require.Equal(t, 1, dead.Attempts)
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, again).State)
		require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, running).State, "a claim that is valid stays")
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'b'`))
		require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'a'`))
		require.EqualValues(t, 2500, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'large'`), "all, in one round")
		require.Equal(t, 3+20, log.Times("job dead-lettered"), "twenty lines a queue, whatever the transactions")
		require.Equal(t, 1, log.Times(`"honker: more jobs dead-lettered" queue=large jobs=2480`))
		require.Equal(t, 3+20+1, log.Times("level="))
	})
}

// Maintain dead-letters any number of expired jobs and logs a few of them.
func TestMaintain_Jobs_Expired(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, log *testkit.Log) {
		now := time.Now().Unix()
		testkit.Exec(t, db, testkit.Numbers(1700)+`INSERT INTO _honker_live (queue, payload, run_at, expires_at)
SELECT 'queue ' || (n % 3), n, ?1 + 3600, iif(n % 10 = 0, ?1 + 100, ?1 + n % 2) FROM some`, now)
		testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload) VALUES ('queue 1', '0')`)
		maintain(t, db)
		require.EqualValues(t, 680, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error = 'expired' AND died_at = ?`, now), "those that expire now")
		require.EqualValues(t, 850+170+1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
		time.Sleep(time.Minute) // the tenth job waits longer
		maintain(t, db)
		require.EqualValues(t, 1530, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error = 'expired'`))
		require.EqualValues(t, 171, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
		require.Equal(t, 2*3*20, log.Times("job dead-lettered"), "twenty lines a queue and round")
		require.Equal(t, 2*3, log.Times("more jobs dead-lettered"))
	})
}

// Maintain deletes expired results.
func TestMaintain_Results_Expired(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		now := time.Now().Unix()
		testkit.Exec(t, db, testkit.Numbers(1300)+`INSERT INTO _honker_results (job_id, value, expires_at) SELECT n, n, ?1 + n - 1200 FROM some`, now)
		testkit.Exec(t, db, `INSERT INTO _honker_results (job_id, value, expires_at) VALUES (5000, '1', NULL)`)
		maintain(t, db)
		require.EqualValues(t, 101, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
		require.EqualValues(t, 1201, testkit.QueryInt(t, db.SQL(), `SELECT min(job_id) FROM _honker_results`))
	})
}

// Maintain deletes only windows that have ended and are old.
func TestMaintain_RateLimits_Old(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		const hour = 3600
		now := time.Now().Unix()
		window := func(name string, age int64) {
			testkit.Exec(t, db, `INSERT INTO _honker_rate_limits VALUES (?, ?, 1)`, name, now-age)
		}
		for age := int64(0); age <= 48; age++ {
			window("hourly", age*hour)
		}
		window("monthly", 20*24*hour) // old, but not ended
		window("renamed", 60*24*hour)
		window("renamed", 30*24*hour)
		maintain(t, db)
		require.EqualValues(t, 25, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_rate_limits WHERE name = 'hourly'`))
		require.EqualValues(t, now-24*hour, testkit.QueryInt(t, db.SQL(), `SELECT min(window_start) FROM _honker_rate_limits WHERE name = 'hourly'`))
		require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_rate_limits WHERE name <> 'hourly'`))
	})
}

// Maintain deletes notifications only if a TTL is set.
func TestMaintain_Notifications_TTL(t *testing.T) {
	testkit.FileOnly(t)
	for ttl, left := range map[time.Duration]int64{0: 1301, time.Hour: 1, 100 * time.Hour: 1301, time.Hour + time.Second: 101} {
		t.Run(ttl.String(), func(t *testing.T) {
			maintained(t, honker.Options{NotificationTTL: ttl}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
				testkit.Exec(t, db, testkit.Numbers(1300)+`INSERT INTO _honker_notifications (channel, payload, created_at)
SELECT 'news', '1', ?1 - 3601 - iif(n <= 1200, n, 0) FROM some`, time.Now().Unix())
				testkit.Notify(t, db, "news", 2)
				maintain(t, db)
				require.Equal(t, left, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
			})
		})
	}
}

// Maintain compacts every topic with a retention.
func TestMaintain_Topics_Compacted(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		for topic, r := range map[string]honker.Retention{"few": {MaxCount: 3}, "young": {MaxAge: time.Minute}, "all": {}, "pinned": {MaxCount: 3}} {
			s := honker.NewStream[int](db, topic, nil)
			testkit.PublishUpTo(t, s, 10)
			if topic != "all" {
				retain(t, s, r)
			}
		}
		pinned := honker.NewStream[int](db, "pinned", nil)
		_, err := pinned.SaveOffset(t.Context(), "slow", stored(t, pinned)[3])
		require.NoError(t, err)
		time.Sleep(time.Minute + time.Second)
		testkit.PublishUpTo(t, honker.NewStream[int](db, "young", nil), 2)
		maintain(t, db)
		for topic, n := range map[string]int{"few": 3, "young": 2, "all": 10, "pinned": 6} {
			require.Len(t, stored(t, honker.NewStream[int](db, topic, nil)), n, topic)
		}
	})
}

// Maintain does another round after each interval.
func TestMaintain_Interval(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		began, q := time.Now(), honker.NewQueue[int](db, "jobs", nil)
		stop := testkit.Background(t, func(ctx context.Context) error {
			return db.Maintain(ctx, &honker.MaintainOptions{Every: 10 * time.Minute})
		})
		time.Sleep(time.Second)
		for range 4 {
			time.Sleep(2*time.Minute - time.Second)
			id := testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Second))
			time.Sleep(7*time.Minute + 59*time.Second)
			require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State, "at %v", time.Since(began))
			time.Sleep(2 * time.Second)
			require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State, "at %v", time.Since(began))
		}
		require.NoError(t, stop())
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_locks`), "the lock is released")
	})
}

// A single process maintains the file, and the others stand by.
func TestMaintain_OneLeader(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		open := func(ttl time.Duration) *honker.DB {
			return honkertest.OpenFile(t, path, &honker.Options{NotificationTTL: ttl, NoFileNotices: true, PollInterval: time.Second})
		}
		lax, strict := open(0), open(time.Second) // only the strict DB deletes notifications
		messages := func() int64 { return testkit.QueryInt(t, lax.SQL(), `SELECT count(*) FROM _honker_notifications`) }
		maintain := func(db *honker.DB) (stop func() error) {
			return testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, &honker.MaintainOptions{Every: time.Minute}) })
		}
		first := maintain(lax)
		time.Sleep(time.Second)
		second := maintain(strict)
		testkit.Notify(t, lax, "news", 1)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, messages(), "both maintain")
		require.NoError(t, first())
		time.Sleep(2 * time.Second)
		require.Zero(t, messages(), "it takes over at once")
		require.NoError(t, second())

		testkit.Exec(t, lax, `INSERT INTO _honker_locks VALUES ('honker-maintenance', 'dead', ?)`, time.Now().Unix()+60)
		second = maintain(strict)
		testkit.Notify(t, lax, "news", 1)
		time.Sleep(59 * time.Second)
		require.EqualValues(t, 1, messages())
		time.Sleep(2 * time.Second)
		require.Zero(t, messages(), "a dead one is replaced within its minute and a second")
		require.NoError(t, second())
	})
}

// Maintain stands by again if its lock is stolen.
func TestMaintain_LockStolen(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", nil)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, &honker.MaintainOptions{Every: time.Minute}) })
		time.Sleep(90 * time.Second)
		steal(t, db, "honker-maintenance")
		time.Sleep(20 * time.Second)
		id := testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Second))
		time.Sleep(time.Hour)
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State, "another maintains")
		require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_locks WHERE owner = 'thief'`))
		testkit.Exec(t, db, `DELETE FROM _honker_locks WHERE owner = 'thief'`)
		time.Sleep(2 * time.Second)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
		require.NoError(t, stop())
	})
}

// A failed task is logged, and the other tasks still run.
func TestMaintain_ChoreFails(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{NotificationTTL: time.Second}, func(t *testing.T, db *honker.DB, log *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", nil)
		expired, lapsed := testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Second)), testkit.Enqueue(t, q, 2, honker.MaxAttempts(1), honker.Priority(1))
		require.Len(t, testkit.Claim(t, q, 1), 1)
		lapseAt := time.Now().Unix()
		testkit.Exec(t, db, `UPDATE _honker_live SET claim_expires_at = ? WHERE id = ?`, lapseAt, lapsed)
		require.NoError(t, q.SaveResult(t.Context(), 1, 1, time.Second))
		testkit.Notify(t, db, "news", 1)
		time.Sleep(time.Minute)
		broken, mended := []string{
			`CREATE TRIGGER no BEFORE INSERT ON _honker_dead BEGIN SELECT RAISE(ABORT, 'none may die'); END`,
			`ALTER TABLE _honker_rate_limits RENAME TO elsewhere`,
			`ALTER TABLE _honkerx_retention RENAME TO elsewhere_too`,
		}, []string{
			`DROP TRIGGER no`,
			`ALTER TABLE elsewhere RENAME TO _honker_rate_limits`,
			`ALTER TABLE elsewhere_too RENAME TO _honkerx_retention`,
		}
		testkit.ExecAll(t, db.SQL(), broken...)
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, &honker.MaintainOptions{Every: time.Minute}) })
		time.Sleep(time.Minute + time.Second)
		for _, chore := range []string{"overdue jobs", "expired jobs", "rate limits", "retention"} {
			require.Equal(t, 2, log.Times(`chore="`+chore+`"`)+log.Times(`chore=`+chore+` `), chore)
		}
		require.Equal(t, 4, log.Times("none may die"))
		require.Equal(t, 8, log.Times("level="))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, expired).State)
		testkit.ExecAll(t, db.SQL(), mended...)
		time.Sleep(time.Minute)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, expired).State)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, lapsed).State)
		require.Equal(t, 10, log.Times("level="), "and both deaths")
		require.NoError(t, stop())
	})
}

// A queue that can't be settled, here because of an application's trigger, doesn't delay the others.
func TestMaintain_QueueFails(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		for i, queue := range []string{"a", "b", "c"} {
			testkit.Exec(t, db, `INSERT INTO _honker_live (id, queue, payload, expires_at) VALUES (?, ?, '1', 1)`, i+1, queue)
		}
		testkit.Exec(t, db, `CREATE TRIGGER no BEFORE INSERT ON _honker_dead WHEN NEW.queue = 'a' BEGIN SELECT RAISE(ABORT, 'a is kept'); END`)
		maintain(t, db)
		require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	})
}

// Maintain rejects an invalid interval and a transaction's ctx.
func TestMaintain_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	calls := make(map[string]testkit.Refusal)
	for _, every := range []time.Duration{-1, -time.Second, -time.Hour} {
		calls[every.String()] = func(ctx context.Context) error { return db.Maintain(ctx, &honker.MaintainOptions{Every: every}) }
	}
	testkit.RequireRefused(t, path, calls)
}

// Maintain ends with its context and when the DB is closed.
func TestMaintain_Ends(t *testing.T) {
	runners(t, 2, func(t *testing.T, all []runner) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, all[0].Maintain(over, &honker.MaintainOptions{Every: time.Hour}))
		ended := make(chan error, 2)
		for _, r := range all {
			go func() { ended <- r.Maintain(context.Background(), &honker.MaintainOptions{Every: time.Hour}) }()
			time.Sleep(time.Second)
		}
		for i := range all {
			require.NoError(t, all[len(all)-1-i].Close())
			err := <-ended
			require.ErrorIs(t, err, honker.ErrClosed)
		}
		require.ErrorIs(t, all[0].Maintain(t.Context(), &honker.MaintainOptions{Every: time.Hour}), honker.ErrClosed)
	})
}

// Maintain waits for another process that holds the write lock for a long time.
func TestMaintain_SlowWriter_Waits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 30 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	release := testkit.HoldWriter(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Every: time.Hour}))
	release()
}

// The first rounds fail while another process holds the write lock. Maintain retries, and a later round
// does the work.
func TestMaintain_SlowWriter_Retries(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	stop := testkit.Background(t, func(ctx context.Context) error {
		return db.Maintain(ctx, &honker.MaintainOptions{Every: 5 * time.Millisecond})
	})
	testkit.Eventually(t, testkit.Timeout, "it leads", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_locks`) == 1 })
	testkit.ExecAll(t, testkit.OpenPool(t, path), `INSERT INTO _honker_live (queue, payload, expires_at) VALUES ('jobs', '1', unixepoch() + 1)`)
	release := testkit.HoldWriter(t, path)
	testkit.Eventually(t, testkit.Timeout, "it has met the writer", func() bool { return log.Times("retrying in the next round") > 0 })
	release()
	testkit.Eventually(t, testkit.Timeout, "buried", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`) == 1 })
	require.NoError(t, stop())
}

// Run and Maintain need only a single connection from an attached pool.
func TestMaintain_Attached_OneConn(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	testkit.MakeFile(t, path)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(context.Background(), pool, &honker.Options{WALLimit: 1, NotificationTTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	testkit.PublishUpTo(t, honker.NewStream[int](db, "events", nil), 10)
	retain(t, honker.NewStream[int](db, "events", nil), honker.Retention{MaxCount: 3})
	runs := testkit.Background(t, db.Scheduler().Run)
	maintains := testkit.Background(t, func(ctx context.Context) error {
		return db.Maintain(ctx, &honker.MaintainOptions{Every: 10 * time.Millisecond})
	})
	testkit.SetNextFire(t, db, "tea", time.Now())
	testkit.Eventually(t, testkit.Timeout, "fired", func() bool { return testkit.QueryInt(t, pool, testkit.CountQueue, "jobs") == 1 })
	testkit.Eventually(t, testkit.Timeout, "compacted", func() bool { return testkit.QueryInt(t, pool, `SELECT count(*) FROM _honker_stream`) == 3 })
	testkit.Eventually(t, testkit.Timeout, "truncated", func() bool { return walOf(t, path) == 0 })
	require.NoError(t, maintains())
	require.NoError(t, runs())
	require.Zero(t, testkit.QueryInt(t, pool, `SELECT count(*) FROM _honker_locks`))
}

// walOf returns the size of the file's write-ahead log.
func walOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	return info.Size()
}

// spill makes the file's write-ahead log large.
func spill(t testing.TB, db *honker.DB) {
	t.Helper()
	_, err := db.Notify(context.Background(), "news", strings.Repeat("x", 1<<19))
	require.NoError(t, err)
}

// Maintain truncates a WAL above its limit.
func TestMaintain_WAL_Truncated(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for limit, truncated := range map[int64]bool{1: true, 100_000: true, 1 << 30: false, 0: false, -1: false} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db := honkertest.OpenFile(t, path, &honker.Options{WALLimit: limit})
			spill(t, db)
			before := walOf(t, path)
			require.Greater(t, before, int64(1<<19))
			stop := testkit.Background(t, func(ctx context.Context) error {
				return db.Maintain(ctx, &honker.MaintainOptions{Every: 10 * time.Millisecond})
			})
			if truncated {
				testkit.Eventually(t, testkit.Timeout, "truncated", func() bool { return walOf(t, path) == 0 })
			}
			for range 2 { // two finished tasks prove that a round has run
				testkit.Exec(t, db, `INSERT INTO _honker_results (job_id, expires_at) VALUES (1, 1)`)
				testkit.Eventually(t, testkit.Timeout, "a round", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`) == 0 })
			}
			require.NoError(t, stop())
			if !truncated {
				require.GreaterOrEqual(t, walOf(t, path), before)
			}
		})
	}
}

// snapshot keeps a reader open on the file's current state.
func snapshot(t testing.TB, path string) (release func()) {
	t.Helper()
	conn, err := testkit.OpenPool(t, path).Conn(context.Background())
	require.NoError(t, err)
	for _, query := range []string{`BEGIN`, `SELECT count(*) FROM _honker_live`} {
		_, err = conn.ExecContext(context.Background(), query)
		require.NoError(t, err)
	}
	release = func() { _, _ = conn.ExecContext(context.Background(), `ROLLBACK`); _ = conn.Close() }
	t.Cleanup(release)
	return release
}

// Maintain leaves the WAL alone while it has readers, and doesn't block writers. A truncation that waited for a
// reader would block the writers, whether the reader sees an old state or the latest commit.
func TestMaintain_WAL_Readers(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, open := range map[string]func(*testing.T, string, *honker.Options) *honker.DB{
		"Open": func(t *testing.T, path string, o *honker.Options) *honker.DB { return honkertest.OpenFile(t, path, o) },
		"Attach": func(t *testing.T, path string, o *honker.Options) *honker.DB {
			testkit.MakeFile(t, path)
			db, err := honker.Attach(context.Background(), testkit.OpenPool(t, path), o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return db
		},
	} {
		for _, old := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, old %t", name, old), func(t *testing.T) {
				t.Parallel()
				path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
				db := open(t, path, &honker.Options{WALLimit: 1000, Logger: slog.New(slog.NewTextHandler(log, nil))})
				stop := testkit.Background(t, func(ctx context.Context) error {
					return db.Maintain(ctx, &honker.MaintainOptions{Every: 20 * time.Millisecond})
				})
				testkit.Eventually(t, testkit.Timeout, "it has begun", func() bool { return walOf(t, path) == 0 })
				var release func()
				for release == nil || walOf(t, path) == 0 { // until no round has run in between
					if release != nil {
						release()
					}
					if spill(t, db); old {
						release = snapshot(t, path)
						spill(t, db)
					} else {
						release = snapshot(t, path)
					}
				}
				var worst time.Duration
				pause := time.NewTicker(50 * time.Millisecond) // long enough for a round
				defer pause.Stop()
				for range 6 {
					<-pause.C
					began := time.Now()
					testkit.Notify(t, db, "news", 1)
					worst = max(worst, time.Since(began))
				}
				require.Less(t, worst, time.Second, "a writer was held up")
				if old { // otherwise a round may have run just before the reader
					require.Greater(t, walOf(t, path), int64(1<<19))
				}
				release()
				testkit.Eventually(t, testkit.Timeout, "truncated", func() bool { return walOf(t, path) == 0 })
				require.NoError(t, stop())
				require.Zero(t, log.Times("write-ahead log"), "nothing to warn of")
			})
		}
	}
}

// With Once, Maintain does a single round and releases its lock. It returns an error if another process is the
// leader.
func TestMaintain_Once(t *testing.T) {
	testkit.FileOnly(t)
	maintained(t, honker.Options{NotificationTTL: time.Minute}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		ctx := t.Context()
		kept := func() (n int) {
			require.NoError(t, db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM _honker_notifications`).Scan(&n))
			return n
		}
		_, err := db.Notify(ctx, "old", 1)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		other, err := db.TryLock(ctx, "honker-maintenance", nil)
		require.NoError(t, err)
		require.ErrorIs(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}), honker.ErrLockHeld)
		require.Equal(t, 1, kept())
		require.NoError(t, other.Unlock(ctx))

		began := time.Now()
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Zero(t, kept())
		require.Less(t, time.Since(began), time.Minute)
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}), "the lock is free")

		ended, stop := context.WithCancel(ctx)
		stop()
		require.ErrorIs(t, db.Maintain(ended, &honker.MaintainOptions{Once: true}), context.Canceled)
	})
}
