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
)

// maintained is a DB in a bubble; opts may say more.
func maintained(t *testing.T, opts honker.Options, f func(t *testing.T, db *honker.DB, log *logged)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		opts.NoFileNotices, opts.PollInterval, opts.Logger = true, time.Second, slog.New(slog.NewTextHandler(log, nil))
		f(t, honkertest.Open(t, &opts), log)
	})
}

// maintain lets Maintain do its chores once, in a bubble.
func maintain(t testing.TB, db *honker.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(t, db.Maintain(ctx, time.Minute))
}

// some are n numbers from 1 on, as a table.
func some(n int) string {
	return fmt.Sprintf(`WITH RECURSIVE some(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM some WHERE n < %d) `, n)
}

func TestMaintainSettlesOverdueJobsOfQueuesThatNobodyClaims(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, log *logged) {
		var last, again, running int64
		for _, queue := range []string{"a", "b"} {
			q := honker.NewQueue[int](db, queue, &honker.QueueOptions{Visibility: time.Minute})
			last = add(t, q, 1, honker.MaxAttempts(1))
			again = add(t, q, 2, honker.MaxAttempts(2))
			require.Len(t, hold(t, q, 2), 2)
			time.Sleep(30 * time.Second)
			running = add(t, q, 3, honker.MaxAttempts(1))
			require.Len(t, hold(t, q, 1), 1)
		}
		alter(t, db, some(2500)+`INSERT INTO _honker_live (queue, payload, state, attempts, max_attempts, worker_id, claim_expires_at, run_at)
SELECT 'large', '0', 'processing', 1, 1, 'w', ?1 - n, 0 FROM some`, time.Now().Unix())
		time.Sleep(45 * time.Second)
		maintain(t, db)
		q := honker.NewQueue[int](db, "b", nil)
		dead := look(t, q, last)
		require.Equal(t, honker.Dead, dead.State)
		require.Equal(t, "max attempts exceeded", dead.LastError)
		require.Equal(t, 1, dead.Attempts)
		require.Equal(t, honker.Pending, look(t, q, again).State)
		require.Equal(t, honker.Processing, look(t, q, running).State, "a claim that is valid stays")
		require.EqualValues(t, 1, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'b'`))
		require.EqualValues(t, 2, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'a'`))
		require.EqualValues(t, 2500, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE queue = 'large'`), "all, in one round")
		require.Zero(t, log.times("level="))
	})
}

func TestMaintainBuriesExpiredJobsHoweverManyTheyAre(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		now := time.Now().Unix()
		alter(t, db, some(1700)+`INSERT INTO _honker_live (queue, payload, run_at, expires_at)
SELECT 'queue ' || n % 3, n, ?1 + 3600, iif(n % 10 = 0, ?1 + 100, ?1 + n % 2) FROM some`, now)
		alter(t, db, `INSERT INTO _honker_live (queue, payload) VALUES ('queue 1', '0')`)
		maintain(t, db)
		require.EqualValues(t, 680, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error = 'expired' AND died_at = ?`, now), "those that expire now")
		require.EqualValues(t, 850+170+1, number(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
		time.Sleep(time.Minute) // the tenth of them waits for longer
		maintain(t, db)
		require.EqualValues(t, 1530, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE last_error = 'expired'`))
		require.EqualValues(t, 171, number(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	})
}

func TestMaintainDeletesResultsThatHaveExpired(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		now := time.Now().Unix()
		alter(t, db, some(1300)+`INSERT INTO _honker_results (job_id, value, expires_at) SELECT n, n, ?1 + n - 1200 FROM some`, now)
		alter(t, db, `INSERT INTO _honker_results (job_id, value, expires_at) VALUES (5000, '1', NULL)`)
		maintain(t, db)
		require.EqualValues(t, 101, number(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
		require.EqualValues(t, 1201, number(t, db.SQL(), `SELECT min(job_id) FROM _honker_results`))
	})
}

func TestMaintainDeletesWindowsThatAreOverAndOldOnly(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		const hour = 3600
		now := time.Now().Unix()
		window := func(name string, age int64) {
			alter(t, db, `INSERT INTO _honker_rate_limits VALUES (?, ?, 1)`, name, now-age)
		}
		for age := int64(0); age <= 48; age++ {
			window("hourly", age*hour)
		}
		window("monthly", 20*24*hour) // old, and not over
		window("renamed", 60*24*hour)
		window("renamed", 30*24*hour)
		maintain(t, db)
		require.EqualValues(t, 25, number(t, db.SQL(), `SELECT count(*) FROM _honker_rate_limits WHERE name = 'hourly'`))
		require.EqualValues(t, now-24*hour, number(t, db.SQL(), `SELECT min(window_start) FROM _honker_rate_limits WHERE name = 'hourly'`))
		require.EqualValues(t, 2, number(t, db.SQL(), `SELECT count(*) FROM _honker_rate_limits WHERE name <> 'hourly'`))
	})
}

func TestMaintainDeletesNotificationsOnlyWithATTL(t *testing.T) {
	for ttl, left := range map[time.Duration]int64{0: 1301, time.Hour: 1, 100 * time.Hour: 1301, time.Hour + time.Second: 101} {
		t.Run(ttl.String(), func(t *testing.T) {
			maintained(t, honker.Options{NotificationTTL: ttl}, func(t *testing.T, db *honker.DB, _ *logged) {
				alter(t, db, some(1300)+`INSERT INTO _honker_notifications (channel, payload, created_at)
SELECT 'news', '1', ?1 - 3601 - iif(n <= 1200, n, 0) FROM some`, time.Now().Unix())
				tell(t, db, "news", 2)
				maintain(t, db)
				require.Equal(t, left, number(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
			})
		})
	}
}

func TestMaintainCompactsEveryTopicWithARetention(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		for topic, r := range map[string]honker.Retention{"few": {MaxCount: 3}, "young": {MaxAge: time.Minute}, "all": {}, "pinned": {MaxCount: 3}} {
			s := honker.NewStream[int](db, topic, nil)
			emitUpTo(t, s, 10)
			if topic != "all" {
				retain(t, s, r)
			}
		}
		pinned := honker.NewStream[int](db, "pinned", nil)
		_, err := pinned.SaveOffset(t.Context(), "slow", stored(t, pinned)[3])
		require.NoError(t, err)
		time.Sleep(time.Minute + time.Second)
		emitUpTo(t, honker.NewStream[int](db, "young", nil), 2)
		maintain(t, db)
		for topic, n := range map[string]int{"few": 3, "young": 2, "all": 10, "pinned": 6} {
			require.Len(t, stored(t, honker.NewStream[int](db, topic, nil)), n, topic)
		}
	})
}

func TestMaintainGoesOnEachTimeTheIntervalHasPassed(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		began, q := time.Now(), honker.NewQueue[int](db, "jobs", nil)
		stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, 10*time.Minute) })
		time.Sleep(time.Second)
		for range 4 {
			time.Sleep(2*time.Minute - time.Second)
			id := add(t, q, 1, honker.ExpiresIn(time.Second))
			time.Sleep(7*time.Minute + 59*time.Second)
			require.Equal(t, honker.Pending, look(t, q, id).State, "at %v", time.Since(began))
			time.Sleep(2 * time.Second)
			require.Equal(t, honker.Dead, look(t, q, id).State, "at %v", time.Since(began))
		}
		require.NoError(t, stop())
		require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_locks`), "the lock is released")
	})
}

func TestOneMaintainsAndTheOthersStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		open := func(ttl time.Duration) *honker.DB {
			return honkertest.OpenFile(t, path, &honker.Options{NotificationTTL: ttl, NoFileNotices: true, PollInterval: time.Second})
		}
		lax, strict := open(0), open(time.Second) // only one of them deletes notifications
		messages := func() int64 { return number(t, lax.SQL(), `SELECT count(*) FROM _honker_notifications`) }
		maintain := func(db *honker.DB) (stop func() error) {
			return background(t, func(ctx context.Context) error { return db.Maintain(ctx, time.Minute) })
		}
		first := maintain(lax)
		time.Sleep(time.Second)
		second := maintain(strict)
		tell(t, lax, "news", 1)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, messages(), "both maintain")
		require.NoError(t, first())
		time.Sleep(2 * time.Second)
		require.Zero(t, messages(), "it takes over at once")
		require.NoError(t, second())

		alter(t, lax, `INSERT INTO _honker_locks VALUES ('honker-maintenance', 'dead', ?)`, time.Now().Unix()+60)
		second = maintain(strict)
		tell(t, lax, "news", 1)
		time.Sleep(59 * time.Second)
		require.EqualValues(t, 1, messages())
		time.Sleep(2 * time.Second)
		require.Zero(t, messages(), "a dead one is replaced within its minute and a second")
		require.NoError(t, second())
	})
}

func TestMaintainWhoseLockIsStolenStandsByAgain(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		q := honker.NewQueue[int](db, "jobs", nil)
		stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, time.Minute) })
		time.Sleep(90 * time.Second)
		steal(t, db, "honker-maintenance")
		time.Sleep(20 * time.Second)
		id := add(t, q, 1, honker.ExpiresIn(time.Second))
		time.Sleep(time.Hour)
		require.Equal(t, honker.Pending, look(t, q, id).State, "another maintains")
		require.EqualValues(t, 1, number(t, db.SQL(), `SELECT count(*) FROM _honker_locks WHERE owner = 'thief'`))
		alter(t, db, `DELETE FROM _honker_locks WHERE owner = 'thief'`)
		time.Sleep(2 * time.Second)
		require.Equal(t, honker.Dead, look(t, q, id).State)
		require.NoError(t, stop())
	})
}

func TestAChoreThatFailsIsLoggedAndTheOthersGoOn(t *testing.T) {
	maintained(t, honker.Options{NotificationTTL: time.Second}, func(t *testing.T, db *honker.DB, log *logged) {
		q := honker.NewQueue[int](db, "jobs", nil)
		expired, lapsed := add(t, q, 1, honker.ExpiresIn(time.Second)), add(t, q, 2, honker.MaxAttempts(1), honker.Priority(1))
		require.Len(t, hold(t, q, 1), 1)
		lapseAt := time.Now().Unix()
		alter(t, db, `UPDATE _honker_live SET claim_expires_at = ? WHERE id = ?`, lapseAt, lapsed)
		require.NoError(t, q.SaveResult(t.Context(), 1, 1, time.Second))
		tell(t, db, "news", 1)
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
		perform(t, db.SQL(), broken...)
		stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, time.Minute) })
		time.Sleep(time.Minute + time.Second)
		for _, chore := range []string{"overdue jobs", "expired jobs", "rate limits", "retention"} {
			require.Equal(t, 2, log.times(`chore="`+chore+`"`)+log.times(`chore=`+chore+` `), chore)
		}
		require.Equal(t, 4, log.times("none may die"))
		require.Equal(t, 8, log.times("level=WARN"))
		require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
		require.Zero(t, number(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
		require.Equal(t, honker.Pending, look(t, q, expired).State)
		perform(t, db.SQL(), mended...)
		time.Sleep(time.Minute)
		require.Equal(t, honker.Dead, look(t, q, expired).State)
		require.Equal(t, honker.Dead, look(t, q, lapsed).State)
		require.Equal(t, 8, log.times("level="))
		require.NoError(t, stop())
	})
}

// A rule of the application's about one queue must not hold up the others.
func TestAQueueThatCannotBeSettledDoesNotHoldUpTheOthers(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, _ *logged) {
		for i, queue := range []string{"a", "b", "c"} {
			alter(t, db, `INSERT INTO _honker_live (id, queue, payload, expires_at) VALUES (?, ?, '1', 1)`, i+1, queue)
		}
		alter(t, db, `CREATE TRIGGER no BEFORE INSERT ON _honker_dead WHEN NEW.queue = 'a' BEGIN SELECT RAISE(ABORT, 'a is kept'); END`)
		maintain(t, db)
		require.EqualValues(t, 2, number(t, db.SQL(), `SELECT count(*) FROM _honker_dead`))
	})
}

func TestMaintainRefusesABadIntervalAndATransaction(t *testing.T) {
	t.Parallel()
	path, db := shared(t)
	calls := make(map[string]refusal)
	for _, every := range []time.Duration{0, -1, -time.Hour} {
		calls[every.String()] = func(ctx context.Context) error { return db.Maintain(ctx, every) }
	}
	refuses(t, path, calls)
}

func TestMaintainEndsWithItsContextAndWithClose(t *testing.T) {
	runners(t, 2, func(t *testing.T, all []runner) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, all[0].Maintain(over, time.Hour))
		ended := make(chan error, 2)
		for _, r := range all {
			go func() { ended <- r.Maintain(context.Background(), time.Hour) }()
			time.Sleep(time.Second)
		}
		for i := range all {
			require.NoError(t, all[len(all)-1-i].Close())
			err := <-ended
			require.ErrorIs(t, err, honker.ErrClosed)
		}
		require.ErrorIs(t, all[0].Maintain(t.Context(), time.Hour), honker.ErrClosed)
	})
}

func TestMaintainWaitsForAWriterThatHoldsItUpForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 30 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	release := holdWriter(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, db.Maintain(ctx, time.Hour))
	release()
}

// The first rounds fail while a writer is in the way; what they wanted is done later.
func TestMaintainTriesAgainAfterAWriterThatHoldsItUp(t *testing.T) {
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(logged)
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, 5*time.Millisecond) })
	eventually(t, patient, "it leads", func() bool { return number(t, db.SQL(), `SELECT count(*) FROM _honker_locks`) == 1 })
	alter(t, db, `INSERT INTO _honker_live (queue, payload, expires_at) VALUES ('jobs', '1', unixepoch() + 1)`)
	release := holdWriter(t, path)
	eventually(t, patient, "it has met the writer", func() bool { return log.times("will be tried again") > 0 })
	release()
	eventually(t, patient, "buried", func() bool { return number(t, db.SQL(), `SELECT count(*) FROM _honker_dead`) == 1 })
	require.NoError(t, stop())
}

func TestRunAndMaintainNeedOneConnectionOfAnAttachedPool(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	honkers(t, path)
	pool := plain(t, path)
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(context.Background(), pool, &honker.Options{WALLimit: 1, NotificationTTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	register(t, db, every("tea", "@every 1h"))
	emitUpTo(t, honker.NewStream[int](db, "events", nil), 10)
	retain(t, honker.NewStream[int](db, "events", nil), honker.Retention{MaxCount: 3})
	runs := background(t, db.Scheduler().Run)
	maintains := background(t, func(ctx context.Context) error { return db.Maintain(ctx, 10*time.Millisecond) })
	nextAt(t, db, "tea", time.Now())
	eventually(t, patient, "fired", func() bool { return number(t, pool, jobsOf, "jobs") == 1 })
	eventually(t, patient, "compacted", func() bool { return number(t, pool, `SELECT count(*) FROM _honker_stream`) == 3 })
	eventually(t, patient, "truncated", func() bool { return walOf(t, path) == 0 })
	require.NoError(t, maintains())
	require.NoError(t, runs())
	require.Zero(t, number(t, pool, `SELECT count(*) FROM _honker_locks`))
}

// walOf is the size of a file's write-ahead log.
func walOf(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	return info.Size()
}

// spill makes the write-ahead log of a file large.
func spill(t testing.TB, db *honker.DB) {
	t.Helper()
	_, err := db.Notify(context.Background(), "news", strings.Repeat("x", 1<<19))
	require.NoError(t, err)
}

func TestMaintainTruncatesAWALAboveItsLimit(t *testing.T) {
	t.Parallel()
	for limit, truncated := range map[int64]bool{1: true, 100_000: true, 1 << 30: false, 0: false, -1: false} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db := honkertest.OpenFile(t, path, &honker.Options{WALLimit: limit})
			spill(t, db)
			before := walOf(t, path)
			require.Greater(t, before, int64(1<<19))
			stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, 10*time.Millisecond) })
			if truncated {
				eventually(t, patient, "truncated", func() bool { return walOf(t, path) == 0 })
			}
			for range 2 { // whoever has seen two chores of a round done has seen a round
				alter(t, db, `INSERT INTO _honker_results (job_id, expires_at) VALUES (1, 1)`)
				eventually(t, patient, "a round", func() bool { return number(t, db.SQL(), `SELECT count(*) FROM _honker_results`) == 0 })
			}
			require.NoError(t, stop())
			if !truncated {
				require.GreaterOrEqual(t, walOf(t, path), before)
			}
		})
	}
}

// snapshot holds a reader on what the file is now.
func snapshot(t testing.TB, path string) (release func()) {
	t.Helper()
	conn, err := plain(t, path).Conn(context.Background())
	require.NoError(t, err)
	for _, query := range []string{`BEGIN`, `SELECT count(*) FROM _honker_live`} {
		_, err = conn.ExecContext(context.Background(), query)
		require.NoError(t, err)
	}
	release = func() { _, _ = conn.ExecContext(context.Background(), `ROLLBACK`); _ = conn.Close() }
	t.Cleanup(release)
	return release
}

// A truncation that waits for a reader would hold up the writers, whatever the reader
// sees: what is old, or the last commit.
func TestMaintainLeavesTheWALToReadersAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T, string, *honker.Options) *honker.DB{
		"Open": func(t *testing.T, path string, o *honker.Options) *honker.DB { return honkertest.OpenFile(t, path, o) },
		"Attach": func(t *testing.T, path string, o *honker.Options) *honker.DB {
			honkers(t, path)
			db, err := honker.Attach(context.Background(), plain(t, path), o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return db
		},
	} {
		for _, old := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, old %t", name, old), func(t *testing.T) {
				t.Parallel()
				path, log := filepath.Join(t.TempDir(), "file.db"), new(logged)
				db := open(t, path, &honker.Options{WALLimit: 1000, Logger: slog.New(slog.NewTextHandler(log, nil))})
				stop := background(t, func(ctx context.Context) error { return db.Maintain(ctx, 20*time.Millisecond) })
				eventually(t, patient, "it has begun", func() bool { return walOf(t, path) == 0 })
				var release func()
				for release == nil || walOf(t, path) == 0 { // until no round came between
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
					tell(t, db, "news", 1)
					worst = max(worst, time.Since(began))
				}
				require.Less(t, worst, time.Second, "a writer was held up")
				if old { // else a round may have come just before the reader
					require.Greater(t, walOf(t, path), int64(1<<19))
				}
				release()
				eventually(t, patient, "truncated", func() bool { return walOf(t, path) == 0 })
				require.NoError(t, stop())
				require.Zero(t, log.times("write-ahead log"), "nothing to warn of")
			})
		}
	}
}
