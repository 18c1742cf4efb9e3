package honkertest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A foreign worker shares a queue with Go's: claims, leases, retries and dead letters mean the same.
func TestForeign(t *testing.T) {
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

// Jobs of another binding have 3 attempts, and then they are dead.
func TestForeign_Attempts(t *testing.T) {
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

// A pause binds it by the trigger in the file, and unique keys are freed by its acks.
func TestForeign_Rules(t *testing.T) {
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

// In a bubble a pause with an end does not bind it, since the trigger asks SQLite for the time; one without an
// end does, and Go's own claims decide by the bubble's time.
func TestForeign_Pause_Bubble(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		python := honkertest.Foreign(t, db, "jobs")
		_, err := q.Pause(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, python.Claim(1, time.Minute))
		_, err = q.Pause(t.Context(), &honker.PauseOptions{Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Empty(t, testkit.Claim(t, q, 1))
		require.Len(t, python.Claim(1, time.Minute), 1)
	})
}

func ExampleForeign() {
	_ = func(t *testing.T) { // func TestReport_FromPython(t *testing.T) {
		db := honkertest.Open(t, nil)
		honkertest.Foreign(t, db, "reports").Enqueue(`{"month": "2026-03"}`)
		reports := honker.NewQueue[struct{ Month string }](db, "reports", nil)
		honkertest.RequireEnqueued(t, reports, struct{ Month string }{"2026-03"})
	}
}
