package compat_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// jump simulates a clock that jumps by d: it moves all times in the file in the other direction.
func jump(t *testing.T, db *honker.DB, d time.Duration) {
	t.Helper()
	jumpBy(t, db.SQL(), d)
}

func jumpBy(t *testing.T, pool *sql.DB, d time.Duration) {
	t.Helper()
	s, ms := fmt.Sprint(int64(d/time.Second)), fmt.Sprint(d.Milliseconds())
	testkit.ExecAll(t, pool,
		`UPDATE _honker_live SET run_at = run_at - `+s+`, claim_expires_at = claim_expires_at - `+s+`, expires_at = expires_at - `+s,
		`UPDATE _honker_locks SET expires_at = expires_at - `+s,
		`UPDATE _honker_scheduler_tasks SET next_fire_at = next_fire_at - `+s,
		`UPDATE _honkerx_group_claims SET deadline_ms = deadline_ms - `+ms)
}

var jumps = []time.Duration{time.Hour, 24 * time.Hour, -time.Hour, -24 * time.Hour}

// When the clock jumps forward, leases end early and jobs run twice, but none is lost. When it
// jumps backward, leases last longer and jobs run late, but never twice.
func TestWorker_ClockJumps(t *testing.T) {
	for _, d := range jumps {
		t.Run(d.String(), func(t *testing.T) {
			db := honkertest.Open(t, nil)
			ctx := testkit.Context(t, testkit.Timeout)
			q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: 30 * time.Second})
			ids, err := q.EnqueueMany(ctx, []int{1, 2})
			require.NoError(t, err)
			_, err = q.Enqueue(ctx, 3, honker.Delay(10*time.Minute))
			require.NoError(t, err)
			held, err := q.Claim(ctx, "before", 2)
			require.NoError(t, err)
			require.Len(t, held, 2)

			jump(t, db, d)
			again, err := q.Claim(ctx, "after", 10)
			require.NoError(t, err)
			if d > 0 {
				require.Len(t, again, 3, "leases have ended, and what was to come is due")
				require.ErrorIs(t, held[0].Ack(ctx), honker.ErrClaimLost)
				for _, job := range again {
					require.NoError(t, job.Ack(ctx))
				}
				return
			}
			require.Empty(t, again, "nothing is given to a second holder")
			for i, job := range held {
				require.Equal(t, ids[i], job.ID)
				require.NoError(t, job.Ack(ctx), "whoever holds it still does")
			}
			jump(t, db, -d) // the clock is corrected
			jump(t, db, time.Hour)
			late, err := q.Claim(ctx, "after", 10)
			require.NoError(t, err)
			require.Len(t, late, 1, "what was to come is late, and not lost")
		})
	}
}

// A schedule does not fire twice for the same time when the clock jumps.
func TestScheduler_ClockJumps(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	require.NoError(t, db.Scheduler().Register(ctx, honker.Schedule{Name: "s", Queue: "q", Spec: "0 * * * *"}))
	now, fired := time.Now(), map[time.Time]int{}
	tick := func(at time.Time) (n int) {
		fires, err := db.Scheduler().Tick(ctx, at)
		require.NoError(t, err)
		for _, f := range fires {
			fired[f.FireAt]++
		}
		return len(fires)
	}
	require.Equal(t, 5, tick(now.Add(5*time.Hour)))
	for _, back := range []time.Duration{time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour} {
		require.Zero(t, tick(now.Add(5*time.Hour-back)), "%v back", back)
	}
	require.Equal(t, 1, tick(now.Add(6*time.Hour)))
	require.Equal(t, 24, tick(now.Add(30*time.Hour)))
	require.Len(t, fired, 30)
	for at, times := range fired {
		require.Equal(t, 1, times, at)
	}
}

// Group claims and locks survive a clock that is set back, and expire once it has caught up.
func TestGroup_Lock_ClockSetBack(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	s := honker.NewStream[int](db, "s", nil)
	_, err := s.Publish(ctx, 1)
	require.NoError(t, err)
	g := s.Group("g", nil)
	a, err := g.Join(ctx, "a")
	require.NoError(t, err)
	b, err := g.Join(ctx, "b")
	require.NoError(t, err)
	ds, err := a.Claim(ctx, 1)
	require.NoError(t, err)
	testkit.Exec(t, db, `INSERT INTO _honker_locks VALUES ('l', 'another', unixepoch() + 60)`)

	jump(t, db, -time.Hour)
	none, err := b.Claim(context.Background(), 1)
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = db.TryLock(ctx, "l", nil)
	require.ErrorIs(t, err, honker.ErrLockHeld)

	jump(t, db, 2*time.Hour)
	again, err := b.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, again, 1)
	require.ErrorIs(t, ds[0].Ack(ctx), honker.ErrClaimLost)
	l, err := db.TryLock(ctx, "free by now", nil)
	require.NoError(t, err)
	require.NoError(t, l.Unlock(ctx))
}

// When the clock ends a lease early, the handler's ctx is cancelled and the job runs again. When
// the clock extends a lease, the handler is not affected.
func TestWorker_Lease_ClockEnds(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				id := testkit.Enqueue(t, q, 1)
				began := time.Now()
				var told time.Duration
				stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					if job.Attempts > 1 {
						return nil
					}
					time.Sleep(5 * time.Second)
					jump(t, db, d)
					select {
					case <-ctx.Done():
						told = time.Since(began)
						return context.Cause(ctx)
					case <-time.After(time.Minute): // twice the lease
						return nil
					}
				}, &honker.WorkOptions{Workers: 1})
				time.Sleep(2 * time.Minute)
				require.NoError(t, stop())
				testkit.RequireGone(t, q, id)
				if d > 0 {
					require.Equal(t, []honker.Outcome{honker.OutcomeLost, honker.OutcomeAcked}, s.Outcomes())
					require.LessOrEqual(t, told, 15*time.Second, "at the next renewal")
				} else {
					require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, s.Outcomes())
				}
			})
		})
	}
}

// A clock that stands still while timers run is equivalent to a clock that is set back all the
// time. Delayed jobs are late, and the holders of claims and locks keep them.
func TestWorker_ClockStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		db := honkertest.OpenFile(t, path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		others := testkit.OpenPool(t, path) // a separate pool, so that db does not notice the clock changes
		q := honker.NewQueue[string](db, "jobs", nil)
		long := testkit.Enqueue(t, q, "long")
		testkit.Enqueue(t, q, "late", honker.Delay(3*time.Second))
		l, err := db.TryLock(context.Background(), "l", &honker.LockOptions{TTL: 3 * time.Second})
		require.NoError(t, err)
		began, late, tries := time.Now(), atomic.Int64{}, atomic.Int64{}
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[string]) error {
			tries.Add(1)
			if job.Args == "late" {
				late.Store(int64(time.Since(began)))
				return nil
			}
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}, &honker.WorkOptions{Workers: 2, WorkerID: "me", Lease: 3 * time.Second})

		for range 10 {
			time.Sleep(time.Second)
			jumpBy(t, others, -time.Second)
			require.Equal(t, "me", testkit.GetJob(t, q, long).WorkerID)
			require.Zero(t, late.Load())
			_, err := db.TryLock(context.Background(), "l", nil)
			require.ErrorIs(t, err, honker.ErrLockHeld)
		}
		time.Sleep(15 * time.Second)
		require.InDelta(t, 13*time.Second, late.Load(), float64(3*time.Second))
		testkit.RequireGone(t, q, long)
		require.EqualValues(t, 2, tries.Load(), "nothing was done twice")
		require.NoError(t, l.Unlock(context.Background()))
		require.NoError(t, stop())
	})
}

// far lists moments that may break date arithmetic: 32-bit seconds overflow in 2038 (signed) and
// 2106 (unsigned), and 2100 is not a leap year.
var far = []time.Time{
	time.Unix(1<<31, 0),
	time.Date(2100, 3, 1, 0, 0, 0, 0, time.UTC),
	time.Unix(1<<32, 0),
}

// Leases, delays, retention, locks and schedules work across the moments in far.
func TestDB_Clock_FarYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		for _, at := range far {
			time.Sleep(time.Until(at.Add(-5 * time.Second)))
			passes(t, db, fmt.Sprint(at.Year()))
		}
	})
}

// passes creates a row of each kind that has a time, waits ten seconds, and checks that all have
// expired or fired.
func passes(t *testing.T, db *honker.DB, name string) {
	ctx, began := context.Background(), time.Now()
	q := honker.NewQueue[int](db, name, &honker.QueueOptions{Lease: 8 * time.Second})
	lapses := testkit.Enqueue(t, q, 1)
	held := testkit.ClaimOne(t, q)
	comes := testkit.Enqueue(t, q, 2, honker.Delay(9*time.Second))
	s := honker.NewStream[int](db, name, nil)
	_, err := s.Publish(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, s.SetRetention(ctx, honker.Retention{MaxAge: 8 * time.Second}))
	m, err := s.Group("g", &honker.GroupOptions{Lease: 8 * time.Second}).Join(ctx, "m")
	require.NoError(t, err)
	ds, err := m.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.Equal(t, began.Unix(), ds[0].CreatedAt.Unix())
	l, err := db.TryLock(ctx, name, &honker.LockOptions{TTL: 3 * time.Second})
	require.NoError(t, err)
	testkit.Register(t, db, testkit.Every(name, "@every 7s"))
	require.Empty(t, testkit.Tick(t, db, time.Now()))
	require.Empty(t, testkit.Claim(t, q, 2))

	time.Sleep(10 * time.Second)
	again := testkit.Claim(t, q, 2)
	require.Len(t, again, 2)
	require.Equal(t, []int64{lapses, comes}, []int64{again[0].ID, again[1].ID})
	require.ErrorIs(t, held.Ack(ctx), honker.ErrClaimLost)
	require.ErrorIs(t, ds[0].Ack(ctx), honker.ErrClaimLost)
	ds, err = m.Claim(ctx, 1)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.NoError(t, ds[0].Ack(ctx))
	stats, err := s.Compact(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Deleted)
	require.NoError(t, l.Unlock(ctx), "it was renewed")
	fires := testkit.Tick(t, db, time.Now())
	require.Len(t, fires, 1)
	require.Equal(t, began.Add(7*time.Second).Unix(), fires[0].FireAt.Unix())
	_, end, err := db.RateLimit(name, 1, time.Hour).Remaining(ctx)
	require.NoError(t, err)
	require.True(t, end.After(time.Now()))
	_, err = db.Scheduler().Unregister(ctx, name)
	require.NoError(t, err)
}
