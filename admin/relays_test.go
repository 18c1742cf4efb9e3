package admin_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/dispatch"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

const year = 365 * 24 * time.Hour

// A process whose clock is a year ahead leaves behind a year-long lease and a year-long backoff. They are
// listed and can be broken, and the partitions are then taken immediately. If they aren't broken, the
// partitions wait.
func TestBreakRelayPartition_ClockAhead(t *testing.T) {
	for _, family := range []string{"", "billing"} {
		t.Run(family, func(t *testing.T) {
			honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
				ctx := honker.WithActor(context.Background(), "anna")
				r := relay.New(db, &relay.Options{Family: family})
				q := r.Queue("hooks", 4)
				var handled []int
				q.Handle(func(_ context.Context, m *relay.Message) error { handled = append(handled, m.Partition); return nil })
				for p := range 2 {
					_, err := q.Send(ctx, relay.Outgoing{Partition: p})
					require.NoError(t, err)
				}
				table := "_honkerx_relay_partitions"
				if family != "" {
					table = "_honkerx_relay_" + family + "_partitions"
				}
				ahead := time.Now().Add(year)
				testkit.Exec(t, db, `UPDATE `+table+` SET owner = 'gone', epoch = 7, lease_until_ms = ? WHERE partition = 0`, ahead.UnixMilli())
				testkit.Exec(t, db, `UPDATE `+table+` SET epoch = 9, attempts = 3, last_error = 'down', retry_at_ms = ? WHERE partition = 1`, ahead.UnixMilli())

				stop := testkit.Background(t, r.Run)
				time.Sleep(time.Hour)
				require.Empty(t, handled)
				held, err := admin.RelayPartitions(ctx, db)
				require.NoError(t, err)
				ahead = ahead.Truncate(time.Millisecond)
				require.Len(t, held, 2)
				require.True(t, held[0].LeaseUntil.Equal(ahead) && held[1].RetryAt.Equal(ahead))
				held[0].LeaseUntil, held[1].RetryAt = time.Time{}, time.Time{}
				require.Equal(t, []admin.RelayPartition{
					{Family: family, Queue: "hooks", Owner: "gone", Epoch: 7},
					{Family: family, Queue: "hooks", Partition: 1, Epoch: 9, Attempts: 3, LastError: "down"},
				}, held)

				for _, p := range held {
					stale := p
					stale.Epoch--
					broken, err := admin.BreakRelayPartition(ctx, db, stale)
					require.NoError(t, err)
					require.False(t, broken)
					broken, err = admin.BreakRelayPartition(ctx, db, p)
					require.NoError(t, err)
					require.True(t, broken)
					synctest.Wait()
					require.Contains(t, handled, p.Partition, "at once, without a poll")
					broken, err = admin.BreakRelayPartition(ctx, db, p)
					require.NoError(t, err)
					require.False(t, broken, "it is free")
				}
				require.NoError(t, stop())
				held, err = admin.RelayPartitions(ctx, db)
				require.NoError(t, err)
				require.Empty(t, held)
				of := ""
				if family != "" {
					of = `"family":"billing",`
				}
				require.Equal(t, []string{
					`break relay partition "anna" "" {` + of + `"partition":"1","relay queue":"hooks"} 1`,
					`break relay partition "anna" "" {` + of + `"partition":"0","relay queue":"hooks"} 1`,
				}, audit(t, db))
				require.NoError(t, db.Check(ctx))
			})
		})
	}
}

// Breaking the lease of a live process lets another process take over. The first process's progress is not
// saved.
func TestBreakRelayPartition_Holder(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		var lost atomic.Int64
		r := relay.New(db, &relay.Options{Observer: &relay.Observer{LeaseLost: func(relay.LeaseLost) { lost.Add(1) }}})
		q := r.Queue("hooks", 1)
		var mu sync.Mutex // guards epochs
		var epochs []int64
		q.Handle(func(_ context.Context, m *relay.Message) error {
			mu.Lock()
			epochs = append(epochs, m.Epoch)
			first := len(epochs) == 1
			mu.Unlock()
			if first {
				time.Sleep(20 * time.Second)
			}
			return nil
		})
		_, err := q.Send(ctx, relay.Outgoing{})
		require.NoError(t, err)
		stop := testkit.Background(t, r.Run)
		time.Sleep(time.Second)
		held, err := admin.RelayPartitions(ctx, db)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.NotEmpty(t, held[0].Owner)
		broken, err := admin.BreakRelayPartition(ctx, db, held[0])
		require.NoError(t, err)
		require.True(t, broken)
		synctest.Wait()
		mu.Lock()
		require.Equal(t, []int64{1, 2}, epochs)
		mu.Unlock()
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, lost.Load())
		info, err := q.Info(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, info.Partitions[0].Processed)
		require.NoError(t, stop())
	})
}

// Invalid input is an error. Breaking an unknown partition returns false and changes nothing.
func TestBreakRelayPartition_Errors(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := t.Context()
	for _, sent := range []bool{false, true} {
		if sent {
			_, err := relay.New(db, nil).Queue("hooks", 1).Send(ctx, relay.Outgoing{})
			require.NoError(t, err)
		}
		before := testkit.Dump(t, db.SQL())
		for _, p := range []admin.RelayPartition{{Queue: ""}, {Queue: "a\x00"}, {Queue: "hooks", Partition: -1}} {
			_, err := admin.BreakRelayPartition(ctx, db, p)
			require.ErrorIs(t, err, honker.ErrInvalid)
		}
		for _, p := range []admin.RelayPartition{{Queue: "hooks"}, {Queue: "none"}, {Queue: "hooks", Partition: 99}, {Queue: "hooks", Family: "x; DROP"}} {
			broken, err := admin.BreakRelayPartition(ctx, db, p)
			require.NoError(t, err)
			require.False(t, broken)
		}
		require.Equal(t, before, testkit.Dump(t, db.SQL()))
	}
	_, err := admin.BreakRelayPartition(ctx, nil, admin.RelayPartition{Queue: "hooks"})
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.RelayPartitions(ctx, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A process whose clock is a year ahead leaves an actor's name taken for a year. The name is listed and can
// be freed. Until then, no other actor gets it.
func TestBreakPresence_ClockAhead(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := honker.WithActor(t.Context(), "anna")
	none, err := admin.Presences(ctx, db)
	require.NoError(t, err)
	require.Empty(t, none)
	broken, err := admin.BreakPresence(ctx, db, "k", "o")
	require.NoError(t, err)
	require.False(t, broken)

	d := dispatch.New(db, nil)
	who := dispatch.Identity{Type: "osis", Instance: "2"}
	run := func(ctx context.Context) error {
		return dispatch.NewActor(d, who, func(context.Context, *dispatch.Task[int]) (any, error) { return nil, nil }, nil).Run(ctx)
	}
	registered := func() bool {
		all, err := d.Actors(ctx, dispatch.Target{Type: "osis"})
		return err == nil && len(all) == 1
	}
	stop := testkit.Background(t, run)
	testkit.Eventually(t, testkit.Timeout, "registered", registered)
	require.NoError(t, stop())
	key := dispatch.Keys{}.Presence(who)
	ahead := time.Now().Add(year)
	testkit.Exec(t, db, testkit.Either(`INSERT INTO _honkerx_dispatch_presence VALUES ($1, 'gone', '{"pid": 7, "hostname": "web-1"}', $2)`,
		`INSERT INTO actor (key, owner, value, expires_at) VALUES ($1, 'gone', '{"pid": 7, "hostname": "web-1"}', to_timestamp($2::bigint / 1000.0))`), key, ahead.UnixMilli())
	require.ErrorIs(t, run(t.Context()), dispatch.ErrInstanceTaken)

	all, err := admin.Presences(ctx, db)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.WithinDuration(t, ahead, all[0].ExpiresAt, time.Millisecond)
	all[0].ExpiresAt = time.Time{}
	require.Equal(t, []admin.PresenceInfo{{Key: key, Prefix: "hero:", Type: "osis", Group: "default", Instance: "2", Owner: "gone", Hostname: "web-1", PID: 7}}, all)
	broken, err = admin.BreakPresence(ctx, db, key, "another")
	require.NoError(t, err)
	require.False(t, broken)
	broken, err = admin.BreakPresence(ctx, db, key, "gone")
	require.NoError(t, err)
	require.True(t, broken)
	require.Equal(t, []string{fmt.Sprintf(`break presence "anna" "" {"presence":%q} 1`, key)}, audit(t, db))
	stop = testkit.Background(t, run)
	testkit.Eventually(t, testkit.Timeout, "registered", registered)
	require.NoError(t, stop())
}

// BreakPresence rejects invalid input.
func TestBreakPresence_Errors(t *testing.T) {
	db := honkertest.Open(t, nil)
	for _, names := range [][2]string{{"", "o"}, {"k", ""}, {"k\x00", "o"}} {
		_, err := admin.BreakPresence(t.Context(), db, names[0], names[1])
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err := admin.BreakPresence(t.Context(), nil, "k", "o")
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.Presences(t.Context(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
