package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// fire is a fire as reported to Run's callback.
type fire struct {
	honker.Fire
	told time.Time
}

// runner is a DB in a bubble that can run its scheduler, and records its fires.
type runner struct {
	*honker.DB
	*testkit.Recorder
	all *[]fire
	log *testkit.Log
}

func (r runner) fires() []fire { return testkit.Recorded(r.Recorder, r.all) }

// runners runs f in a bubble with n DBs on the same file. Each DB checks for the others' commits once a second.
func runners(t *testing.T, n int, f func(t *testing.T, all []runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		all := make([]runner, n)
		for i := range all {
			all[i] = openRunner(t, path)
			t.Cleanup(func() { _ = all[i].Close() })
		}
		f(t, all)
		for i := range all { // checked before any of the DBs is closed
			if err := all[i].Check(context.Background()); !errors.Is(err, honker.ErrClosed) {
				require.NoError(t, err)
			}
		}
	})
}

func openRunner(t testing.TB, path string) runner {
	t.Helper()
	r := runner{Recorder: new(testkit.Recorder), all: new([]fire), log: new(testkit.Log)}
	db, err := honker.Open(context.Background(), path, &honker.Options{
		NoFileNotices: true,
		PollInterval:  time.Second,
		Logger:        slog.New(slog.NewTextHandler(r.log, nil)),
		Observer: &observe.Observer{
			Fired: func(e honker.Fire) { testkit.Record(r.Recorder, r.all, fire{e, time.Now()}) },
			Woke:  func(e observe.Woke) { testkit.Record(r.Recorder, &r.Recorder.Woke, e) },
		},
	})
	require.NoError(t, err)
	r.DB = db
	return r
}

// run starts a runner's scheduler.
func (r runner) run(t testing.TB) (stop func() error) {
	t.Helper()
	return testkit.Background(t, r.Scheduler().Run)
}

// blink is slightly longer than a runner's retry delay in a bubble.
const blink = 50 * time.Millisecond

// at returns the due times of the fires since began. It checks that each fire was reported immediately,
// within slack.
func (r runner) at(t testing.TB, began time.Time, slack time.Duration) (all []time.Duration) {
	t.Helper()
	for _, f := range r.fires() {
		late := f.told.Sub(f.FireAt)
		require.True(t, late >= 0 && late <= slack, "%s was due at %v and fired %v later", f.Name, f.FireAt, late)
		all = append(all, f.FireAt.Sub(began))
	}
	return all
}

// steal gives a lock to an owner outside this test.
func steal(t testing.TB, db *honker.DB, lock string) {
	t.Helper()
	testkit.Exec(t, db, `INSERT INTO _honker_locks VALUES (?1, 'thief', ?2) ON CONFLICT DO UPDATE SET owner = 'thief', expires_at = ?2`,
		lock, time.Now().Add(24*time.Hour).Unix())
}

// A running scheduler fires each schedule in the second in which it is due.
func TestScheduler_Run_InItsSecond(t *testing.T) {
	runners(t, 1, func(t *testing.T, all []runner) {
		began, r := time.Now(), all[0]
		testkit.Register(t, r.DB, honker.Schedule{Name: "tea", Queue: "kitchen", Spec: "@every 90s", Payload: "brew"})
		testkit.Register(t, r.DB, testkit.Every("cron", "30 */4 * * * *"))
		stop := r.run(t)
		time.Sleep(10*time.Minute + time.Second)
		require.NoError(t, stop())
		require.Equal(t, secs(30, 90, 180, 270, 270, 360, 450, 510, 540), r.at(t, began, blink))
		jobs, err := honker.NewQueue[string](r.DB, "kitchen", nil).Claim(t.Context(), "cook", 100)
		require.NoError(t, err)
		require.Len(t, jobs, 6)
		require.Equal(t, "brew", jobs[0].Args)
		for i, job := range jobs {
			require.Equal(t, began.Add(time.Duration(i+1)*90*time.Second), job.RunAt)
		}
	})
}

// A running scheduler notices every change.
func TestScheduler_Run_HeedsChanges(t *testing.T) {
	for name, other := range map[string]int{"of this process": 0, "of another handle": 1} {
		t.Run(name, func(t *testing.T) {
			runners(t, 2, func(t *testing.T, all []runner) {
				began, r, by := time.Now(), all[0], all[other].Scheduler()
				slack := time.Duration(other)*time.Second + blink
				stop := r.run(t)
				time.Sleep(100*time.Second + 500*time.Millisecond) // there is no schedule during this time

				testkit.Register(t, all[other].DB, testkit.Every("late", "@every 1h"))
				time.Sleep(10 * time.Second)
				testkit.Register(t, all[other].DB, testkit.Every("soon", "@every 20s")) // due before the next known fire
				time.Sleep(20 * time.Second)
				require.Equal(t, secs(130), r.at(t, began, slack))

				testkit.RequireChanged(t, true)(by.Pause(t.Context(), "soon"))
				time.Sleep(49 * time.Second) // lets the fires at 150 s and 170 s pass
				require.Equal(t, secs(130), r.at(t, began, slack))
				testkit.RequireChanged(t, true)(by.Resume(t.Context(), "soon"))
				time.Sleep(2 * time.Second) // at 181 s
				require.Equal(t, secs(130, 150, 170), r.at(t, began, time.Minute), "caught up, soon")

				spec := "@every 3s"
				testkit.RequireChanged(t, true)(by.Update(t.Context(), "soon", honker.ScheduleChange{Spec: &spec}))
				time.Sleep(7 * time.Second)
				testkit.RequireChanged(t, true)(by.Unregister(t.Context(), "soon"))
				time.Sleep(time.Minute)
				require.Equal(t, secs(130, 150, 170, 184, 187), r.at(t, began, time.Minute))
				require.NoError(t, stop())
			})
		})
	}
}

// A scheduler without due schedules sleeps and writes nothing but its lock. A commit is seen immediately without
// polling, so between two renewals of the lock there must be no commit to find in the file.
func TestScheduler_Run_NothingDue(t *testing.T) {
	testkit.FileOnly(t)
	runners(t, 1, func(t *testing.T, all []runner) {
		r := all[0]
		for i := range 1000 {
			sch := testkit.Every(fmt.Sprint("schedule ", i), "@every 10h")
			if i%2 == 0 {
				sch.Spec = "0 23 * * *"
			}
			testkit.Register(t, r.DB, sch)
		}
		conn, err := r.SQL().Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		version := func() (v int64) {
			require.NoError(t, conn.QueryRowContext(t.Context(), `PRAGMA data_version`).Scan(&v))
			return v
		}
		stop := r.run(t)
		time.Sleep(time.Second)
		for range 90 {
			before := version()
			time.Sleep(18 * time.Second)
			require.Equal(t, before, version(), "written, with nothing to do")
			time.Sleep(2 * time.Second)
			require.NotEqual(t, before, version(), "the lock is renewed at a third of its minute")
		}
		require.Empty(t, testkit.Recorded(r.Recorder, &r.Recorder.Woke))
		require.Empty(t, r.fires())
		require.NoError(t, stop())
	})
}

// A standby process takes over immediately when the leader stops.
func TestScheduler_Run_Standby(t *testing.T) {
	runners(t, 3, func(t *testing.T, all []runner) {
		began := time.Now()
		testkit.Register(t, all[0].DB, testkit.Every("tea", "@every 1s"))
		var stops []func() error
		for _, r := range all {
			stops = append(stops, r.run(t))
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		led := 0
		for range all {
			for i, stop := range stops {
				if n := len(all[i].fires()); n > 0 && stop != nil {
					require.NoError(t, stop())
					require.GreaterOrEqual(t, n, 8)
					stops[i], led = nil, led+1
				}
			}
			time.Sleep(10 * time.Second)
		}
		require.Equal(t, 3, led, "each has led")
		var total []time.Duration
		for _, r := range all {
			total = append(total, r.at(t, began, 2*time.Second)...)
		}
		slices.Sort(total)
		for i, at := range total {
			require.Equal(t, time.Duration(i+1)*time.Second, at, "a gap, or fired twice: %v", total)
		}
		require.Len(t, total, 30)
		require.EqualValues(t, len(total), testkit.QueryInt(t, all[0].SQL(), testkit.CountQueue, "jobs"))
		owner, _ := testkit.Leader(t, all[0].DB)
		require.Empty(t, owner, "the lock is released at the end")
	})
}

// In production, a leader's lock lasts a minute, no matter how rarely the process polls the file.
func TestScheduler_Run_LockOfAMinute(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
	stop := testkit.Background(t, db.Scheduler().Run)
	var expires int64
	testkit.Eventually(t, testkit.Timeout, "it leads", func() bool {
		_, expires = testkit.Leader(t, db)
		return expires > 0
	})
	require.LessOrEqual(t, expires, time.Now().Add(time.Minute+time.Second).Unix())
	require.NoError(t, stop())
}

// A dead leader is replaced when its lock expires.
func TestScheduler_Run_DeadLeader(t *testing.T) {
	testkit.FileOnly(t)
	runners(t, 2, func(t *testing.T, all []runner) {
		began := time.Now()
		testkit.Register(t, all[0].DB, testkit.Every("tea", "@every 1s"))
		testkit.Exec(t, all[0].DB, `INSERT INTO _honker_locks VALUES ('honker-scheduler', 'dead', ?)`, began.Add(time.Minute).Unix())
		stop := []func() error{all[0].run(t), all[1].run(t)}
		time.Sleep(59 * time.Second)
		require.Empty(t, all[0].fires())
		require.Empty(t, all[1].fires())
		time.Sleep(2 * time.Second)
		a, b := len(all[0].fires()), len(all[1].fires())
		require.True(t, a == 0 || b == 0, "one leads")
		require.GreaterOrEqual(t, a+b, 60, "within a second of the end of the lock, and catches up")
		require.NoError(t, stop[0]())
		require.NoError(t, stop[1]())
	})
}

// If its lock is stolen, Run ends before it fires again.
func TestScheduler_Run_LockStolen(t *testing.T) {
	testkit.FileOnly(t)
	for name, c := range map[string]struct {
		spec string
		rob  func(testing.TB, *honker.DB)
	}{
		"found by the next tick": {"@every 5s", func(t testing.TB, db *honker.DB) { steal(t, db, "honker-scheduler") }},
		"found by the renewal":   {"@every 1h", func(t testing.TB, db *honker.DB) { steal(t, db, "honker-scheduler") }},
		"removed":                {"@every 5s", func(t testing.TB, db *honker.DB) { testkit.Exec(t, db, `DELETE FROM _honker_locks`) }},
		"expired": {"@every 5s", func(t testing.TB, db *honker.DB) {
			testkit.Exec(t, db, `UPDATE _honker_locks SET expires_at = ?`, time.Now().Unix())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runners(t, 1, func(t *testing.T, all []runner) {
				r := all[0]
				testkit.Register(t, r.DB, testkit.Every("tea", c.spec))
				ended := make(chan error, 1)
				go func() { ended <- r.Scheduler().Run(context.Background()) }()
				time.Sleep(7 * time.Second)
				fired := len(r.fires())
				c.rob(t, r.DB)
				thief, until := testkit.Leader(t, r.DB)
				robbed := time.Now()
				err := <-ended
				require.LessOrEqual(t, time.Since(robbed), 20*time.Second)
				require.ErrorIs(t, err, honker.ErrLeadershipLost)
				require.ErrorIs(t, err, honker.ErrLockLost)
				require.ErrorContains(t, err, "honker: run scheduler: leadership lost: lock lost")
				require.Len(t, r.fires(), fired, "fired after the lock was lost")
				require.EqualValues(t, fired, testkit.QueryInt(t, r.SQL(), testkit.CountQueue, "jobs"))
				owner, expires := testkit.Leader(t, r.DB)
				require.Equal(t, []any{thief, until}, []any{owner, expires}, "the row is another's")

				testkit.Exec(t, r.DB, `DELETE FROM _honker_locks`)
				testkit.SetNextFire(t, r.DB, "tea", time.Now())
				stop := r.run(t) // Run may be called again
				time.Sleep(time.Second)
				require.Len(t, r.fires(), fired+1)
				require.NoError(t, stop())
			})
		})
	}
}

// Run ends with its context.
func TestScheduler_Run_Context(t *testing.T) {
	runners(t, 2, func(t *testing.T, all []runner) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, all[0].Scheduler().Run(over))
		for _, idle := range []bool{true, false} {
			if !idle {
				testkit.Register(t, all[0].DB, testkit.Every("tea", "@every 1s"))
			}
			leads, waits := all[0].run(t), all[1].run(t)
			time.Sleep(10 * time.Second)
			began := time.Now()
			require.NoError(t, waits())
			require.NoError(t, leads())
			require.Less(t, time.Since(began), 100*time.Millisecond)
			owner, _ := testkit.Leader(t, all[0].DB)
			require.Empty(t, owner)
		}
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, all[0].Scheduler().Run(limited), "a deadline is as good an end")
	})
}

// Close ends Run and releases its lock.
func TestScheduler_Run_Close(t *testing.T) {
	runners(t, 3, func(t *testing.T, all []runner) {
		testkit.Register(t, all[0].DB, testkit.Every("tea", "@every 1h"))
		ended := make(chan error, 2)
		for _, r := range all[:2] {
			go func() { ended <- r.Scheduler().Run(context.Background()) }()
			time.Sleep(10 * time.Second)
		}
		require.NoError(t, all[1].Close(), "who stands by")
		require.ErrorIs(t, <-ended, honker.ErrClosed)
		owner, _ := testkit.Leader(t, all[2].DB)
		require.NotEmpty(t, owner)
		require.NoError(t, all[0].Close(), "who leads")
		err := <-ended
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorContains(t, err, "honker: run scheduler: ")
		owner, _ = testkit.Leader(t, all[2].DB)
		require.Empty(t, owner)
		require.ErrorIs(t, all[0].Scheduler().Run(context.Background()), honker.ErrClosed)
	})
}

// A failed tick is logged and retried.
func TestScheduler_Run_TickFails(t *testing.T) {
	testkit.FileOnly(t)
	runners(t, 1, func(t *testing.T, all []runner) {
		began, r := time.Now(), all[0]
		testkit.Register(t, r.DB, testkit.Every("tea", "@every 5s"))
		stop := r.run(t)
		time.Sleep(7 * time.Second)
		testkit.Exec(t, r.DB, `CREATE TRIGGER no BEFORE INSERT ON _honker_live BEGIN SELECT RAISE(ABORT, 'no more tea'); END`)
		time.Sleep(10 * time.Second)
		require.InDelta(t, 12, r.log.Times("no more tea"), 2, "in seven seconds, with pauses that grow by a tenth of one")
		testkit.Exec(t, r.DB, `DROP TRIGGER no`)
		time.Sleep(5 * time.Second)
		require.Equal(t, secs(5, 10, 15, 20), r.at(t, began, 9*time.Second))
		require.NoError(t, stop())
	})
}

// Run logs an invalid schedule once, and the other schedules fire.
func TestScheduler_Run_BadSchedule(t *testing.T) {
	testkit.FileOnly(t)
	runners(t, 1, func(t *testing.T, all []runner) {
		began, r := time.Now(), all[0]
		testkit.Register(t, r.DB, testkit.Every("tea", "@every 5s"))
		testkit.Register(t, r.DB, testkit.Every("bad", "@every 5s"))
		spec(t, r.DB, "bad", "nonsense")
		stop := r.run(t)
		time.Sleep(16 * time.Second)
		require.NoError(t, stop())
		require.Equal(t, secs(5, 10, 15), r.at(t, began, blink))
		require.Equal(t, 1, r.log.Times("was paused"))
		require.Zero(t, testkit.GetSchedule(t, r.DB, "bad").Enabled)
	})
}

// Run fires schedules that have been due since the epoch. A program may write 0, or an earlier time, to
// make a schedule fire immediately.
func TestScheduler_Run_SinceEpoch(t *testing.T) {
	for _, at := range []int64{-1, 0, 1} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			runners(t, 1, func(t *testing.T, all []runner) {
				r := all[0]
				testkit.Register(t, r.DB, testkit.Every("now", "@every 1h"))
				testkit.Register(t, r.DB, testkit.Every("tea", "@every 5s"))
				testkit.SetNextFire(t, r.DB, "now", time.Unix(at, 0))
				stop := r.run(t)
				time.Sleep(11 * time.Second)
				require.NoError(t, stop())
				require.Len(t, r.fires(), 64+2)
			})
		})
	}
}

// Run waits for another process that holds the write lock for longer than BusyTimeout. No process can become the
// leader during that time, but that's no reason to give up.
func TestScheduler_Run_SlowWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 30 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	release := testkit.HoldWriter(t, path)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, db.Scheduler().Run(ctx))
	release()
}

// Run and Maintain end when their file is replaced.
func TestScheduler_Run_FileReplaced(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, loop := range map[string]func(context.Context, *honker.DB) error{
		"Run": func(ctx context.Context, db *honker.DB) error { return db.Scheduler().Run(ctx) },
		"Maintain": func(ctx context.Context, db *honker.DB) error {
			return db.Maintain(ctx, &honker.MaintainOptions{Every: 20 * time.Millisecond})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			testkit.Register(t, db, testkit.Every("tea", "@every 1s"))
			ended := make(chan error, 1)
			go func() { ended <- loop(testkit.Context(t, testkit.Timeout), db) }()
			testkit.Eventually(t, testkit.Timeout, "it leads", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_locks`) == 1 })
			testkit.MakeFile(t, path+".new")
			require.NoError(t, os.Rename(path+".new", path))
			require.ErrorIs(t, <-ended, honker.ErrDatabaseReplaced)
			_ = db.Close()
		})
	}
}

// The error texts of Run and Maintain begin with the verb's name.
func TestScheduler_Run_ErrorsNameIt(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for want, loop := range map[string]func(*honker.DB) error{
		"honker: run scheduler: ": func(db *honker.DB) error { return db.Scheduler().Run(context.Background()) },
		"honker: maintain: ": func(db *honker.DB) error {
			return db.Maintain(context.Background(), &honker.MaintainOptions{Every: time.Hour})
		},
	} {
		db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "file.db"), nil)
		require.NoError(t, err)
		steal(t, db, "honker-scheduler") // both stand by because of this
		steal(t, db, "honker-maintenance")
		ended := make(chan error, 1)
		go func() { ended <- loop(db) }()
		testkit.Receive(t, testkit.Listen(t, db, "other"), testkit.Notify(t, db, "other", 1))
		require.NoError(t, db.Close())
		err = <-ended
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorContains(t, err, want)
	}
}
