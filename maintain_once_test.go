package honker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// With Once, Maintain does one round and releases its lock. It returns an error if another process leads.
func TestMaintain_Once(t *testing.T) {
	maintained(t, honker.Options{NotificationTTL: time.Minute}, func(t *testing.T, db *honker.DB, _ *testkit.Log) {
		ctx := t.Context()
		kept := func() (n int) {
			require.NoError(t, db.SQL().QueryRowContext(ctx, `SELECT count(*) FROM _honker_notifications`).Scan(&n))
			return n
		}
		_, err := db.Notify(ctx, "old", 1)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		other, err := db.TryLock(ctx, "honker-maintenance", nil)
		require.NoError(t, err)
		require.ErrorIs(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}), honker.ErrLockHeld)
		require.Equal(t, 1, kept())
		require.NoError(t, other.Unlock(ctx))

		began := time.Now()
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Zero(t, kept())
		require.Less(t, time.Since(began), time.Minute)
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}), "the lock is free")

		ended, stop := context.WithCancel(ctx)
		stop()
		require.ErrorIs(t, db.Maintain(ended, &honker.MaintainOptions{Once: true}), context.Canceled)
	})
}
