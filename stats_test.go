package honker_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func stats[T any](t testing.TB, q *honker.Queue[T]) honker.QueueStats {
	t.Helper()
	s, err := q.Stats(context.Background())
	require.NoError(t, err)
	return s
}

// claimedJobs returns the number of claimed jobs in a queue.
func claimedJobs[T any](t testing.TB, q *honker.Queue[T]) int64 {
	t.Helper()
	s := stats(t, q)
	return s.Running.N + s.Lapsed.N
}

// liveJobs returns the number of jobs in the given queues, excluding dead letters.
func liveJobs[T any](t testing.TB, queues ...*honker.Queue[T]) (n int64) {
	t.Helper()
	for _, q := range queues {
		s := stats(t, q)
		n += s.Ready.N + s.Scheduled.N + s.Running.N + s.Lapsed.N + s.Held.N + s.Expired.N
	}
	return n
}

// String formats a count for people and marks lower bounds.
func TestCount_String(t *testing.T) {
	for want, c := range map[string]honker.Count{
		"0": {}, "999": {N: 999}, "1,000": {N: 1000}, "10,000+": {N: 10_000, More: true},
		"1,234,567": {N: 1_234_567}, "-999": {N: -999}, "-1,000": {N: -1000},
	} {
		require.Equal(t, want, c.String())
	}
}

// A job passes through its phases. Get, DB.Job and Stats agree in each phase.
func TestQueue_Stats_Phases(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 3, Lease: time.Minute})
		start := time.Now()
		id := testkit.Enqueue(t, q, 17, honker.Delay(time.Minute))
		stats := requirePhase(t, db, q, id, honker.PhaseScheduled)
		require.True(t, stats.OldestReady.IsZero())
		require.WithinDuration(t, start.Add(time.Minute), stats.NextAt, time.Second)

		time.Sleep(2 * time.Minute)
		stats = requirePhase(t, db, q, id, honker.PhaseReady)
		require.WithinDuration(t, start.Add(time.Minute), stats.OldestReady, time.Second)
		require.True(t, stats.NextAt.IsZero())
		require.True(t, time.Now().Equal(stats.AsOf))

		job := testkit.ClaimOne(t, q)
		require.Equal(t, honker.PhaseRunning, job.Phase)
		requirePhase(t, db, q, id, honker.PhaseRunning)
		time.Sleep(2 * time.Minute)
		requirePhase(t, db, q, id, honker.PhaseLapsed)

		require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, testkit.ErrCause))
		requirePhase(t, db, q, id, honker.PhaseDead)

		late := testkit.Enqueue(t, q, 18, honker.ExpiresIn(time.Second))
		time.Sleep(time.Minute)
		info, err := db.Job(ctx, late)
		require.NoError(t, err)
		require.Equal(t, honker.PhaseExpired, info.Phase)
		require.Equal(t, honker.StatePending, info.State)
	})
}

// requirePhase checks that every listing shows the queue's only job in phase want.
func requirePhase(t *testing.T, db *honker.DB, q *honker.Queue[int], id int64, want honker.Phase) honker.QueueStats {
	t.Helper()
	require.Equal(t, want, testkit.GetJob(t, q, id).Phase)
	info, err := db.Job(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, testkit.GetJob(t, q, id), info)
	args, err := honker.Args[int](info)
	require.NoError(t, err)
	require.Equal(t, 17, args)
	s, err := q.Stats(context.Background())
	require.NoError(t, err)
	require.Equal(t, "jobs", s.Queue)
	counts := map[honker.Phase]honker.Count{
		honker.PhaseReady: s.Ready, honker.PhaseScheduled: s.Scheduled, honker.PhaseRunning: s.Running, honker.PhaseLapsed: s.Lapsed,
		honker.PhaseHeld: s.Held, honker.PhaseExpired: s.Expired, honker.PhaseDead: s.Dead,
	}
	for phase, count := range counts {
		if phase == want {
			require.EqualValues(t, 1, count.N, phase)
		} else {
			require.Zero(t, count, phase)
		}
	}
	return s
}

// A job that is waiting for another job is in the held phase even though its state is pending.
func TestQueue_Stats_Held(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	key := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
	testkit.Enqueue(t, q, 1, key)
	testkit.ClaimOne(t, q)
	id := testkit.Enqueue(t, q, 2, key)

	info, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.Equal(t, honker.PhaseHeld, info.Phase)
	require.Equal(t, honker.StatePending, info.State)
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Held.N)
	require.EqualValues(t, 1, s.Running.N)
	require.Zero(t, s.Ready)
}

// Job returns ErrNotFound for a deleted job, and an error for invalid input.
func TestDB_Job_Errors(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	_, err := db.Job(ctx, 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.ErrorContains(t, err, "read job 1")

	_, err = honker.Args[int](nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	id := testkit.Enqueue(t, q, 17)
	info, err := db.Job(ctx, id)
	require.NoError(t, err)
	_, err = honker.Args[string](info)
	require.ErrorContains(t, err, "cannot decode payload")

	_, err = honker.NewQueue[int](db, "", nil).Stats(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// Large counts are cached for all callers, for a hundred times as long as they took to compute. Times and
// pauses are not cached.
func TestQueue_Stats_Budget(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, testkit.Numbers(12_000)+`INSERT INTO _honker_live (queue, payload, run_at) SELECT 'jobs', '1', 1000 FROM some`)
	first, err := q.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 12_000, first.Ready.N)
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 500 WHERE id = 1`)
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 4000000000 WHERE id = 2`)
	_, err = q.Pause(ctx, &honker.PauseOptions{Reason: "deploy", By: "anna", Until: time.Unix(5_000_000_000, 0)})
	require.NoError(t, err)
	second, err := honker.NewQueue[string](db, "jobs", nil).Stats(ctx)
	require.NoError(t, err)
	if first.AsOf.Equal(second.AsOf) { // the cache nearly always applies, because the counts take a millisecond or two
		require.Equal(t, first.Ready, second.Ready)
	}
	require.Equal(t, int64(500), second.OldestReady.Unix())
	require.Equal(t, int64(5_000_000_000), second.NextAt.Unix(), "at the end of the pause")
	require.Equal(t, "deploy", second.Pause.Reason)
	require.Equal(t, "anna", second.Pause.By)
	require.Equal(t, int64(5_000_000_000), second.Pause.Until.Unix())
	require.WithinDuration(t, time.Now(), second.Pause.Since, testkit.Timeout)
}

// Small numbers of jobs are counted again each time, even in a transaction that has enqueued some of them.
func TestQueue_Stats_SmallIsFresh(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	for n := range 20 {
		testkit.Enqueue(t, q, n)
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.EqualValues(t, n+1, s.Ready.N)
	}
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 20)
		require.NoError(t, err)
		s, err := q.Stats(ctx)
		require.EqualValues(t, 21, s.Ready.N)
		return err
	}))
}

// Counting stops at the limit, and such a count is marked as a lower bound.
func TestQueue_Stats_CountLimit(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{CountLimit: 10})
	q := honker.NewQueue[int](db, "jobs", nil)
	for n := range 11 {
		s, err := q.Stats(context.Background())
		require.NoError(t, err)
		require.Equal(t, honker.Count{N: int64(n)}, s.Ready)
		testkit.Enqueue(t, q, n)
	}
	s, err := q.Stats(context.Background())
	require.NoError(t, err)
	require.Equal(t, "10+", s.Ready.String())
	_, err = honker.Open(context.Background(), t.TempDir()+"/app.db", &honker.Options{CountLimit: -1})
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A pause does not affect a queue's counts: ready jobs are those that a claim could take after the pause.
func TestQueue_Stats_Paused(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
	testkit.Enqueue(t, q, 3, honker.ExpiresIn(time.Hour))
	_, err := q.Pause(ctx, nil)
	require.NoError(t, err)
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 2}, s.Ready)
	require.Equal(t, honker.Count{N: 1}, s.Scheduled)
	require.False(t, s.OldestReady.IsZero())
	require.True(t, s.NextAt.IsZero(), "a pause without an end")
	require.Equal(t, &honker.Pause{Since: s.Pause.Since}, s.Pause)
	next, err := q.NextClaimAt(ctx)
	require.NoError(t, err)
	require.True(t, next.Equal(s.NextAt))
	require.NoError(t, db.Check(ctx))
}
