package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func buries(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("LiveJobs", func(t *testing.T) { buriesLive(t, open(t)) })
	t.Run("Awaited", func(t *testing.T) { buriesAwaited(t, open(t)) })
	t.Run("UniqueKeys", func(t *testing.T) { buriesUnique(t, open(t)) })
	t.Run("OfARequeue", func(t *testing.T) { buriesRequeued(t, open(t)) })
	t.Run("Keyed", func(t *testing.T) { buriesKeyed(t, open(t)) })
}

func (d *Fixture) bury(t *testing.T, now time.Time, ids ...int64) (dead []row.Death) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		dead, err = d.Stores.Operators.Bury(ctx, q, ids, now)
		return err
	})
	return dead
}

func (d *Fixture) requeue(t *testing.T, id int64) (out row.Requeued) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = d.Stores.Operators.Requeue(ctx, q, row.Requeue{ID: id}, start)
		return err
	})
	return out
}

// Bury takes jobs that wait for a worker, their time or a retry, or whose claim has lapsed. It leaves jobs with a valid
// claim. A job keeps its attempts and its last error.
func buriesLive(t *testing.T, d *Fixture) {
	retried := d.opsAdd(t, opsJob{})
	require.Equal(t, []int64{retried}, d.opsTake(t, "mails", 1, start))
	j, _ := d.find(t, retried)
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: "mails", Outcome: row.Retried, Delay: time.Hour, Error: "no luck"})
	taken := d.opsAdd(t, opsJob{})
	require.Equal(t, []int64{taken}, d.opsTake(t, "mails", 1, start))
	ready, scheduled, other := d.opsAdd(t, opsJob{}), d.opsAdd(t, opsJob{delay: time.Hour}), d.opsAdd(t, opsJob{})
	ids := []int64{retried, taken, ready, scheduled, 999}
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		dead, err := d.Stores.Operators.Bury(ctx, q, ids, start)
		require.Len(t, dead, 3)
		return err
	})
	require.Equal(t, "pending", d.opsState(t, ready), "rolled back")
	reason := row.ReasonBuried
	require.ElementsMatch(t, []row.Death{
		{Queue: "mails", ID: retried, Attempts: 1, Reason: reason}, {Queue: "mails", ID: ready, Reason: reason}, {Queue: "mails", ID: scheduled, Reason: reason},
	}, d.bury(t, start, ids...))
	require.Empty(t, d.bury(t, start, ids...), "once")
	require.Equal(t, "processing", d.opsState(t, taken), "its claim is valid")
	require.Equal(t, "pending", d.opsState(t, other))
	for id, want := range map[int64]string{retried: "no luck", ready: reason, scheduled: reason} {
		j, _ := d.find(t, id)
		require.Equal(t, "dead", j.State)
		require.Equal(t, want, j.LastError)
		require.Equal(t, start.Unix(), j.DiedAt.Unix())
		require.EqualValues(t, 3, j.MaxAttempts)
	}
	lapsed := start.Add(2 * time.Minute)
	require.Len(t, d.bury(t, lapsed, taken), 1)
	j, _ = d.find(t, taken)
	require.EqualValues(t, 1, j.Attempts)
	require.Equal(t, []int64{other}, d.opsTake(t, "mails", 9, lapsed))
}

// A job that waits for a buried job stays held, also if the buried job had been requeued. It is released if it may run
// after a dead job.
func buriesAwaited(t *testing.T, d *Fixture) {
	awaited := d.opsAdd(t, opsJob{})
	waiter := d.opsAdd(t, opsJob{after: []int64{awaited}})
	anyway := d.after(t, row.Links{Jobs: []int64{awaited}, IfDead: true})
	last := d.opsAdd(t, opsJob{after: []int64{waiter}})
	require.Len(t, d.bury(t, start, awaited), 1)
	require.Equal(t, "pending", d.opsState(t, anyway))
	require.True(t, d.requeue(t, awaited).Done)
	require.Len(t, d.bury(t, start, awaited), 1)
	require.Equal(t, row.Held, d.opsState(t, waiter))
	require.Len(t, d.bury(t, start, waiter), 1, "a held job")
	require.Equal(t, row.Held, d.opsState(t, last))
	require.True(t, d.requeue(t, waiter).Done)
	require.Equal(t, row.Held, d.opsState(t, waiter), "it still waits for the dead job")
	require.True(t, d.requeue(t, awaited).Done)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Operators.CancelMany(ctx, q, row.CancelJobs{IDs: []int64{awaited}}, start)
		return err
	})
	require.Equal(t, "pending", d.opsState(t, waiter))
	batch := d.batch(t)
	members := d.members(t, batch, 2)
	then := d.after(t, row.Links{Batches: []int64{batch}})
	d.seal(t, batch)
	require.Len(t, d.bury(t, start, members...), 2)
	require.Equal(t, row.Held, d.opsState(t, then))
	require.ElementsMatch(t, members, d.membersOf(t, batch, true))
}

// A buried job frees its unique key. A requeue takes the key again, unless another job holds it.
func buriesUnique(t *testing.T, d *Fixture) {
	u := row.Unique{Keys: []string{"u"}}
	first := d.place(t, start, u)
	require.Len(t, d.bury(t, start, first.ID), 1)
	second := d.place(t, start, u)
	require.Equal(t, row.PlacedNew, second.Result)
	require.Equal(t, second.ID, d.requeue(t, first.ID).TakenBy)
	require.Len(t, d.bury(t, start, second.ID), 1)
	require.True(t, d.requeue(t, first.ID).Done)
	require.Equal(t, first.ID, d.place(t, start, u).ID)
}

// The audit entry of a requeue selects its jobs that have used no attempt since. Buried and requeued again, they get as
// many attempts as before.
func buriesRequeued(t *testing.T, d *Fixture) {
	of := func(entry int64) (ids []int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) error {
			all, err := d.Stores.Operators.Select(ctx, q, row.JobSelect{In: row.Live, Requeue: entry}, 0, 9, start)
			for _, j := range all {
				ids = append(ids, j.ID)
			}
			return err
		})
		list := row.ListRequest{JobSelect: row.JobSelect{Requeue: entry, Phases: []row.Phase{row.PhaseReady}}, Order: row.OldestFirst, Limit: 9, Sorted: 9}
		require.Equal(t, ids, d.opsList(t, list, func() {}))
		return ids
	}
	mark := func(entry int64, ids ...int64) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			for _, id := range ids {
				if _, err := d.Stores.Operators.Requeue(ctx, q, row.Requeue{ID: id}, start); err != nil {
					return err
				}
			}
			return d.Stores.Operators.MarkRequeued(ctx, q, ids, entry)
		})
	}
	var ids []int64
	for range 4 {
		d.opsAdd(t, opsJob{})
		ids = append(ids, d.opsDie(t, "mails", start))
	}
	fresh := d.opsAdd(t, opsJob{delay: time.Hour})
	mark(7, ids[:3]...)
	mark(8, ids[3])
	require.Equal(t, ids[:3], of(7))
	require.Equal(t, ids[3:], of(8))
	require.Empty(t, of(9))
	require.Equal(t, ids[:1], d.opsTake(t, "mails", 1, start))
	require.Equal(t, ids[1:3], of(7), "the first is running")
	j, _ := d.find(t, ids[0])
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(&j), Queue: "mails", Outcome: row.Retried, Error: "no"})
	require.Equal(t, ids[1:3], of(7), "the first has failed again")
	require.Len(t, d.bury(t, start, of(7)...), 2)
	require.Empty(t, of(7))
	j, _ = d.find(t, ids[1])
	require.Equal(t, "no luck", j.LastError)
	mark(9, ids[1])
	require.Equal(t, ids[1:2], of(9))
	require.Empty(t, of(7))
	again, _ := d.find(t, ids[1])
	require.EqualValues(t, 1, again.Attempts)
	require.EqualValues(t, 4, again.MaxAttempts)
	require.Equal(t, "pending", d.opsState(t, fresh))
}

// A buried job of a key that runs its jobs in order makes room for the next.
func buriesKeyed(t *testing.T, d *Fixture) {
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Limits.Set(ctx, q, "mails", row.QueueLimits{InOrder: true})
		return err
	})
	first, second := d.opsAdd(t, opsJob{key: "k"}), d.opsAdd(t, opsJob{key: "k"})
	held := d.opsAdd(t, opsJob{key: "k"})
	require.Equal(t, []int64{first}, d.opsTake(t, "mails", 9, start))
	require.Len(t, d.bury(t, start, held), 1)
	lapsed := start.Add(2 * time.Minute)
	require.Len(t, d.bury(t, lapsed, first), 1)
	require.Equal(t, []int64{second}, d.opsTake(t, "mails", 9, lapsed))
	require.True(t, d.requeue(t, held).Done)
	j, _ := d.find(t, held)
	require.Equal(t, "k", j.Key)
}
