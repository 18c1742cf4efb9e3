package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// lost waits until l is lost without its holder calling Unlock.
func lost(t testing.TB, l *honker.Lock) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(testkit.Timeout):
		t.Fatal("the holder was not told")
	}
	require.ErrorIs(t, context.Cause(l.Context()), honker.ErrLockLost)
	require.ErrorIs(t, l.Unlock(context.Background()), honker.ErrLockLost)
}

// A lock is held by a single owner until it is unlocked.
func TestLock_TryLock_OneHolder(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	l := testkit.TakeLock(t, db, "report", nil)
	require.Equal(t, "report", l.Name())
	require.NoError(t, l.Context().Err())
	for _, db := range []*honker.DB{db, other} {
		_, err := db.TryLock(context.Background(), "report", nil)
		require.ErrorIs(t, err, honker.ErrLockHeld)
		require.ErrorContains(t, err, `honker: lock "report": lock held by "`+l.Owner()+`" until 20`)
		testkit.Unlock(t, testkit.TakeLock(t, db, "another", nil))
	}
	testkit.Unlock(t, l)
	require.ErrorIs(t, l.Context().Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(l.Context()), honker.ErrLockLost)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_locks`))
	testkit.Unlock(t, testkit.TakeLock(t, other, "report", nil))
}

// A second Unlock is harmless and does not affect another holder.
func TestLock_Unlock_Again(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	first := testkit.TakeLock(t, db, "report", nil)
	testkit.Unlock(t, first)
	second := testkit.TakeLock(t, db, "report", nil)
	testkit.Unlock(t, first)
	testkit.RequireHeld(t, db, "report")
	require.NoError(t, second.Context().Err())
	testkit.Unlock(t, second)
}

// The token increases with every acquisition.
func TestLock_Token_Grows(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	last := int64(0)
	for i := range 12 {
		l := testkit.TakeLock(t, []*honker.DB{db, other}[i%2], "report", nil)
		require.Greater(t, l.Token(), last)
		last = l.Token()
		testkit.Unlock(t, l)
	}
}

// Default owners are unique. Of several callers with the same owner, only one gets the lock.
func TestLock_Owner_Unique(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	a, b := testkit.TakeLock(t, db, "a", nil), testkit.TakeLock(t, db, "b", nil)
	require.NotEqual(t, a.Owner(), b.Owner())
	me := &honker.LockOptions{Owner: "me"}
	c := testkit.TakeLock(t, db, "c", me)
	require.Equal(t, "me", c.Owner())
	_, err := db.TryLock(context.Background(), "c", me)
	require.ErrorIs(t, err, honker.ErrLockHeld)
	require.ErrorContains(t, err, `held by "me"`)
	for _, l := range []*honker.Lock{a, b, c} {
		testkit.Unlock(t, l)
	}
}

// A lock's context derives from its caller's. It has the caller's values and ends with the caller's context
// and cause. The lock is still held then, and Unlock releases it.
func TestLock_Context_Derives(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	type key struct{}
	for what, take := range map[string]func(context.Context, string, *honker.LockOptions) (*honker.Lock, error){
		"TryLock": db.TryLock, "Lock": db.Lock,
	} {
		why := errors.New("why")
		ctx, end := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
		l, err := take(ctx, what, nil)
		require.NoError(t, err)
		require.Equal(t, "value", l.Context().Value(key{}), what)
		require.NoError(t, l.Context().Err(), what)
		end(why)
		require.ErrorIs(t, l.Context().Err(), context.Canceled, what)
		require.Equal(t, why, context.Cause(l.Context()), what)
		testkit.RequireHeld(t, db, what)
		testkit.Unlock(t, l)
		testkit.Unlock(t, testkit.TakeLock(t, db, what, nil))
	}
}

// The time spent in Lock doesn't shorten how long the lock is held. The lock's context outlives the wait, and the
// lock is still renewed after the ctx with which it was acquired has ended.
func TestLock_Context_EndedIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		first := testkit.TakeLock(t, db, "report", nil)
		ctx, end := context.WithCancel(context.Background())
		second := make(chan *honker.Lock, 1)
		go func() { l, _ := db.Lock(ctx, "report", nil); second <- l }()
		synctest.Wait()
		testkit.Unlock(t, first)
		l := <-second
		require.NotNil(t, l)
		synctest.Wait()
		require.NoError(t, l.Context().Err())
		end()
		time.Sleep(10 * time.Minute)
		testkit.RequireHeld(t, db, "report")
		testkit.Unlock(t, l)
	})
}

// Unlock with an ended context still releases the lock.
func TestLock_Unlock_EndedContext(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := testkit.TakeLock(t, db, "report", nil)
	ended, end := context.WithCancel(context.Background())
	end()
	require.NoError(t, l.Unlock(ended))
	testkit.Unlock(t, testkit.TakeLock(t, db, "report", nil))
}

// Lock and Unlock are rejected inside DB.Tx.
func TestLock_InTx_Refused(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := testkit.TakeLock(t, db, "report", nil)
	require.NoError(t, db.Tx(context.Background(), func(ctx context.Context, _ *sql.Tx) error {
		_, err := db.TryLock(ctx, "other", nil)
		require.ErrorIs(t, err, honker.ErrInTx)
		_, err = db.Lock(ctx, "other", nil)
		require.ErrorIs(t, err, honker.ErrInTx)
		require.ErrorIs(t, l.Unlock(ctx), honker.ErrInTx)
		return nil
	}))
	require.NoError(t, l.Context().Err())
	testkit.Unlock(t, l)
}

// Bad lock names and options are rejected.
func TestLock_BadInput(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	type c = context.Context
	calls := map[string]testkit.Refusal{}
	try := func(what, name string, o *honker.LockOptions) {
		calls["TryLock "+what] = func(c c) error { _, err := db.TryLock(c, name, o); return err }
		calls["Lock "+what] = func(c c) error { _, err := db.Lock(c, name, o); return err }
	}
	for kind, name := range badNames {
		try("name "+kind, name, nil)
		if name != "" { // the empty name selects the default
			try("owner "+kind, "report", &honker.LockOptions{Owner: name})
		}
	}
	for _, ttl := range []time.Duration{-1, -time.Hour} {
		try(ttl.String(), "report", &honker.LockOptions{TTL: ttl})
	}
	testkit.RequireRefused(t, path, calls)
}

// TryLock does not write if the lock is held.
func TestLock_TryLock_HeldNoWrite(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	l := testkit.TakeLock(t, db, "report", nil)
	unchanged := testkit.WatchFile(t, path)
	other := honkertest.OpenFile(t, path, nil)
	testkit.RequireHeld(t, other, "report")
	require.NoError(t, db.Tx(context.Background(), func(context.Context, *sql.Tx) error {
		for range 10 { // no other connection can write during this
			testkit.RequireHeld(t, db, "report")
			testkit.RequireHeld(t, other, "report")
		}
		return nil
	}))
	unchanged("TryLock")
	testkit.Unlock(t, l)
	testkit.Unlock(t, testkit.TakeLock(t, other, "report", nil))
}

// Close releases all locks and ends their contexts.
func TestLock_Close(t *testing.T) {
	t.Parallel()
	path, second := testkit.OpenShared(t)
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	a, b := testkit.TakeLock(t, db, "a", nil), testkit.TakeLock(t, db, "b", nil)
	waiting := make(chan error, 1)
	go func() { _, err := db.Lock(context.Background(), "a", nil); waiting <- err }()
	require.NoError(t, db.Close())
	require.ErrorIs(t, <-waiting, honker.ErrClosed)
	for _, l := range []*honker.Lock{a, b} {
		require.Error(t, l.Context().Err())
		require.ErrorIs(t, context.Cause(l.Context()), honker.ErrLockLost)
		require.ErrorIs(t, context.Cause(l.Context()), honker.ErrClosed)
		require.ErrorIs(t, l.Unlock(context.Background()), honker.ErrLockLost)
		testkit.Unlock(t, testkit.TakeLock(t, second, l.Name(), nil))
	}
	_, err = db.TryLock(context.Background(), "c", nil)
	require.ErrorIs(t, err, honker.ErrClosed)
}

// Locks also work on an attached pool.
func TestLock_Attached(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	testkit.MakeApplication(t, path)
	db := testkit.Attach(t, path, nil)
	l := testkit.TakeLock(t, db, "report", nil)
	got := make(chan error, 1)
	go func() {
		next, err := db.Lock(testkit.Context(t, testkit.Timeout), "report", nil)
		if err == nil {
			err = next.Unlock(context.Background())
		}
		got <- err
	}()
	testkit.Unlock(t, l)
	require.NoError(t, <-got)
}

// A lock is renewed while it is held.
func TestLock_Renewed(t *testing.T) {
	for _, ttl := range []time.Duration{1, time.Second, 1500 * time.Millisecond, 0, time.Hour} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			time.Sleep(999 * time.Millisecond) // just before the end of a second, which is the hardest case
			l := testkit.TakeLock(t, db, "report", &honker.LockOptions{TTL: ttl})
			lasting := max(ttl, time.Second)
			if ttl == 0 {
				lasting = time.Minute
			}
			for range 20 {
				time.Sleep(lasting * 7 / 10)
				require.NoError(t, l.Context().Err())
				testkit.RequireHeld(t, db, "report")
				left := time.Until(time.Unix(testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report"), 0))
				require.GreaterOrEqual(t, left, lasting/2)
				require.LessOrEqual(t, left, lasting+2*time.Second)
			}
			testkit.Unlock(t, l)
			require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report"))
		})
	}
}

// A stolen lock is lost at the next renewal.
func TestLock_Taken_Lost(t *testing.T) {
	testkit.FileOnly(t)
	for what, statement := range map[string]string{
		"removed": `DELETE FROM _honker_locks`,
		"taken":   `UPDATE _honker_locks SET owner = 'thief', expires_at = expires_at + 100`,
		"expired": `UPDATE _honker_locks SET expires_at = 1`,
	} {
		t.Run(what, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				began := time.Now()
				l := testkit.TakeLock(t, db, "report", &honker.LockOptions{TTL: 9 * time.Second})
				testkit.Exec(t, db, statement)
				before := testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report")
				lost(t, l)
				require.Equal(t, 3*time.Second, time.Since(began))
				require.Equal(t, before, testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report"), "the other's row is not touched")
			})
		})
	}
}

// Unlock reports that the lock was stolen.
func TestLock_Taken_Unlock(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := testkit.TakeLock(t, db, "report", nil)
	testkit.Exec(t, db, `UPDATE _honker_locks SET owner = 'thief'`)
	require.ErrorIs(t, l.Unlock(context.Background()), honker.ErrLockLost)
	require.ErrorIs(t, l.Unlock(context.Background()), honker.ErrLockLost, "again")
	testkit.RequireHeld(t, db, "report")
}

// refuse makes every renewal fail, as a full disk would.
const refuse = `CREATE TRIGGER refuse BEFORE UPDATE ON _honker_locks BEGIN SELECT RAISE(FAIL, 'no space'); END`

// A lock that cannot be renewed is lost when it expires.
func TestLock_Renewal_Fails(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		l := testkit.TakeLock(t, db, "report", &honker.LockOptions{TTL: 9 * time.Second})
		testkit.Exec(t, db, refuse)
		end := time.Unix(testkit.QueryInt(t, db.SQL(), testkit.LockExpiry, "report"), 0)
		time.Sleep(time.Until(end) - time.Millisecond)
		require.NoError(t, l.Context().Err())
		lost(t, l)
		require.WithinDuration(t, end, time.Now(), 100*time.Millisecond)
		testkit.Unlock(t, testkit.TakeLock(t, db, "another", nil))
	})
}

// A lock survives renewals that fail temporarily.
func TestLock_Renewal_Recovers(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		l := testkit.TakeLock(t, db, "report", &honker.LockOptions{TTL: 9 * time.Second})
		testkit.Exec(t, db, refuse)
		time.Sleep(8 * time.Second)
		testkit.Exec(t, db, `DROP TRIGGER refuse`)
		time.Sleep(time.Minute)
		require.NoError(t, l.Context().Err())
		testkit.RequireHeld(t, db, "report")
		testkit.Unlock(t, l)
	})
}

// A handle that has lost its lock does not renew or release the lock of another handle with the same owner.
func TestLock_Taken_Namesake(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		me := &honker.LockOptions{Owner: "me", TTL: 9 * time.Second}
		first := testkit.TakeLock(t, db, "report", me)
		testkit.Exec(t, db, refuse)
		lost(t, first)
		testkit.Exec(t, db, `DROP TRIGGER refuse`)
		second := testkit.TakeLock(t, db, "report", me)
		require.Greater(t, second.Token(), first.Token())
		lost(t, first)
		time.Sleep(time.Minute)
		require.NoError(t, second.Context().Err())
		testkit.Unlock(t, second)
	})
}

// Lock waits until the holder unlocks.
func TestLock_Wait_Unlock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now()
		l := testkit.TakeLock(t, db, "report", nil)
		time.AfterFunc(10*time.Minute, func() { testkit.Unlock(t, l) })
		next, err := db.Lock(context.Background(), "report", nil)
		require.NoError(t, err)
		require.Equal(t, 10*time.Minute, time.Since(began))
		require.Greater(t, next.Token(), l.Token())
		testkit.Unlock(t, next)
	})
}

// Lock waits until a dead holder's lock has expired.
func TestLock_Wait_Expiry(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now()
		testkit.Exec(t, db, `INSERT INTO _honker_locks VALUES ('report', 'dead', ?)`, began.Unix()+17)
		l, err := db.Lock(context.Background(), "report", nil)
		require.NoError(t, err)
		require.Equal(t, 17*time.Second, time.Since(began))
		testkit.Unlock(t, l)
	})
}

// Lock keeps waiting when the holder renews the lock.
func TestLock_Wait_Renewed(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		began := time.Now()
		testkit.Exec(t, db, `INSERT INTO _honker_locks VALUES ('report', 'another', ?)`, began.Unix()+5)
		time.AfterFunc(3*time.Second, func() {
			testkit.Exec(t, db, `UPDATE _honker_locks SET expires_at = ?`, began.Unix()+20)
		})
		l, err := db.Lock(testkit.Context(t, time.Hour), "report", nil)
		require.NoError(t, err)
		require.Equal(t, 20*time.Second, time.Since(began))
		testkit.Unlock(t, l)
	})
}

// Waiters acquire a lock in the order of their calls.
func TestLock_Wait_InOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		l := testkit.TakeLock(t, db, "report", nil)
		var order []int
		done := make(chan struct{})
		for i := range 20 {
			go func() {
				defer func() { done <- struct{}{} }()
				l, err := db.Lock(context.Background(), "report", nil)
				require.NoError(t, err)
				order = append(order, i)
				testkit.Unlock(t, l)
			}()
			synctest.Wait()
		}
		testkit.Unlock(t, l)
		for range 20 {
			<-done
		}
		require.Len(t, order, 20)
		require.IsIncreasing(t, order)
	})
}

// A waiter that gives up lets the next waiter acquire the lock.
func TestLock_Wait_GivesUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		l := testkit.TakeLock(t, db, "report", nil)
		ended := make(chan error, 3)
		for i, limit := range []time.Duration{time.Second, time.Hour, 2 * time.Second} { // the first in line and the last give up
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				got, err := db.Lock(ctx, "report", nil)
				if err == nil {
					err = got.Unlock(context.Background())
				}
				ended <- fmt.Errorf("%d: %w", i, errors.Join(err, testkit.ErrCause))
			}()
			synctest.Wait()
		}
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		testkit.Unlock(t, l)
		err := <-ended
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "1: ")
	})
}

// Goroutines with two handles never hold the lock at the same time.
func TestLock_MutualExclusion(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	const goroutines, rounds = 8, 10
	var inside, entered, last atomic.Int64
	failed := make(chan error, goroutines)
	for i := range goroutines {
		go func() {
			failed <- func() error {
				for range rounds {
					l, err := []*honker.DB{db, other}[i%2].Lock(testkit.Context(t, testkit.Timeout), "report", nil)
					if err != nil {
						return err
					}
					if n, before := inside.Add(1), last.Swap(l.Token()); n != 1 || l.Token() <= before {
						return fmt.Errorf("%d inside, token %d after %d", n, l.Token(), before)
					}
					entered.Add(1)
					runtime.Gosched() // gives other goroutines a chance to enter
					inside.Add(-1)
					if err := l.Unlock(context.Background()); err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range goroutines {
		require.NoError(t, <-failed)
	}
	require.EqualValues(t, goroutines*rounds, entered.Load())
}
