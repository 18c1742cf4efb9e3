package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Each field of a filter selects the matching jobs. Several fields select the jobs that match all of them.
func TestJobFilter_Fields(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 4, func(n int64) testkit.StoredJob {
		j := []testkit.StoredJob{
			{Queue: "a", Payload: `{"order":{"id":17},"x.y":1}`, Attempts: 1, Error: "dial tcp 10.0.0.1:80: refused"},
			{Queue: "a", Payload: `{"order":{"id":18}}`, Attempts: 2, Error: "dial tcp 10.0.0.2:80: refused"},
			{Queue: "b", Payload: `{"order":{"id":"17"}}`, Attempts: 3, Error: "timeout"},
			{Queue: "b", Payload: `no json 17`, Attempts: 9},
		}[n-1]
		j.CreatedAt, j.RunAt, j.DiedAt = 100*n, 100*n+10, 100*n+20
		return j
	})
	groups, err := admin.DeadGroups(ctx, db, admin.JobFilter{Queues: []string{"a"}})
	require.NoError(t, err)
	require.Len(t, groups.Groups, 1)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for name, c := range map[string]struct {
		f    admin.JobFilter
		want int64
	}{
		"all":            {all, 4},
		"queues":         {admin.JobFilter{Queues: []string{"b", "none"}}, 2},
		"ids":            {admin.JobFilter{IDs: []int64{1, 4, 9}}, 2},
		"error":          {admin.JobFilter{Error: "refused"}, 2},
		"contains":       {admin.JobFilter{Contains: "17"}, 3},
		"where":          {admin.JobFilter{Where: map[string]string{"order.id": "17"}}, 2},
		"no such field":  {admin.JobFilter{Where: map[string]string{"none": ""}}, 0},
		"attempts":       {admin.JobFilter{MinAttempts: 2}, 3},
		"created":        {admin.JobFilter{CreatedSince: at(200), CreatedBefore: at(400)}, 2},
		"run":            {admin.JobFilter{RunSince: at(310), RunBefore: at(311)}, 1},
		"died":           {admin.JobFilter{DiedSince: at(121), DiedBefore: at(420)}, 2},
		"fingerprint":    {admin.JobFilter{Fingerprint: groups.Groups[0].Fingerprint}, 2},
		"several":        {admin.JobFilter{Queues: []string{"a"}, Contains: "17", MinAttempts: 1, All: true}, 1},
		"that exclude":   {admin.JobFilter{Queues: []string{"a"}, Error: "timeout"}, 0},
		"a unique key":   {admin.JobFilter{Unique: "k"}, 0},
		"after a second": {admin.JobFilter{DiedSince: at(420).Add(time.Millisecond)}, 0},
	} {
		r, err := admin.Discard(ctx, db, c.f, &admin.DiscardOptions{DryRun: true})
		require.NoError(t, err, name)
		require.Equal(t, &admin.Report{Matched: c.want}, r, name)
	}
	r, err := admin.Discard(ctx, db, admin.JobFilter{Fingerprint: groups.Groups[0].Fingerprint}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Changed)
	require.Equal(t, []string{"3", "4"}, rows(t, db, `SELECT id FROM _honker_dead`))
}

// Discard reports the deleted jobs to the observer, grouped by queue.
func TestDiscard_Observed(t *testing.T) {
	ctx, db, q, told := open(t)
	bury(t, q, 1, "no")
	bury(t, honker.NewQueue[int](db, "other", nil), 2, "no")
	live := testkit.Enqueue(t, q, 3)
	r, err := admin.Discard(honker.WithActor(ctx, "anna"), db, all, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 2, Audit: 1}, r)
	require.Equal(t, []string{"discarded jobs [1] anna false", "discarded other [2] anna false"}, told.lines)
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, live).State)
}

// Cancel skips jobs that a worker holds unless Running is set. With Running, the handler's ctx ends.
func TestCancel_Running(t *testing.T) {
	ctx, db, q, told := open(t)
	started, ended := make(chan int64, 1), make(chan error, 1)
	stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
		started <- job.ID
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, &honker.WorkOptions{Workers: 1})
	running := testkit.Enqueue(t, q, 1)
	require.Equal(t, running, <-started)
	delayed := testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
	r, err := admin.Cancel(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 1, Audit: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: running, Why: "a worker holds it"}}}, r)
	testkit.RequireGone(t, q, delayed)
	r, err = admin.Cancel(ctx, db, all, &admin.CancelOptions{Running: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
	require.ErrorIs(t, <-ended, honker.ErrCancelled)
	require.Equal(t, []string{"cancelled jobs [2]  false", "cancelled jobs [1]  false"}, told.lines)
	require.NoError(t, stop())
}

// RunNow makes delayed jobs due, wakes a sleeping worker, and skips all other jobs.
func TestRunNow(t *testing.T) {
	ctx, db, q, _ := open(t)
	ran := make(chan int, 2)
	held := testkit.Enqueue(t, q, 0)
	testkit.ClaimOne(t, q)
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { ran <- job.Args; return nil }, nil)
	testkit.Enqueue(t, q, 7, honker.Delay(time.Hour))
	r, err := admin.RunNow(ctx, db, all, &admin.RunNowOptions{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2}, r)
	r, err = admin.RunNow(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 1, Audit: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: held, Why: "it does not wait for its time"}}}, r)
	require.Equal(t, 7, <-ran)
	require.NoError(t, stop())
}
