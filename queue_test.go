package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// leased asserts that at is the last second of a lease of d that started between began and now.
func leased(t testing.TB, began time.Time, d time.Duration, at time.Time) {
	t.Helper()
	up := int64(math.Ceil(d.Seconds()))
	first := began.Unix() + up
	if !testkit.AsFile("times") {
		first = began.Add(d).Unix()
	}
	require.GreaterOrEqual(t, at.Unix(), first)
	require.LessOrEqual(t, at.Unix(), time.Now().Unix()+up)
}

// after checks that at is the first whole second at least d after a moment between began and now. If d is
// 0, at must be that moment's second.
func after(t testing.TB, began time.Time, d time.Duration, at time.Time) {
	t.Helper()
	up := time.Second - 1
	if d == 0 || !testkit.AsFile("times") {
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
		testkit.Differs(t, "times")
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
	testkit.FileOnly(t)
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

// A claim on an empty queue returns no jobs and writes nothing.
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
	testkit.MakeDue(t, db, id)
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
	if testkit.AsFile("times") {
		require.Greater(t, time.Now().Unix(), first.ClaimExpiresAt.Unix())
	}
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
	testkit.FileOnly(t)
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
	testkit.FileOnly(t)
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

// A claim of many jobs is bounded, so that other writers do not wait long: by size for large jobs, and at
// a thousand small jobs. The next claims continue in job order and skip none.
func TestQueue_Claim_Bounded(t *testing.T) {
	for name, c := range map[string]struct {
		jobs, bytes int
		want        []int // number of jobs in each claim
	}{
		"small": {300, 2, []int{300, 0}},
		"large": {100, 64 << 10, []int{32, 32, 32, 4, 0}},
		"some":  {200, 8 << 10, []int{128, 72, 0}},
		"many":  {1100, 2, []int{1000, 100, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, q := testkit.NewQueue[string](t, nil)
			ids, err := q.EnqueueMany(ctx, slices.Repeat([]string{strings.Repeat("x", c.bytes-2)}, c.jobs))
			require.NoError(t, err)
			var claimed []int64
			for _, want := range c.want {
				jobs := testkit.Claim(t, q, math.MaxInt)
				require.Equal(t, want, len(jobs))
				for _, job := range jobs {
					claimed = append(claimed, job.ID)
				}
			}
			require.Equal(t, ids, claimed)
		})
	}
}

// A large job among small jobs ends a claim early, without requiring a statement for each job.
func TestQueue_Claim_OneLarge(t *testing.T) {
	ctx, _, q := testkit.NewQueue[string](t, nil)
	payloads := slices.Repeat([]string{""}, 100)
	payloads[7] = strings.Repeat("x", 1<<19)
	_, err := q.EnqueueMany(ctx, payloads)
	require.NoError(t, err)
	require.Equal(t, 32, len(testkit.Claim(t, q, 100)))
	require.Equal(t, 68, len(testkit.Claim(t, q, 100)))
}

// Get returns only its own queue's jobs.
func TestQueue_Get_OwnJobsOnly(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	other := honker.NewQueue[int](db, "other", nil)
	id := testkit.Enqueue(t, q, 1)
	testkit.RequireGone(t, other, id)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, nil))
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
	testkit.RequireGone(t, other, id)
	testkit.RequireGone(t, q, id+1)
	testkit.RequireGone(t, q, -1)
}

// Cancel removes a pending or running job from its own queue only.
func TestQueue_Cancel_OwnQueueOnly(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	other := honker.NewQueue[int](db, "other", nil)
	cancel := func(q *honker.Queue[int], id int64) bool {
		cancelled, err := q.Cancel(ctx, id)
		require.NoError(t, err)
		return cancelled
	}
	waiting := testkit.Enqueue(t, q, 1)
	require.False(t, cancel(other, waiting))
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, waiting).State)
	require.True(t, cancel(q, waiting))
	require.False(t, cancel(q, waiting), "again")
	testkit.RequireGone(t, q, waiting)

	testkit.Enqueue(t, q, 2)
	job := testkit.ClaimOne(t, q)
	require.False(t, cancel(other, job.ID))
	require.True(t, cancel(q, job.ID))
	for name, settle := range settles(job) {
		require.ErrorIs(t, settle(ctx), honker.ErrClaimLost, name)
	}
	testkit.RequireGone(t, q, job.ID)

	testkit.Enqueue(t, q, 3)
	dead := testkit.ClaimOne(t, q)
	require.NoError(t, dead.Reject(ctx, nil))
	require.False(t, cancel(q, dead.ID))
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, dead.ID).State)
}

// NextClaimAt returns the second at which a job becomes claimable.
func TestQueue_NextClaimAt(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	next := func() time.Time {
		at, err := q.NextClaimAt(ctx)
		require.NoError(t, err)
		return at
	}
	require.Zero(t, next(), "an empty queue")
	id := testkit.Enqueue(t, q, 1)
	require.Zero(t, next(), "due already")

	hour := testkit.GetJob(t, q, testkit.Enqueue(t, q, 2, honker.Delay(time.Hour), honker.Priority(9))).RunAt
	testkit.Enqueue(t, honker.NewQueue[int](db, "other", nil), 3, honker.Delay(time.Minute))
	require.Equal(t, hour, next())

	job := testkit.ClaimOne(t, q)
	require.Equal(t, job.ClaimExpiresAt.Add(time.Second), next(), "a claim is valid through its last second")
	testkit.Exec(t, db, `UPDATE _honker_live SET max_attempts = attempts WHERE id = ?`, id)
	require.Equal(t, hour, next(), "a last attempt will not be claimed again")
	testkit.Exec(t, db, `UPDATE _honker_live SET max_attempts = 3, expires_at = unixepoch() - 1 WHERE id = ?`, id)
	require.Equal(t, hour, next(), "nor an expired job")
	testkit.Exec(t, db, `UPDATE _honker_live SET expires_at = NULL WHERE id = ?`, id)
	testkit.ExpireClaim(t, db, id)
	require.Equal(t, hour, next(), "lapsed is due")
}

// AckMany acks the jobs that the worker holds and does not touch the others.
func TestQueue_AckMany_HeldOnly(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 6))
	require.NoError(t, err)
	held := testkit.Claim(t, q, 4)
	testkit.ExpireClaim(t, db, ids[3])
	others, err := honker.NewQueue[int](db, "other", nil).EnqueueMany(ctx, make([]int, 1))
	require.NoError(t, err)
	_, err = honker.NewQueue[int](db, "other", nil).Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.NoError(t, held[2].Snooze(ctx, time.Hour))

	n, err := q.AckMany(ctx, "somebody", ids)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = q.AckMany(ctx, "w", append([]int64{ids[0], others[0], 99, -1}, ids...))
	require.NoError(t, err)
	require.Equal(t, 2, n, "not those snoozed, lapsed, waiting, unknown, of another queue, or twice")
	testkit.RequireGone(t, q, ids[0])
	testkit.RequireGone(t, q, ids[1])
	require.EqualValues(t, 5, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	n, err = q.AckMany(ctx, "w", nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

// Jobs waits for jobs and ends with its context.
func TestQueue_Jobs_EndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	loop, stop := context.WithCancel(ctx)
	got := make(chan int)
	ended := make(chan error, 1)
	go func() {
		defer close(got)
		for job, err := range q.Jobs(loop, "w") {
			if err != nil || job == nil {
				ended <- err
				return
			}
			if err := job.Ack(ctx); err != nil {
				ended <- err
				return
			}
			got <- job.Args
		}
		ended <- nil
	}()
	for i := range 5 { // waits for each job
		testkit.Enqueue(t, q, i)
		require.Equal(t, i, <-got)
	}
	began := time.Now()
	testkit.Enqueue(t, q, 5, honker.Delay(time.Second)) // no commit occurs when it becomes due
	require.Equal(t, 5, <-got)
	t.Logf("due in a second, and claimed after %v", time.Since(began))
	stop()
	require.NoError(t, <-ended)
}

// Breaking out of a loop over Jobs leaves no other job claimed.
func TestQueue_Jobs_Break(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	_, err := q.EnqueueMany(ctx, []int{1, 2, 3})
	require.NoError(t, err)
	for job, err := range q.Jobs(ctx, "w") {
		require.NoError(t, err)
		require.Equal(t, 1, job.Args)
		break
	}
	require.EqualValues(t, 1, claimedJobs(t, q))
}

// Jobs yields an error once, as its last value.
func TestQueue_Jobs_ErrorLast(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	testkit.Exec(t, db, `ALTER TABLE _honker_live RENAME TO away`)
	defer testkit.Exec(t, db, `ALTER TABLE away RENAME TO _honker_live`)
	steps := 0
	for job, err := range q.Jobs(ctx, "w") {
		steps++
		require.Nil(t, job)
		require.ErrorContains(t, err, `honker: claim "jobs"`)
	}
	require.Equal(t, 1, steps)
}

// A job whose payload does not decode is dead-lettered, and the rest of the batch is returned.
func TestQueue_Claim_Undecodable(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	text := honker.NewQueue[json.RawMessage](db, "jobs", nil)
	good := []int64{testkit.Enqueue(t, q, 1), 0}
	bad := testkit.Enqueue(t, text, json.RawMessage(`{"not": "a number"}`))
	good[1] = testkit.Enqueue(t, q, 2)
	jobs := testkit.Claim(t, q, 10)
	require.Len(t, jobs, 2)
	require.Equal(t, good, []int64{jobs[0].ID, jobs[1].ID})
	dead := testkit.GetJob(t, q, bad)
	require.Equal(t, honker.StateDead, dead.State)
	require.Contains(t, dead.LastError, "cannot decode payload")
	require.Contains(t, dead.LastError, "cannot unmarshal object")
	require.Equal(t, `{"not": "a number"}`, string(dead.Payload))

	testkit.Enqueue(t, text, json.RawMessage(`[]`))
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Nil(t, jobs, "all of them were bad")
}

// A raw payload passes through byte for byte.
func TestQueue_Payload_Raw(t *testing.T) {
	t.Parallel()
	_, _, q := testkit.NewQueue[json.RawMessage](t, nil)
	for _, text := range []string{`null`, ` {"b" : 1, "a":[1.0, 1e2, "<&>\u00fc ü"] } `, `"x"`, `12345678901234567890123`} {
		id := testkit.Enqueue(t, q, json.RawMessage(text))
		job := testkit.ClaimOne(t, q)
		require.Equal(t, id, job.ID)
		require.Equal(t, text, string(job.Payload))
		require.Equal(t, strings.TrimSpace(text), string(job.Args), "encoding/json drops space around a value")
	}
	testkit.Enqueue(t, q, nil)
	require.Equal(t, `null`, string(testkit.ClaimOne(t, q).Args))
}

// Payloads of every shape are returned as they were enqueued.
func TestQueue_Payload_RoundTrip(t *testing.T) {
	t.Parallel()
	type order struct {
		ID    int               `json:"id"`
		Items []string          `json:"items"`
		At    time.Time         `json:"at"`
		Note  *string           `json:"note,omitempty"`
		Extra map[string][]byte `json:"extra"` // bytes inside a payload are allowed
	}
	note := "ü <b> \u2028 \x00 \"'\\"
	roundTrip(t, order{7, []string{"tea", ""}, time.Unix(5, 0).UTC(), &note, map[string][]byte{"b": {0, 255}}})
	roundTrip(t, "")
	roundTrip(t, note)
	roundTrip(t, true)
	roundTrip(t, int64(-1<<63))
	roundTrip(t, 0.1)
	roundTrip(t, []int{})
	roundTrip(t, [2]byte{1, 2})
	roundTrip[any](t, nil)
	roundTrip[any](t, map[string]any{"a": []any{1.5, nil, "x"}})
	roundTrip[*order](t, nil)
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	ctx, _, q := testkit.NewQueue[T](t, nil)
	testkit.Enqueue(t, q, v)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, v, job.Args)
	require.NoError(t, job.Ack(ctx))
}

// Another binding's claim that never expires does not block other claims.
func TestQueue_Claim_ForeignForever(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	// Bindings do not validate their timeouts. If the sum of now and the timeout overflows, it becomes a
	// REAL.
	for _, end := range []string{"9223372036854775807", "9223372036854775807 + unixepoch()"} {
		testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, state, worker_id, attempts, claim_expires_at)
			VALUES ('jobs', '0', 'processing', 'theirs', 1, `+end+`)`)
	}
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, 1, job.Args)
	require.NoError(t, job.Ack(ctx))
	_, err := q.NextClaimAt(ctx)
	require.NoError(t, err)
	for id := int64(1); id <= 2; id++ {
		require.Equal(t, "theirs", testkit.GetJob(t, q, id).WorkerID)
	}
}

// A job whose run time is beyond the calendar is shown with the last second of the year 9999, which JSON
// can represent, and is not run.
func TestQueue_Get_FarTimes(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, args := range []string{`9223372036854775807, NULL, 0, 3, 9223372036854775807`, `NULL, 9223372036854775807, 0, 3, NULL`} {
		id := testkit.QueryInt(t, db.SQL(), `SELECT honker_enqueue('`+q.Name()+`', '1', `+args+`)`)
		info := testkit.GetJob(t, q, int64(id))
		require.True(t, info.RunAt.Equal(last), "%v", info.RunAt)
		_, err := json.Marshal(info)
		require.NoError(t, err)
	}
	next, err := q.NextClaimAt(ctx)
	require.NoError(t, err)
	require.True(t, next.Equal(last), "%v", next)
	require.Empty(t, testkit.Claim(t, q, 2))
}

// Cancelling a running job ends its handler's context: immediately with Cancel, and at the commit with
// CancelTx or another program. The job is reported once as cancelled, and not as failed.
func TestWorker_Cancel(t *testing.T) {
	testkit.FileOnly(t)
	for how, cancel := range map[string]func(*honker.DB, *honker.Queue[int], int64) error{
		"Cancel": func(_ *honker.DB, q *honker.Queue[int], id int64) error {
			_, err := q.Cancel(context.Background(), id)
			return err
		},
		"CancelTx": func(db *honker.DB, q *honker.Queue[int], id int64) error {
			return db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.CancelTx(ctx, tx, id)
				return err
			})
		},
		"SQL": func(db *honker.DB, _ *honker.Queue[int], id int64) error {
			_, err := db.SQL().Exec(`DELETE FROM _honker_live WHERE id = ?`, id)
			return err
		},
	} {
		for name, end := range map[string]func(context.Context, *honker.Job[int]) error{
			"returns the error of its ctx": func(ctx context.Context, _ *honker.Job[int]) error { return ctx.Err() },
			"returns nil":                  func(context.Context, *honker.Job[int]) error { return nil },
			"settles":                      func(_ context.Context, job *honker.Job[int]) error { return job.Ack(context.Background()) },
		} {
			t.Run(how+" "+name, func(t *testing.T) {
				testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
					q := honker.NewQueue[int](db, "jobs", nil)
					id := testkit.Enqueue(t, q, 1)
					var cause error
					var ended time.Time
					stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
						<-ctx.Done()
						cause, ended = context.Cause(ctx), time.Now()
						return end(ctx, job)
					}, &honker.WorkOptions{OnError: func(context.Context, *honker.JobInfo, error) { t.Error("OnError was called") }})
					time.Sleep(time.Second)
					began := time.Now()
					require.NoError(t, cancel(db, q, id))
					time.Sleep(time.Minute)
					require.NoError(t, stop())
					require.ErrorIs(t, cause, honker.ErrCancelled)
					require.Equal(t, began, ended, "at once")
					testkit.RequireGone(t, q, id)
					require.Equal(t, []honker.Outcome{honker.OutcomeCancelled}, s.Outcomes())
					require.Equal(t, 1, log.Times("level=INFO"))
					require.Equal(t, 1, log.Times("level="))
				})
			})
		}
	}
}

// If another process cancels a job, a wake-up ends its handler before the next renewal.
func TestWorker_Cancel_OtherProcess(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	ctx, db, other := testkit.Context(t, testkit.Timeout), honkertest.OpenFile(t, path, nil), testkit.OpenPool(t, path)
	q := honker.NewQueue[int](db, "jobs", nil)
	id := testkit.Enqueue(t, q, 1)
	started, ended := make(chan struct{}), make(chan error, 1)
	testkit.Work(t, q, func(ctx context.Context, _ *honker.Job[int]) error {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, &honker.WorkOptions{Lease: time.Hour})
	<-started
	_, err := other.ExecContext(ctx, `DELETE FROM _honker_live WHERE id = ?`, id)
	require.NoError(t, err)
	require.ErrorIs(t, testkit.Within(ctx, ended, testkit.Timeout), honker.ErrCancelled)
}

// A job that is cancelled before its handler starts is not started.
func TestWorker_Cancel_Unstarted(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, _ *testkit.Log) {
		q := honker.NewQueue[int](db, "jobs", nil)
		ids, err := q.EnqueueMany(t.Context(), []int{0, 1, 2, 3, 4, 5, 6, 7})
		require.NoError(t, err)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			if job.ID != ids[0] {
				t.Errorf("job %d has begun", job.ID)
			}
			for _, id := range ids[1:] { // claimed ahead or not, and in any state
				cancelled, err := q.Cancel(context.Background(), id)
				require.NoError(t, err)
				require.True(t, cancelled)
			}
			return nil
		}, &honker.WorkOptions{Workers: 1})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Len(t, testkit.Recorded(s, &s.Started), 1)
		require.Zero(t, liveJobs(t, q))
	})
}

// Two Works with the same WorkerID on one queue in a process cause a warning.
func TestWorker_WorkerID_Twice(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		for _, queue := range []string{"a", "b", "a"} {
			testkit.Work(t, honker.NewQueue[int](db, queue, nil), testkit.Succeed[int], &honker.WorkOptions{WorkerID: "crew"})
			synctest.Wait()
		}
		require.Equal(t, 1, log.Times("have the same WorkerID"))
		require.Equal(t, 1, log.Times("queue=a worker=crew"))
	})
}
