package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func batches(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"Counts":                batchCounts,
		"LastMemberReleases":    lastMemberReleases,
		"SealReleases":          sealReleases,
		"DeadMembers":           deadMembers,
		"CancelInParts":         batchCancelledInParts,
		"CancelKeepsDead":       batchCancelKeepsDead,
		"RollbackLeavesNothing": batchRolledBack,
	})
}

// members adds n members to a batch.
func (d *Fixture) members(t *testing.T, batch int64, n int) (ids []int64) {
	t.Helper()
	for range n {
		ids = append(ids, d.after(t, row.Links{In: batch}))
	}
	return ids
}

// getBatch returns a batch that exists.
func (d *Fixture) getBatch(t *testing.T, id int64, now time.Time) (b row.Batch) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		var found bool
		b, found, err = d.Stores.Batches.Get(ctx, q, id, now)
		require.True(t, found)
		return err
	})
	return b
}

// membersOf returns up to 10 live or dead members of a batch.
func (d *Fixture) membersOf(t *testing.T, batch int64, dead bool) (ids []int64) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		ids, err = d.Stores.Batches.Members(ctx, q, batch, dead, 10)
		return err
	})
	return ids
}

// Get counts a batch's members: all members ever added, live members, members with valid claims, and members that
// are dead. The batch is done when it is sealed and all its members have ended.
func batchCounts(t *testing.T, d *Fixture) {
	id := d.batch(t)
	ids := d.members(t, id, 4)
	waiter := d.after(t, row.Links{Batches: []int64{id}})
	d.after(t, row.Links{In: d.batch(t)})
	claimed := d.claimJobs(t, start, "w", 3)
	d.end(t, start, claimed[0], row.Acked)
	d.end(t, start, claimed[1], row.Died)
	counts := func(now time.Time) row.Batch {
		b := d.getBatch(t, id, now)
		b.Created = time.Time{}
		return b
	}
	want := row.Batch{ID: id, Total: 4, Live: 2, Running: 1, Dead: 1, Open: true, Next: []int64{waiter}}
	require.Equal(t, want, counts(start.Add(jobLease)))
	want.Running = 0
	require.Equal(t, want, counts(start.Add(jobLease+time.Second)), "the claim has lapsed")
	require.ElementsMatch(t, ids[2:], d.membersOf(t, id, false))
	require.Equal(t, ids[1:2], d.membersOf(t, id, true))
	d.seal(t, id)
	want.Open = false
	require.Equal(t, want, counts(start.Add(time.Minute)))
}

// A sealed batch's waiters run once all of its members have ended, in any order, by an ack or a cancel. A member that
// is retried has not ended.
func lastMemberReleases(t *testing.T, d *Fixture) {
	id := d.batch(t)
	ids := d.members(t, id, 4)
	waiters := []int64{d.after(t, row.Links{Batches: []int64{id}}), d.after(t, row.Links{Batches: []int64{id}, IfDead: true})}
	held := func(message string) {
		t.Helper()
		for _, w := range waiters {
			require.Equal(t, row.Held, d.stateOf(t, w), message)
		}
		require.Zero(t, d.getBatch(t, id, start).Done, message)
	}
	claimed := d.claimJobs(t, start, "w", 9)
	require.Equal(t, ids, jobIDs(claimed))
	d.seal(t, id)
	held("no member has ended")
	d.end(t, start, claimed[3], row.Acked)
	d.cancelJob(t, start, ids[1])
	d.end(t, start, claimed[0], row.Acked)
	held("a member runs")
	d.end(t, start, claimed[2], row.Retried)
	held("a member is retried")
	last := d.claimJobs(t, start, "w", 9)
	require.Equal(t, ids[2:3], jobIDs(last))
	other := d.batch(t)
	both := d.after(t, row.Links{Batches: []int64{id, other}})
	d.end(t, start, last[0], row.Acked)
	require.NotZero(t, d.getBatch(t, id, start).Done)
	require.Equal(t, row.Held, d.stateOf(t, both), "it waits for another batch")
	require.Equal(t, waiters, d.claimIDs(t, start, 9))
	d.seal(t, other)
	require.Equal(t, []int64{both}, d.claimIDs(t, start, 9))
	require.Equal(t, "pending", d.stateOf(t, d.after(t, row.Links{Batches: []int64{id}})), "the batch is done")
}

// An open batch is not done, even if all its members have ended, and accepts more members. Seal then releases its
// waiters. A second Seal changes nothing.
func sealReleases(t *testing.T, d *Fixture) {
	id := d.batch(t)
	waiter := d.after(t, row.Links{Batches: []int64{id}})
	for range 2 {
		d.members(t, id, 1)
		d.end(t, start, d.claimJobs(t, start, "w", 1)[0], row.Acked)
		require.Equal(t, row.Held, d.stateOf(t, waiter))
		require.Zero(t, d.getBatch(t, id, start).Done)
	}
	for range 2 {
		d.seal(t, id)
		require.Equal(t, "pending", d.stateOf(t, waiter))
	}
	done := d.getBatch(t, id, start)
	require.NotZero(t, done.Done)
	require.EqualValues(t, 2, done.Total)
}

// A batch with a dead member is not done. When no member is left to run, only waiters that also run after a death are
// released. The others run once the dead member has been discarded, or requeued and ended.
func deadMembers(t *testing.T, d *Fixture) {
	for _, discard := range []bool{false, true} {
		id := d.batch(t)
		ids := d.members(t, id, 2)
		waiter := d.after(t, row.Links{Batches: []int64{id}})
		either := d.after(t, row.Links{Batches: []int64{id}, IfDead: true})
		d.seal(t, id)
		claimed := d.claimJobs(t, start, "w", 9)
		require.Equal(t, ids, jobIDs(claimed))
		d.end(t, start, claimed[0], row.Died)
		require.Equal(t, row.Held, d.stateOf(t, either), "a member runs")
		d.end(t, start, claimed[1], row.Acked)
		require.Equal(t, row.Held, d.stateOf(t, waiter))
		got := d.claimJobs(t, start, "w", 9)
		require.Equal(t, []int64{either}, jobIDs(got))
		require.Zero(t, d.getBatch(t, id, start).Done)
		require.Equal(t, ids[:1], d.membersOf(t, id, true))
		require.ErrorIs(t, d.refused(t, row.Links{In: id}), row.ErrBatchDone)
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
			if discard {
				gone, err := d.Stores.Operators.Discard(ctx, q, ids[:1], row.ReleaseWaiters)
				require.Len(t, gone.Jobs, 1)
				return err
			}
			out, err := d.Stores.Operators.Requeue(ctx, q, row.Requeue{ID: ids[0]}, start)
			require.True(t, out.Done)
			return err
		})
		d.end(t, start, got[0], row.Acked)
		if !discard {
			require.Equal(t, row.Held, d.stateOf(t, waiter), "the member waits again")
			got = d.claimJobs(t, start, "w", 9)
			require.Equal(t, ids[:1], jobIDs(got))
			require.Equal(t, id, got[0].Batch)
			d.end(t, start, got[0], row.Acked)
		}
		require.NotZero(t, d.getBatch(t, id, start).Done)
		got = d.claimJobs(t, start, "w", 9)
		require.Equal(t, []int64{waiter}, jobIDs(got))
		d.end(t, start, got[0], row.Acked)
	}
}

// cancelBatch cancels part of a batch, which must exist.
func (d *Fixture) cancelBatch(t *testing.T, id int64, limit int) (gone []int64, more bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		changes, rest, found, err := d.Stores.Batches.Cancel(ctx, q, id, limit, start)
		require.True(t, found)
		gone, more = nil, rest
		for _, c := range changes {
			require.Equal(t, "a", c.Queue)
			gone = append(gone, c.ID)
		}
		return err
	})
	return gone, more
}

// Cancel seals the batch and removes its waiters first, so that none of them run when the last member is gone. It then
// removes the waiting and running members, and the jobs that wait for them, in several calls. It returns each job once.
func batchCancelledInParts(t *testing.T, d *Fixture) {
	id := d.batch(t)
	ids := d.members(t, id, 9)
	waiter := d.after(t, row.Links{Batches: []int64{id}, IfDead: true})
	later := d.after(t, row.Links{Jobs: []int64{waiter}})
	ofMember := d.after(t, row.Links{Jobs: []int64{ids[8]}})
	other := d.add(t, start)
	claimed := d.claimJobs(t, start, "w", 4)
	for _, j := range claimed[:3] {
		d.end(t, start, j, row.Acked)
	}
	gone, more := d.cancelBatch(t, id, 2)
	require.Subset(t, gone, []int64{waiter, later})
	require.True(t, more)
	require.False(t, d.getBatch(t, id, start).Open)
	calls := 1
	for more && calls < 50 {
		var part []int64
		part, more = d.cancelBatch(t, id, 2)
		require.LessOrEqual(t, len(part), 3, "two members and the waiter of a member")
		gone = append(gone, part...)
		calls++
	}
	require.False(t, more)
	require.GreaterOrEqual(t, calls, 4)
	require.ElementsMatch(t, append([]int64{waiter, later, ofMember}, ids[3:]...), gone)
	for _, id := range gone {
		require.Empty(t, d.stateOf(t, id))
	}
	s := d.end(t, start, claimed[3], row.Acked)
	require.Equal(t, row.Lost, s.Became)
	require.True(t, s.Gone)
	require.Zero(t, d.getBatch(t, id, start).Live)
	require.NotZero(t, d.getBatch(t, id, start).Done)
	require.ErrorIs(t, d.refused(t, row.Links{In: id}), row.ErrBatchDone)
	require.Equal(t, []int64{other}, d.claimIDs(t, start, 9), "it is no member")
	gone, more = d.cancelBatch(t, id, 2)
	require.Empty(t, gone)
	require.False(t, more)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, _, found, err := d.Stores.Batches.Cancel(ctx, q, id+1000, 2, start)
		require.False(t, found)
		return err
	})
}

// Cancel leaves dead members alone.
func batchCancelKeepsDead(t *testing.T, d *Fixture) {
	id := d.batch(t)
	ids := d.members(t, id, 2)
	d.end(t, start, d.claimJobs(t, start, "w", 1)[0], row.Died)
	var gone []int64
	for more := true; more; {
		var part []int64
		part, more = d.cancelBatch(t, id, 5)
		gone = append(gone, part...)
	}
	require.Equal(t, ids[1:], gone)
	require.Equal(t, "dead", d.stateOf(t, ids[0]))
	require.Equal(t, ids[:1], d.membersOf(t, id, true))
}

// A transaction that is rolled back doesn't add a batch or a member, or seal or cancel a batch.
func batchRolledBack(t *testing.T, d *Fixture) {
	id := d.batch(t)
	ids := d.members(t, id, 2)
	waiter := d.after(t, row.Links{Batches: []int64{id}})
	before := d.getBatch(t, id, start)
	for name, verb := range map[string]func(ctx context.Context, q engine.Querier) error{
		"insert": func(ctx context.Context, q engine.Querier) error {
			added, err := d.Stores.Batches.Insert(ctx, q, "name", `{}`, start)
			require.Greater(t, added, id)
			return err
		},
		"join": func(ctx context.Context, q engine.Querier) error {
			in := plain()
			in.Links = &row.Links{In: id}
			_, err := d.Stores.Jobs.Insert(ctx, q, &in, start)
			return err
		},
		"seal": func(ctx context.Context, q engine.Querier) error {
			found, err := d.Stores.Batches.Seal(ctx, q, id)
			require.True(t, found)
			return err
		},
		"cancel": func(ctx context.Context, q engine.Querier) error {
			gone, _, found, err := d.Stores.Batches.Cancel(ctx, q, id, 9, start)
			require.True(t, found)
			require.Len(t, gone, 3)
			return err
		},
	} {
		d.rollBack(t, verb)
		require.Equal(t, before, d.getBatch(t, id, start), name)
		require.ElementsMatch(t, ids, d.membersOf(t, id, false), name)
		require.Equal(t, row.Held, d.stateOf(t, waiter), name)
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Batches.List(ctx, q, false, 0, 10, start)
		require.Len(t, all, 1)
		return err
	})
}
