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

// groupModel is the expected state of a group on topic "a".
type groupModel struct {
	now    time.Time
	turn   int                  // increases each time events are returned
	cursor int                  // number of events that were delivered
	events []int64              // offsets of the published events
	open   map[int64]*openClaim // events that were delivered and are neither handled nor discarded
	held   map[row.Holding]bool // all holdings ever returned
}

type openClaim struct {
	state    string // "leased", "back" or "dead"
	holder   string
	token    int64
	at       time.Time // end of the lease, or when it can be claimed again
	turn     int       // turn in which it was returned
	attempts int64
}

// lapse returns or dead-letters the events whose leases have lapsed, as a claim does first.
func (m *groupModel) lapse(maxAttempts int) (dead []row.GroupDeath) {
	for offset, c := range m.open {
		if c.state != "leased" || !c.at.Before(m.now) {
			continue
		}
		if m.back(c, m.now, maxAttempts); c.state == "dead" {
			dead = append(dead, row.GroupDeath{Offset: offset, Attempts: c.attempts})
		}
	}
	slices.SortFunc(dead, func(a, b row.GroupDeath) int { return int(a.Offset - b.Offset) })
	return dead
}

func (m *groupModel) back(c *openClaim, ready time.Time, maxAttempts int) {
	c.state, c.at, c.turn, c.token = "back", ready, m.turn, 0
	if maxAttempts > 0 && c.attempts >= int64(maxAttempts) {
		c.state = "dead"
	}
}

// claim returns the offsets and attempts of the events that a claim for n events returns, in order.
func (m *groupModel) claim(n int, holder string, expires time.Time) (offsets, attempts []int64) {
	fresh := m.events[m.cursor:min(len(m.events), m.cursor+n)]
	m.cursor += len(fresh)
	for _, offset := range fresh {
		m.open[offset] = &openClaim{}
	}
	var back []int64
	for offset, c := range m.open {
		if c.state == "back" && !c.at.After(m.now) {
			back = append(back, offset)
		}
	}
	slices.SortFunc(back, func(a, b int64) int { // most recently returned first
		if m.open[a].turn != m.open[b].turn {
			return m.open[b].turn - m.open[a].turn
		}
		return int(b - a)
	})
	offsets = append(slices.Clone(fresh), back[:min(len(back), n-len(fresh))]...)
	for _, offset := range offsets {
		c := m.open[offset]
		c.state, c.holder, c.at = "leased", holder, expires
		c.attempts++
		attempts = append(attempts, c.attempts)
	}
	return offsets, attempts
}

// check compares the group's counts and readiness with the model.
func (m *groupModel) check(t *testing.T, d *Fixture, group int64) {
	t.Helper()
	var want row.Counts
	ready, next := m.cursor < len(m.events), time.Time{}
	if m.cursor > 0 {
		want.Cursor = m.events[m.cursor-1]
	}
	want.LowWater = want.Cursor
	for offset, c := range m.open {
		switch {
		case c.state == "dead":
			want.Dead++
			continue
		case c.state == "leased" && !c.at.Before(m.now):
			want.Leased++
		default:
			want.Back++
			ready = ready || c.state == "leased" || !c.at.After(m.now)
		}
		want.LowWater = min(want.LowWater, offset-1)
		at := c.at
		if c.state == "leased" {
			at = at.Add(1) // the lease is valid until its deadline has passed
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	require.Equal(t, want, d.progress(t, group, m.now).Counts)
	s := d.ready(t, group, m.now)
	require.Equal(t, ready, s.Ready)
	require.Equal(t, next.IsZero(), s.Next.IsZero())
	if !next.IsZero() {
		require.WithinRange(t, s.Next, next, next.Add(time.Millisecond))
	}
	d.read(t, func(ctx context.Context, q engine.Querier) error {
		states, err := d.Stores.Wake.Groups(ctx, q, []int64{group}, m.now)
		require.Len(t, states, 1)
		require.Equal(t, s.Next, states[0].Next)
		require.False(t, states[0].Ready && !ready, "the notifier would wake members in vain")
		return err
	})
}

// Random verbs change a group the same way they change the model: an event belongs to a single member at a time, and
// is neither lost nor delivered again after it has been handled.
func groupBesideModel(t *testing.T, d *Fixture) {
	rng := random(t)
	members := []row.Member{d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "m"), d.join(t, row.GroupJoin{Topic: "a", Name: "g"}, "n")}
	group := members[0].Group
	require.Equal(t, group, members[1].Group)
	m := &groupModel{now: start, open: map[int64]*openClaim{}, held: map[row.Holding]bool{}}
	write := func(f func(ctx context.Context, q engine.Querier) error) { t.Helper(); d.mustWrite(t, f) }
	anyHolding := func() (h row.Holding, c *openClaim) {
		for h = range m.held { // in random order
			if rng.IntN(3) == 0 {
				break
			}
		}
		if c = m.open[h.Offset]; c != nil && (c.state != "leased" || c.token != h.Token || c.at.Before(m.now)) {
			c = nil
		}
		return h, c
	}
	for range 600 {
		maxAttempts := rng.IntN(4)
		switch rng.IntN(9) {
		case 0:
			first, last := d.publish(t, "a", nil, slices.Repeat([]string{`1`}, 1+rng.IntN(3))...)
			for offset := first; offset <= last; offset++ {
				m.events = append(m.events, offset)
			}
			d.publish(t, "b", nil, `1`)
		case 1, 2:
			member, n, expires := pick(rng, members...), 1+rng.IntN(4), m.now.Add(time.Duration(1+rng.IntN(4))*time.Second)
			got := d.claim(t, row.GroupClaim{Member: member, N: n, MaxAttempts: maxAttempts, Expires: expires}, m.now)
			m.turn++
			slices.SortFunc(got.Dead, func(a, b row.GroupDeath) int { return int(a.Offset - b.Offset) })
			require.Equal(t, m.lapse(maxAttempts), got.Dead)
			offsets, attempts := m.claim(n, member.Instance, expires)
			require.Equal(t, append([]int64{}, offsets...), deliveredOffsets(got.Events))
			for i, e := range got.Events {
				require.Equal(t, attempts[i], e.Attempts)
				require.Equal(t, got.Events[0].Token, e.Token, "a claim has a token")
				h := holding(member, e)
				require.NotContains(t, m.held, h, "a token is not given out again")
				m.held[h], m.open[e.Offset].token = true, e.Token
			}
		case 3, 4:
			h, c := anyHolding()
			require.Equal(t, row.GroupSettled{Held: c != nil}, d.settle(t, row.GroupSettlement{Holding: h}, m.now))
			if c != nil {
				delete(m.open, h.Offset)
			}
		case 5:
			h, c := anyHolding()
			ready := m.now.Add(time.Duration(rng.IntN(3)) * time.Second)
			out := d.settle(t, row.GroupSettlement{Holding: h, Back: true, Ready: ready, MaxAttempts: maxAttempts}, m.now)
			if m.turn++; c != nil {
				m.back(c, ready, maxAttempts)
			}
			require.Equal(t, row.GroupSettled{Held: c != nil, Died: c != nil && c.state == "dead"}, out)
		case 6:
			h, c := anyHolding()
			expires := m.now.Add(time.Duration(rng.IntN(9)) * time.Second)
			require.Equal(t, c != nil, d.extend(t, h, expires, m.now))
			if c != nil {
				c.at = expires
			}
			if h, c := anyHolding(); rng.IntN(2) == 0 {
				m.turn++
				write(func(ctx context.Context, q engine.Querier) error {
					return d.Stores.Groups.Release(ctx, q, group, h.Token, []int64{h.Offset}, m.now)
				})
				// A lapsed lease can also be released, unless a claim has settled it.
				if o := m.open[h.Offset]; c == nil && o != nil && o.state == "leased" && o.token == h.Token {
					c = o
				}
				if c != nil {
					c.attempts--
					m.back(c, m.now, 0)
				}
			}
		case 7:
			m.now = m.now.Add(pick(rng, 1, 999, 1000, 1000, 2000, time.Duration(rng.IntN(2000))) * time.Millisecond)
		case 8:
			if rng.IntN(2) == 0 {
				member := pick(rng, members...)
				m.turn++
				write(func(ctx context.Context, q engine.Querier) error { return d.Stores.Groups.Leave(ctx, q, member, m.now) })
				for _, c := range m.open {
					if c.state == "leased" && c.holder == member.Instance && !c.at.Before(m.now) {
						c.attempts--
						m.back(c, m.now, 0)
					}
				}
				break
			}
			for offset, c := range m.open {
				if c.state != "dead" {
					continue
				}
				if rng.IntN(2) == 0 {
					write(func(ctx context.Context, q engine.Querier) error {
						found, err := d.Stores.Groups.Discard(ctx, q, group, offset)
						require.True(t, found)
						return err
					})
					delete(m.open, offset)
					break
				}
				m.turn++
				write(func(ctx context.Context, q engine.Querier) error {
					found, err := d.Stores.Groups.Revive(ctx, q, group, offset, m.now)
					require.True(t, found)
					return err
				})
				c.attempts = 0
				m.back(c, m.now, 0)
				break
			}
		}
		m.check(t, d, group)
	}
}
