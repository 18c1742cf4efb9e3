package honkertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A foreign worker and a Go worker share the same claims, leases and claim order.
func TestForeign(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		python := honkertest.Foreign(t, db, "jobs")
		testkit.Enqueue(t, q, 1)
		testkit.Enqueue(t, q, 2, honker.Priority(1))
		testkit.Enqueue(t, q, 3, honker.Delay(time.Hour))
		testkit.Enqueue(t, honker.NewQueue[int](db, "others", nil), 4)
		testkit.Enqueue(t, q, 5, honker.ExpiresIn(time.Second))

		jobs := python.Claim(1, time.Minute)
		require.Equal(t, []int64{2}, ids(jobs), "in honker's order")
		require.Equal(t, "2", string(jobs[0].Payload))
		require.Equal(t, 1, jobs[0].Attempts)
		require.Equal(t, []int64{1}, ids(python.Claim(1, time.Minute)))
		require.Equal(t, "foreign", testkit.GetJob(t, q, 1).WorkerID)
		require.Equal(t, []int64{5}, ids(python.Claim(9, time.Minute)))
		require.True(t, python.Ack(5))
		require.False(t, python.Ack(5))
		require.True(t, python.Ack(2))
		testkit.RequireGone(t, q, 2)

		require.True(t, python.Extend(1, 2*time.Minute))
		time.Sleep(2 * time.Minute)
		require.Empty(t, testkit.Claim(t, q, 1), "valid through its last second")
		require.True(t, python.Extend(1, 0))
		time.Sleep(time.Second)
		require.False(t, python.Extend(1, time.Minute))
		require.EqualValues(t, 1, testkit.ClaimOne(t, q).ID, "its lease has ended")
		require.False(t, python.Ack(1))
		require.False(t, python.Fail(1, "late"))
		require.False(t, python.Retry(1, 0, "late"))
	})
}

func ids(jobs []honkertest.ForeignJob) (all []int64) {
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	return all
}

// A job from another binding has 3 attempts and is dead after that.
func TestForeign_Attempts(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[string](db, "jobs", nil)
		python := honkertest.Foreign(t, db, "jobs")
		id := python.Enqueue(`"tea"`)
		require.Equal(t, 3, honkertest.RequireEnqueued(t, q, "tea").MaxAttempts)
		for attempt := range 3 {
			require.Len(t, python.Claim(1, time.Minute), 1)
			require.True(t, python.Retry(id, time.Minute, "attempt"))
			if attempt < 2 {
				require.Empty(t, python.Claim(1, time.Minute))
				require.Equal(t, time.Now().Add(time.Minute), testkit.GetJob(t, q, id).RunAt)
				time.Sleep(time.Minute)
			}
		}
		job := testkit.GetJob(t, q, id)
		require.Equal(t, honker.StateDead, job.State)
		require.Equal(t, "attempt", job.LastError)
		require.Equal(t, time.Now(), job.DiedAt)

		lapsed := testkit.Enqueue(t, q, "lapses", honker.MaxAttempts(1))
		require.Len(t, python.Claim(1, time.Second), 1)
		time.Sleep(2 * time.Second)
		require.Empty(t, python.Claim(1, time.Second))
		require.Equal(t, "max attempts exceeded", testkit.GetJob(t, q, lapsed).LastError)
		failed := python.Enqueue(`x`)
		require.Len(t, python.Claim(1, time.Second), 1)
		require.True(t, python.Fail(failed, "no JSON"))
		require.Equal(t, "no JSON", testkit.GetJob(t, q, failed).LastError)
	})
}

// A pause stops a foreign worker through its trigger, and an ack releases the unique key.
func TestForeign_Rules(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	python := honkertest.Foreign(t, db, "jobs")
	testkit.Enqueue(t, q, 1, honker.Unique("k", nil))
	_, err := q.Pause(ctx, &honker.PauseOptions{Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Empty(t, python.Claim(1, time.Minute))
	_, err = q.Resume(ctx)
	require.NoError(t, err)
	require.Len(t, python.Claim(1, time.Minute), 1)
	require.True(t, python.Ack(1))
	require.EqualValues(t, 2, testkit.Enqueue(t, q, 1, honker.Unique("k", nil)))
	testkit.Exec(t, db, `CREATE TRIGGER no BEFORE INSERT ON _honker_live BEGIN SELECT RAISE(ABORT, 'no more'); END`)
	requireFails(t, func(t testing.TB) { honkertest.Foreign(t, db, "jobs").Enqueue(`1`) }, `foreign worker of "jobs"`, "no more")
}

// In a bubble, time-dependent rules do not stop a foreign worker, because their triggers use
// SQLite's clock, which is later than any time in the bubble. All other rules still apply. Claims
// made in Go use the bubble's clock. If such a claim reaches a job whose key is paused or
// rate-limited, it postpones the job, for foreign workers as well.
func TestForeign_Rules_Bubble(t *testing.T) {
	testkit.FileOnly(t)
	limits := func(l honker.Limits) func(*testing.T, *honker.Queue[int]) {
		return func(t *testing.T, q *honker.Queue[int]) {
			require.NoError(t, q.SetLimits(t.Context(), l))
			require.Len(t, testkit.Claim(t, q, 1), 1)
		}
	}
	pause := func(key string, d time.Duration) func(*testing.T, *honker.Queue[int]) {
		return func(t *testing.T, q *honker.Queue[int]) {
			opts := &honker.PauseOptions{Key: key}
			if d > 0 {
				opts.Until = time.Now().Add(d)
			}
			_, err := q.Pause(t.Context(), opts)
			require.NoError(t, err)
		}
	}
	rate := honker.Rate{N: 1, Per: time.Hour}
	for name, c := range map[string]struct {
		begin           func(*testing.T, *honker.Queue[int])
		binds, bindsMet bool // met: a claim made in Go has reached the job
	}{
		"Pause":            {pause("", 0), true, true},
		"Pause, Until":     {pause("", time.Hour), false, false},
		"Pause.Key":        {pause("k", 0), true, true},
		"Pause.Key, Until": {pause("k", time.Hour), false, true},
		"Running":          {limits(honker.Limits{Running: 1}), true, true},
		"PerKey":           {limits(honker.Limits{PerKey: 1}), true, true},
		"InOrder":          {limits(honker.Limits{InOrder: true}), true, true},
		"Rate":             {limits(honker.Limits{Rate: rate}), false, false},
		"KeyRate":          {limits(honker.Limits{KeyRate: rate}), false, true},
	} {
		for met, binds := range map[bool]bool{false: c.binds, true: c.bindsMet} {
			t.Run(fmt.Sprint(name, ", met: ", met), func(t *testing.T) {
				t.Parallel()
				honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
					q := honker.NewQueue[int](db, "jobs", nil)
					testkit.Enqueue(t, q, 1, honker.Key("k"))
					testkit.Enqueue(t, q, 2, honker.Key("k"))
					c.begin(t, q)
					if met {
						require.Empty(t, testkit.Claim(t, q, 1))
					}
					require.Equal(t, binds, len(honkertest.Foreign(t, db, "jobs").Claim(1, time.Minute)) == 0)
				})
			})
		}
	}
}

func ExampleForeign() {
	_ = func(t *testing.T) { // func TestReport_FromPython(t *testing.T) {
		db := honkertest.Open(t, nil)
		honkertest.Foreign(t, db, "reports").Enqueue(`{"month": "2026-03"}`)
		reports := honker.NewQueue[struct{ Month string }](db, "reports", nil)
		honkertest.RequireEnqueued(t, reports, struct{ Month string }{"2026-03"})
	}
}
