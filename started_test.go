package honker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// The start of an attempt is known as soon as it has lasted for two seconds, however long the lease is, and to the moment.
// The next attempt has its own start.
func TestJobInfo_StartedAt(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
		q := honker.NewQueue[int](db, "jobs", nil)
		starts := make(chan time.Time, 2)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			starts <- time.Now()
			time.Sleep(3 * time.Hour)
			return honker.RetryAfter(time.Minute, context.DeadlineExceeded)
		}, &honker.WorkOptions{Workers: 1, Lease: time.Hour})
		defer stop()
		id, err := q.Enqueue(t.Context(), 7)
		require.NoError(t, err)
		startedAt := func() time.Time {
			job, err := db.Job(t.Context(), id)
			require.NoError(t, err)
			return job.StartedAt
		}
		time.Sleep(time.Second)
		require.Zero(t, startedAt(), "the attempt is young")
		start := <-starts
		time.Sleep(4 * time.Second)
		require.WithinDuration(t, start, startedAt(), time.Millisecond)
		time.Sleep(2 * time.Hour)
		require.WithinDuration(t, start, startedAt(), time.Millisecond, "renewals keep it")
		time.Sleep(time.Hour)
		require.Zero(t, startedAt(), "the job waits")
		time.Sleep(2 * time.Minute)
		require.WithinDuration(t, <-starts, startedAt(), time.Millisecond)
	})
}

// An extension of a claim outside of Work saves the time of the claim. Short jobs save nothing.
func TestJob_Extend_SavesStart(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, NoTraffic: true})
		q := honker.NewQueue[int](db, "jobs", nil)
		id, err := q.Enqueue(t.Context(), 7)
		require.NoError(t, err)
		jobs, err := q.Claim(t.Context(), "w", 1)
		require.NoError(t, err)
		claimed := time.Now()
		for _, want := range []time.Time{{}, claimed} {
			require.NoError(t, jobs[0].Extend(t.Context(), time.Hour))
			job, err := db.Job(t.Context(), id)
			require.NoError(t, err)
			require.WithinDuration(t, want, job.StartedAt, time.Millisecond)
			time.Sleep(time.Minute)
		}
	})
}
