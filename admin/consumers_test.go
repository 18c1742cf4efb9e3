package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// dateEvents lets events be published at their offsets, in seconds after 1000.
func dateEvents(t *testing.T, db *honker.DB) {
	t.Helper()
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_stream SET created_at = 1000 + offset`, `UPDATE event SET created_at = to_timestamp(1000 + "offset")`))
}

// storeEvents stores n events without Publish, which would take long.
func storeEvents(t *testing.T, db *honker.DB, topic string, n int) {
	t.Helper()
	testkit.Exec(t, db, testkit.Either(testkit.Numbers(n)+`INSERT INTO _honker_stream (topic, payload) SELECT $1, '1' FROM some`,
		fmt.Sprintf(`INSERT INTO event (topic, payload, created_at) SELECT $1, '1', clock_timestamp() FROM generate_series(1, %d)`, n)), topic)
}

// filterConsumer changes the filter with which a consumer reads.
func filterConsumer(t *testing.T, db *honker.DB, name, filter string) {
	t.Helper()
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_consumers`, `UPDATE consumer`)+` SET filter = $1 WHERE name = $2`, filter, name)
}

// Consumers lists the consumers of topics and patterns, with their lag and the age of the oldest
// unhandled event.
func TestConsumers_LagAndAge(t *testing.T) {
	ctx, db, _, _ := open(t)
	none, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)

	orders := honker.NewStream[int](db, "orders:eu", nil)
	all := honker.NewStream[int](db, "orders:*", nil)
	testkit.PublishUpTo(t, orders, 10)
	testkit.Publish(t, honker.NewStream[int](db, "mails", nil), 1)
	dateEvents(t, db)
	for _, c := range []struct {
		stream *honker.Stream[int]
		name   string
		offset int64
	}{{orders, "packer", 4}, {orders, "done", 10}, {all, "audit", 9}} {
		_, err := c.stream.SaveOffset(ctx, c.name, c.offset)
		require.NoError(t, err)
	}
	filterConsumer(t, db, "done", `{"op":"is","key":"none"}`)
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_stream_consumers SET offset = 0 WHERE name = 'done'`, `UPDATE consumer SET "offset" = 0 WHERE name = 'done'`))

	states, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	for i := range states {
		require.WithinDuration(t, time.Now(), states[i].CreatedAt, time.Minute)
		require.WithinDuration(t, time.Now(), states[i].LastAck, time.Minute)
		states[i].CreatedAt, states[i].LastAck = time.Time{}, time.Time{}
	}
	require.Equal(t, []admin.ConsumerState{
		{Topic: "orders:*", Name: "audit", Offset: 9, Lag: honker.Count{N: 1}, LagMax: 1, Behind: time.Unix(1010, 0)},
		{Topic: "orders:eu", Name: "done"}, // its filter matches no event
		{Topic: "orders:eu", Name: "packer", Offset: 4, Lag: honker.Count{N: 6}, LagMax: 6, Behind: time.Unix(1005, 0)},
	}, states)
}

// A lag is counted up to a bound shared by all consumers. Beyond it, the lag is between bounds, and the next call goes on
// counting.
func TestConsumers_LagIsBounded(t *testing.T) {
	ctx, db, _, _ := open(t)
	s := honker.NewStream[int](db, "orders", nil)
	storeEvents(t, db, "orders", 201_500)
	_, err := s.SaveOffset(ctx, "slow", 100)
	require.NoError(t, err)
	state := func() admin.ConsumerState {
		all, err := admin.Consumers(ctx, db)
		require.NoError(t, err)
		require.False(t, all[0].Behind.IsZero())
		return all[0]
	}
	first := state()
	require.Equal(t, honker.Count{N: 201_000, More: true}, first.Lag)
	require.EqualValues(t, 201_400, first.LagMax)
	next := state()
	require.Equal(t, honker.Count{N: 201_400}, next.Lag)
	require.EqualValues(t, 201_400, next.LagMax)
	storeEvents(t, db, "orders", 300)
	require.Equal(t, honker.Count{N: 201_700}, state().Lag)
}

// Lags are exact for all consumers of topics that share their offsets, also after retention has deleted events, and after a
// look within a transaction that is rolled back.
func TestConsumers_LagsBesideModel(t *testing.T) {
	ctx, db, _, _ := open(t)
	of := func(topic string) *honker.Stream[int] { return honker.NewStream[int](db, topic, nil) }
	topics, readers := []string{"a:1", "a:2", "b"}, []string{"a:1", "a:2", "b", "a:*"}
	random := rand.New(rand.NewPCG(1, 2))
	lags := func(ctx context.Context) (got, want map[string]honker.Count) {
		got, want = map[string]honker.Count{}, map[string]honker.Count{}
		states, err := admin.Consumers(ctx, db)
		require.NoError(t, err)
		for _, c := range states {
			n := int64(0)
			for e, err := range of(c.Topic).Read(ctx, c.Offset) {
				require.NoError(t, err)
				require.Greater(t, e.Offset, c.Offset)
				n++
			}
			require.Equal(t, c.Lag.N, c.LagMax)
			got[c.Topic+" "+c.Name], want[c.Topic+" "+c.Name] = c.Lag, honker.Count{N: n}
		}
		return got, want
	}
	require.NoError(t, of("a:1").SetRetention(ctx, honker.Retention{MaxCount: 20}))
	for range 30 {
		for range random.IntN(40) {
			testkit.Publish(t, of(topics[random.IntN(len(topics))]), 1)
		}
		head, err := of("b").Head(ctx)
		require.NoError(t, err)
		for _, topic := range readers {
			if name := string("xyz"[random.IntN(3)]); random.IntN(2) == 0 {
				_, err := of(topic).SaveOffset(ctx, name, random.Int64N(head+1))
				require.NoError(t, err)
			}
		}
		_, err = of("a:1").Compact(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for range 5 {
				_, err := of("a:2").PublishTx(ctx, tx, 1)
				require.NoError(t, err)
			}
			got, want := lags(ctx)
			require.Equal(t, want, got, "in the transaction")
			return testkit.ErrCause
		}), testkit.ErrCause)
		got, want := lags(ctx)
		require.Equal(t, want, got)
	}
}

// Groups lists groups with their lag and their leased and dead events.
func TestGroups_State(t *testing.T) {
	ctx, db, _, _ := open(t)
	none, err := admin.Groups(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)

	s := honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 10)
	dateEvents(t, db)
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
		{Topic: "orders", Name: "packers", Cursor: 4, Lag: honker.Count{N: 6}, LagMax: 6, Behind: time.Unix(1005, 0), Leased: 2, Dead: 1},
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
	filterConsumer(t, db, "odd", "{")
	testkit.Exec(t, db, testkit.Either(`UPDATE _honkerx_groups`, `UPDATE grp`)+` SET filter = '{' WHERE name = 'odd'`)
	consumers, err := admin.Consumers(ctx, db)
	require.NoError(t, err)
	require.Len(t, consumers, 1)
	require.Equal(t, "plain", consumers[0].Name)
	groups, err := admin.Groups(ctx, db)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, "plain", groups[0].Name)
}
