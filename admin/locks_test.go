package admin_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A lock is listed while it's held. BreakLock releases it only if the given owner holds it, and a waiter
// then acquires it.
func TestLocks_Break(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		held, err := db.TryLock(ctx, "printer", &honker.LockOptions{Owner: "ann", TTL: time.Hour})
		require.NoError(t, err)
		all, err := admin.Locks(ctx, db)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "printer", all[0].Name)
		require.Equal(t, "ann", all[0].Owner)
		require.WithinDuration(t, time.Now().Add(time.Hour), all[0].ExpiresAt, time.Second)

		next := make(chan *honker.Lock, 1)
		go func() {
			l, err := db.Lock(ctx, "printer", &honker.LockOptions{Owner: "bob"})
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		synctest.Wait()
		broken, err := admin.BreakLock(ctx, db, "printer", "bob")
		require.NoError(t, err)
		require.False(t, broken)
		broken, err = admin.BreakLock(ctx, db, "printer", "ann")
		require.NoError(t, err)
		require.True(t, broken)
		synctest.Wait()
		require.Len(t, next, 1, "at once, without a poll")
		got := <-next
		all, err = admin.Locks(ctx, db)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "bob", all[0].Owner)
		require.ErrorIs(t, held.Unlock(ctx), honker.ErrLockLost)
		require.NoError(t, got.Unlock(ctx))
	})
}

// BreakLock rejects invalid input and changes nothing.
func TestBreakLock_Errors(t *testing.T) {
	db := honkertest.Open(t, nil)
	for _, names := range [][2]string{{"", "ann"}, {"printer", ""}} {
		_, err := admin.BreakLock(context.Background(), db, names[0], names[1])
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err := admin.BreakLock(context.Background(), nil, "printer", "ann")
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.Locks(context.Background(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// An expired lock is not listed, even though its row still exists.
func TestLocks_Lapsed(t *testing.T) {
	db := honkertest.Open(t, nil)
	testkit.Exec(t, db, testkit.Either(`INSERT INTO _honker_locks (name, owner, expires_at) VALUES ('old', 'ann', unixepoch() - 1)`,
		`INSERT INTO lock (name, owner, expires_at) VALUES ('old', 'ann', clock_timestamp() - interval '1 second')`))
	all, err := admin.Locks(context.Background(), db)
	require.NoError(t, err)
	require.Empty(t, all)
}

// Leaders lists the running scheduler and maintainer, and when an overdue schedule was due.
func TestLeaders(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := t.Context()
		began := time.Now().Truncate(time.Second)
		testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
		none, err := admin.Leaders(ctx, db)
		require.NoError(t, err)
		require.Equal(t, &admin.LeaderInfo{}, none)
		time.Sleep(2 * time.Hour)
		late, err := admin.Leaders(ctx, db)
		require.NoError(t, err)
		require.True(t, late.Overdue.Equal(began.Add(time.Hour)), late.Overdue)

		stopRun := testkit.Background(t, db.Scheduler().Run)
		stopMaintain := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		synctest.Wait()
		led, err := admin.Leaders(ctx, db)
		require.NoError(t, err)
		require.True(t, led.Overdue.IsZero())
		held, err := admin.Locks(ctx, db)
		require.NoError(t, err)
		require.Equal(t, []admin.LockInfo{*led.Maintenance, *led.Scheduler}, held)
		require.True(t, held[0].Leads && held[1].Leads)
		require.NoError(t, stopRun())
		require.NoError(t, stopMaintain())
		left, err := admin.Leaders(ctx, db)
		require.NoError(t, err)
		require.Equal(t, &admin.LeaderInfo{}, left)
	})
}
