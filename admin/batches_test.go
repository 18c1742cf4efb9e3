package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

func newBatch(t testing.TB, db *honker.DB) *honker.Batch {
	t.Helper()
	b, err := db.NewBatch(context.Background(), nil)
	require.NoError(t, err)
	return b
}

// batch returns the batch with the given ID from the list.
func batch(t testing.TB, db *honker.DB, id int64) admin.BatchInfo {
	t.Helper()
	p, err := admin.Batches(context.Background(), db, nil)
	require.NoError(t, err)
	for _, b := range p.Batches {
		if b.ID == id {
			return b
		}
	}
	t.Fatalf("no batch %d", id)
	return admin.BatchInfo{}
}

// A job waits for a batch until the batch is sealed and its members are done. Members may add members.
func TestBatch_SealedAndDone(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	other := honker.NewQueue[int](db, "other", nil)
	b := newBatch(t, db)
	next := testkit.Enqueue(t, q, 0, honker.AfterBatch(b.ID))
	a := testkit.Enqueue(t, q, 1, honker.InBatch(b.ID))
	j, err := db.Job(ctx, a)
	require.NoError(t, err)
	require.Equal(t, b.ID, j.Batch)
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	require.NoError(t, db.Check(ctx))
	require.Empty(t, testkit.ClaimAll(t, q), "the batch is open")
	c := testkit.Enqueue(t, other, 2, honker.InBatch(b.ID))
	require.NoError(t, b.Seal(ctx))
	require.NoError(t, b.Seal(ctx))
	require.NoError(t, db.Check(ctx))
	job := testkit.ClaimAll(t, other)[c]
	var d int64
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if d, err = other.EnqueueTx(ctx, tx, 3, honker.InBatch(b.ID)); err != nil {
			return err
		}
		return job.AckTx(ctx, tx)
	}))
	require.Empty(t, testkit.ClaimAll(t, q))
	got := batch(t, db, b.ID)
	require.Equal(t, admin.BatchInfo{ID: b.ID, Total: 3, Waiting: 1, Done: 2, Next: []int64{next}, CreatedAt: got.CreatedAt}, got)
	job = testkit.ClaimAll(t, other)[d]
	require.EqualValues(t, 1, batch(t, db, b.ID).Running)
	require.NoError(t, job.Ack(ctx))
	jobs := testkit.ClaimAll(t, q)
	require.Contains(t, jobs, next)
	require.Equal(t, []int64{a, c, d}, jobs[next].After())
	require.NoError(t, db.Check(ctx))
	got = batch(t, db, b.ID)
	require.EqualValues(t, 3, got.Done)
	require.WithinDuration(t, time.Now(), got.DoneAt, time.Minute)
	_, err = q.Enqueue(ctx, 4, honker.InBatch(b.ID))
	require.ErrorIs(t, err, honker.ErrBatchDone)
	require.NoError(t, jobs[next].Ack(ctx))
	require.NoError(t, db.Check(ctx))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.Either(`SELECT count(*) FROM _honkerx_after`, `SELECT count(*) FROM edge WHERE waiter > 0`)))
}

// A batch with a dead member is incomplete and rejects new members. It completes when the member has been
// requeued and acked.
func TestBatch_DeadMember(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	a := testkit.Enqueue(t, q, 1, honker.InBatch(b.ID))
	next := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID))
	anyway := testkit.Enqueue(t, q, 3, honker.AfterBatch(b.ID), honker.EvenIfDead())
	require.NoError(t, b.Seal(ctx))
	require.NoError(t, testkit.ClaimAll(t, q)[a].Reject(ctx, testkit.ErrCause))
	require.NoError(t, db.Check(ctx))
	require.EqualValues(t, 1, batch(t, db, b.ID).Dead)
	_, err := q.Enqueue(ctx, 4, honker.InBatch(b.ID))
	require.ErrorIs(t, err, honker.ErrBatchDone)
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 1)
	require.Contains(t, jobs, anyway)
	dead, err := db.Job(ctx, a)
	require.NoError(t, err)
	require.Equal(t, b.ID, dead.Batch)
	r, err := admin.Requeue(ctx, db, admin.JobFilter{Batch: b.ID}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
	require.NoError(t, db.Check(ctx))
	more := testkit.Enqueue(t, q, 5, honker.InBatch(b.ID))
	jobs = testkit.ClaimAll(t, q)
	require.NoError(t, errors.Join(jobs[a].Ack(ctx), jobs[more].Ack(ctx)))
	require.Contains(t, testkit.ClaimAll(t, q), next)
	require.NoError(t, db.Check(ctx))
}

// A batch and its members are created in the caller's transaction, all or nothing.
func TestBatch_Tx(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	undo := errors.New("undo")
	var b *honker.Batch
	build := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
			if b, err = db.NewBatchTx(ctx, tx, &honker.BatchOptions{Name: "night", Headers: map[string]string{"tenant": "7"}}); err != nil {
				return err
			}
			if _, err := q.EnqueueManyTx(ctx, tx, []int{1, 2, 3}, honker.InBatch(b.ID), honker.Key("k")); err != nil {
				return err
			}
			if _, err := q.EnqueueTx(ctx, tx, 4, honker.InBatch(b.ID), honker.Unique("u", nil)); err != nil {
				return err
			}
			if _, err := q.EnqueueTx(ctx, tx, 5, honker.AfterBatch(b.ID)); err != nil {
				return err
			}
			return errors.Join(b.SealTx(ctx, tx), end)
		})
	}
	require.ErrorIs(t, build(undo), undo)
	p, err := admin.Batches(ctx, db, nil)
	require.NoError(t, err)
	require.Empty(t, p.Batches)
	require.NoError(t, build(nil))
	require.NoError(t, db.Check(ctx))
	got := batch(t, db, b.ID)
	require.Equal(t, "night", got.Name)
	require.Equal(t, map[string]string{"tenant": "7"}, got.Headers)
	require.EqualValues(t, 4, got.Total)
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 4)
	for _, j := range jobs {
		require.NoError(t, j.Ack(ctx))
	}
	require.Len(t, testkit.ClaimAll(t, q), 1)
}

// Canceling a batch deletes its waiting and running members and the jobs that wait for the batch.
func TestBatch_Cancel(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	ids, err := q.EnqueueMany(ctx, make([]int, 30), honker.InBatch(b.ID))
	require.NoError(t, err)
	next := testkit.Enqueue(t, q, 1, honker.AfterBatch(b.ID))
	testkit.Enqueue(t, q, 2, honker.After(next))
	testkit.Enqueue(t, q, 3, honker.After(ids[3]))
	other := testkit.Enqueue(t, q, 4)
	jobs, err := q.Claim(ctx, "w", 3)
	require.NoError(t, err)
	require.NoError(t, jobs[0].Ack(ctx))
	require.NoError(t, jobs[1].Reject(ctx, testkit.ErrCause))
	n, err := b.Cancel(ctx)
	require.NoError(t, err)
	require.Equal(t, 28+3, n)
	require.NoError(t, db.Check(ctx))
	left := testkit.ClaimAll(t, q)
	require.Len(t, left, 1)
	require.Contains(t, left, other)
	require.ErrorIs(t, jobs[2].Ack(ctx), honker.ErrClaimLost)
	got := batch(t, db, b.ID)
	require.False(t, got.Open)
	require.EqualValues(t, 1, got.Dead)
	require.ErrorIs(t, func() error { _, err := db.Batch(99).Cancel(ctx); return err }(), honker.ErrNotFound)
}

// Batches are listed in pages in both orders. Invalid options are rejected.
func TestBatches_Pages(t *testing.T) {
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	for range 5 {
		newBatch(t, db)
	}
	for order, want := range map[admin.Order][]int64{admin.NewestFirst: {5, 4, 3, 2, 1}, admin.OldestFirst: {1, 2, 3, 4, 5}} {
		var got []int64
		o := admin.PageOptions{Order: order, Limit: 2}
		for {
			p, err := admin.Batches(ctx, db, &o)
			require.NoError(t, err)
			for _, b := range p.Batches {
				require.True(t, b.Open)
				got = append(got, b.ID)
			}
			if o.After = p.Next; p.Next == "" {
				break
			}
		}
		require.Equal(t, want, got)
	}
	p, err := admin.Batches(ctx, db, &admin.PageOptions{Limit: 1})
	require.NoError(t, err)
	for _, o := range []admin.PageOptions{{Order: admin.ClaimOrder}, {Order: admin.LastDiedFirst}, {Limit: -1}, {After: "x"}, {After: p.Next, Order: admin.OldestFirst}} {
		_, err := admin.Batches(ctx, db, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, "%+v", o)
	}
	_, err = admin.Batches(ctx, nil, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A batch is listed even if another program has written invalid headers for it.
func TestBatches_ForeignHeaders(t *testing.T) {
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	b, err := db.NewBatch(ctx, &honker.BatchOptions{Headers: map[string]string{"a": "b"}})
	require.NoError(t, err)
	foreign := newBatch(t, db)
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_batches`, `UPDATE batch`)+` SET headers = 'a=b' WHERE id = $1`, foreign.ID)
	require.Equal(t, map[string]string{"a": "b"}, batch(t, db, b.ID).Headers)
	require.Nil(t, batch(t, db, foreign.ID).Headers)
}

// Retention keeps a dead member of a batch, and deletes the links of another dead job along with it. The batch
// completes when the member has been requeued and acked.
func TestBatch_DeadMemberIsKept(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	member := testkit.Enqueue(t, q, 1, honker.InBatch(b.ID))
	next := testkit.Enqueue(t, honker.NewQueue[int](db, "next", nil), 2, honker.AfterBatch(b.ID))
	require.NoError(t, b.Seal(ctx))
	require.NoError(t, testkit.ClaimAll(t, q)[member].Reject(ctx, testkit.ErrCause))
	first := testkit.Enqueue(t, q, 3)
	after := testkit.Enqueue(t, q, 4, honker.After(first))
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	require.NoError(t, testkit.ClaimAll(t, q)[after].Reject(ctx, testkit.ErrCause))
	bury(t, q, 5, "no")
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Dead: honker.Retention{MaxCount: 1}}))
	stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
	testkit.Eventually(t, testkit.Timeout, "a job is deleted", func() bool {
		_, err := db.Job(ctx, after)
		return errors.Is(err, honker.ErrNotFound)
	})
	require.NoError(t, stop())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_after WHERE waiter = $1`, after))
	require.Equal(t, honker.PhaseDead, testkit.PhaseOf(t, db, member))
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, next))
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{member}}, nil)
	require.NoError(t, err)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	require.Equal(t, honker.PhaseReady, testkit.PhaseOf(t, db, next))
}

// A batch that completed a week ago is deleted and counts as done.
func TestBatch_Forgotten(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	old, young, open := newBatch(t, db), newBatch(t, db), newBatch(t, db)
	require.NoError(t, errors.Join(old.Seal(ctx), young.Seal(ctx)))
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_batches SET done_ms = done_ms - 8 * 86400000 WHERE id = $1`,
		`UPDATE batch SET done_at = done_at - interval '8 days' WHERE id = $1`), old.ID)
	round, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	require.NoError(t, db.Maintain(round, nil))
	p, err := admin.Batches(ctx, db, nil)
	require.NoError(t, err)
	require.Len(t, p.Batches, 2)
	_, err = q.Enqueue(ctx, 1, honker.InBatch(old.ID))
	require.ErrorIs(t, err, honker.ErrBatchDone)
	next := testkit.Enqueue(t, q, 2, honker.AfterBatch(old.ID))
	require.Contains(t, testkit.ClaimAll(t, q), next)
	testkit.Enqueue(t, q, 3, honker.InBatch(open.ID))
	require.NoError(t, db.Check(ctx))
}
