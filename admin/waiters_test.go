package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// WaitersOf finds jobs that wait directly, through other jobs or through a batch. It omits jobs that the
// filter selects.
func TestWaitersOf(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	of := func(f admin.JobFilter) []int64 {
		t.Helper()
		ids, err := admin.WaitersOf(ctx, db, f)
		require.NoError(t, err)
		return ids
	}
	batch := newBatch(t, db)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	member := testkit.Enqueue(t, q, 3, honker.InBatch(batch.ID))
	last := testkit.Enqueue(t, q, 4, honker.After(b), honker.AfterBatch(batch.ID))
	require.Equal(t, []int64{b, last}, of(admin.JobFilter{IDs: []int64{a}}))
	require.Equal(t, []int64{last}, of(admin.JobFilter{IDs: []int64{a, b}}))
	require.Equal(t, []int64{last}, of(admin.JobFilter{IDs: []int64{member}}))
	require.Equal(t, []int64{last}, of(admin.JobFilter{Batch: batch.ID}))
	require.Empty(t, of(admin.JobFilter{IDs: []int64{last}}))
	require.Empty(t, of(admin.JobFilter{IDs: []int64{99}}))
	require.Empty(t, of(admin.JobFilter{All: true}))
	_, err := q.Cancel(ctx, member)
	require.NoError(t, err)
	require.Equal(t, []int64{last}, of(admin.JobFilter{Batch: batch.ID}), "it is open")

	_, err = admin.WaitersOf(ctx, db, admin.JobFilter{})
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.WaitersOf(ctx, nil, admin.JobFilter{All: true})
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// With KeepWaiters, Cancel skips jobs that other jobs wait for and cancels the rest.
func TestCancel_KeepWaiters(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	batch := newBatch(t, db)
	a := testkit.Enqueue(t, q, 1)
	member, alone := testkit.Enqueue(t, q, 2, honker.InBatch(batch.ID)), testkit.Enqueue(t, q, 3)
	last := testkit.Enqueue(t, q, 4, honker.After(a), honker.AfterBatch(batch.ID))
	r, err := admin.Cancel(ctx, db, admin.JobFilter{IDs: []int64{a, member, alone}}, &admin.CancelOptions{Waiters: admin.KeepWaiters})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Changed)
	require.Equal(t, int64(2), r.SkippedTotal)
	require.Contains(t, r.Skipped[0].Why, "other jobs wait for it")
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, last))
	_, err = db.Job(ctx, alone)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.NoError(t, db.Check(ctx))

	require.NoError(t, testkit.ClaimAll(t, q)[a].Reject(ctx, testkit.ErrCause))
	r, err = admin.Discard(ctx, db, admin.JobFilter{IDs: []int64{a}}, &admin.DiscardOptions{Waiters: admin.KeepWaiters})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.SkippedTotal)
}

// Batch returns a batch by its ID.
func TestBatch_ByID(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	testkit.Enqueue(t, q, 1, honker.InBatch(b.ID))
	info, err := admin.Batch(ctx, db, b.ID)
	require.NoError(t, err)
	require.Equal(t, batch(t, db, b.ID), *info)
	_, err = admin.Batch(ctx, db, b.ID+1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	_, err = admin.Batch(ctx, nil, b.ID)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
