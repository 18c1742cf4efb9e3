//go:build unix

package torture

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/honker-go/honker"
)

// groupModel models a group:
//
//   - New events are delivered in order. Returned events are delivered when there are no new ones,
//     in reverse order of their return. Of those returned together, the highest offset comes first.
//   - A claim is valid while it is the latest of its event and its lease lasts. Lapsed events
//     return when a member claims something.
//   - An event that returns after its last attempt is dead. When its member leaves, the attempt
//     does not count.
//   - If the group selects only some events, its cursor also moves past the others.
//   - Another member may take a name that was silent for the duration of a lease.
type groupModel struct {
	*lab
	topic    string // or the pattern
	filtered bool
	g        *honker.Group[int64]
	most     int           // maximum number of attempts; 0 for no limit
	rest     time.Duration // delay after the next Nack

	fresh   []int64 // offsets of the group's events above the cursor
	last    int64   // last offset that the group has to consider
	cursor  int64
	turn    int
	open    map[int64]*modelClaim // delivered, but not acknowledged or discarded
	members map[string]*modelMember
	claims  []given // all claims ever made
}

// modelClaim is the state of a delivered event.
type modelClaim struct {
	offset int64
	state  string // held, back or dead
	member *modelMember
	turn   int // turn of the claim or of the return
	until  int64
	tries  int
}

type modelMember struct {
	*honker.Member[int64]
	until int64
}

// given is a claim with the turn in which it was made.
type given struct {
	*honker.Delivery[int64]
	turn int
}

func newGroupModel(l *lab) (model, error) {
	m := &groupModel{lab: l, topic: "t:a", open: map[int64]*modelClaim{}, members: map[string]*modelMember{}, most: l.Rand.IntN(4)}
	opts := &honker.GroupOptions{Lease: span, MaxAttempts: m.most, Backoff: func(int, error) time.Duration { return m.rest }}
	switch l.Rand.IntN(3) {
	case 0:
		m.topic = "t:*"
	case 1:
		m.filtered, opts.Filter = true, honker.KeyIs("k")
	}
	m.g = honker.NewStream[int64](l.db, m.topic, nil).Group("g", opts)
	return m, m.join()
}

func (m *groupModel) verbs() []verb {
	return []verb{
		{"publish", 2, m.publish}, {"join", 1, m.join}, {"leave", 1, m.leave}, {"claim", 5, m.claim}, {"ack", 4, m.ack},
		{"nack", 3, m.nack}, {"extend", 1, m.extend}, {"revive", 1, m.revive}, {"advance", 1, m.advance},
	}
}

func (m *groupModel) pattern() bool { return m.topic == "t:*" }

func (m *groupModel) advance() error {
	return m.pass(`UPDATE _honkerx_group_claims SET deadline_ms = deadline_ms - ?1 * 1000`,
		`UPDATE _honkerx_group_members SET expires_ms = expires_ms - ?1 * 1000`)
}

// publish publishes events for the group, or events with another key or topic.
func (m *groupModel) publish() error {
	topic, key := "t:a", "k"
	switch m.Rand.IntN(6) {
	case 0:
		key = "x"
	case 1:
		topic = "noise"
	}
	first, last, err := honker.NewStream[int64](m.db, topic, nil).PublishMany(m.ctx, make([]int64, 1+m.Rand.IntN(6)), honker.EventKey(key))
	if err != nil {
		return err
	}
	if topic == "t:a" || m.pattern() {
		m.last = last
	}
	for o := first; o <= last && topic == "t:a" && (key == "k" || !m.filtered); o++ {
		m.fresh = append(m.fresh, o)
	}
	return nil
}

func (m *groupModel) name() string { return []string{"a", "b", "c"}[m.Rand.IntN(3)] }

func (m *groupModel) join() error {
	name := m.name()
	old := m.members[name]
	joined, err := m.g.Join(m.ctx, name)
	taken := old != nil && old.until >= m.second()
	if err != nil && !errors.Is(err, honker.ErrMemberTaken) {
		return err
	}
	if !taken {
		maps.DeleteFunc(m.members, func(_ string, o *modelMember) bool { return o.until < m.second() })
		m.members[name] = &modelMember{joined, m.in(span)}
	}
	return m.same("name is taken", err != nil, taken)
}

func (m *groupModel) leave() error {
	name := m.name()
	who := m.members[name]
	if who == nil || m.oneIn(2) {
		return nil
	}
	delete(m.members, name)
	m.turn++
	for _, c := range m.held() {
		if c.member == who {
			c.state, c.turn, c.until = "back", m.turn, m.second()
			c.tries--
		}
	}
	return who.Leave(m.ctx)
}

// some returns the claims accepted by ok, in the order of their events.
func (m *groupModel) some(ok func(*modelClaim) bool) (found []*modelClaim) {
	for _, c := range m.open {
		if ok(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *modelClaim) int { return cmp.Compare(a.offset, b.offset) })
	return found
}

func (m *groupModel) lapsed() []*modelClaim {
	return m.some(func(c *modelClaim) bool { return c.state == "held" && c.until < m.second() })
}

func (m *groupModel) held() []*modelClaim {
	return m.some(func(c *modelClaim) bool { return c.state == "held" && c.until >= m.second() })
}

func (m *groupModel) dead() []*modelClaim {
	return m.some(func(c *modelClaim) bool { return c.state == "dead" })
}

// back returns the returned events in the order of redelivery.
func (m *groupModel) back() []*modelClaim {
	back := m.some(func(c *modelClaim) bool { return c.state == "back" && c.until <= m.second() })
	slices.SortFunc(back, func(a, b *modelClaim) int {
		return cmp.Or(cmp.Compare(b.turn, a.turn), cmp.Compare(b.offset, a.offset))
	})
	return back
}

func (m *groupModel) giveBack(c *modelClaim, rest time.Duration) {
	c.state, c.turn, c.until = "back", m.turn, m.in(rest)
	if m.most > 0 && c.tries >= m.most {
		c.state = "dead"
	}
}

func (m *groupModel) claim() error {
	who := m.members[m.name()]
	if who == nil {
		return nil
	}
	n := 1 + m.Rand.IntN(5)
	ds, err := who.Claim(m.ctx, n)
	if err != nil {
		return err
	}
	want := m.give(who, n)
	got := make([]string, len(ds))
	for i, d := range ds {
		got[i] = fmt.Sprint(d.Offset, " for the ", d.Attempts)
		rises := len(m.claims) == 0 || d.Token > m.claims[len(m.claims)-1].Token || i > 0 && d.Token == ds[0].Token
		if err := m.same("token rises", rises, true); err != nil {
			return err
		}
		m.claims = append(m.claims, given{d, m.turn})
	}
	return m.same("claim", got, want)
}

// give returns the deliveries expected from a claim.
func (m *groupModel) give(who *modelMember, n int) (out []string) {
	give := func(c *modelClaim) {
		c.state, c.member, c.turn, c.until = "held", who, m.turn, m.in(span)
		c.tries++
		out = append(out, fmt.Sprint(c.offset, " for the ", c.tries))
	}
	for len(out) == 0 && (len(m.lapsed()) > 0 || len(m.back()) > 0 || m.last > m.cursor) {
		m.turn++
		for _, c := range m.lapsed() {
			m.giveBack(c, 0)
		}
		for ; len(out) < n && len(m.fresh) > 0; m.fresh = m.fresh[1:] {
			m.cursor = m.fresh[0]
			m.open[m.cursor] = &modelClaim{offset: m.cursor}
			give(m.open[m.cursor])
		}
		if (m.filtered || m.pattern()) && len(out) < n {
			m.cursor = max(m.cursor, m.last)
		}
		for _, c := range m.back() {
			if len(out) < n {
				give(c)
			}
		}
	}
	return out
}

// settle tries to settle any claim, including stale ones.
func (m *groupModel) settle(what string, do func(given) error, then func(*modelClaim)) error {
	if len(m.claims) == 0 {
		return nil
	}
	d := anyOf(m.lab, m.claims, 6)
	c := m.open[d.Offset]
	holds := c != nil && c.state == "held" && c.turn == d.turn && c.until >= m.second()
	err := do(d)
	if err != nil && !errors.Is(err, honker.ErrClaimLost) {
		return err
	}
	if holds {
		m.turn++
		then(c)
	}
	return m.same(fmt.Sprint(what, " of ", d.Offset), err == nil, holds)
}

func (m *groupModel) ack() error {
	return m.settle("ack", func(d given) error { return d.Ack(m.ctx) }, func(c *modelClaim) { delete(m.open, c.offset) })
}

func (m *groupModel) nack() error {
	m.rest = m.perhaps()
	return m.settle("nack", func(d given) error { return d.Nack(m.ctx, errOnPurpose) }, func(c *modelClaim) { m.giveBack(c, m.rest) })
}

func (m *groupModel) extend() error {
	by := span + 2*leap*time.Duration(m.Rand.IntN(2))
	return m.settle("extend", func(d given) error { return d.Extend(m.ctx, by) }, func(c *modelClaim) { c.until = m.in(by) })
}

// revive redelivers or discards a dead event, or tries that with another event.
func (m *groupModel) revive() error {
	offset := 1 + m.Rand.Int64N(m.last+1)
	if dead := m.dead(); len(dead) > 0 && !m.oneIn(4) {
		offset = dead[m.Rand.IntN(len(dead))].offset
	}
	verb, drop := m.g.Redeliver, m.oneIn(2)
	if drop {
		verb = m.g.Discard
	}
	found, err := verb(m.ctx, offset)
	if err != nil {
		return err
	}
	c := m.open[offset]
	dead := c != nil && c.state == "dead"
	if dead {
		m.turn++
		c.state, c.turn, c.until, c.tries = "back", m.turn, m.second(), 0
	}
	if dead && drop {
		delete(m.open, offset)
	}
	return m.same(fmt.Sprint("event ", offset, " was dead"), found, dead)
}

// compare compares the information about the group and its dead events.
func (m *groupModel) compare() error {
	held, dead := len(m.held()), m.dead()
	want := honker.GroupInfo{Name: "g", Topic: m.topic, Cursor: m.cursor, Lag: int64(len(m.fresh)), LowWater: m.cursor,
		Leased: int64(held), Dead: int64(len(dead)), Reclaim: int64(len(m.open) - held - len(dead))}
	for _, c := range m.open {
		if c.state != "dead" {
			want.LowWater = min(want.LowWater, c.offset-1)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.members)) {
		if m.members[name].until >= m.second() {
			want.Members = append(want.Members, name)
		}
	}
	got, err := m.g.Info(m.ctx)
	if err != nil {
		return err
	}
	return errors.Join(m.same("group", got, want), m.compareDead(dead))
}

func (m *groupModel) compareDead(dead []*modelClaim) error {
	var got, want [][2]int64
	for d, err := range m.g.Dead(m.ctx) {
		if err != nil {
			return err
		}
		got = append(got, [2]int64{d.Offset, int64(d.Attempts)})
	}
	for _, c := range dead {
		want = append(want, [2]int64{c.offset, int64(c.tries)})
	}
	return m.same("dead events", got, want)
}
