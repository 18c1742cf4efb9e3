package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// foreignDelete deletes a live job, as another binding does when it acks the job or is about to
// dead-letter it.
func foreignDelete(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	testkit.Exec(t, db, `DELETE FROM _honker_live WHERE id = `+fmt.Sprint(id))
}

// foreignDeath makes the second of the two commits in which another binding dead-letters a job.
func foreignDeath(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	testkit.Exec(t, db, fmt.Sprintf(`INSERT INTO _honker_dead (id, queue, payload) VALUES (%d, 'jobs', '1')`, id))
}

// A job waits for a dead predecessor until the predecessor has been requeued and done.
func TestAfter_Dead_HoldsUntilRequeued(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	require.NoError(t, testkit.ClaimAll(t, q)[a].Reject(ctx, testkit.ErrCause))
	require.NoError(t, db.Check(ctx))
	c := testkit.Enqueue(t, q, 3, honker.After(a)) // already dead
	require.Empty(t, testkit.ClaimAll(t, q))
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{a}}, nil)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 1)
	require.NoError(t, jobs[a].Ack(ctx))
	require.Len(t, testkit.ClaimAll(t, q), 2)
	require.NoError(t, db.Check(ctx))
	require.Equal(t, honker.PhaseRunning, testkit.PhaseOf(t, db, b))
	require.Equal(t, honker.PhaseRunning, testkit.PhaseOf(t, db, c))
}

// With EvenIfDead, a dead predecessor releases the job. A predecessor that is requeued before the job has
// started blocks it again.
func TestAfter_EvenIfDead(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a, b := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
	c := testkit.Enqueue(t, q, 3, honker.After(a, b), honker.EvenIfDead())
	jobs := testkit.ClaimAll(t, q)
	require.NoError(t, jobs[a].Reject(ctx, testkit.ErrCause))
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{a}}, nil)
	require.NoError(t, err)
	require.NoError(t, jobs[b].Ack(ctx))
	require.NoError(t, db.Check(ctx))
	jobs = testkit.ClaimAll(t, q)
	require.Len(t, jobs, 1)
	require.NoError(t, jobs[a].Reject(ctx, testkit.ErrCause))
	require.Contains(t, testkit.ClaimAll(t, q), c)
	d := testkit.Enqueue(t, q, 4, honker.After(a), honker.EvenIfDead())
	require.Contains(t, testkit.ClaimAll(t, q), d)
	require.NoError(t, db.Check(ctx))
}

// Requeuing a predecessor has no effect on a job that has already started.
func TestAfter_EvenIfDead_Started(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a), honker.EvenIfDead())
	require.NoError(t, testkit.ClaimAll(t, q)[a].Reject(ctx, testkit.ErrCause))
	job := testkit.ClaimAll(t, q)[b]
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{a}}, nil)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	require.NoError(t, job.Retry(ctx, 0, nil))
	require.Len(t, testkit.ClaimAll(t, q), 2)
	require.NoError(t, db.Check(ctx))
}

// A dead job that has predecessors waits for them again after a requeue.
func TestAfter_RequeuedWaiter(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a), honker.ExpiresIn(time.Second))
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_live SET expires_at = 1 WHERE id = $1`, `UPDATE job SET expires_at = 'epoch' WHERE id = $1`), b)
	_, err := q.SweepExpired(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	_, err = admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{b}}, nil)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, b))
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), b)
}

// Between its two commits, a death in another binding looks like an ack. After the second commit the job
// waits again.
func TestAfter_ForeignDeath(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	dead := testkit.Enqueue(t, q, 3, honker.After(a), honker.EvenIfDead())
	testkit.ClaimAll(t, q)
	foreignDelete(t, db, a)
	require.Equal(t, honker.PhaseScheduled, testkit.PhaseOf(t, db, b))
	require.Contains(t, testkit.ClaimAll(t, q), dead, "it does not care")
	foreignDeath(t, db, a)
	require.NoError(t, db.Check(ctx))
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, b))
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{a}}, nil)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 1 WHERE id = `+fmt.Sprint(b))
	require.Contains(t, testkit.ClaimAll(t, q), b)
}

// A job that has already started is unaffected when another binding dead-letters its predecessor.
func TestAfter_ForeignDeath_Started(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	testkit.ClaimAll(t, q)
	foreignDelete(t, db, a)
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 1 WHERE id = `+fmt.Sprint(b))
	job := testkit.ClaimAll(t, q)[b]
	foreignDeath(t, db, a)
	require.NoError(t, db.Check(ctx))
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{a}}, nil)
	require.NoError(t, err)
	require.NoError(t, db.Check(ctx))
	require.NoError(t, job.Retry(ctx, 0, testkit.ErrCause))
	require.Len(t, testkit.ClaimAll(t, q), 2)
	require.NoError(t, db.Check(ctx))
}

// A cancelled job counts as done, unless the jobs that wait for it are cancelled too.
func TestAfter_Cancel_Waiters(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	one := func(id int64) admin.JobFilter { return admin.JobFilter{IDs: []int64{id}} }
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	_, err := admin.Cancel(ctx, db, one(a), nil)
	require.NoError(t, err)
	require.NoError(t, testkit.ClaimAll(t, q)[b].Ack(ctx))

	a, other := testkit.Enqueue(t, q, 3), testkit.Enqueue(t, q, 4)
	b = testkit.Enqueue(t, q, 5, honker.After(a, other))
	_ = testkit.Enqueue(t, q, 6, honker.After(b))
	jobs := testkit.ClaimAll(t, q)
	r, err := admin.Cancel(ctx, db, one(a), &admin.CancelOptions{Waiters: admin.DropWaiters})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: a, Why: "a worker holds it"}}}, r)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, b))
	r, err = admin.Cancel(ctx, db, one(a), &admin.CancelOptions{Waiters: admin.DropWaiters, Running: true})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, Changed: 1, Waiters: 2, Audit: 2}, r)
	require.NoError(t, db.Check(ctx))
	require.NoError(t, jobs[other].Ack(ctx))
	require.Empty(t, testkit.ClaimAll(t, q))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_after`))
	_, err = admin.Cancel(ctx, db, one(a), &admin.CancelOptions{Waiters: 4})
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// Discard skips a dead job that other jobs wait for, unless Waiters is set.
func TestAfter_Discard_Waiters(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	one := func(id int64) admin.JobFilter { return admin.JobFilter{IDs: []int64{id}} }
	bury := func() (a, b int64) {
		a = testkit.Enqueue(t, q, 1)
		b = testkit.Enqueue(t, q, 2, honker.After(a))
		require.NoError(t, testkit.ClaimAll(t, q)[a].Reject(ctx, testkit.ErrCause))
		return a, b
	}
	a, b := bury()
	r, err := admin.Discard(ctx, db, one(a), nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: a, Why: "other jobs wait for it"}}}, r)
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Dead: honker.Retention{MaxCount: 0, MaxAge: time.Nanosecond}}))
	require.Equal(t, honker.PhaseDead, testkit.PhaseOf(t, db, a))
	r, err = admin.Discard(ctx, db, one(a), &admin.DiscardOptions{Waiters: admin.ReleaseWaiters})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, Changed: 1, Audit: 1}, r)
	require.NoError(t, db.Check(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), b)

	a, b = bury()
	r, err = admin.Discard(ctx, db, one(a), &admin.DiscardOptions{Waiters: admin.DropWaiters})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, Changed: 1, Waiters: 1, Audit: 2}, r)
	require.NoError(t, db.Check(ctx))
	_, err = db.Job(ctx, b)
	require.ErrorIs(t, err, honker.ErrNotFound)
	_, err = admin.Discard(ctx, db, one(a), &admin.DiscardOptions{Waiters: -1})
	require.ErrorIs(t, err, honker.ErrInvalid)
}
