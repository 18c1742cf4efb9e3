package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func inboxes(t *testing.T, open func(t *testing.T) *Fixture) {
	t.Run("FirstOnce", func(t *testing.T) { inboxFirstOnce(t, open(t)) })
	t.Run("RollbackLeavesNothing", func(t *testing.T) { inboxRolledBack(t, open(t)) })
}

// receive records a message that is kept for a minute.
func (d *Fixture) receive(t *testing.T, source, id string, now time.Time) (first bool) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) (err error) {
		first, err = d.Stores.Inboxes.Receive(ctx, q, source, id, now, now.Add(time.Minute))
		return err
	})
	return first
}

// A message is the first only once for each source. It is recorded until it expires and is deleted.
func inboxFirstOnce(t *testing.T, d *Fixture) {
	require.True(t, d.receive(t, "shop", "1", start))
	require.False(t, d.receive(t, "shop", "1", start))
	require.True(t, d.receive(t, "shop", "2", start))
	require.True(t, d.receive(t, "bank", "1", start))
	require.False(t, d.receive(t, "shop", "1", start.Add(time.Minute)), "it is still recorded")
	require.Zero(t, d.dropReceived(t, start.Add(time.Minute-time.Millisecond)))
	require.False(t, d.receive(t, "shop", "1", start))
	require.Equal(t, 3, d.dropReceived(t, start.Add(time.Minute)))
	require.True(t, d.receive(t, "shop", "1", start.Add(time.Minute)))
	require.False(t, d.receive(t, "shop", "1", start.Add(time.Minute)))
}

// dropReceived deletes the messages that have expired at now.
func (d *Fixture) dropReceived(t *testing.T, now time.Time) (n int) {
	t.Helper()
	d.mustWrite(t, func(ctx context.Context, q engine.Querier) error {
		dropped, err := d.Stores.Sweeps.Received.Take(ctx, q, row.Part{}, nil, now, 10)
		n = dropped.N
		return err
	})
	return n
}

// If receiving a message is rolled back, the message is still new, even if it was the database's first.
func inboxRolledBack(t *testing.T, d *Fixture) {
	for _, id := range []string{"1", "2"} {
		d.rollBack(t, func(ctx context.Context, q engine.Querier) error {
			first, err := d.Stores.Inboxes.Receive(ctx, q, "shop", id, start, start.Add(time.Minute))
			require.True(t, first)
			again, err2 := d.Stores.Inboxes.Receive(ctx, q, "shop", id, start, start.Add(time.Minute))
			require.False(t, again)
			require.NoError(t, err2)
			return err
		})
		require.True(t, d.receive(t, "shop", id, start))
	}
}
