package honker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// jump sets the clock of everybody who has not been here forward by d, or back: seen from
// them, all times in the file have moved the other way.
func jump(t *testing.T, db *honker.DB, d time.Duration) {
	t.Helper()
	s, ms := fmt.Sprint(int64(d/time.Second)), fmt.Sprint(d.Milliseconds())
	perform(t, db.SQL(),
		`UPDATE _honker_live SET run_at = run_at - `+s+`, claim_expires_at = claim_expires_at - `+s+`, expires_at = expires_at - `+s,
		`UPDATE _honker_locks SET expires_at = expires_at - `+s,
		`UPDATE _honker_scheduler_tasks SET next_fire_at = next_fire_at - `+s,
		`UPDATE _honkerx_group_claims SET deadline_ms = deadline_ms - `+ms)
}

var jumps = []time.Duration{time.Hour, 24 * time.Hour, -time.Hour, -24 * time.Hour}

// Forward, leases end early: work is done twice, and never lost. Backward, they last
// longer: work is late, and never done twice.
func TestClockThatJumpsMakesWorkEarlyOrLateAndNeitherLosesNorSplitsIt(t *testing.T) {
	for _, d := range jumps {
		t.Run(d.String(), func(t *testing.T) {
			db := honkertest.Open(t, nil)
			ctx := bounded(t, patient)
			q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Visibility: 30 * time.Second})
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
			jump(t, db, -d) // and when the clock is right again
			jump(t, db, time.Hour)
			late, err := q.Claim(ctx, "after", 10)
			require.NoError(t, err)
			require.Len(t, late, 1, "what was to come is late, and not lost")
		})
	}
}

func TestScheduleFiresNoTimeTwiceWhenTheClockJumps(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := bounded(t, patient)
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

func TestGroupAndLockOutlastAClockThatIsSetBack(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := bounded(t, patient)
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
	alter(t, db, `INSERT INTO _honker_locks VALUES ('l', 'another', unixepoch() + 60)`)

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

// What waits comes at its second, and what is held is held, also where the clock passes the
// last second of 32 bits, and a century's February, which has no leap day.
func TestNothingIsEarlyLateOrLostAtTheEdgesOfTheClock(t *testing.T) {
	for name, edge := range map[string]time.Time{
		"32 bits with a sign": time.Unix(1<<31, 0),
		"a year of no leap":   time.Date(2100, 3, 1, 0, 0, 0, 0, time.UTC),
		"32 bits":             time.Unix(1<<32, 0),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
				time.Sleep(time.Until(edge.Add(-10 * time.Second)))
				ctx := context.Background()
				q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Visibility: 20 * time.Second})
				add(t, q, 1)
				job := holdOne(t, q)
				later := add(t, q, 2, honker.Delay(15*time.Second))
				register(t, db, honker.Schedule{Name: "s", Queue: "fired", Spec: "@every 5s"})
				l, err := db.TryLock(ctx, "l", &honker.LockOptions{TTL: 30 * time.Second})
				require.NoError(t, err)
				for at := range 15 { // seconds: 10 of them before the edge
					require.Empty(t, hold(t, q, 10), "at %d", at)
					time.Sleep(time.Second)
				}
				require.Equal(t, later, holdOne(t, q).ID)
				require.NoError(t, job.Ack(ctx), "it is valid for 20 seconds")
				fires, err := db.Scheduler().Tick(ctx, now())
				require.NoError(t, err)
				require.Len(t, fires, 3)
				_, err = db.TryLock(ctx, "l", nil)
				require.ErrorIs(t, err, honker.ErrLockHeld)
				require.NoError(t, l.Unlock(ctx))
				time.Sleep(21 * time.Second)
				require.Equal(t, later, holdOne(t, q).ID, "its claim has lapsed")
			})
		})
	}
}

// A handler whose lease the clock has ended is told so, and its job runs again; one whose
// lease the clock has made longer knows nothing of it.
func TestHandlerIsToldWhenTheClockHasEndedItsLease(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, db *honker.DB, s *seen) {
				q := honker.NewQueue[int](db, "jobs", nil)
				id := add(t, q, 1)
				began := time.Now()
				var told time.Duration
				stop := working(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					if job.Attempts > 1 {
						return nil
					}
					time.Sleep(5 * time.Second)
					jump(t, db, d)
					select {
					case <-ctx.Done():
						told = time.Since(began)
						return context.Cause(ctx)
					case <-time.After(time.Minute): // two leases
						return nil
					}
				}, &honker.WorkOptions{Workers: 1})
				time.Sleep(2 * time.Minute)
				require.NoError(t, stop())
				gone(t, q, id)
				if d > 0 {
					require.Equal(t, []honker.Outcome{honker.Lost, honker.Acked}, s.outcomes())
					require.LessOrEqual(t, told, 15*time.Second, "at the next renewal")
				} else {
					require.Equal(t, []honker.Outcome{honker.Acked}, s.outcomes())
				}
			})
		})
	}
}
