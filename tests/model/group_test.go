package model_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// groupModel models a group, with a resolution of a millisecond:
//
//   - New events are delivered in order. Returned events are delivered when there are no new ones,
//     in reverse order of their return. Of those returned together, the highest offset comes first.
//   - A claim holds while its deadline >= now. A lapsed event returns when a member claims
//     something.
//   - An event that returns after MaxAttempts deliveries is dead. When its member leaves, the
//     attempt does not count.
//   - If the group selects only some events, its cursor also moves past the others.
type groupModel struct {
	sparse, anyTopic bool
	maxAttempts      int
	lease            time.Duration
	events           []modelEvent // all events in the file
	cursor           int64
	turn             int
	open             map[int64]*modelClaim // delivered, but not acknowledged or discarded
}

type modelEvent struct {
	offset      int64
	topic, ours bool // belongs to the topic; is selected by the filter
}

type modelClaim struct {
	offset   int64
	state    string // held, back or dead
	member   string
	turn     int // turn of the claim or of the return
	until    time.Time
	attempts int
	cause    string
}

// last returns the last offset that the group has to consider.
func (g *groupModel) last() (last int64) {
	for _, e := range g.events {
		if g.anyTopic || e.topic {
			last = e.offset
		}
	}
	return last
}

func (g *groupModel) some(ok func(c *modelClaim) bool) (found []*modelClaim) {
	for _, c := range g.open {
		if ok(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *modelClaim) int { return cmp.Compare(a.offset, b.offset) })
	return found
}

func (g *groupModel) lapsed() []*modelClaim {
	return g.some(func(c *modelClaim) bool { return c.state == "held" && c.until.Before(time.Now()) })
}

func (g *groupModel) held() []*modelClaim {
	return g.some(func(c *modelClaim) bool { return c.state == "held" && !c.until.Before(time.Now()) })
}

// back returns the returned events in the order of redelivery.
func (g *groupModel) back() []*modelClaim {
	back := g.some(func(c *modelClaim) bool { return c.state == "back" && !c.until.After(time.Now()) })
	slices.SortFunc(back, func(a, b *modelClaim) int {
		return cmp.Or(cmp.Compare(b.turn, a.turn), cmp.Compare(b.offset, a.offset))
	})
	return back
}

func (g *groupModel) giveBack(c *modelClaim, rest time.Duration, cause string) {
	c.state, c.turn, c.until = "back", g.turn, time.Now().Add(rest)
	if g.maxAttempts > 0 && c.attempts >= g.maxAttempts {
		c.state, c.until, c.cause = "dead", time.Now(), cause
	}
}

func (g *groupModel) claim(member string, n int) (given []modelClaim) {
	for len(given) == 0 && (len(g.lapsed()) > 0 || len(g.back()) > 0 || g.last() > g.cursor) {
		g.turn++
		for _, c := range g.lapsed() {
			g.giveBack(c, 0, "max attempts exceeded")
		}
		give := func(c *modelClaim) {
			c.state, c.member, c.turn, c.until = "held", member, g.turn, time.Now().Add(g.lease)
			c.attempts++
			given = append(given, *c)
		}
		for _, e := range g.events {
			if e.offset > g.cursor && e.ours && len(given) < n {
				g.open[e.offset] = &modelClaim{offset: e.offset}
				give(g.open[e.offset])
			}
		}
		if len(given) > 0 {
			g.cursor = given[len(given)-1].offset
		}
		if g.sparse && len(given) < n {
			g.cursor = max(g.cursor, g.last())
		}
		for _, c := range g.back() {
			if len(given) < n {
				give(c)
			}
		}
	}
	return given
}

// groupMachine drives a group and its model.
type groupMachine struct {
	groupModel
	ctx     context.Context
	topic   string
	db      *honker.DB
	g       *honker.Group[int]
	members map[string]*honker.Member[int]
	rest    time.Duration                        // the delay returned by Backoff
	claims  map[*honker.Delivery[int]]modelClaim // all claims ever made
	order   []*honker.Delivery[int]
	met     map[string]int
}

func (m *groupMachine) Publish(t *rapid.T) {
	data := make([]int, rapid.IntRange(1, 6).Draw(t, "n"))
	kind := rapid.SampledFrom([]string{"ours", "ours", "another key", "another topic"}).Draw(t, "kind")
	topic, key := m.topic+":a", "k"
	switch kind {
	case "another key":
		key = "x"
	case "another topic":
		topic = "noise"
	}
	first, last, err := honker.NewStream[int](m.db, topic, nil).PublishMany(m.ctx, data, honker.EventKey(key))
	require.NoError(t, err)
	for o := first; o <= last; o++ {
		e := modelEvent{offset: o, topic: topic != "noise"}
		e.ours = e.topic && (kind == "ours" || !m.filtered())
		m.events = append(m.events, e)
	}
}

func (m *groupMachine) filtered() bool { return m.sparse && !m.anyTopic }

var groupMembers = rapid.SampledFrom([]string{"a", "b", "c"})

func (m *groupMachine) Claim(t *rapid.T) {
	name, n := groupMembers.Draw(t, "member"), rapid.IntRange(1, 5).Draw(t, "n")
	if m.members[name] == nil {
		member, err := m.g.Join(m.ctx, name)
		require.NoError(t, err)
		m.members[name] = member
	}
	ds, err := m.members[name].Claim(m.ctx, n)
	require.NoError(t, err)
	given := m.claim(name, n)
	require.Len(t, ds, len(given))
	for i, d := range ds {
		require.Equal(t, given[i].offset, d.Offset)
		require.Equal(t, given[i].attempts, d.Attempts)
		if len(m.order) > 0 {
			require.GreaterOrEqual(t, d.Token, m.order[len(m.order)-1].Token)
		}
		m.claims[d] = given[i]
		m.order = append(m.order, d)
		m.met[fmt.Sprint("given ", min(given[i].attempts, 3))]++
	}
}

// settle calls a method of a delivery on both sides. It chooses a valid claim most of the time.
func (m *groupMachine) settle(t *rapid.T, verb string, real func(*honker.Delivery[int]) error, model func(*modelClaim)) {
	holding := func(d *honker.Delivery[int]) *modelClaim {
		c, was := m.open[d.Offset], m.claims[d]
		if c == nil || c.state != "held" || c.turn != was.turn || c.until.Before(time.Now()) {
			return nil
		}
		return c
	}
	from := slices.DeleteFunc(slices.Clone(m.order), func(d *honker.Delivery[int]) bool { return holding(d) == nil })
	if rapid.IntRange(0, 3).Draw(t, "any claim") == 3 {
		from = m.order
	}
	if len(from) == 0 {
		t.Skip("nobody holds an event")
	}
	d := rapid.SampledFrom(from).Draw(t, "claim")
	err := real(d)
	c := holding(d)
	if c == nil {
		require.ErrorIs(t, err, honker.ErrClaimLost, verb)
		m.met["stale"]++
		return
	}
	require.NoError(t, err, verb)
	m.turn++
	model(c)
	m.met[verb]++
}

func (m *groupMachine) Ack(t *rapid.T) {
	m.settle(t, "ack", func(d *honker.Delivery[int]) error { return d.Ack(m.ctx) }, func(c *modelClaim) { delete(m.open, c.offset) })
}

func (m *groupMachine) Nack(t *rapid.T) {
	m.rest = maybe(t, "rest")
	cause := causes.Draw(t, "cause")
	m.settle(t, "nack", func(d *honker.Delivery[int]) error { return d.Nack(m.ctx, cause) },
		func(c *modelClaim) {
			m.giveBack(c, (m.rest + time.Millisecond - 1).Truncate(time.Millisecond), cause.Error())
		})
}

func (m *groupMachine) Extend(t *rapid.T) {
	by := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Second}).Draw(t, "by")
	m.settle(t, "extend", func(d *honker.Delivery[int]) error { return d.Extend(m.ctx, by) },
		func(c *modelClaim) { c.until = time.Now().Add(by) })
}

func (m *groupMachine) Leave(t *rapid.T) {
	name := groupMembers.Draw(t, "member")
	info, err := m.g.Info(m.ctx)
	require.NoError(t, err)
	if !slices.Contains(info.Members, name) {
		t.Skip("no such member")
	}
	require.NoError(t, m.members[name].Leave(m.ctx))
	delete(m.members, name)
	m.turn++
	for _, c := range m.held() {
		if c.member == name {
			c.state, c.turn, c.until = "back", m.turn, time.Now()
			c.attempts--
			m.met["left"]++
		}
	}
}

func (m *groupMachine) Revive(t *rapid.T) {
	offset := rapid.Int64Range(1, m.last()+1).Draw(t, "offset")
	if dead := m.dead(); len(dead) > 0 {
		offset = rapid.SampledFrom(dead).Draw(t, "dead").offset
	}
	verb, drop := m.g.Redeliver, rapid.Bool().Draw(t, "discard")
	if drop {
		verb = m.g.Discard
	}
	found, err := verb(m.ctx, offset)
	require.NoError(t, err)
	c := m.open[offset]
	require.Equal(t, c != nil && c.state == "dead", found)
	if !found {
		return
	}
	m.turn++
	c.state, c.turn, c.until, c.attempts = "back", m.turn, time.Now(), 0
	if drop {
		delete(m.open, offset)
	}
	m.met["revived"]++
}

func (m *groupMachine) Advance(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 3 * time.Second}).Draw(t, "for"))
}

func (g *groupModel) dead() []*modelClaim {
	return g.some(func(c *modelClaim) bool { return c.state == "dead" })
}

// Check compares the observable state.
func (m *groupMachine) Check(t *rapid.T) {
	want := honker.GroupInfo{Name: "g", Topic: m.follows(), Cursor: m.cursor, Leased: int64(len(m.held())), Dead: int64(len(m.dead())), LowWater: m.cursor}
	want.Reclaim = int64(len(m.open)) - want.Leased - want.Dead
	for _, e := range m.events {
		if e.ours && e.offset > m.cursor {
			want.Lag++
		}
	}
	for _, c := range m.open {
		if c.state != "dead" {
			want.LowWater = min(want.LowWater, c.offset-1)
		}
	}
	got, err := m.g.Info(m.ctx)
	require.NoError(t, err)
	got.Members = nil // tested elsewhere
	require.Equal(t, want, got)
	dead := m.dead()
	for d, err := range m.g.Dead(m.ctx) {
		require.NoError(t, err)
		require.NotEmpty(t, dead)
		require.Equal(t, *dead[0], modelClaim{d.Offset, "dead", dead[0].member, dead[0].turn, dead[0].until, d.Attempts, d.LastError})
		require.True(t, d.DiedAt.Equal(dead[0].until))
		dead = dead[1:]
	}
	require.Empty(t, dead)
}

// follows returns the topic or pattern of the group.
func (m *groupMachine) follows() string {
	if m.anyTopic {
		return m.topic + ":*"
	}
	return m.topic + ":a"
}

// TestGroup_Model compares random operations on a group with the model.
func TestGroup_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++ // all checks start with the same offsets
			m := &groupMachine{ctx: context.Background(), db: db, topic: fmt.Sprint("topic", checks), met: met,
				members: map[string]*honker.Member[int]{}, claims: map[*honker.Delivery[int]]modelClaim{}}
			clearEvents(t, db)
			m.groupModel = groupModel{lease: 4 * time.Second, open: map[int64]*modelClaim{},
				maxAttempts: rapid.IntRange(0, 3).Draw(t, "max attempts")}
			kind := rapid.SampledFrom([]string{"topic", "filter", "pattern"}).Draw(t, "kind")
			m.sparse, m.anyTopic = kind != "topic", kind == "pattern"
			opts := &honker.GroupOptions{Lease: m.lease, MaxAttempts: m.maxAttempts, Backoff: func(int, error) time.Duration { return m.rest }}
			if m.filtered() {
				opts.Filter = honker.KeyIs("k")
			}
			m.g = honker.NewStream[int](db, m.follows(), nil).Group("g", opts)
			m.members["a"], _ = m.g.Join(m.ctx, "a")
			actions := rapid.StateMachineActions(m)
			actions["Claim more"], actions["Claim again"], actions["Nack more"] = m.Claim, m.Claim, m.Nack
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
		})
	})
	requireMet(t, met, strings.Split("ack nack extend stale left revived", " ")...)
	require.True(t, met["given 3"] > 0 || testing.Short())
}
