package honker_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// mature makes a delayed job due.
func mature(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = unixepoch() WHERE id = ?`, id)
}

// leased asserts that at is the last second of a lease of d that started between began and now.
func leased(t testing.TB, began time.Time, d time.Duration, at time.Time) {
	t.Helper()
	up := int64(math.Ceil(d.Seconds()))
	require.GreaterOrEqual(t, at.Unix(), began.Unix()+up)
	require.LessOrEqual(t, at.Unix(), time.Now().Unix()+up)
}

// after asserts that at is the first whole second at least d after a moment between began and now. If d is
// 0, at is the second of that moment.
func after(t testing.TB, began time.Time, d time.Duration, at time.Time) {
	t.Helper()
	up := time.Second - 1
	if d == 0 {
		up = 0
	}
	require.GreaterOrEqual(t, at.Unix(), began.Add(d+up).Unix())
	require.LessOrEqual(t, at.Unix(), time.Now().Add(d+up).Unix())
}

// A job is pending, then processing, then gone.
func TestQueue_Job_States(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[map[string]int](t, nil)
	began := time.Now()
	id := testkit.Enqueue(t, q, map[string]int{"n": 7})
	pending := testkit.GetJob(t, q, id)
	require.Equal(t, honker.StatePending, pending.State)
	require.JSONEq(t, `{"n": 7}`, string(pending.Payload))
	after(t, began, 0, pending.CreatedAt)
	after(t, began, 0, pending.RunAt)
	require.Equal(t, honker.JobInfo{
		ID: id, Queue: "jobs", State: honker.StatePending, Phase: honker.PhaseReady, Payload: pending.Payload, MaxAttempts: 25,
		CreatedAt: pending.CreatedAt, RunAt: pending.RunAt,
	}, *pending)

	job := testkit.ClaimOne(t, q)
	require.Equal(t, map[string]int{"n": 7}, job.Args)
	require.Equal(t, job.JobInfo, *testkit.GetJob(t, q, id), "the claim and Get see the same job")
	require.Equal(t, honker.StateProcessing, job.State)
	require.Equal(t, "w", job.WorkerID)
	require.Equal(t, 1, job.Attempts)
	leased(t, began, 300*time.Second, job.ClaimExpiresAt)

	require.NoError(t, job.Ack(ctx))
	testkit.RequireGone(t, q, id)
}

// Enqueue options are stored with the job.
func TestQueue_Enqueue_Options(t *testing.T) {
	t.Parallel()
	_, _, q := testkit.NewQueue[int](t, &honker.QueueOptions{MaxAttempts: 7})
	for name, c := range map[string]struct {
		opts  []honker.EnqueueOption
		wait  time.Duration // until run_at
		check func(*testing.T, time.Time, *honker.JobInfo)
	}{
		"none": {check: func(t *testing.T, _ time.Time, i *honker.JobInfo) {
			require.Equal(t, 7, i.MaxAttempts, "of the queue")
			require.Zero(t, i.Priority)
			require.Zero(t, i.ExpiresAt)
		}},
		"MaxAttempts wins over the queue's": {opts: []honker.EnqueueOption{honker.MaxAttempts(1)},
			check: func(t *testing.T, _ time.Time, i *honker.JobInfo) { require.Equal(t, 1, i.MaxAttempts) }},
		"Priority": {opts: []honker.EnqueueOption{honker.Priority(-3)},
			check: func(t *testing.T, _ time.Time, i *honker.JobInfo) { require.Equal(t, -3, i.Priority) }},
		"Delay rounds up":               {opts: []honker.EnqueueOption{honker.Delay(1001 * time.Millisecond)}, wait: 1001 * time.Millisecond},
		"the last of two delays wins":   {opts: []honker.EnqueueOption{honker.Delay(time.Hour), honker.Delay(time.Minute)}, wait: time.Minute},
		"a delay of nothing is now":     {opts: []honker.EnqueueOption{honker.Delay(0)}},
		"RunAt in the past is now":      {opts: []honker.EnqueueOption{honker.RunAt(time.Unix(-5, 0))}},
		"RunAt of the zero time is now": {opts: []honker.EnqueueOption{honker.RunAt(time.Time{})}},
		"ExpiresIn rounds up": {opts: []honker.EnqueueOption{honker.ExpiresIn(time.Nanosecond)},
			check: func(t *testing.T, began time.Time, i *honker.JobInfo) { after(t, began, time.Nanosecond, i.ExpiresAt) }},
		"the last of two wins": {opts: []honker.EnqueueOption{honker.Priority(1), honker.Priority(2)},
			check: func(t *testing.T, _ time.Time, i *honker.JobInfo) { require.Equal(t, 2, i.Priority) }},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			one := testkit.Enqueue(t, q, 1, c.opts...)
			many, err := q.EnqueueMany(context.Background(), []int{1, 2}, c.opts...)
			require.NoError(t, err)
			for _, id := range append(many, one) {
				info := testkit.GetJob(t, q, id)
				after(t, began, c.wait, info.RunAt)
				if c.check != nil {
					c.check(t, began, info)
				}
			}
		})
	}
	t.Run("RunAt rounds up", func(t *testing.T) {
		id := testkit.Enqueue(t, q, 1, honker.RunAt(time.Unix(5_000_000_000, 1)))
		require.Equal(t, int64(5_000_000_001), testkit.GetJob(t, q, id).RunAt.Unix())
		id = testkit.Enqueue(t, q, 1, honker.RunAt(time.Unix(5_000_000_000, 0)))
		require.Equal(t, int64(5_000_000_000), testkit.GetJob(t, q, id).RunAt.Unix())
	})
}

// EnqueueMany is atomic and keeps the order.
func TestQueue_EnqueueMany_Atomic(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[any](t, nil)
	args := make([]any, 300) // more than one statement can insert
	for i := range args {
		args[i] = float64(i)
	}
	ids, err := q.EnqueueMany(ctx, args)
	require.NoError(t, err)
	require.IsIncreasing(t, ids)
	jobs := testkit.Claim(t, q, 1000)
	require.Len(t, jobs, 300)
	for i, job := range jobs {
		require.Equal(t, ids[i], job.ID)
		require.Equal(t, args[i], job.Args)
	}

	args[299] = math.NaN()
	_, err = q.EnqueueMany(ctx, args)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "job 300 of 300")
	require.EqualValues(t, 300, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))

	ids, err = q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, ids)
}

// Jobs are claimed by priority, then by run time, then by id.
func TestQueue_Claim_Order(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[string](t, nil)
	for _, j := range []struct {
		args     string
		priority int
		runAt    int // seconds before now
	}{
		{"low", -5, 100}, {"third", 0, 10}, {"fourth", 0, 10}, {"first", math.MaxInt, 0}, {"second", 0, 20},
		{"lowest", math.MinInt, 1000}, {"fifth", 0, 0},
	} {
		id := testkit.Enqueue(t, q, j.args, honker.Priority(j.priority))
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = unixepoch() - ? WHERE id = ?`, j.runAt, id)
	}
	testkit.Enqueue(t, q, "not due", honker.Priority(math.MaxInt), honker.Delay(time.Hour))
	_, err := honker.NewQueue[string](db, "other", nil).Enqueue(ctx, "not ours", honker.Priority(math.MaxInt))
	require.NoError(t, err)

	var got []string
	for n := 1; ; n++ { // claims of 1, 2, 3, … jobs
		jobs := testkit.Claim(t, q, n)
		for _, job := range jobs {
			got = append(got, job.Args)
		}
		if len(jobs) < n {
			break
		}
	}
	require.Equal(t, []string{"first", "second", "third", "fourth", "fifth", "low", "lowest"}, got)
}

// A claim of an empty queue returns no jobs and writes nothing.
func TestQueue_Claim_Empty(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1, honker.Delay(time.Hour))
	unchanged := testkit.WatchFile(t, path)
	jobs, err := q.Claim(context.Background(), "w", 10)
	require.NoError(t, err)
	require.Nil(t, jobs)
	unchanged("an empty claim")
}

// A job is claimed once, however many workers try.
func TestQueue_Claim_Once(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	const workers, jobs = 8, 40
	ids, err := q.EnqueueMany(ctx, make([]int, jobs))
	require.NoError(t, err)
	claimed := make(chan int64, 2*jobs)
	ended := make(chan error, workers)
	for w := range workers {
		go func() {
			for {
				got, err := q.Claim(ctx, fmt.Sprint("w", w), 3)
				for _, j := range got {
					claimed <- j.ID
				}
				if err != nil || len(got) == 0 {
					ended <- err
					return
				}
			}
		}()
	}
	for range workers {
		require.NoError(t, <-ended)
	}
	close(claimed)
	var got []int64
	for id := range claimed {
		got = append(got, id)
	}
	require.ElementsMatch(t, ids, got)
}

// A delayed job is not claimed before its time.
func TestQueue_Claim_Delayed(t *testing.T) {
	t.Parallel()
	_, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1, honker.Delay(time.Hour))
	require.Empty(t, testkit.Claim(t, q, 1))
	mature(t, db, id)
	require.Equal(t, id, testkit.ClaimOne(t, q).ID)
}

// A claim is valid through its last second and lapses in the next.
func TestQueue_Claim_LastSecond(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{Lease: time.Millisecond}) // rounded up to 1 s
	long := honker.NewQueue[int](db, q.Name(), nil)
	testkit.Enqueue(t, q, 1)
	first := testkit.ClaimOne(t, q)
	var again []*honker.Job[int]
	testkit.Eventually(t, testkit.Timeout, "claimed again", func() bool {
		var err error
		again, err = long.Claim(ctx, "other", 1)
		require.NoError(t, err)
		return len(again) > 0
	})
	require.Greater(t, time.Now().Unix(), first.ClaimExpiresAt.Unix())
	require.Equal(t, 2, again[0].Attempts)
	require.ErrorIs(t, first.Ack(ctx), honker.ErrClaimLost)
	require.NoError(t, again[0].Extend(ctx, time.Minute))
	require.NoError(t, again[0].Ack(ctx))
}

// A job without attempts left is dead-lettered when its claim lapses.
func TestQueue_Claim_NoAttemptsLeft(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1, honker.MaxAttempts(2))
	for range 2 {
		require.Equal(t, id, testkit.ClaimOne(t, q).ID)
		require.Empty(t, testkit.Claim(t, q, 1), "the claim is valid, also the last one")
		require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State)
		testkit.ExpireClaim(t, db, id)
	}
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
	dead := testkit.GetJob(t, q, id)
	require.Equal(t, honker.StateDead, dead.State)
	require.Equal(t, "max attempts exceeded", dead.LastError)
	require.Equal(t, 2, dead.Attempts)
	require.NotZero(t, dead.DiedAt)
}

// A sweep dead-letters an expired job, and a claim never returns it.
func TestQueue_Sweep_Expired(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	expire := func(id int64) int64 {
		testkit.Exec(t, db, `UPDATE _honker_live SET expires_at = unixepoch() WHERE id = ?`, id)
		return id
	}
	lapsed := testkit.Enqueue(t, q, 1)
	require.Equal(t, lapsed, testkit.ClaimOne(t, q).ID)
	testkit.ExpireClaim(t, db, expire(lapsed))
	testkit.Enqueue(t, q, 2)
	job := testkit.ClaimOne(t, q) // also dead-letters the lapsed job
	expire(job.ID)
	waiting := expire(testkit.Enqueue(t, q, 3, honker.ExpiresIn(time.Hour)))
	other := honker.NewQueue[int](db, "other", nil)
	foreign := expire(testkit.Enqueue(t, other, 4))
	later := testkit.Enqueue(t, q, 5, honker.Delay(time.Hour), honker.ExpiresIn(time.Hour))

	require.Empty(t, testkit.Claim(t, q, 10))
	swept, err := q.SweepExpired(ctx)
	require.NoError(t, err)
	swept2, err := q.SweepExpired(ctx)
	require.NoError(t, err)
	require.Zero(t, swept2)
	for _, id := range []int64{lapsed, waiting} {
		info := testkit.GetJob(t, q, id)
		require.Equal(t, honker.StateDead, info.State)
		require.Equal(t, "expired", info.LastError)
	}
	require.Equal(t, 1, swept, "the lapsed one had died already")
	require.Equal(t, honker.StatePending, testkit.GetJob(t, other, foreign).State)
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, later).State)
	require.NoError(t, job.Ack(ctx), "what has started may finish")
}

// Sweep dead-letters expired jobs with a lapsed claim.
func TestQueue_Sweep_LapsedClaim(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	testkit.ClaimOne(t, q)
	testkit.ExpireClaim(t, db, id)
	testkit.Exec(t, db, `UPDATE _honker_live SET expires_at = unixepoch() - 1 WHERE id = ?`, id)
	swept, err := q.SweepExpired(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, swept)
	require.Equal(t, "expired", testkit.GetJob(t, q, id).LastError)
}
