package admin_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
)

// A queue is listed while it has anything at all, and with what its own handle says.
func TestQueues_EachKind(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		queue := func(name string) *honker.Queue[int] { return honker.NewQueue[int](db, name, nil) }
		all, err := admin.Queues(ctx, db)
		require.NoError(t, err)
		require.Empty(t, all)

		_, err = queue("ready").Enqueue(ctx, 1)
		require.NoError(t, err)
		_, err = queue("scheduled").Enqueue(ctx, 1, honker.Delay(time.Hour))
		require.NoError(t, err)
		for _, name := range []string{"dead", "gone", "running"} {
			_, err = queue(name).Enqueue(ctx, 1)
			require.NoError(t, err)
			jobs, err := queue(name).Claim(ctx, "w", 1)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			switch name {
			case "dead":
				require.NoError(t, jobs[0].Reject(ctx, nil))
			case "gone":
				require.NoError(t, jobs[0].Ack(ctx))
			}
		}

		all, err = admin.Queues(ctx, db)
		require.NoError(t, err)
		var names []string
		for _, s := range all {
			names = append(names, s.Queue)
			own, err := queue(s.Queue).Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, own, s)
		}
		require.Equal(t, []string{"dead", "ready", "running", "scheduled"}, names)
		require.EqualValues(t, 1, all[0].Dead.N)
		require.EqualValues(t, 1, all[1].Ready.N)
		require.EqualValues(t, 1, all[2].Running.N)
		require.EqualValues(t, 1, all[3].Scheduled.N)
	})
}

// What cannot be read is an error that says what was attempted.
func TestQueues_Errors(t *testing.T) {
	_, err := admin.Queues(context.Background(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "list queues")

	db := honkertest.Open(t, nil)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = admin.Queues(ended, db)
	require.ErrorIs(t, err, context.Canceled)

	closed, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "app.db"), nil)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = admin.Queues(context.Background(), closed)
	require.ErrorIs(t, err, honker.ErrClosed)
}
