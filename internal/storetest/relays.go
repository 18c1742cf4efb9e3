package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func relays(t *testing.T, open func(t *testing.T) *Fixture) {
	for name, test := range map[string]func(*relayTest){
		"Register":              relayRegister,
		"NothingRegistered":     relayNothingRegistered,
		"SendKeepsOrder":        relaySendKeepsOrder,
		"TakeHasOneOwner":       relayTakeHasOneOwner,
		"TakeTakesTurns":        relayTakeTakesTurns,
		"TakeIsSelective":       relayTakeIsSelective,
		"BatchSizes":            relayBatchSizes,
		"LostLeaseSavesNothing": relayLostLease,
		"RetryWaits":            relayRetryWaits,
		"FinishedVanish":        relayFinishedVanish,
		"Break":                 relayBreak,
		"Problems":              relayProblems,
		"DeadFilters":           relayDeadFilters,
		"ReplayHolds":           relayReplayHolds,
		"DeadVerdicts":          relayDeadVerdicts,
		"DeadRequeue":           relayDeadRequeue,
		"DeadDiscard":           relayDeadDiscard,
		"DeadDrop":              relayDeadDrop,
		"FamiliesAreSeparate":   relayFamiliesAreSeparate,
		"RollbackLeavesNothing": relayRollback,
		"RandomWalk":            relayRandomWalk,
	} {
		t.Run(name, func(t *testing.T) { test(newRelayTest(t, open(t), "")) })
	}
}

// A queue keeps the number of partitions from its first registration.
func relayRegister(d *relayTest) {
	t := d.t
	require.Zero(t, d.partitions("a"))
	found, changed := d.register("a", 4)
	require.Equal(t, 4, found)
	require.True(t, changed)
	found, changed = d.register("a", 8)
	require.Equal(t, 4, found)
	require.False(t, changed)
	_, changed = d.register("b", 1)
	require.True(t, changed)
	require.Equal(t, 4, d.partitions("a"))
	require.Equal(t, 1, d.partitions("b"))
	require.Zero(t, d.partitions("c"))
	require.Len(t, d.info("a", 4).Partitions, 4)
}

// Before the first registration there are no dead letters, and the methods that change them change nothing.
func relayNothingRegistered(d *relayTest) {
	t := d.t
	require.Empty(t, d.replay(hold(1, "h", start.Add(time.Hour)), start))
	require.False(t, d.settle(1, "a", "h", row.RelayVerdict{Resolved: true}, start))
	require.Empty(t, d.requeue("a", []int64{1}, start))
	require.Zero(t, d.discard("a", []int64{1}, start))
	require.Empty(t, d.blocked(start))
	require.False(t, d.breaks(row.RelayPartition{Queue: "a"}, 0, start))
	require.Zero(t, d.partitions("a"))
}

// Messages keep their contents. They are delivered in commit order, and numbered by partition.
func relaySendKeepsOrder(d *relayTest) {
	t := d.t
	d.register("a", 2)
	first := d.sendAll("a", row.RelayMessage{Partition: 1, Key: "k", Type: "image/png", Payload: []byte{0, 255}})
	more := d.sendAll("a", row.RelayMessage{Partition: 1, Type: "text/plain", Payload: []byte{}}, row.RelayMessage{Type: "text/plain", Payload: []byte("x")})
	ids := append(first, more...)
	require.True(t, slices.IsSorted(ids))
	require.Less(t, ids[0], ids[1])
	require.Less(t, ids[1], ids[2])

	w := wanted("a")
	w.Except = []row.RelayPartition{{Queue: "a", Partition: 0}}
	b := d.mustTake(w, "me", start)
	require.Equal(t, row.RelayPartition{Queue: "a", Partition: 1}, b.RelayPartition)
	require.Len(t, b.Messages, 2)
	m := b.Messages[0]
	require.True(t, start.Equal(m.CreatedAt))
	m.CreatedAt = time.Time{}
	require.Equal(t, row.RelayMessage{ID: ids[0], Partition: 1, Key: "k", Type: "image/png", Payload: []byte{0, 255}}, m)
	require.Equal(t, ids[1], b.Messages[1].ID)
	require.Empty(t, b.Messages[1].Key)
	require.Empty(t, b.Messages[1].Payload)
	require.Zero(t, b.Processed)

	require.True(t, d.save(b.RelayLease, finish(b, 1), start))
	b = d.mustTake(w, "me", start)
	require.EqualValues(t, 1, b.Processed)
	require.Equal(t, ids[0], b.Cursor)
	require.Len(t, b.Messages, 1)
	require.Equal(t, ids[1], b.Messages[0].ID)
}

// A partition belongs to a single owner until its lease expires. Each take has a larger epoch and counts as an
// attempt.
func relayTakeHasOneOwner(d *relayTest) {
	t := d.t
	d.register("a", 2)
	d.send("a", 0, "1", "2")
	first := d.mustTake(wanted("a"), "one", start)
	require.EqualValues(t, 1, first.Attempts)
	require.False(t, first.Failing)
	require.Equal(t, "one", first.Owner)
	d.noTake(wanted("a"), "two", start)
	d.noTake(wanted("a"), "one", start.Add(lease-time.Millisecond))

	second := d.mustTake(wanted("a"), "two", start.Add(lease))
	require.Greater(t, second.Epoch, first.Epoch)
	require.EqualValues(t, 2, second.Attempts)
	require.True(t, second.Failing, "the owner has not saved any progress")
	info := d.info("a", 2).Partitions[0]
	require.Equal(t, "two", info.Owner)
	require.True(t, start.Add(2*lease).Equal(info.LeaseUntil))
}

// The least recently taken partition comes first. Among partitions that were never taken, the partition with
// the oldest message comes first.
func relayTakeTakesTurns(d *relayTest) {
	d.register("a", 4)
	for _, partition := range []int64{2, 0, 3, 2, 0, 3} {
		d.send("a", partition, "x", "y")
	}
	var order []int64
	for range 9 {
		b := d.mustTake(wanted("a"), "me", start)
		order = append(order, b.Partition)
		require.True(d.t, d.save(b.RelayLease, finish(b, 1), start))
	}
	require.Equal(d.t, []int64{2, 0, 3, 2, 0, 3, 2, 0, 3}, order)
}

// Take chooses from the partitions of the wanted queues. It skips the exceptions and, on request, failing partitions.
func relayTakeIsSelective(d *relayTest) {
	t := d.t
	d.register("a", 2)
	d.register("b", 1)
	d.send("a", 0, "1")
	d.send("a", 1, "2")
	d.noTake(wanted("b"), "me", start)
	require.Empty(t, d.states(wanted("b"), start), "a queue without messages has no state")
	w := wanted("a", "b")
	w.Except = []row.RelayPartition{{Queue: "a", Partition: 0}, {Queue: "b", Partition: 1}}
	b := d.mustTake(w, "me", start)
	require.EqualValues(t, 1, b.Partition)
	d.noTake(w, "me", start)
	state := d.states(w, start)[0]
	require.False(t, state.Ready)
	require.True(t, start.Add(lease).Equal(state.Next), "partition 0 has no lease")
	require.True(t, d.states(wanted("a", "b"), start)[0].Ready)

	p := finish(b, 0)
	p.Attempts, p.LastError = 1, "unavailable"
	require.True(t, d.save(b.RelayLease, p, start))
	w.Healthy = true
	d.noTake(w, "me", start)
	require.False(t, d.states(w, start)[0].Ready)
	w.Healthy = false
	b = d.mustTake(w, "me", start)
	require.True(t, b.Failing)
	require.EqualValues(t, 2, b.Attempts)
}

// A batch's size is limited by its queue or by an entry in Sizes. After an attempt without progress, a batch has a
// single message.
func relayBatchSizes(d *relayTest) {
	t := d.t
	d.register("a", 1)
	d.send("a", 0, "1", "2", "3", "4", "5")
	w := wanted("a")
	w.Queues[0].Batch = 3
	b := d.mustTake(w, "me", start)
	require.Len(t, b.Messages, 3)
	require.Equal(t, 3, b.Size)
	require.True(t, d.save(b.RelayLease, finish(b, 1), start))
	w.Sizes = []row.RelaySize{{RelayPartition: row.RelayPartition{Queue: "a", Partition: 7}, Messages: 1}, {RelayPartition: b.RelayPartition, Messages: 2}}
	b = d.mustTake(w, "me", start)
	require.Len(t, b.Messages, 2)
	require.Equal(t, 2, b.Size)
	b = d.mustTake(w, "me", start.Add(lease))
	require.Len(t, b.Messages, 1)
	require.Equal(t, 1, b.Size)
}

// The owner of a lost lease can't save. An expired lease is still valid until the next take.
func relayLostLease(d *relayTest) {
	t := d.t
	d.register("a", 1)
	d.send("a", 0, "1", "2")
	old := d.mustTake(wanted("a"), "me", start)
	for _, wrong := range []row.RelayLease{
		{RelayPartition: old.RelayPartition, Owner: "other", Epoch: old.Epoch},
		{RelayPartition: old.RelayPartition, Owner: "me", Epoch: old.Epoch - 1},
		{RelayPartition: row.RelayPartition{Queue: "b"}, Owner: "me", Epoch: old.Epoch},
	} {
		before := d.view(1, start)
		p := finish(old, 2)
		p.Dead = []row.RelayDeath{{ID: old.Messages[0].ID, Seq: 1, Attempts: 1}}
		require.False(t, d.save(wrong, p, start))
		require.Equal(t, before, d.view(1, start))
	}
	require.True(t, d.save(old.RelayLease, finish(old, 1), start.Add(time.Hour)), "no other owner has taken the partition")
	require.False(t, d.save(old.RelayLease, finish(old, 1), start.Add(time.Hour)), "the lease ended with its save")

	old = d.mustTake(wanted("a"), "me", start)
	again := d.mustTake(wanted("a"), "me", start.Add(lease))
	before := d.view(1, start)
	require.False(t, d.save(old.RelayLease, finish(old, 1), start))
	require.Equal(t, before, d.view(1, start))
	require.True(t, d.save(again.RelayLease, finish(again, 1), start))
	require.EqualValues(t, 2, d.info("a", 1).Partitions[0].Processed)
}

// A partition that has failed waits until its retry. States returns that time.
func relayRetryWaits(d *relayTest) {
	t := d.t
	d.register("a", 1)
	d.send("a", 0, "1")
	b := d.mustTake(wanted("a"), "me", start)
	state := d.states(wanted("a"), start)[0]
	require.False(t, state.Ready)
	require.True(t, start.Add(lease).Equal(state.Next), "the end of the lease")

	p := finish(b, 0)
	p.Attempts, p.RetryAt, p.LastError = 1, start.Add(time.Minute+time.Microsecond), "unavailable"
	require.True(t, d.save(b.RelayLease, p, start))
	at := start.Add(time.Minute + time.Millisecond) // rounded up
	state = d.states(wanted("a"), start)[0]
	require.Equal(t, "a", state.Queue)
	require.False(t, state.Ready)
	require.True(t, at.Equal(state.Next))
	info := d.info("a", 1).Partitions[0]
	require.True(t, at.Equal(info.RetryAt))
	require.Equal(t, "unavailable", info.LastError)
	require.Empty(t, info.Owner)
	require.Zero(t, info.LeaseUntil)
	d.noTake(wanted("a"), "me", at.Add(-time.Millisecond))
	require.True(t, d.states(wanted("a"), at)[0].Ready)
	b = d.mustTake(wanted("a"), "me", at)
	require.EqualValues(t, 2, b.Attempts)
	require.True(t, b.Failing)

	require.True(t, d.save(b.RelayLease, finish(b, 1), at))
	info = d.info("a", 1).Partitions[0]
	require.Zero(t, info.RetryAt)
	require.Zero(t, info.Attempts)
	require.Empty(t, info.LastError)
}

// Finished messages are neither delivered again nor stored.
func relayFinishedVanish(d *relayTest) {
	t := d.t
	d.register("a", 2)
	d.send("a", 0, "1", "2", "3")
	d.send("a", 1, "4")
	b := d.mustTake(wanted("a"), "me", start)
	require.True(t, d.save(b.RelayLease, finish(b, 2), start))
	info := d.info("a", 2)
	require.EqualValues(t, 2, info.Partitions[0].Processed)
	require.EqualValues(t, 1, info.Partitions[0].Waiting)
	require.True(t, start.Equal(info.Partitions[0].Oldest))
	require.EqualValues(t, 1, info.Partitions[1].Waiting)
	for range 2 {
		b = d.mustTake(wanted("a"), "me", start)
		require.Len(t, b.Messages, 1)
		require.True(t, d.save(b.RelayLease, finish(b, 1), start))
	}
	d.noTake(wanted("a"), "me", start)
	require.Empty(t, d.states(wanted("a"), start))
	require.Zero(t, d.info("a", 2).Partitions[0].Oldest)
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		left, err := d.s.Leftovers(ctx, q, []string{"a", "b"})
		require.Equal(t, row.RelayLeftovers{}, left)
		return err
	})
	d.do(func(ctx context.Context, q engine.Querier) error {
		n, err := d.s.Vacuum(ctx, q, "a", 10)
		require.Zero(t, n)
		return err
	})
	require.EqualValues(t, 4, d.info("a", 2).Partitions[0].Processed+d.info("a", 2).Partitions[1].Processed)
}

// Break frees a partition that is leased or waiting for a retry, unless it has been taken again. Its former owner
// can't save.
func relayBreak(d *relayTest) {
	t := d.t
	d.register("a", 1)
	d.send("a", 0, "1")
	require.Empty(t, d.blocked(start))
	b := d.mustTake(wanted("a"), "me", start)
	all := d.blocked(start)
	require.Len(t, all, 1)
	require.Equal(t, b.RelayPartition, all[0].RelayPartition)
	require.Equal(t, "me", all[0].Owner)
	require.Equal(t, b.Epoch, all[0].Epoch)
	require.True(t, start.Add(lease).Equal(all[0].LeaseUntil))
	require.Empty(t, d.blocked(start.Add(lease)))

	before := d.view(1, start)
	require.False(t, d.breaks(b.RelayPartition, b.Epoch-1, start))
	require.False(t, d.breaks(row.RelayPartition{Queue: "a", Partition: 1}, b.Epoch, start))
	require.False(t, d.breaks(b.RelayPartition, b.Epoch, start.Add(lease)), "it is no longer blocked")
	require.Equal(t, before, d.view(1, start))
	require.True(t, d.breaks(b.RelayPartition, b.Epoch, start))
	require.False(t, d.breaks(b.RelayPartition, b.Epoch, start))
	require.Empty(t, d.blocked(start))
	require.False(t, d.save(b.RelayLease, finish(b, 1), start))

	b = d.mustTake(wanted("a"), "me", start)
	require.EqualValues(t, 2, b.Attempts, "the attempts are kept")
	p := finish(b, 0)
	p.Attempts, p.RetryAt, p.LastError = 2, start.Add(time.Hour), "unavailable"
	require.True(t, d.save(b.RelayLease, p, start))
	require.Equal(t, "unavailable", d.blocked(start)[0].LastError)
	require.True(t, d.breaks(b.RelayPartition, b.Epoch, start))
	require.EqualValues(t, 3, d.mustTake(wanted("a"), "me", start).Attempts)
}

// A partition whose batches fail is listed as long as it has messages. Open dead letters are counted by queue.
func relayProblems(d *relayTest) {
	t := d.t
	failing := func(attempts int64) (all []row.RelayFailing) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Relays.Failing(ctx, q, attempts)
			return err
		})
		return all
	}
	deaths := func(since time.Time) (all []row.RelayDeaths) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Relays.Deaths(ctx, q, since)
			return err
		})
		return all
	}
	require.Empty(t, failing(0))
	require.Empty(t, deaths(time.Time{}))
	d.register("a", 2)
	d.register("b", 1)
	d.send("a", 1, "1", "2")
	d.send("b", 0, "1")
	b := d.mustTake(wanted("a"), "me", start)
	p := finish(b, 0)
	p.Attempts, p.RetryAt, p.LastError = 5, start.Add(time.Second), "unavailable"
	require.True(t, d.save(b.RelayLease, p, start))
	require.Empty(t, failing(6))
	all := failing(5)
	require.Len(t, all, 1)
	require.Equal(t, row.RelayPartition{Queue: "a", Partition: 1}, all[0].RelayPartition)
	require.Equal(t, "unavailable", all[0].LastError)
	require.EqualValues(t, 5, all[0].Attempts)
	require.Equal(t, row.Count{N: 2}, all[0].Waiting)
	require.True(t, start.Truncate(time.Millisecond).Equal(all[0].Oldest))

	b = d.mustTake(wanted("a"), "me", start.Add(time.Minute))
	p = finish(b, 1)
	p.Dead = []row.RelayDeath{{ID: b.Messages[0].ID, Seq: 1, Attempts: 6, Reason: "rejected"}}
	require.True(t, d.save(b.RelayLease, p, start.Add(time.Minute)))
	require.Empty(t, failing(0), "it goes on")
	dead := deaths(start)
	require.Len(t, dead, 1)
	require.Equal(t, "a", dead[0].Queue)
	require.Equal(t, row.Count{N: 1}, dead[0].N)
	require.True(t, start.Add(time.Minute).Truncate(time.Millisecond).Equal(dead[0].First))
	require.Equal(t, row.RelayDeadInfo{ID: b.Messages[0].ID, Partition: 1, Attempts: 6, LastError: "rejected"}, dead[0].Last)
	require.Empty(t, deaths(start.Add(time.Minute)), "too old")
	require.Equal(t, 1, d.discard("a", []int64{b.Messages[0].ID}, start.Add(time.Minute)))
	require.Empty(t, deaths(start), "discarded")
}
