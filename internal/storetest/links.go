package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func links(t *testing.T, open func(t *testing.T) *Fixture) {
	subtests(t, open, map[string]func(t *testing.T, d *Fixture){
		"After":            afterJobs,
		"AfterADeadJob":    afterDead,
		"Batches":          afterBatch,
		"Edges":            edges,
		"RefusedLinks":     linksRefused,
		"UniqueConflicts":  uniqueConflicts,
		"UniqueKeysEnd":    uniqueKeysEnd,
		"UniqueMaximum":    uniqueMaximum,
		"UniqueReplaced":   uniqueReplaced,
		"UniqueOfManyJobs": uniqueOfMany,
	})
}

// after adds a job with links.
func (d *Fixture) after(t *testing.T, l row.Links) int64 {
	t.Helper()
	in := plain()
	in.Links = &l
	return d.insert(t, start, in).IDs[0]
}

// A job waits until all of its predecessors have ended, by an ack or a cancel. A chain runs in order.
func afterJobs(t *testing.T, d *Fixture) {
	first, second := d.add(t, start), d.add(t, start)
	waiter := d.after(t, row.Links{Jobs: []int64{second, first, first}})
	last := d.after(t, row.Links{Jobs: []int64{waiter}})
	require.Equal(t, row.Held, d.stateOf(t, waiter))
	claimed := d.claimJobs(t, start, "w", 9)
	require.Equal(t, []int64{first, second}, jobIDs(claimed))
	d.end(t, start, claimed[0], row.Acked)
	require.Equal(t, row.Held, d.stateOf(t, waiter))
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Cancel(ctx, q, "a", second, start)
		return err
	})
	claimed = d.claimJobs(t, start, "w", 9)
	require.Equal(t, []int64{waiter}, jobIDs(claimed))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		ids, err := d.Stores.Jobs.AfterOf(ctx, q, waiter)
		require.Equal(t, []int64{first, second}, ids)
		return err
	})
	d.end(t, start, claimed[0], row.Acked)
	require.Equal(t, []int64{last}, jobIDs(d.claimJobs(t, start, "w", 9)))
	require.Equal(t, "pending", d.stateOf(t, d.after(t, row.Links{Jobs: []int64{first}})), "the job has ended already")
}

// A dead job isn't done: its waiters stay held, unless they also run after a death. A retry changes nothing.
func afterDead(t *testing.T, d *Fixture) {
	id := d.add(t, start)
	waiter := d.after(t, row.Links{Jobs: []int64{id}})
	either := d.after(t, row.Links{Jobs: []int64{id}, IfDead: true})
	for _, outcome := range []row.Outcome{row.Retried, row.Snoozed, row.Released, row.Died} {
		require.Equal(t, row.Held, d.stateOf(t, waiter))
		require.Equal(t, row.Held, d.stateOf(t, either))
		d.end(t, start, d.claimJobs(t, start, "w", 1)[0], outcome)
	}
	require.Equal(t, row.Held, d.stateOf(t, waiter))
	require.Equal(t, "pending", d.stateOf(t, either))
	require.Equal(t, row.Held, d.stateOf(t, d.after(t, row.Links{Jobs: []int64{id}})))
	require.Equal(t, "pending", d.stateOf(t, d.after(t, row.Links{Jobs: []int64{id}, IfDead: true})))
}

// batch adds a batch.
func (d *Fixture) batch(t *testing.T) (id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		id, err = d.Stores.Batches.Insert(ctx, q, "", "", start)
		return err
	})
	return id
}

// seal seals a batch.
func (d *Fixture) seal(t *testing.T, id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		found, err := d.Stores.Batches.Seal(ctx, q, id)
		require.True(t, found)
		return err
	})
}

// A job that waits for a batch runs once the batch is sealed and its members have ended. As long as a member is
// running, even a sealed batch accepts members.
func afterBatch(t *testing.T, d *Fixture) {
	batch := d.batch(t)
	waiter := d.after(t, row.Links{Batches: []int64{batch}})
	d.after(t, row.Links{In: batch})
	j := d.claimJobs(t, start, "w", 9)[0]
	require.Equal(t, batch, j.Batch)
	d.seal(t, batch)
	late := d.after(t, row.Links{In: batch})
	d.end(t, start, j, row.Acked)
	require.Equal(t, row.Held, d.stateOf(t, waiter), "a member waits")
	claimed := d.claimJobs(t, start, "w", 9)
	require.Equal(t, []int64{late}, jobIDs(claimed))
	d.end(t, start, claimed[0], row.Acked)
	require.Equal(t, "pending", d.stateOf(t, waiter))
	require.ErrorIs(t, d.refused(t, row.Links{In: batch}), row.ErrBatchDone)

	empty := d.batch(t)
	waiter = d.after(t, row.Links{Batches: []int64{empty}})
	d.seal(t, empty)
	require.Equal(t, "pending", d.stateOf(t, waiter), "a batch without members is done when it is sealed")
}

// refused returns the error from an insert with links.
func (d *Fixture) refused(t *testing.T, l row.Links) error {
	t.Helper()
	in := plain()
	in.Links = &l
	return d.write(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Insert(ctx, q, &in, start)
		return err
	})
}

// Links to IDs that were never assigned are rejected, as is a batch member that would wait for itself.
func linksRefused(t *testing.T, d *Fixture) {
	id, batch := d.add(t, start), d.batch(t)
	waiter := d.after(t, row.Links{Batches: []int64{batch}})
	for name, l := range map[string]row.Links{
		"a job":                      {Jobs: []int64{id, waiter + 1000}},
		"a batch":                    {Batches: []int64{batch + 1000}},
		"the batch of a member":      {In: batch + 1000},
		"a member that waits for it": {In: batch, Batches: []int64{batch}},
		"a circle":                   {In: batch, Jobs: []int64{waiter}},
	} {
		require.ErrorIs(t, d.refused(t, l), engine.ErrInvalid, name)
	}
	require.Equal(t, []int64{id}, jobIDs(d.claimJobs(t, start, "w", 9)), "nothing was added")
}

// place adds a job with unique keys and returns its first placement.
func (d *Fixture) place(t *testing.T, now time.Time, u row.Unique) row.Placed {
	t.Helper()
	in := plain()
	in.Payloads, in.Unique = []string{`"new"`}, &u
	out := d.insert(t, now, in)
	require.Equal(t, out.IDs[0], out.Places[0].ID)
	return out.Places[0]
}

// If its key is taken, the outcome of an enqueue depends on its Conflict and on the state of the job that holds the
// key.
func uniqueConflicts(t *testing.T, d *Fixture) {
	for _, c := range []struct {
		conflict        row.Conflict
		waiting, runs   row.PlaceResult
		payload, behind string // the waiting job's payload afterward; state of the job behind the running job
	}{
		{row.KeepExisting, row.PlacedExisting, row.PlacedExisting, `{}`, ""},
		{row.ReplaceWaiting, row.PlacedReplaced, row.PlacedExisting, `"new"`, ""},
		{row.RunAgain, row.PlacedReplaced, row.PlacedAgain, `"new"`, row.Held},
	} {
		key := []string{string(c.runs) + string(c.waiting) + c.payload}
		in := plain()
		in.Unique = &row.Unique{Keys: key}
		first := d.insert(t, start, in)
		require.Equal(t, row.PlacedNew, first.Places[0].Result)
		id := first.IDs[0]
		p := d.place(t, start, row.Unique{Keys: key, Conflict: c.conflict})
		require.Equal(t, c.waiting, p.Result)
		require.Equal(t, id, p.ID)
		require.Equal(t, id, p.Of.ID)
		require.Equal(t, `{}`, p.Of.Payload, "the state before")
		j, _ := d.find(t, id)
		require.Equal(t, c.payload, j.Payload)

		claimed := d.claimJobs(t, start, "w", 9)
		require.Equal(t, []int64{id}, jobIDs(claimed))
		require.Equal(t, key[0], claimed[0].Unique)
		p = d.place(t, start, row.Unique{Keys: key, Conflict: c.conflict})
		require.Equal(t, c.runs, p.Result)
		if c.behind == "" {
			require.Equal(t, id, p.ID)
			d.end(t, start, claimed[0], row.Acked)
			continue
		}
		require.NotEqual(t, id, p.ID)
		require.Equal(t, c.behind, d.stateOf(t, p.ID))
		again := d.place(t, start, row.Unique{Keys: key, Conflict: c.conflict})
		require.Equal(t, row.PlacedReplaced, again.Result, "a running job has a single successor")
		require.Equal(t, p.ID, again.ID)
		d.end(t, start, claimed[0], row.Acked)
		claimed = d.claimJobs(t, start, "w", 9)
		require.Equal(t, []int64{p.ID}, jobIDs(claimed))
		d.end(t, start, claimed[0], row.Acked)
	}
}

// A key is free again when its job has ended, has started, or can never run again, but not before the key's Keep time
// has passed.
func uniqueKeysEnd(t *testing.T, d *Fixture) {
	free := func(now time.Time, key string) bool {
		return d.place(t, now, row.Unique{Keys: []string{key}}).Result == row.PlacedNew
	}
	for name, end := range map[string]func(j *row.Job){
		"acked":     func(j *row.Job) { d.end(t, start, j, row.Acked) },
		"dead":      func(j *row.Job) { d.end(t, start, j, row.Died) },
		"cancelled": func(j *row.Job) { d.reset(t, j.ID) },
		"released": func(j *row.Job) {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				taken, err := d.Stores.Jobs.ReleaseUnique(ctx, q, "a", "released", start)
				require.True(t, taken)
				taken, err2 := d.Stores.Jobs.ReleaseUnique(ctx, q, "a", "released", start)
				require.False(t, taken)
				require.NoError(t, err2)
				return err
			})
			d.end(t, start, j, row.Acked)
		},
	} {
		require.True(t, free(start, name), name)
		require.False(t, free(start, name), name)
		j := d.claimJobs(t, start, "w", 1)[0]
		require.False(t, free(start, name), "%s: it runs", name)
		end(j)
		require.True(t, free(start, name), name)
		for _, j := range d.claimJobs(t, start, "w", 9) {
			d.end(t, start, j, row.Acked)
		}
	}
	d.place(t, start, row.Unique{Keys: []string{"started"}, Started: true})
	require.False(t, free(start, "started"))
	j := d.claimJobs(t, start, "w", 1)[0]
	d.end(t, start, j, row.Released)
	require.True(t, free(start, "started"), "even if the claim was given back")
	for _, j := range d.claimJobs(t, start, "w", 9) {
		d.end(t, start, j, row.Acked)
	}
	d.place(t, start, row.Unique{Keys: []string{"kept"}, Keep: time.Minute})
	d.end(t, start, d.claimJobs(t, start, "w", 1)[0], row.Acked)
	require.False(t, free(start.Add(59*time.Second), "kept"))
	require.True(t, free(start.Add(time.Minute), "kept"))
	in := plain()
	in.Unique, in.ExpiresIn = &row.Unique{Keys: []string{"expired"}}, time.Minute
	d.insert(t, start, in)
	require.False(t, free(start.Add(59*time.Second), "expired"))
	require.True(t, free(start.Add(time.Minute), "expired"))
}

// reset cancels a job.
func (d *Fixture) reset(t *testing.T, id int64) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Cancel(ctx, q, "a", id, start)
		return err
	})
}

// A job that is postponed again and again runs no later than MaxDelay after its key was taken.
func uniqueMaximum(t *testing.T, d *Fixture) {
	in := plain()
	in.Delay, in.Unique = 10*time.Second, &row.Unique{Keys: []string{"k"}, Started: true, Conflict: row.ReplaceWaiting, MaxDelay: 15 * time.Second}
	id := d.insert(t, start, in).IDs[0]
	for _, c := range []struct{ at, runAt time.Duration }{{2 * time.Second, 12 * time.Second}, {7 * time.Second, 15 * time.Second}, {9 * time.Second, 15 * time.Second}} {
		require.Equal(t, id, d.insert(t, start.Add(c.at), in).IDs[0])
		j, _ := d.find(t, id)
		require.Equal(t, start.Add(c.runAt).Unix(), j.RunAt.Unix())
	}
}

// A replaced job gets the enqueue's headers, priority and attempts, and also waits for its links. It keeps its limits
// key and loses its progress and checkpoint.
func uniqueReplaced(t *testing.T, d *Fixture) {
	in := plain()
	in.Key, in.Headers, in.Unique = "k", `{"h":"1"}`, &row.Unique{Keys: []string{"u"}}
	id := d.insert(t, start, in).IDs[0]
	j := d.claimJobs(t, start, "w", 1)[0]
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		_, err := d.Stores.Jobs.Checkpoint(ctx, q, claimOf(j), `1`, start)
		return err
	})
	d.settleJobs(t, start, &row.Settlement{Claim: claimOf(j), Queue: "a", Outcome: row.Retried, Progress: &row.Progress{Done: 1}})
	first := d.add(t, start)
	in.Key, in.Headers, in.Priority, in.Links = "other", `{"h":"2"}`, 5, &row.Links{Jobs: []int64{first}}
	in.Unique.Conflict = row.ReplaceWaiting
	require.Equal(t, row.PlacedReplaced, d.insert(t, start, in).Places[0].Result)
	require.Equal(t, row.Held, d.stateOf(t, id))
	claimed := d.claimJobs(t, start, "w", 9)
	require.Equal(t, []int64{first}, jobIDs(claimed))
	d.end(t, start, claimed[0], row.Acked)
	j = d.claimJobs(t, start, "w", 9)[0]
	require.Equal(t, id, j.ID)
	require.JSONEq(t, `{"h":"2"}`, j.Headers)
	require.Equal(t, "k", j.Key)
	require.EqualValues(t, 5, j.Priority)
	require.EqualValues(t, 4, j.MaxAttempts, "three more than were spent")
	require.Empty(t, j.Checkpoint)
	now, _ := d.find(t, id)
	require.Empty(t, now.Progress)
}

// When several jobs are inserted, each gets its own key. Equal keys in the same insert conflict with each other.
func uniqueOfMany(t *testing.T, d *Fixture) {
	in := plain()
	in.Payloads, in.Unique, in.Key = []string{`1`, `2`, `3`}, &row.Unique{Keys: []string{"x", "y", "x"}}, "k"
	out := d.insert(t, start, in)
	require.Len(t, out.IDs, 3)
	require.Equal(t, out.IDs[0], out.IDs[2])
	require.Equal(t, row.PlacedNew, out.Places[1].Result)
	require.Equal(t, row.PlacedExisting, out.Places[2].Result)
	claimed := d.claimJobs(t, start, "w", 9)
	require.Equal(t, out.IDs[:2], jobIDs(claimed))
	require.Equal(t, "k", claimed[1].Key)
	require.Equal(t, "y", claimed[1].Unique)
}

// Edges returns the direct neighbors of a job or batch in both directions, dead neighbors first, and no others.
func edges(t *testing.T, d *Fixture) {
	first, second := d.add(t, start), d.add(t, start)
	batch := d.batch(t)
	waiter := d.after(t, row.Links{Jobs: []int64{first, second}, In: batch})
	last := d.after(t, row.Links{Jobs: []int64{waiter}, Batches: []int64{batch}})
	of := func(node int64, limit int) (before, after []row.Neighbor) {
		t.Helper()
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			before, after, err = d.Stores.Operators.Edges(ctx, q, node, limit)
			return err
		})
		return before, after
	}
	before, after := of(first, 9)
	require.Empty(t, before)
	require.Equal(t, []row.Neighbor{{Node: waiter}}, after)
	before, after = of(-batch, 9)
	require.Equal(t, []row.Neighbor{{Node: waiter}}, before)
	require.Equal(t, []row.Neighbor{{Node: last}}, after)
	before, _ = of(last, 9)
	require.ElementsMatch(t, []row.Neighbor{{Node: waiter}, {Node: -batch}}, before)
	_, after = of(waiter, 9)
	require.ElementsMatch(t, []row.Neighbor{{Node: last}, {Node: -batch}}, after)
	claimed := d.claimJobs(t, start, "w", 9)
	d.end(t, start, claimed[0], row.Acked)
	d.end(t, start, claimed[1], row.Died)
	before, _ = of(waiter, 9)
	require.Equal(t, []row.Neighbor{{Node: second, Dead: true}, {Node: first, Done: true}}, before)
	before, _ = of(waiter, 1)
	require.Equal(t, []row.Neighbor{{Node: second, Dead: true}}, before)
}
