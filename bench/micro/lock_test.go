package micro_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["lock timer"] = timeLocks }

const (
	rawAcquire = `INSERT INTO _honker_locks (name, owner, expires_at) VALUES (?, ?, ?)`
	rawRelease = `DELETE FROM _honker_locks WHERE name = ? AND owner = ?`
	rawRate    = `INSERT INTO _honker_rate_limits VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1`
)

// BenchmarkLock_TryUnlock takes and releases a lock, compared with an insert and a delete.
func BenchmarkLock_TryUnlock(b *testing.B) {
	r, db := openRaw(b), openBench(b, nil)
	acquire, release := r.prepare(rawAcquire), r.prepare(rawRelease)
	ctx := context.Background()
	compare(b, 500,
		func(n int) {
			for range n {
				r.exec(acquire, "bench", "me", time.Now().Unix()+60)
				r.exec(release, "bench", "me")
			}
		},
		func(n int) {
			for range n {
				l, err := db.TryLock(ctx, "bench", nil)
				if err == nil {
					err = l.Unlock(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
}

// BenchmarkRateLimit_Allow makes an allowed call, compared with the upsert that counts it.
func BenchmarkRateLimit_Allow(b *testing.B) {
	r, db := openRaw(b), openBench(b, nil)
	count := r.prepare(rawRate)
	limit := db.RateLimit("bench", 1<<40, time.Hour)
	compare(b, 1000,
		func(n int) {
			for range n {
				r.exec(count, "bench", time.Now().Unix()/3600*3600)
			}
		},
		func(n int) {
			for range n {
				if ok, err := limit.Allow(context.Background()); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
}

// timeLocks repeatedly waits for the lock, reports when it has it, and releases it.
func timeLocks() {
	db, err := honker.Open(testkit.ChildContext(), testkit.ChildArgs[string](), nil)
	testkit.Must(err)
	defer db.Close()
	for {
		l, err := db.Lock(testkit.ChildContext(), "bench", nil)
		if testkit.ChildContext().Err() != nil {
			return
		}
		testkit.Must(err)
		testkit.Say(time.Now().UnixNano())
		testkit.Must(l.Unlock(context.Background()))
		if _, more := testkit.ReadLine(); !more {
			return
		}
	}
}

// BenchmarkLock_OtherProcess measures how long a Lock in another process takes to return after
// Unlock, from the call of Unlock and from its return.
func BenchmarkLock_OtherProcess(b *testing.B) {
	path, db := testkit.OpenShared(b)
	take := func() *honker.Lock {
		l, err := db.Lock(context.Background(), "bench", nil)
		require.NoError(b, err)
		return l
	}
	l := take()
	waiter := testkit.StartChild(b, "lock timer", path)
	var fromCall, fromCommit []time.Duration
	b.ResetTimer()
	for range b.N {
		time.Sleep(5 * time.Millisecond) // let the waiter go to sleep
		called := time.Now()
		require.NoError(b, l.Unlock(context.Background()))
		released := time.Now()
		var nanos int64
		_, err := fmt.Sscan(waiter.Line(testkit.Timeout), &nanos)
		require.NoError(b, err)
		fromCall = append(fromCall, time.Unix(0, nanos).Sub(called))
		fromCommit = append(fromCommit, max(0, time.Unix(0, nanos).Sub(released)))
		l = take()
		waiter.Tell("again")
	}
	b.StopTimer()
	reportQuantiles(b, "call", fromCall)
	reportQuantiles(b, "commit", fromCommit)
	waiter.End()
	require.NoError(b, l.Unlock(context.Background()))
}
