package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// actor returns a presence that expires at a time.
func actor(key, owner string, expires time.Time) row.DispatchPresence {
	return row.DispatchPresence{
		Key: key, Owner: owner, ExpiresAt: expires, PID: 7, Hostname: "host", StartedAt: start.UTC(), Version: "v1",
		Capabilities: []string{"a", "b"}, LastHeartbeat: start.UTC(), InFlight: 2, Busy: true, Paused: true,
	}
}

func presencesOf(t *testing.T, d *Fixture, first, end string, now time.Time) (all []row.DispatchPresence) {
	t.Helper()
	d.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		all, err = d.Stores.Dispatches.Presences(ctx, q, first, end, now)
		return err
	})
	return all
}

func keysOf(all []row.DispatchPresence) (keys []string) {
	for _, p := range all {
		keys = append(keys, p.Key+" "+p.Owner)
	}
	return keys
}

func (d *Fixture) enter(t *testing.T, p row.DispatchPresence, now time.Time) (entered bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		entered, err = d.Stores.Dispatches.Register(ctx, q, p, now)
		return err
	})
	return entered
}

// A name belongs to a single owner until its presence expires or is given up. Only the owner can refresh it.
func presenceHasOneOwner(t *testing.T, d *Fixture) {
	until := start.Add(time.Minute)
	one, two := actor("k", "one", until.Add(-time.Microsecond)), actor("k", "two", until.Add(time.Minute))
	require.True(t, d.enter(t, one, start))
	all := presencesOf(t, d, "", "", start)
	require.Len(t, all, 1)
	require.True(t, until.Equal(all[0].ExpiresAt), "rounded up")
	all[0].ExpiresAt = one.ExpiresAt
	require.Equal(t, one, all[0])

	require.False(t, d.enter(t, two, until.Add(-time.Millisecond)))
	require.Equal(t, []string{"k one"}, keysOf(presencesOf(t, d, "", "", start)))
	beat := func(all ...row.DispatchPresence) (kept []string) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			kept, err = d.Stores.Dispatches.Beat(ctx, q, all)
			return err
		})
		return kept
	}
	leave := func(key, owner string) (left bool) {
		d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
			left, err = d.Stores.Dispatches.Leave(ctx, q, key, owner)
			return err
		})
		return left
	}
	require.False(t, leave("k", "two"))
	require.False(t, leave("other", "one"))
	later := actor("k", "one", until.Add(time.Hour))
	later.InFlight, later.Busy, later.Paused, later.Capabilities = 0, false, false, []string{}
	require.Equal(t, []string{"k"}, beat(later, two, actor("none", "one", until)))
	all = presencesOf(t, d, "", "", until)
	require.Len(t, all, 1)
	require.True(t, later.ExpiresAt.Equal(all[0].ExpiresAt))
	all[0].ExpiresAt = later.ExpiresAt
	require.Equal(t, later, all[0])

	require.True(t, d.enter(t, one, start), "the owner may register again")
	require.Empty(t, presencesOf(t, d, "", "", until))
	require.True(t, d.enter(t, two, until), "the presence has expired")
	require.Empty(t, beat(later), "the name has another owner")
	require.False(t, leave("k", "one"))
	require.Equal(t, []string{"k two"}, keysOf(presencesOf(t, d, "", "", until)))
	require.True(t, leave("k", "two"))
	require.False(t, leave("k", "two"))
	require.Empty(t, presencesOf(t, d, "", "", start))
	require.True(t, d.enter(t, one, start))
}

// Live actors with keys in a range are returned in key order.
func presenceRanges(t *testing.T, d *Fixture) {
	until := start.Add(time.Minute)
	for _, key := range []string{"c", "a:2", "b", "a:1", "a"} {
		require.True(t, d.enter(t, actor(key, "me", until), start))
	}
	require.True(t, d.enter(t, actor("a:3", "me", start.Add(time.Second)), start))
	for _, c := range []struct {
		first, end string
		now        time.Time
		want       []string
	}{
		{"", "", start, []string{"a me", "a:1 me", "a:2 me", "a:3 me", "b me", "c me"}},
		{"", "", start.Add(time.Second), []string{"a me", "a:1 me", "a:2 me", "b me", "c me"}},
		{"a:", "a;", start, []string{"a:1 me", "a:2 me", "a:3 me"}},
		{"a:", "a;", start.Add(time.Second), []string{"a:1 me", "a:2 me"}},
		{"a:2", "c", start.Add(time.Second), []string{"a:2 me", "b me"}},
		{"d", "e", start, nil},
		{"", "", until, nil},
	} {
		require.Equal(t, c.want, keysOf(presencesOf(t, d, c.first, c.end, c.now)), "%+v", c)
	}
}

// Register, Beat and Leave have no effect if they are rolled back.
func presenceRolledBack(t *testing.T, d *Fixture) {
	p := actor("k", "me", start.Add(time.Minute))
	d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
		entered, err := d.Stores.Dispatches.Register(ctx, q, p, start)
		require.True(t, entered)
		return err
	})
	require.Empty(t, presencesOf(t, d, "", "", start))
	require.True(t, d.enter(t, p, start))
	before := presencesOf(t, d, "", "", start)
	for range 2 {
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			p.Version = "v2"
			kept, err := d.Stores.Dispatches.Beat(ctx, q, []row.DispatchPresence{p})
			require.Equal(t, []string{"k"}, kept)
			return err
		})
		require.Equal(t, before, presencesOf(t, d, "", "", start))
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			left, err := d.Stores.Dispatches.Leave(ctx, q, "k", "me")
			require.True(t, left)
			return err
		})
		require.Equal(t, before, presencesOf(t, d, "", "", start))
	}
}
