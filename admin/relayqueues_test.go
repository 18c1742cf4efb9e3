package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// The queues of all families are listed, with sums over their partitions.
func TestRelays_Sums(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		none, err := admin.Relays(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, none)

		r := relay.New(db, nil)
		hooks := r.Queue("hooks", 4)
		send := func(q *relay.Queue, partition int, payload string) {
			_, err := q.Send(t.Context(), relay.Outgoing{Partition: partition, Payload: []byte(payload)})
			require.NoError(t, err)
		}
		send(relay.New(db, &relay.Options{Family: "billing"}).Queue("bills", 1), 0, "later")
		began := time.Now().Truncate(time.Millisecond)
		for range 2 {
			send(hooks, 0, "down")
			time.Sleep(time.Second)
		}
		send(hooks, 1, "bad")
		send(hooks, 2, "fine")
		hooks.Handle(func(_ context.Context, m *relay.Message) error {
			switch string(m.Payload) {
			case "down":
				return testkit.ErrCause
			case "bad":
				return relay.Reject(testkit.ErrCause)
			}
			return nil
		})
		stop := testkit.Background(t, r.Run)
		time.Sleep(10 * time.Second)
		require.NoError(t, stop())

		all, err := admin.Relays(t.Context(), db)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.True(t, all[0].Oldest.Equal(began), "%v is not %v", all[0].Oldest, began)
		require.Greater(t, all[0].Attempts, int64(1))
		stuck, done := all[0].Progress[0], all[0].Progress[1]
		require.Equal(t, all[0].Attempts, stuck.Attempts)
		require.Equal(t, testkit.ErrCause.Error(), stuck.LastError)
		require.EqualValues(t, 2, stuck.Waiting)
		require.True(t, stuck.Oldest.Equal(began) && stuck.RetryAt.After(time.Now()), stuck)
		require.EqualValues(t, 1, done.Processed)
		require.True(t, done.RetryAt.IsZero())
		for i, p := range all[0].Progress {
			require.Equal(t, i, p.Partition)
		}
		require.Len(t, all[0].Progress, 4)
		require.Len(t, all[1].Progress, 1)
		all[0].Progress, all[1].Progress = nil, nil
		require.False(t, all[1].Oldest.IsZero())
		all[0].Oldest, all[1].Oldest, all[0].Attempts = time.Time{}, time.Time{}, 0
		require.Equal(t, []admin.RelayInfo{
			{Queue: "hooks", Partitions: 4, Waiting: 2, Dead: 1, Blocked: 1},
			{Family: "billing", Queue: "bills", Partitions: 1, Waiting: 1},
		}, all)
	})
}

func TestRelays_NilDB(t *testing.T) {
	_, err := admin.Relays(t.Context(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}
