package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func groups(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("Join", func(t *testing.T) { groupJoined(t, open(t)) })
	t.Run("NamesOfMembers", func(t *testing.T) { memberNames(t, open(t)) })
	t.Run("FencesOfLeases", func(t *testing.T) { leaseFences(t, open(t)) })
	t.Run("AcksTogether", func(t *testing.T) { ackedTogether(t, open(t)) })
	t.Run("ClaimOfReturnedEvent", func(t *testing.T) { returnedEvent(t, open(t)) })
	t.Run("ClaimOfSelection", func(t *testing.T) { groupSelection(t, open(t)) })
	t.Run("Dead", func(t *testing.T) { deadDeliveries(t, open(t)) })
	t.Run("Drop", func(t *testing.T) { groupDropped(t, open(t)) })
	t.Run("BesideModel", func(t *testing.T) { groupBesideModel(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { groupRolledBack(t, open(t)) })
}

func instanceOf(member string) string { return "instance of " + member }

// join adds a member to a group until an hour after start.
func (d *Fixture) join(t *testing.T, j row.GroupJoin, member string) row.Member {
	t.Helper()
	j.Member, j.Expires = row.Member{Name: member, Instance: instanceOf(member)}, start.Add(time.Hour)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		joined, err := d.Stores.Groups.Join(ctx, q, j, start)
		require.Equal(t, row.Membership{Kept: true}, joined.Membership)
		j.Member.Group = joined.Group
		return err
	})
	return j.Member
}

func (d *Fixture) claim(t *testing.T, c row.GroupClaim, now time.Time) (claimed row.GroupClaimed) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		claimed, err = d.Stores.Groups.Claim(ctx, q, c, now)
		return err
	})
	return claimed
}

func (d *Fixture) settle(t *testing.T, s row.GroupSettlement, now time.Time) (out row.GroupSettled) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = d.Stores.Groups.Settle(ctx, q, s, now)
		return err
	})
	return out
}

func (d *Fixture) extend(t *testing.T, h row.Holding, expires, now time.Time) (held bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		held, err = d.Stores.Groups.Extend(ctx, q, h, expires, now)
		return err
	})
	return held
}

func (d *Fixture) progress(t *testing.T, group int64, now time.Time) (p row.GroupProgress) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		p, err = d.Stores.Groups.Progress(ctx, q, group, -1, now)
		return err
	})
	return p
}

func (d *Fixture) ready(t *testing.T, group int64, now time.Time) (s row.GroupState) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		s, err = d.Stores.Groups.Ready(ctx, q, group, now)
		return err
	})
	return s
}

func holding(m row.Member, e row.Delivery) row.Holding {
	return row.Holding{Group: m.Group, Offset: e.Offset, Token: e.Token}
}

// ackedTogether acks events of several claims at once. Leases that are no longer valid change nothing.
func ackedTogether(t *testing.T, d *Fixture) {
	d.publish(t, "a", nil, `1`, `2`, `3`, `4`, `5`, `6`, `7`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	claim := func(n int) []row.Delivery {
		return d.claim(t, row.GroupClaim{Member: m, N: n, Expires: start.Add(time.Minute)}, start).Events
	}
	first, second := claim(3), claim(4)
	stale, returned := holding(m, first[0]), holding(m, second[0])
	stale.Token++
	require.True(t, d.settle(t, row.GroupSettlement{Holding: returned, Back: true, Ready: start.Add(time.Hour)}, start).Held)
	ack := func(now time.Time, all ...row.Holding) (n int) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			n, err = d.Stores.Groups.Ack(ctx, q, all, now)
			return err
		})
		return n
	}
	require.Zero(t, ack(start))
	require.Equal(t, 2, ack(start, stale, holding(m, first[1]), returned, holding(m, second[1])))
	require.Zero(t, ack(start, holding(m, first[1]), holding(m, second[1])), "a second time")
	require.Zero(t, ack(start.Add(2*time.Minute), holding(m, first[0])), "the lease has lapsed")
	require.Equal(t, 3, ack(start, holding(m, first[0]), holding(m, second[2]), holding(m, first[2])))
	p := d.progress(t, m.Group, start)
	require.Equal(t, []int64{1, 1}, []int64{p.Leased, p.Back})
}

func deliveredOffsets(all []row.Delivery) []int64 {
	out := make([]int64, len(all))
	for i, e := range all {
		out[i] = e.Offset
	}
	return out
}

// A new group begins at its position. An existing group keeps its cursor and gets the new filter.
func groupJoined(t *testing.T, d *Fixture) {
	first, last := d.publish(t, "a", nil, `1`, `2`)
	j := row.GroupJoin{Topic: "a", Name: "g", From: row.Position{After: first}, Expires: start.Add(time.Hour),
		Member: row.Member{Name: "m", Instance: "i"}, Filter: &row.Filter{Op: row.KeyIs, Key: "k"}}
	join := func() (joined row.GroupJoined) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			joined, err = d.Stores.Groups.Join(ctx, q, j, start)
			return err
		})
		return joined
	}
	joined := join()
	require.Equal(t, row.Start{Offset: first}, joined.Start)
	list := func(topic, name string) (all []row.Group) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Groups.List(ctx, q, topic, name)
			return err
		})
		return all
	}
	got := list("a", "g")
	require.Len(t, got, 1)
	require.Equal(t, row.Group{ID: joined.Group, Topic: "a", Name: "g", Cursor: first, Epoch: got[0].Epoch, Filter: j.Filter}, got[0])

	j.Filter, j.From = nil, row.Position{After: last}
	again := join()
	require.Equal(t, row.GroupJoined{Group: joined.Group, Membership: row.Membership{Kept: true}}, again)
	require.Nil(t, list("a", "g")[0].Filter)
	require.Equal(t, first, list("a", "g")[0].Cursor)

	d.join(t, row.GroupJoin{Topic: "a", Name: "f"}, "m")
	d.join(t, row.GroupJoin{Topic: "*", Name: "z"}, "m")
	names := func(topic, name string) (all []string) {
		for _, g := range list(topic, name) {
			all = append(all, g.Topic+" "+g.Name)
		}
		return all
	}
	require.Equal(t, []string{"a f", "a g"}, names("a", ""))
	require.Equal(t, []string{"* z", "a f", "a g"}, names("", ""))
	require.Empty(t, names("b", ""))
	require.Empty(t, names("a", "z"))
}

// A name belongs to an instance until its membership ends, and is then available to others.
func memberNames(t *testing.T, d *Fixture) {
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	other := m
	other.Instance = "other"
	end := start.Add(time.Hour)
	renew := func(m row.Member, expires, now time.Time) (s row.Membership) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			s, err = d.Stores.Groups.Renew(ctx, q, m, expires, now)
			return err
		})
		return s
	}
	taken := renew(other, end.Add(time.Hour), end)
	require.False(t, taken.Kept)
	require.Equal(t, m.Instance, taken.Holder)
	require.True(t, taken.Expires.Equal(end))
	end = end.Add(time.Minute)
	require.Equal(t, row.Membership{Kept: true}, renew(m, end, start.Add(time.Minute)))
	members := d.progress(t, m.Group, end).Members
	require.Len(t, members, 1)
	require.True(t, members[0].JoinedAt.Equal(start) && members[0].Expires.Equal(end), "%+v", members[0])
	require.False(t, members[0].Expired)

	late := end.Add(time.Millisecond)
	require.True(t, d.progress(t, m.Group, late).Members[0].Expired)
	require.Equal(t, row.Membership{Kept: true}, renew(other, late.Add(time.Hour), late))
	require.False(t, renew(m, late.Add(time.Hour), late).Kept)
	require.Equal(t, "other", d.progress(t, m.Group, late).Members[0].Instance)

	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		return d.Stores.Groups.Leave(ctx, q, m, late) // an instance that has lost its name
	})
	require.Len(t, d.progress(t, m.Group, late).Members, 1)
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { return d.Stores.Groups.Leave(ctx, q, other, late) })
	require.Empty(t, d.progress(t, m.Group, late).Members)
	require.Equal(t, row.Membership{Kept: true}, renew(m, late.Add(time.Hour), late), "a member comes back")
}

// Settling or extending a lease that has ended changes nothing, no matter what has happened to its event.
func leaseFences(t *testing.T, d *Fixture) {
	lease := 10 * time.Second
	for name, lose := range map[string]func(m row.Member, h row.Holding) (now time.Time){
		"lapsed": func(_ row.Member, h row.Holding) time.Time { return start.Add(lease + time.Millisecond) },
		"lapsed and claimed again": func(m row.Member, h row.Holding) time.Time {
			now := start.Add(lease + time.Millisecond)
			again := d.claim(t, row.GroupClaim{Member: m, N: 1, Expires: now.Add(lease)}, now).Events
			require.Len(t, again, 1)
			require.EqualValues(t, 2, again[0].Attempts)
			require.Greater(t, again[0].Token, h.Token)
			return now
		},
		"handled": func(_ row.Member, h row.Holding) time.Time {
			require.Equal(t, row.GroupSettled{Held: true}, d.settle(t, row.GroupSettlement{Holding: h}, start))
			return start
		},
		"given back": func(_ row.Member, h row.Holding) time.Time {
			require.Equal(t, row.GroupSettled{Held: true}, d.settle(t, row.GroupSettlement{Holding: h, Back: true, Ready: start}, start))
			return start
		},
		"released": func(m row.Member, h row.Holding) time.Time {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
				return d.Stores.Groups.Release(ctx, q, m.Group, h.Token, []int64{h.Offset}, start)
			})
			return start
		},
		"left": func(m row.Member, h row.Holding) time.Time {
			d.mustWrite(t, func(ctx context.Context, q engine.Querier) error { return d.Stores.Groups.Leave(ctx, q, m, start) })
			return start
		},
		"dead": func(_ row.Member, h row.Holding) time.Time {
			require.Equal(t, row.GroupSettled{Held: true, Died: true},
				d.settle(t, row.GroupSettlement{Holding: h, Back: true, MaxAttempts: 1}, start))
			return start
		},
		"wrong token": func(row.Member, row.Holding) time.Time { return start },
	} {
		topic := "topic of " + name
		d.publish(t, topic, nil, `1`)
		m := d.join(t, row.GroupJoin{Topic: topic, Name: "g"}, "m")
		claimed := d.claim(t, row.GroupClaim{Member: m, N: 1, Expires: start.Add(lease)}, start)
		require.Len(t, claimed.Events, 1, name)
		h := holding(m, claimed.Events[0])
		now := lose(m, h)
		if name == "wrong token" {
			h.Token--
		}
		before := d.progress(t, m.Group, now)
		require.Zero(t, d.settle(t, row.GroupSettlement{Holding: h}, now), name)
		require.Zero(t, d.settle(t, row.GroupSettlement{Holding: h, Back: true, Ready: now, MaxAttempts: 1}, now), name)
		require.False(t, d.extend(t, h, now.Add(time.Hour), now), name)
		require.Equal(t, before, d.progress(t, m.Group, now), name)
	}
}

// A returned event can't be claimed before the time at which it is ready.
func returnedEvent(t *testing.T, d *Fixture) {
	d.publish(t, "a", nil, `1`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	c := row.GroupClaim{Member: m, N: 1, Expires: start.Add(time.Minute)}
	h, ready := holding(m, d.claim(t, c, start).Events[0]), start.Add(time.Second)
	require.True(t, d.settle(t, row.GroupSettlement{Holding: h, Back: true, Ready: ready}, start).Held)
	require.Empty(t, d.claim(t, c, ready.Add(-time.Millisecond)).Events)
	require.Len(t, d.claim(t, c, ready).Events, 1)
}

// A group receives the events that its pattern and filter select, and skips the others.
func groupSelection(t *testing.T, d *Fixture) {
	rng := random(t)
	for range 40 {
		d.publish(t, pick(rng, someTopics...), []string{pick(rng, someKeys...)}, `1`)
	}
	for i := range 30 {
		s := randomSelection(rng)
		want := offsetsOf(d.events(t, s, 0, 1000))
		m := d.join(t, row.GroupJoin{Topic: s.Topic, Name: fmt.Sprint("g", i), Filter: s.Filter}, "m")
		got := []int64{}
		for d.ready(t, m.Group, start).Ready {
			n := 1 + rng.IntN(20)
			claimed := d.claim(t, row.GroupClaim{Member: m, N: n, Expires: start.Add(time.Minute)}, start).Events
			require.LessOrEqual(t, len(claimed), n)
			got = append(got, deliveredOffsets(claimed)...)
		}
		require.Equal(t, want, got, "%q with filter %s", s.Topic, s.Filter.Text())
		last := d.claim(t, row.GroupClaim{Member: m, N: 5, Expires: start.Add(time.Minute)}, start)
		require.Zero(t, last)
	}
}

// Dead events are listed in order with their causes, and can be revived or discarded.
func deadDeliveries(t *testing.T, d *Fixture) {
	first, last := d.publish(t, "a", []string{"k"}, `1`, `2`, `3`)
	d.publish(t, "a", nil, `4`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	claimed := d.claim(t, row.GroupClaim{Member: m, N: 4, Expires: start.Add(time.Minute)}, start).Events
	for _, i := range []int{2, 0, 1} {
		died := d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[i]), Back: true, MaxAttempts: 1, Cause: fmt.Sprint("cause ", i)}, start)
		require.Equal(t, row.GroupSettled{Held: true, Died: true}, died)
	}
	dead := func(after int64, limit int) (all []row.DeadDelivery) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			all, err = d.Stores.Groups.Dead(ctx, q, m.Group, after, limit)
			return err
		})
		return all
	}
	all := dead(0, 10)
	require.Len(t, all, 3)
	for i, e := range all {
		require.Equal(t, row.DeadDelivery{Event: claimed[i].Event, Attempts: 1, LastError: fmt.Sprint("cause ", i), DiedAt: e.DiedAt}, e)
		require.True(t, e.DiedAt.Equal(start))
	}
	require.Equal(t, first, dead(0, 1)[0].Offset)
	require.Len(t, dead(first, 10), 2)

	revive := func(offset int64) (found bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			found, err = d.Stores.Groups.Revive(ctx, q, m.Group, offset, start)
			return err
		})
		return found
	}
	discard := func(offset int64) (found bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			found, err = d.Stores.Groups.Discard(ctx, q, m.Group, offset)
			return err
		})
		return found
	}
	live := claimed[3].Offset
	require.False(t, revive(live), "it is leased")
	require.False(t, discard(live))
	require.True(t, discard(last))
	require.False(t, discard(last))
	require.False(t, revive(last))
	require.True(t, revive(first))
	require.False(t, revive(first))
	again := d.claim(t, row.GroupClaim{Member: m, N: 4, Expires: start.Add(time.Minute)}, start).Events
	require.Equal(t, []int64{first}, deliveredOffsets(again))
	require.EqualValues(t, 1, again[0].Attempts, "it has all its attempts")
	require.Len(t, dead(0, 10), 1)
}

// A dropped group is gone immediately, and its claims are deleted in steps.
func groupDropped(t *testing.T, d *Fixture) {
	d.publish(t, "a", nil, `1`, `2`, `3`, `4`, `5`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	kept := d.join(t, row.GroupJoin{Topic: "a", Name: "kept"}, "m")
	claimed := d.claim(t, row.GroupClaim{Member: m, N: 5, Expires: start.Add(time.Minute)}, start).Events
	d.claim(t, row.GroupClaim{Member: kept, N: 5, Expires: start.Add(time.Minute)}, start)
	drop := func(limit int) (n int) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			n, err = d.Stores.Groups.Drop(ctx, q, m.Group, limit)
			return err
		})
		return n
	}
	left := func() (ids []int64) {
		d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
			ids, err = d.Stores.Sweeps.Claims.Find(ctx, q, row.Part{}, start, 10)
			return err
		})
		return ids
	}
	require.Empty(t, left())
	require.Equal(t, 3, drop(3))
	require.Equal(t, []int64{m.Group}, left())
	for name, verb := range map[string]func(ctx context.Context, q engine.Querier) error{
		"claim": func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Groups.Claim(ctx, q, row.GroupClaim{Member: m, N: 1, Expires: start.Add(time.Minute)}, start)
			return err
		},
		"renew": func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Groups.Renew(ctx, q, m, start.Add(time.Minute), start)
			return err
		},
		"ready": func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Groups.Ready(ctx, q, m.Group, start)
			return err
		},
	} {
		require.ErrorIs(t, d.write(t, verb), row.ErrNotFound, name)
	}
	require.Equal(t, 2, drop(3))
	require.Zero(t, drop(3))
	require.Empty(t, left())
	require.Zero(t, d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[0])}, start))
	require.EqualValues(t, 5, d.progress(t, kept.Group, start).Leased)
	again := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	require.Greater(t, again.Group, m.Group, "ids are not reused")
	require.Len(t, d.claim(t, row.GroupClaim{Member: again, N: 9, Expires: start.Add(time.Minute)}, start).Events, 5)
}

// A rollback undoes all of a transaction's changes to a group.
func groupRolledBack(t *testing.T, d *Fixture) {
	d.publish(t, "a", nil, `1`, `2`)
	m := d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m")
	expires := start.Add(time.Minute)
	claimed := d.claim(t, row.GroupClaim{Member: m, N: 1, Expires: expires}, start).Events
	before := d.progress(t, m.Group, start)
	for name, verb := range map[string]func(ctx context.Context, q engine.Querier) error{
		"claim": func(ctx context.Context, q engine.Querier) error {
			out, err := d.Stores.Groups.Claim(ctx, q, row.GroupClaim{Member: m, N: 1, Expires: expires}, start)
			require.Len(t, out.Events, 1)
			return err
		},
		"settle": func(ctx context.Context, q engine.Querier) error {
			out, err := d.Stores.Groups.Settle(ctx, q, row.GroupSettlement{Holding: holding(m, claimed[0])}, start)
			require.True(t, out.Held)
			return err
		},
		"give back": func(ctx context.Context, q engine.Querier) error {
			out, err := d.Stores.Groups.Settle(ctx, q, row.GroupSettlement{Holding: holding(m, claimed[0]), Back: true, Ready: start}, start)
			require.True(t, out.Held)
			return err
		},
		"leave": func(ctx context.Context, q engine.Querier) error { return d.Stores.Groups.Leave(ctx, q, m, start) },
		"drop": func(ctx context.Context, q engine.Querier) error {
			_, err := d.Stores.Groups.Drop(ctx, q, m.Group, 10)
			return err
		},
	} {
		d.rollBack(t, verb)
		require.Equal(t, before, d.progress(t, m.Group, start), name)
	}
	require.True(t, d.settle(t, row.GroupSettlement{Holding: holding(m, claimed[0])}, start).Held)
}
