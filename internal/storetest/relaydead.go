package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Dead letters keep their messages, and are read in ID order with a filter on each field.
func relayDeadFilters(d *relayTest) {
	t := d.t
	d.register("a", 2)
	d.register("b", 1)
	ids := d.sendAll("a",
		row.RelayMessage{Partition: 1, Key: "k", Type: "image/png", Payload: []byte("one")},
		row.RelayMessage{Partition: 1, Type: "text/plain", Payload: []byte("two")})
	d.killAll("a", start)
	ids = append(ids, d.kill("a", 0, start.Add(time.Minute), "three")...)
	other := d.kill("b", 0, start, "four")

	all := d.dead(row.RelayDeadFilter{Queue: "a"})
	require.Equal(t, ids, idsOf(all))
	first := all[0]
	require.True(t, start.Equal(first.DiedAt))
	require.True(t, start.Equal(first.CreatedAt))
	first.DiedAt, first.CreatedAt = time.Time{}, time.Time{}
	require.Equal(t, row.RelayDead{
		RelayMessage: row.RelayMessage{ID: ids[0], Partition: 1, Key: "k", Type: "image/png", Payload: []byte("one")},
		Seq:          1, Attempts: 3, LastError: "one", State: row.RelayPending,
	}, first)
	require.EqualValues(t, 2, all[1].Seq)
	require.EqualValues(t, 1, all[2].Seq)
	require.EqualValues(t, 3, d.info("a", 2).OpenDead)

	zero, one := 0, 1
	for _, c := range []struct {
		f    row.RelayDeadFilter
		want []int64
	}{
		{row.RelayDeadFilter{Queue: "b"}, other},
		{row.RelayDeadFilter{Queue: "c"}, []int64{}},
		{row.RelayDeadFilter{Queue: "a", Partition: &zero}, ids[2:]},
		{row.RelayDeadFilter{Queue: "a", Partition: &one}, ids[:2]},
		{row.RelayDeadFilter{Queue: "a", Key: "k"}, ids[:1]},
		{row.RelayDeadFilter{Queue: "a", Key: "other"}, []int64{}},
		{row.RelayDeadFilter{Queue: "a", Type: "text/plain"}, ids[1:]},
		{row.RelayDeadFilter{Queue: "a", State: row.RelayPending}, ids},
		{row.RelayDeadFilter{Queue: "a", State: row.RelayResolved}, []int64{}},
		{row.RelayDeadFilter{Queue: "a", Since: start.Add(time.Minute)}, ids[2:]},
		{row.RelayDeadFilter{Queue: "a", Since: start.Add(time.Minute + time.Millisecond)}, []int64{}},
		{row.RelayDeadFilter{Queue: "a", Key: "k", Type: "text/plain"}, []int64{}},
	} {
		require.Equal(t, c.want, d.deadIDs(c.f), "%+v", c.f)
		p := row.RelayReplay{RelayDeadFilter: c.f, Limit: 10, Holder: "h", Until: start}
		require.ElementsMatch(t, c.want, idsOf(d.replayed(p)), "%+v", c.f)
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		page, err := d.s.Dead(ctx, q, row.RelayDeadFilter{Queue: "a"}, ids[0], 1)
		require.Equal(t, ids[1:2], idsOf(page))
		return err
	})
}

// replayed returns the dead letters of a replay that is rolled back.
func (d *relayTest) replayed(p row.RelayReplay) (all []row.RelayDead) {
	d.t.Helper()
	d.rollBack(d.t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.s.Replay(ctx, q, p, start)
		return err
	})
	return all
}

// A dead letter belongs to a single holder until its hold expires. The least recently taken come first.
func relayReplayHolds(d *relayTest) {
	t := d.t
	d.register("a", 1)
	ids := d.kill("a", 0, start, "1", "2", "3")
	until := start.Add(time.Minute)
	first := d.replay(hold(2, "one", until.Add(-time.Microsecond)), start)
	require.Equal(t, ids[:2], idsOf(first))
	require.Equal(t, row.RelayReplaying, first[0].State)
	require.True(t, until.Equal(first[0].HoldUntil), "rounded up")
	require.Equal(t, first, d.dead(row.RelayDeadFilter{Queue: "a", State: row.RelayReplaying}))
	require.EqualValues(t, 3, d.info("a", 1).OpenDead)

	require.Equal(t, ids[2:], idsOf(d.replay(hold(2, "two", start.Add(time.Hour)), start)))
	require.Empty(t, d.replay(hold(2, "two", start.Add(time.Hour)), until), "a hold includes its last millisecond")
	again := d.replay(hold(1, "two", start.Add(time.Hour)), until.Add(time.Millisecond))
	require.Equal(t, ids[:1], idsOf(again))

	require.True(t, d.settle(ids[1], "a", "one", row.RelayVerdict{Cause: "no"}, until))
	later := d.kill("a", 0, start, "4")
	free := d.replay(hold(10, "three", start.Add(time.Hour)), until.Add(time.Second))
	require.Equal(t, []int64{later[0], ids[1]}, idsOf(free), "that which was never taken comes first")
}

// Only the holder may settle a dead letter, only once, and only during its hold.
func relayDeadVerdicts(d *relayTest) {
	t := d.t
	d.register("a", 1)
	ids := d.kill("a", 0, start, "1", "2", "3")
	until := start.Add(time.Minute)
	resolved, rejected := row.RelayVerdict{Resolved: true}, row.RelayVerdict{Cause: "still no"}
	require.False(t, d.settle(ids[0], "a", "", resolved, start), "it is not held")
	d.replay(hold(3, "me", until), start)
	before := d.view(1, start)
	for _, v := range []row.RelayVerdict{resolved, rejected} {
		require.False(t, d.settle(ids[0], "a", "other", v, start))
		require.False(t, d.settle(ids[0], "b", "me", v, start))
		require.False(t, d.settle(ids[2]+100, "a", "me", v, start))
		require.False(t, d.settle(ids[0], "a", "me", v, until.Add(time.Millisecond)))
	}
	require.Equal(t, before, d.view(1, start))

	require.True(t, d.settle(ids[0], "a", "me", resolved, until))
	require.True(t, d.settle(ids[1], "a", "me", rejected, start.Add(time.Second)))
	require.True(t, d.settle(ids[2], "a", "me", row.RelayVerdict{}, start))
	for _, id := range ids {
		require.False(t, d.settle(id, "a", "me", resolved, start), "it is settled")
	}
	all := d.dead(row.RelayDeadFilter{Queue: "a"})
	require.Equal(t, row.RelayResolved, all[0].State)
	require.True(t, until.Equal(all[0].SettledAt))
	require.EqualValues(t, 3, all[0].Attempts)
	require.Equal(t, row.RelayPending, all[1].State)
	require.EqualValues(t, 4, all[1].Attempts)
	require.Equal(t, "still no", all[1].LastError)
	require.Zero(t, all[1].SettledAt)
	require.Empty(t, all[2].LastError)
	require.EqualValues(t, 2, d.info("a", 1).OpenDead)
	require.Equal(t, []int64{ids[2], ids[1]}, idsOf(d.replay(hold(3, "other", until), until)), "the resolved one is not free")

	d.replay(hold(1, "first", start), start)
	require.Empty(t, d.replay(hold(1, "second", until), start))
}

// prepared returns dead letters of queue a in each state: pending, held, held with an expired hold, resolved, and
// discarded.
func (d *relayTest) prepared() (ids []int64) {
	d.t.Helper()
	d.register("a", 2)
	ids = d.kill("a", 1, start, "resolved", "expired", "held", "pending", "discarded")
	require.Equal(d.t, ids[:1], idsOf(d.replay(hold(1, "one", start.Add(time.Hour)), start)))
	require.True(d.t, d.settle(ids[0], "a", "one", row.RelayVerdict{Resolved: true}, start))
	require.Equal(d.t, ids[1:2], idsOf(d.replay(hold(1, "two", start), start)))
	require.Equal(d.t, ids[2:3], idsOf(d.replay(hold(1, "three", start.Add(time.Hour)), start)))
	require.Equal(d.t, 1, d.discard("a", ids[4:], start))
	return []int64{ids[3], ids[2], ids[1], ids[0], ids[4]}
}

// Requeue sends the free dead letters again, at the end of their partitions, and no others.
func relayDeadRequeue(d *relayTest) {
	t := d.t
	ids := d.prepared()
	waiting := d.send("a", 1, "waiting")
	now := start.Add(time.Second)
	require.Empty(t, d.requeue("b", ids, now))
	require.Empty(t, d.requeue("a", nil, now))
	sent := d.requeue("a", append(slices.Clone(ids), 1<<40), now)
	require.Len(t, sent, 2)
	require.ElementsMatch(t, []int64{ids[1], ids[3], ids[4]}, d.deadIDs(row.RelayDeadFilter{Queue: "a"}))
	require.Empty(t, d.requeue("a", ids, now))

	b := d.mustTake(wanted("a"), "me", now)
	require.EqualValues(t, 1, b.Partition)
	require.EqualValues(t, 5, b.Processed)
	require.Len(t, b.Messages, 3)
	require.Equal(t, waiting[0], b.Messages[0].ID)
	require.Equal(t, sent, []int64{b.Messages[1].ID, b.Messages[2].ID})
	require.Equal(t, "expired", string(b.Messages[1].Payload), "in the order of their ids")
	require.Equal(t, "pending", string(b.Messages[2].Payload))
	require.Equal(t, "text/plain", b.Messages[1].Type)
	require.True(t, now.Equal(b.Messages[1].CreatedAt))
}

// Discard marks the free dead letters as discarded, and no others.
func relayDeadDiscard(d *relayTest) {
	t := d.t
	ids := d.prepared()
	now := start.Add(time.Second)
	require.Zero(t, d.discard("b", ids, now))
	require.Equal(t, 2, d.discard("a", ids, now))
	require.Zero(t, d.discard("a", ids, now))
	require.ElementsMatch(t, []int64{ids[0], ids[2], ids[4]}, d.deadIDs(row.RelayDeadFilter{Queue: "a", State: row.RelayDiscarded}))
	for _, letter := range d.dead(row.RelayDeadFilter{Queue: "a", State: row.RelayDiscarded}) {
		want := now
		if letter.ID == ids[4] {
			want = start
		}
		require.True(t, want.Equal(letter.SettledAt))
	}
	require.EqualValues(t, 1, d.info("a", 2).OpenDead)
	require.False(t, d.settle(ids[2], "a", "two", row.RelayVerdict{Resolved: true}, start), "the hold is over")
}

// A dead letter is dropped only if it was resolved or discarded by a given time.
func relayDeadDrop(d *relayTest) {
	t := d.t
	ids := d.prepared()
	old := []int64{ids[3], ids[4]}
	now := start.Add(time.Second)
	require.Equal(t, 1, d.discard("a", ids[:1], now))
	settled := func(queue string, before time.Time, limit int) (found []int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			found, err = d.s.SettledDead(ctx, q, queue, before, limit)
			return err
		})
		return found
	}
	drop := func(queue string, before time.Time, ids ...int64) (n int) {
		d.do(func(ctx context.Context, q engine.Querier) (err error) {
			n, err = d.s.DropDead(ctx, q, queue, before, ids)
			return err
		})
		return n
	}
	require.Empty(t, settled("a", start.Add(-time.Millisecond), 10))
	require.ElementsMatch(t, old, settled("a", start, 10))
	require.Len(t, settled("a", start, 1), 1)
	require.ElementsMatch(t, append(old, ids[0]), settled("a", now, 10))
	require.Empty(t, settled("b", now, 10))
	require.Zero(t, drop("b", now, ids...))
	require.Zero(t, drop("a", start.Add(-time.Millisecond), ids...))
	require.Equal(t, 1, drop("a", start, old[0]))
	require.Equal(t, 1, drop("a", start, ids...))
	require.ElementsMatch(t, ids[:3], d.deadIDs(row.RelayDeadFilter{Queue: "a"}))
}

// Families share nothing except Registered and Blocked, which name them.
func relayFamiliesAreSeparate(d *relayTest) {
	t := d.t
	d.register("a", 2)
	other := newRelayTest(t, d.Fixture, "billing")
	require.Zero(t, other.partitions("a"))
	other.register("a", 1)
	require.Equal(t, 2, d.partitions("a"))
	require.Equal(t, 1, other.partitions("a"))
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := d.Stores.Relays.Registered(ctx, q)
		require.Equal(t, []row.RelayRegistered{{Queue: "a", Partitions: 2}, {Family: "billing", Queue: "a", Partitions: 1}}, all)
		return err
	})
	d.send("a", 0, "1")
	other.noTake(wanted("a"), "me", start)
	other.send("a", 0, "2")
	mine, theirs := d.mustTake(wanted("a"), "me", start), other.mustTake(wanted("a"), "other", start)
	require.Equal(t, "1", string(mine.Messages[0].Payload))
	require.Equal(t, "2", string(theirs.Messages[0].Payload))
	all := d.blocked(start)
	require.Len(t, all, 2)
	require.Equal(t, []string{"", "billing"}, []string{all[0].Family, all[1].Family})
	require.Equal(t, "other", all[1].Owner)
	require.True(t, other.breaks(theirs.RelayPartition, theirs.Epoch, start))
	require.Len(t, d.blocked(start), 1)
	require.True(t, d.save(mine.RelayLease, finish(mine, 1), start))
	d.kill("a", 1, start, "3")
	require.Empty(t, other.deadIDs(row.RelayDeadFilter{Queue: "a"}))
	d.do(func(ctx context.Context, q engine.Querier) error {
		broken, err := d.Stores.Relays.Break(ctx, q, "unknown", mine.RelayPartition, mine.Epoch, start)
		require.False(t, broken)
		return err
	})
}

// A transaction that is rolled back leaves nothing behind, no matter which method it called.
func relayRollback(d *relayTest) {
	t := d.t
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		_, changed, err := d.s.Register(ctx, q, "a", 2, start)
		require.True(t, changed)
		return err
	})
	require.Zero(t, d.partitions("a"))
	_, changed := d.register("a", 2)
	require.True(t, changed)
	ids := d.kill("a", 0, start, "1", "2", "3")
	d.send("a", 0, "4")
	d.send("a", 1, "5")
	held := d.replay(hold(1, "me", start.Add(time.Hour)), start)
	require.Equal(t, 1, d.discard("a", ids[1:2], start))
	taken := d.mustTake(wanted("a"), "me", start)
	before := d.view(2, start)
	for name, f := range map[string]func(ctx context.Context, q engine.Querier) (did bool, err error){
		"Send": func(ctx context.Context, q engine.Querier) (bool, error) {
			ids, err := d.s.Send(ctx, q, "a", []row.RelayMessage{{Type: "t", Payload: []byte{}}, {Type: "t", Payload: []byte{}}}, start)
			return len(ids) == 2, err
		},
		"Take": func(ctx context.Context, q engine.Querier) (bool, error) {
			_, found, err := d.s.Take(ctx, q, wanted("a"), "other", start)
			return found, err
		},
		"Save": func(ctx context.Context, q engine.Querier) (bool, error) {
			p := finish(taken, 1)
			p.Dead = []row.RelayDeath{{ID: taken.Messages[0].ID, Seq: taken.Processed + 1, Attempts: 1, Reason: "no"}}
			return d.s.Save(ctx, q, taken.RelayLease, p, start)
		},
		"Break": func(ctx context.Context, q engine.Querier) (bool, error) {
			return d.Stores.Relays.Break(ctx, q, "", taken.RelayPartition, taken.Epoch, start)
		},
		"Replay": func(ctx context.Context, q engine.Querier) (bool, error) {
			all, err := d.s.Replay(ctx, q, hold(1, "other", start.Add(time.Hour)), start)
			return len(all) == 1, err
		},
		"SettleDead": func(ctx context.Context, q engine.Querier) (bool, error) {
			return d.s.SettleDead(ctx, q, row.RelayHold{ID: held[0].ID, Queue: "a", Holder: "me"}, row.RelayVerdict{Resolved: true}, start)
		},
		"Requeue": func(ctx context.Context, q engine.Querier) (bool, error) {
			sent, err := d.s.Requeue(ctx, q, "a", ids, start)
			return len(sent) == 1, err
		},
		"Discard": func(ctx context.Context, q engine.Querier) (bool, error) {
			n, err := d.s.Discard(ctx, q, "a", ids, start)
			return n == 1, err
		},
		"DropDead": func(ctx context.Context, q engine.Querier) (bool, error) {
			n, err := d.s.DropDead(ctx, q, "a", start, ids)
			return n == 1, err
		},
	} {
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			did, err := f(ctx, q)
			require.True(t, did, name)
			return err
		})
		require.Equal(t, before, d.view(2, start), name)
	}
	require.True(t, strings.Contains(before, "replaying"))
}
