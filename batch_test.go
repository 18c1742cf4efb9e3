package honker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func newBatch(t testing.TB, db *honker.DB) *honker.Batch {
	t.Helper()
	b, err := db.NewBatch(context.Background(), nil)
	require.NoError(t, err)
	return b
}

// An empty batch is done as soon as it is sealed, and a batch that is done blocks nothing.
func TestBatch_Empty(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	next := testkit.Enqueue(t, q, 1, honker.AfterBatch(b.ID))
	require.Empty(t, testkit.ClaimAll(t, q))
	require.NoError(t, b.Seal(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), next)
	open := newBatch(t, db) // has a member that waits, and does not affect the other batches
	testkit.Enqueue(t, q, 3, honker.In(open.ID), honker.Delay(time.Hour))
	c := newBatch(t, db)
	other := testkit.Enqueue(t, q, 4, honker.AfterBatch(c.ID))
	require.NoError(t, c.Seal(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), other)
	late := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID))
	require.Contains(t, testkit.ClaimAll(t, q), late)
	requireSound(t, db)
	require.ErrorIs(t, db.Batch(99).Seal(ctx), honker.ErrNotFound)
}

// A batch also notices a death by another binding.
func TestBatch_ForeignDeath(t *testing.T) {
	_, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	a := testkit.Enqueue(t, q, 1, honker.In(b.ID))
	next := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID))
	require.NoError(t, b.Seal(context.Background()))
	testkit.ClaimAll(t, q)
	foreignDelete(t, db, a)
	requireSound(t, db)
	require.Equal(t, honker.PhaseScheduled, testkit.PhaseOf(t, db, next))
	foreignDeath(t, db, a)
	requireSound(t, db)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, next))
}

// If the jobs of a key run in order, a member that is added later cannot have the key of a job that waits
// for the batch, because each would wait for the other. The member is accepted with another key, in another
// queue, without InOrder, or ahead of the waiting job.
func TestBatch_CircleOfKey(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	other := honker.NewQueue[int](db, "other", nil)
	for _, ordered := range []*honker.Queue[int]{q, other} {
		setLimits(t, ordered, honker.Limits{InOrder: true})
	}
	b := newBatch(t, db)
	testkit.Enqueue(t, q, 1, honker.In(b.ID), honker.Key("k"))
	next := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID), honker.Key("k"))
	testkit.Enqueue(t, other, 3, honker.After(next), honker.Key("by another"))
	before := testkit.Dump(t, db.SQL())
	_, err := q.Enqueue(ctx, 4, honker.In(b.ID), honker.Key("k"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprintf("job %d waits for batch %d, and the jobs of its key \"k\" run in order", next, b.ID))
	_, err = other.Enqueue(ctx, 4, honker.In(b.ID), honker.Key("by another"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	testkit.Enqueue(t, q, 5, honker.In(b.ID), honker.Key("l"))
	testkit.Enqueue(t, other, 5, honker.In(b.ID), honker.Key("k"))
	setLimits(t, q, honker.Limits{PerKey: 1})
	testkit.Enqueue(t, q, 6, honker.In(b.ID), honker.Key("k"))
	requireSound(t, db)
}

// A member of a batch cannot wait for a job that waits for the batch.
func TestBatch_Circles(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	b, c := newBatch(t, db), newBatch(t, db)
	next := testkit.Enqueue(t, q, 1, honker.AfterBatch(b.ID), honker.In(c.ID))
	last := testkit.Enqueue(t, q, 2, honker.After(next))
	before := testkit.Dump(t, db.SQL())
	for name, o := range map[string]honker.EnqueueOption{"directly": honker.After(next), "by another": honker.After(last), "by a batch": honker.AfterBatch(c.ID)} {
		_, err := q.Enqueue(ctx, 3, honker.In(b.ID), o)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorContains(t, err, fmt.Sprintf("already waits for batch %d", b.ID), name)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	first := testkit.Enqueue(t, q, 4, honker.In(b.ID))
	testkit.Enqueue(t, q, 5, honker.In(b.ID), honker.After(first))
	requireSound(t, db)
}

// NewBatch validates its options.
func TestBatch_Options(t *testing.T) {
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	for _, o := range []honker.BatchOptions{{Name: "a\x00"}, {Name: strings.Repeat("n", 1025)}, {Headers: many},
		{Headers: map[string]string{"h": strings.Repeat("v", 8<<10)}}, {Headers: map[string]string{"": "x"}},
		{Headers: map[string]string{"a": "\x00"}}, {Headers: map[string]string{"a": "\xff"}}} {
		_, err := db.NewBatch(ctx, &o)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_batches`))
}
