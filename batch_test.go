package honker_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func newBatch(t testing.TB, db *honker.DB) *honker.Batch {
	t.Helper()
	b, err := db.NewBatch(context.Background(), nil)
	require.NoError(t, err)
	return b
}

// An empty batch is done as soon as it is sealed, and a done batch doesn't block anything.
func TestBatch_Empty(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	next := testkit.Enqueue(t, q, 1, honker.AfterBatch(b.ID))
	require.Empty(t, testkit.ClaimAll(t, q))
	require.NoError(t, b.Seal(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), next)
	open := newBatch(t, db) // has a waiting member, and doesn't affect the other batches
	testkit.Enqueue(t, q, 3, honker.InBatch(open.ID), honker.Delay(time.Hour))
	c := newBatch(t, db)
	other := testkit.Enqueue(t, q, 4, honker.AfterBatch(c.ID))
	require.NoError(t, c.Seal(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), other)
	late := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID))
	require.Contains(t, testkit.ClaimAll(t, q), late)
	requireSound(t, db)
	require.ErrorIs(t, db.Batch(99).Seal(ctx), honker.ErrNotFound)
}

// A batch also detects a death caused by another binding.
func TestBatch_ForeignDeath(t *testing.T) {
	testkit.FileOnly(t)
	_, db, q := testkit.NewQueue[int](t, nil)
	b := newBatch(t, db)
	a := testkit.Enqueue(t, q, 1, honker.InBatch(b.ID))
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

// If a key's jobs run in order, a member that is added later can't have the key of a job that is waiting for the
// batch, because each would wait for the other. The member is accepted with a different key, in a different queue,
// without InOrder, or ahead of the waiting job.
func TestBatch_CircleOfKey(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	other := honker.NewQueue[int](db, "other", nil)
	for _, ordered := range []*honker.Queue[int]{q, other} {
		setLimits(t, ordered, honker.Limits{InOrder: true})
	}
	b := newBatch(t, db)
	testkit.Enqueue(t, q, 1, honker.InBatch(b.ID), honker.Key("k"))
	next := testkit.Enqueue(t, q, 2, honker.AfterBatch(b.ID), honker.Key("k"))
	testkit.Enqueue(t, other, 3, honker.After(next), honker.Key("by another"))
	before := testkit.Dump(t, db.SQL())
	_, err := q.Enqueue(ctx, 4, honker.InBatch(b.ID), honker.Key("k"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprintf("job %d waits for batch %d, and the jobs of its key \"k\" run in order", next, b.ID))
	_, err = other.Enqueue(ctx, 4, honker.InBatch(b.ID), honker.Key("by another"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	testkit.Enqueue(t, q, 5, honker.InBatch(b.ID), honker.Key("l"))
	testkit.Enqueue(t, other, 5, honker.InBatch(b.ID), honker.Key("k"))
	setLimits(t, q, honker.Limits{PerKey: 1})
	testkit.Enqueue(t, q, 6, honker.InBatch(b.ID), honker.Key("k"))
	requireSound(t, db)
}

// A member of a batch cannot wait for a job that waits for the batch.
func TestBatch_Circles(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	b, c := newBatch(t, db), newBatch(t, db)
	next := testkit.Enqueue(t, q, 1, honker.AfterBatch(b.ID), honker.InBatch(c.ID))
	last := testkit.Enqueue(t, q, 2, honker.After(next))
	before := testkit.Dump(t, db.SQL())
	for name, o := range map[string]honker.EnqueueOption{"directly": honker.After(next), "by another": honker.After(last), "by a batch": honker.AfterBatch(c.ID)} {
		_, err := q.Enqueue(ctx, 3, honker.InBatch(b.ID), o)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorContains(t, err, fmt.Sprintf("already waits for batch %d", b.ID), name)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	first := testkit.Enqueue(t, q, 4, honker.InBatch(b.ID))
	testkit.Enqueue(t, q, 5, honker.InBatch(b.ID), honker.After(first))
	requireSound(t, db)
}

// NewBatch validates its options.
func TestBatch_Options(t *testing.T) {
	testkit.FileOnly(t)
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

// newQuietQueue returns a queue on its own file, which is written to only by verbs.
func newQuietQueue(t testing.TB) (context.Context, *honker.DB, *honker.Queue[int]) {
	t.Helper()
	db := honkertest.Open(t, &honker.Options{NoTraffic: true})
	return testkit.Context(t, testkit.Timeout), db, honker.NewQueue[int](db, "jobs", nil)
}

// foreignDelete deletes a live job the way another binding does when it acks the job or is about to dead-letter it.
func foreignDelete(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	testkit.Exec(t, db, `DELETE FROM _honker_live WHERE id = `+fmt.Sprint(id))
}

// foreignDeath makes the second of the two commits with which another binding dead-letters a job.
func foreignDeath(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	testkit.Exec(t, db, fmt.Sprintf(`INSERT INTO _honker_dead (id, queue, payload) VALUES (%d, 'jobs', '1')`, id))
}

// maintainOnce runs a single round of Maintain.
func maintainOnce(t testing.TB, db *honker.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(t, db.Maintain(ctx, nil))
}

// seq returns the n consecutive numbers that start at from.
func seq(from int64, n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = from + int64(i)
	}
	return ids
}

// AckMany returns the number of committed acks even if a later commit of the same call fails.
func TestAfter_AckMany_Refused(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, &honker.Options{NoTraffic: true, OnConnect: func(ctx context.Context, conn driver.Conn) error {
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, `PRAGMA foreign_keys = ON`, nil)
		return err
	}})
	ctx, q := testkit.Context(t, testkit.Timeout), honker.NewQueue[int](db, "jobs", nil)
	plain, awaited := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
	waiter := testkit.Enqueue(t, q, 3, honker.After(awaited))
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 2)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE strict (id INTEGER PRIMARY KEY, up REFERENCES strict (id) DEFERRABLE INITIALLY DEFERRED)`,
		fmt.Sprintf(`CREATE TRIGGER refuse AFTER DELETE ON _honker_live WHEN OLD.id = %d BEGIN INSERT INTO strict VALUES (1, 99); END`, awaited))
	n, err := q.AckMany(ctx, jobs[plain].WorkerID, []int64{plain, awaited})
	require.ErrorContains(t, err, "FOREIGN KEY")
	require.Equal(t, 1, n)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, waiter))
	testkit.Exec(t, db, `DROP TRIGGER refuse`)
	n, err = q.AckMany(ctx, jobs[plain].WorkerID, []int64{plain, awaited})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	requireSound(t, db)
}

// A job waits until all of its predecessors are acked, no matter which queues they belong to.
func TestAfter_AllAcked(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	other := honker.NewQueue[int](db, "other", nil)
	a, b := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, other, 2)
	c := testkit.Enqueue(t, q, 3, honker.After(a, b), honker.After(a))
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, c))
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 1)
	require.NoError(t, jobs[a].Ack(ctx))
	require.Empty(t, testkit.ClaimAll(t, q))
	requireSound(t, db)
	require.NoError(t, testkit.ClaimAll(t, other)[b].Ack(ctx))
	jobs = testkit.ClaimAll(t, q)
	require.Len(t, jobs, 1)
	require.Equal(t, []int64{a, b}, jobs[c].After())
	require.NoError(t, jobs[c].Ack(ctx))
	requireSound(t, db)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_after`))
}

// A chain, fan-out or fan-in is enqueued completely or not at all.
func TestAfter_Tx_AllOrNothing(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	undo := errors.New("undo")
	build := func(ctx context.Context, tx *sql.Tx) error {
		pages, err := q.EnqueueManyTx(ctx, tx, []int{1, 2, 3})
		if err != nil {
			return err
		}
		bound, err := q.EnqueueTx(ctx, tx, 4, honker.After(pages...))
		if err != nil {
			return err
		}
		_, err = q.EnqueueManyTx(ctx, tx, []int{5, 6}, honker.After(bound))
		return err
	}
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, build(ctx, tx))
		return undo
	}), undo)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT (SELECT count(*) FROM _honker_live) + (SELECT count(*) FROM _honkerx_after)`))
	require.NoError(t, db.Tx(ctx, build))
	for _, want := range []int{3, 1, 2, 0} {
		jobs := testkit.ClaimAll(t, q)
		require.Len(t, jobs, want)
		for _, j := range jobs {
			require.NoError(t, j.Ack(ctx))
		}
	}
	requireSound(t, db)
}

// Each way of acking releases the waiting job in the same commit.
func TestAfter_EachAck(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	acks := map[string]func(j *honker.Job[int]) error{
		"Ack":    func(j *honker.Job[int]) error { return j.Ack(ctx) },
		"result": func(j *honker.Job[int]) error { return errors.Join(j.SetResult(1), j.Ack(ctx)) },
		"AckTx": func(j *honker.Job[int]) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return j.AckTx(ctx, tx) })
		},
		"AckMany": func(j *honker.Job[int]) error {
			n, err := q.AckMany(ctx, "w", []int64{j.ID})
			require.Equal(t, 1, n)
			return err
		},
		"SQL function": func(j *honker.Job[int]) error {
			if !testkit.AsFile("bindings in other languages, SQL functions") {
				return j.Ack(ctx)
			}
			_, err := db.SQL().ExecContext(ctx, `SELECT honker_ack(?, 'w')`, j.ID)
			return err
		},
		"Cancel": func(j *honker.Job[int]) error { _, err := q.Cancel(ctx, j.ID); return err },
	}
	for _, keep := range []int64{0, 5} {
		require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: keep}}))
		for name, ack := range acks {
			a := testkit.Enqueue(t, q, 1)
			b := testkit.Enqueue(t, q, 2, honker.After(a))
			require.NoError(t, ack(testkit.ClaimAll(t, q)[a]), name)
			jobs := testkit.ClaimAll(t, q)
			require.Contains(t, jobs, b, name)
			require.Len(t, jobs, 1, name)
			require.NoError(t, jobs[b].Ack(ctx))
			requireSound(t, db)
		}
	}
}

// Work runs a job as soon as its predecessors are done, without polling.
func TestAfter_Work_NoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		q, other := honker.NewQueue[int](db, "jobs", nil), honker.NewQueue[int](db, "other", nil)
		a := testkit.Enqueue(t, q, 1)
		b := testkit.Enqueue(t, other, 2, honker.After(a))
		_ = testkit.Enqueue(t, q, 3, honker.After(b))
		began := time.Now()
		order := make(chan int, 3)
		work := func(q *honker.Queue[int]) func() error {
			return testkit.Background(t, func(ctx context.Context) error {
				return q.Work(ctx, func(_ context.Context, j *honker.Job[int]) error { order <- j.Args; return nil }, nil)
			})
		}
		stop, stopOther := work(q), work(other)
		for want := range 3 {
			require.Equal(t, want+1, <-order)
		}
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, errors.Join(stop(), stopOther()))
		requireSound(t, db)
	})
}

// A deleted job's ID counts as done. An ID that was never assigned is rejected, and nothing changes.
func TestAfter_Ids(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	_, err := q.Enqueue(ctx, 1, honker.After(1))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "no job with id 1 has ever existed")
	a := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	require.Contains(t, testkit.ClaimAll(t, q), b)
	before := testkit.Dump(t, db.SQL())
	for name, opts := range map[string][]honker.EnqueueOption{
		"zero":            {honker.After(0)},
		"negative":        {honker.After(b, -1)},
		"never":           {honker.After(b, b+1)},
		"too many":        {honker.After(make([]int64, 10_001)...)},
		"only if dead":    {honker.EvenIfDead()},
		"no batch":        {honker.InBatch(1)},
		"after no batch":  {honker.AfterBatch(1)},
		"in two":          {honker.InBatch(1), honker.InBatch(2)},
		"after its own":   {honker.InBatch(1), honker.AfterBatch(1)},
		"negative batch":  {honker.InBatch(-1)},
		"after negative":  {honker.AfterBatch(-1)},
		"of one with key": {honker.After(b + 1), honker.Key("k"), honker.Unique("u", nil)},
	} {
		_, err := q.Enqueue(ctx, 3, opts...)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	_, err = q.EnqueueMany(ctx, make([]int, 20), honker.After(seq(1, 10_000)...))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	_, err = q.Enqueue(ctx, 3, honker.After())
	require.NoError(t, err)
}

// A waiting job keeps its delay, and it can expire while it waits.
func TestAfter_DelayAndExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		ctx, q := context.Background(), honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Hour})
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		a := testkit.Enqueue(t, q, 1)
		late := testkit.Enqueue(t, q, 2, honker.After(a), honker.Delay(10*time.Second))
		short := testkit.Enqueue(t, q, 3, honker.After(a), honker.ExpiresIn(5*time.Second))
		next := testkit.Enqueue(t, q, 4, honker.After(short))
		job := testkit.ClaimAll(t, q)[a]
		time.Sleep(6 * time.Second)
		n, err := q.SweepExpired(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, honker.PhaseDead, testkit.PhaseOf(t, db, short))
		require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, next))
		requireSound(t, db)
		require.NoError(t, job.Ack(ctx))
		require.Empty(t, testkit.ClaimAll(t, q))
		require.Equal(t, honker.PhaseScheduled, testkit.PhaseOf(t, db, late))
		time.Sleep(4 * time.Second)
		require.Contains(t, testkit.ClaimAll(t, q), late)
	})
}

// A job held for several reasons is released when the last of them is removed, in any order.
func TestAfter_SeveralReasons(t *testing.T) {
	ctx := context.Background()
	again := honker.Unique("u", &honker.Uniqueness{Conflict: honker.RunAgain})
	for _, ackedFirst := range []bool{true, false} {
		_, db, q := testkit.NewQueue[int](t, nil)
		a, first := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2, again)
		jobs := testkit.ClaimAll(t, q)
		p := place(t, q, 3, again, honker.After(a))
		require.Equal(t, honker.PlacedAgain, p.Result)
		requireSound(t, db)
		one, two := jobs[a], jobs[first]
		if !ackedFirst {
			one, two = two, one
		}
		require.NoError(t, one.Ack(ctx))
		requireSound(t, db)
		require.Empty(t, testkit.ClaimAll(t, q))
		require.NoError(t, two.Ack(ctx))
		require.Contains(t, testkit.ClaimAll(t, q), p.ID)
		requireSound(t, db)
	}
	_, db, q := testkit.NewQueue[int](t, nil)
	a, first := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2, again)
	jobs := testkit.ClaimAll(t, q)
	p := place(t, q, 3, again, honker.After(a))
	was, err := q.ReleaseUnique(ctx, "u")
	require.NoError(t, err)
	require.True(t, was)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, p.ID))
	requireSound(t, db)
	require.NoError(t, errors.Join(jobs[a].Ack(ctx), jobs[first].Ack(ctx)))
	require.Contains(t, testkit.ClaimAll(t, q), p.ID)
}

// A replaced job also waits for the predecessors in its latest enqueue, but never for its own successors.
func TestAfter_Unique_Replaced(t *testing.T) {
	ctx, db, q := newQuietQueue(t)
	replace := honker.Unique("u", &honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	a := testkit.Enqueue(t, q, 1, replace)
	b := testkit.Enqueue(t, q, 2)
	p := place(t, q, 3, replace, honker.After(b))
	require.Equal(t, honker.Placement{ID: a, Result: honker.PlacedReplaced, Of: p.Of}, p)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, a))
	c := testkit.Enqueue(t, q, 4, honker.After(a))
	d := testkit.Enqueue(t, q, 5, honker.After(c))
	before := testkit.Dump(t, db.SQL())
	_, err := q.Enqueue(ctx, 6, replace, honker.After(d))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprintf("job %d already waits for", d))
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 6, replace, honker.After(d))
		require.ErrorIs(t, err, honker.ErrInvalid)
		return nil
	}))
	require.Equal(t, before, testkit.Dump(t, db.SQL()), "a transaction that is committed all the same")
	keep := place(t, q, 7, honker.Unique("u", nil), honker.After(d))
	require.Equal(t, honker.PlacedExisting, keep.Result)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	for _, id := range []int64{b, a, c, d} {
		jobs := testkit.ClaimAll(t, q)
		require.Len(t, jobs, 1)
		require.NoError(t, jobs[id].Ack(ctx))
	}
	requireSound(t, db)
}

// A key has room again when its released job must wait for new predecessors.
func TestAfter_Key(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: 1}))
	k := honker.Key("k")
	unique := honker.Unique("u", &honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	a := testkit.Enqueue(t, q, 1, k)
	other := testkit.Enqueue(t, q, 2)
	b, c := testkit.Enqueue(t, q, 3, k, unique), testkit.Enqueue(t, q, 4, k)
	jobs := testkit.ClaimAll(t, q)
	require.Len(t, jobs, 2)
	require.NoError(t, jobs[a].Ack(ctx)) // releases b
	released := honker.PhaseReady
	if !testkit.AsFile("a job that its key holds") {
		released = honker.PhaseHeld
	}
	require.Equal(t, released, testkit.PhaseOf(t, db, b))
	require.Equal(t, honker.PlacedReplaced, place(t, q, 5, unique, honker.After(other)).Result)
	requireSound(t, db)
	next := testkit.ClaimAll(t, q)
	require.Len(t, next, 1)
	require.NoError(t, jobs[other].Ack(ctx))
	require.Empty(t, testkit.ClaimAll(t, q))
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, b))
	require.NoError(t, next[c].Ack(ctx))
	require.Contains(t, testkit.ClaimAll(t, q), b)
	requireSound(t, db)
}

// In order, a waiting job keeps its turn.
func TestAfter_InOrder(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{InOrder: true}))
	other := honker.NewQueue[int](db, "other", nil)
	a := testkit.Enqueue(t, other, 1)
	b, c := testkit.Enqueue(t, q, 2, honker.Key("k"), honker.After(a)), testkit.Enqueue(t, q, 3, honker.Key("k"))
	require.Empty(t, testkit.ClaimAll(t, q))
	require.NoError(t, testkit.ClaimAll(t, other)[a].Ack(ctx))
	for _, id := range []int64{b, c} {
		jobs := testkit.ClaimAll(t, q)
		require.Len(t, jobs, 1)
		require.NoError(t, jobs[id].Ack(ctx))
	}
	requireSound(t, db)
}

// An ack by another binding releases the waiting job two seconds later.
func TestAfter_ForeignAck(t *testing.T) {
	testkit.FileOnly(t)
	_, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	testkit.ClaimAll(t, q)
	began := time.Now().Unix()
	foreignDelete(t, db, a)
	requireSound(t, db)
	j, err := db.Job(context.Background(), b)
	require.NoError(t, err)
	require.NotEqual(t, honker.PhaseHeld, j.Phase)
	require.GreaterOrEqual(t, j.RunAt.Unix(), began+2)
	require.LessOrEqual(t, j.RunAt.Unix(), time.Now().Unix()+2)
}

// If a death in another binding makes a job wait again, the next job with the same key takes its place.
func TestAfter_ForeignDeath_Key(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: 1}))
	a, runs := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2, honker.Key("k"))
	b, c := testkit.Enqueue(t, q, 3, honker.Key("k"), honker.After(a), honker.Priority(1)), testkit.Enqueue(t, q, 4, honker.Key("k"))
	jobs := testkit.ClaimAll(t, q)
	foreignDelete(t, db, a)
	testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 1 WHERE id = `+fmt.Sprint(b))
	require.Empty(t, testkit.ClaimAll(t, q)) // both jobs now wait for their key
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job WHERE slot = 2`))
	require.NoError(t, jobs[runs].Ack(ctx)) // releases b, which is first in line
	foreignDeath(t, db, a)
	requireSound(t, db)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, b))
	require.Contains(t, testkit.ClaimAll(t, q), c)
}

// The results of a job's predecessors are kept until the job has ended, even past their TTL.
func TestAfter_ResultsAreKept(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		ctx := context.Background()
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{ResultTTL: time.Second, Lease: time.Hour})
		a, alone := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
		b := testkit.Enqueue(t, q, 3, honker.After(a))
		jobs := testkit.ClaimAll(t, q)
		for id, j := range jobs {
			require.NoError(t, j.SetResult(id*10))
			require.NoError(t, j.Ack(ctx))
		}
		job := testkit.ClaimAll(t, q)[b]
		time.Sleep(time.Minute)
		maintainOnce(t, db)
		require.Equal(t, []int64{a}, job.After())
		got, err := honker.Result[int64](ctx, db, a)
		require.NoError(t, err)
		require.Equal(t, a*10, got)
		got, err = honker.WaitResult[int64](ctx, db, a)
		require.NoError(t, err)
		require.Equal(t, a*10, got)
		_, err = honker.Result[int64](ctx, db, alone)
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.NoError(t, job.Ack(ctx))
		_, err = honker.Result[int64](ctx, db, a)
		require.ErrorIs(t, err, honker.ErrNotFound)
		maintainOnce(t, db)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
	})
}

// A waiting job that dies does not release its own successors.
func TestAfter_DeadWaiter(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	b := testkit.Enqueue(t, q, 2, honker.After(a))
	c := testkit.Enqueue(t, q, 3, honker.After(b))
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	require.NoError(t, testkit.ClaimAll(t, q)[b].Reject(ctx, testkit.ErrCause))
	requireSound(t, db)
	require.Equal(t, honker.PhaseHeld, testkit.PhaseOf(t, db, c))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_after WHERE waiter = `+fmt.Sprint(b)))
}

// A plain job needs no side row, and a file without edges has no trigger for them.
func TestAfter_PlainJobs(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	a := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimAll(t, q)[a].Ack(ctx))
	triggers := `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '_honkerx_after*'`
	require.Zero(t, testkit.QueryInt(t, db.SQL(), triggers))
	testkit.Enqueue(t, q, 2, honker.After(a))
	require.EqualValues(t, 8, testkit.QueryInt(t, db.SQL(), triggers))
}

// A job that has expired by the time a death releases it dies in the same sweep or the next.
func TestAfter_EvenIfDead_Expired(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: 5})) // a claim settles expired jobs
	for _, sweep := range []func() error{
		func() error { _, err := q.SweepExpired(ctx); return err },
		func() error { _, err := q.Claim(ctx, "w", 5); return err },
		func() error { _, err := db.SQL().Exec(`SELECT honker_sweep_expired('jobs')`); return err },
	} {
		a := testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Hour))
		b := testkit.Enqueue(t, q, 2, honker.ExpiresIn(time.Hour), honker.After(a), honker.EvenIfDead())
		c := testkit.Enqueue(t, q, 3, honker.ExpiresIn(time.Hour), honker.After(b), honker.EvenIfDead())
		testkit.Exec(t, db, `UPDATE _honker_live SET expires_at = 1`)
		for range 3 {
			require.NoError(t, sweep())
			requireSound(t, db)
		}
		for _, id := range []int64{a, b, c} {
			require.Equal(t, honker.PhaseDead, testkit.PhaseOf(t, db, id))
		}
	}
}
