package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// Consumers lists the consumers of topics and patterns, with their lag and the age of the oldest
// unhandled event.
func TestConsumers_LagAndAge(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	none, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)

	orders := honker.NewStream[int](db, "orders:eu", nil)
	all := honker.NewStream[int](db, "orders:*", nil)
	testkit.PublishUpTo(t, orders, 10)
	testkit.Publish(t, honker.NewStream[int](db, "mails", nil), 1)
	testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = 1000 + offset`)
	for _, c := range []struct {
		stream *honker.Stream[int]
		name   string
		offset int64
	}{{orders, "packer", 4}, {orders, "done", 10}, {all, "audit", 9}} {
		_, err := c.stream.SaveOffset(ctx, c.name, c.offset)
		require.NoError(t, err)
	}
	testkit.Exec(t, db, `UPDATE _honkerx_consumers SET filter = '{"op":"is","key":"none"}' WHERE name = 'done'`)
	testkit.Exec(t, db, `UPDATE _honker_stream_consumers SET offset = 0 WHERE name = 'done'`)

	states, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	for i := range states {
		require.WithinDuration(t, time.Now(), states[i].CreatedAt, time.Minute)
		require.WithinDuration(t, time.Now(), states[i].LastAck, time.Minute)
		states[i].CreatedAt, states[i].LastAck = time.Time{}, time.Time{}
	}
	require.Equal(t, []admin.ConsumerState{
		{Topic: "orders:*", Name: "audit", Offset: 9, Lag: honker.Count{N: 1}, Behind: time.Unix(1010, 0)},
		{Topic: "orders:eu", Name: "done"}, // its filter matches no event
		{Topic: "orders:eu", Name: "packer", Offset: 4, Lag: honker.Count{N: 6}, Behind: time.Unix(1005, 0)},
	}, states)
}

// The lag is counted up to a bound shared by all consumers. More is set if the bound is reached.
func TestConsumers_LagIsBounded(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	s := honker.NewStream[int](db, "orders", nil)
	testkit.Exec(t, db, testkit.Numbers(100_001)+`INSERT INTO _honker_stream (topic, payload) SELECT 'orders', '1' FROM some`)
	_, err := s.SaveOffset(ctx, "slow", 0)
	require.NoError(t, err)
	lag := func() honker.Count {
		all, err := admin.Consumers(ctx, db)
		require.NoError(t, err)
		require.False(t, all[0].Behind.IsZero())
		return all[0].Lag
	}
	require.Equal(t, honker.Count{N: 100_000, More: true}, lag())
	_, err = s.SaveOffset(ctx, "slow", 1)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 100_000}, lag(), "exactly the bound")
	testkit.Exec(t, db, testkit.Numbers(200)+`INSERT INTO _honker_stream_consumers (name, topic, offset) SELECT 'x' || n, 'other', 0 FROM some`)
	all, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 1000, More: true}, all[0].Lag, "a thousand at least")
}

// Groups lists groups with their lag and their leased and dead events.
func TestGroups_State(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	none, err := admin.Groups(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)

	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 10)
	testkit.Exec(t, db, `UPDATE _honker_stream SET created_at = 1000 + offset`)
	m, err := s.Group("packers", &honker.GroupOptions{MaxAttempts: 1, Lease: time.Hour}).Join(ctx, "ada")
	require.NoError(t, err)
	held, err := m.Claim(ctx, 4)
	require.NoError(t, err)
	require.NoError(t, held[0].Nack(ctx, testkit.ErrCause))
	require.NoError(t, held[1].Ack(ctx))
	states, err := admin.Groups(ctx, db)
	require.NoError(t, err)
	states[0].Members = nil
	require.Equal(t, []admin.GroupState{
		{Topic: "orders", Name: "packers", Cursor: 4, Lag: honker.Count{N: 6}, Behind: time.Unix(1005, 0), Leased: 2, Dead: 1},
	}, states)
}

// Members are listed with the events they hold. A member that stops renewing is listed until another
// member joins.
func TestGroups_Members(t *testing.T) {
	inBubble(t, func(t *testing.T, db *honker.DB, _ *honker.Queue[int]) {
		ctx := t.Context()
		s := honker.NewStream[int](db, "orders", nil)
		testkit.PublishUpTo(t, s, 10)
		group := s.Group("packers", &honker.GroupOptions{Lease: time.Minute})
		members := func() []admin.GroupMember {
			all, err := admin.Groups(ctx, db)
			require.NoError(t, err)
			require.Len(t, all, 1)
			return all[0].Members
		}
		began := time.Now()
		bob, err := group.Join(ctx, "bob")
		require.NoError(t, err)
		_, err = group.Join(ctx, "ada")
		require.NoError(t, err)
		held, err := bob.Claim(ctx, 2)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		_, err = bob.Claim(ctx, 3)
		require.NoError(t, err)
		require.NoError(t, held[0].Ack(ctx))

		all := members()
		require.Len(t, all, 2)
		require.NotEqual(t, all[0].Instance, all[1].Instance)
		all[0].Instance, all[1].Instance = "", ""
		require.Equal(t, []admin.GroupMember{
			{Name: "ada", Since: began, Until: began.Add(time.Minute)},
			{Name: "bob", Since: began, Until: began.Add(90 * time.Second), Leased: 4, LeaseEnd: began.Add(time.Minute)},
		}, all)

		time.Sleep(45 * time.Second) // ada has stopped renewing, and bob's first lease has ended
		all = members()
		require.Len(t, all, 2)
		require.True(t, all[0].Until.Before(time.Now()))
		require.EqualValues(t, 3, all[1].Leased)
		_, err = group.Join(ctx, "cleo")
		require.NoError(t, err)
		require.Equal(t, []string{"bob", "cleo"}, []string{members()[0].Name, members()[1].Name})
	})
}

// A consumer with an unreadable filter is omitted and logged.
func TestConsumers_Unreadable(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, _, _ := open(t)
	s := honker.NewStream[int](db, "orders", nil)
	_, err := s.SaveOffset(ctx, "odd", 1)
	require.NoError(t, err)
	_, err = s.SaveOffset(ctx, "plain", 1)
	require.NoError(t, err)
	for _, name := range []string{"odd", "plain"} {
		_, err := s.Group(name, nil).Join(ctx, "ada")
		require.NoError(t, err)
	}
	testkit.Exec(t, db, `UPDATE _honkerx_consumers SET filter = '{' WHERE name = 'odd'`)
	testkit.Exec(t, db, `UPDATE _honkerx_groups SET filter = '{' WHERE name = 'odd'`)
	consumers, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	require.Len(t, consumers, 1)
	require.Equal(t, "plain", consumers[0].Name)
	groups, err := admin.Groups(ctx, db)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, "plain", groups[0].Name)
}
