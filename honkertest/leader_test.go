package honkertest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// In a bubble, running an hourly schedule for a month takes one commit per due time but only a few
// for the leader's lock.
func TestBubble_Schedule_CommitsOfAMonth(t *testing.T) {
	const days = 30
	synctest.Test(t, func(t *testing.T) {
		var fires, commits atomic.Int64
		db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{
			Fired: func(honker.Fire) { fires.Add(1) },
			Tx:    func(observe.TxEnded) { commits.Add(1) },
		}})
		testkit.Register(t, db, testkit.Every("report", "@every 1h"))
		began := commits.Load()
		stop := testkit.Background(t, db.Scheduler().Run)
		time.Sleep(days*24*time.Hour + time.Second)
		require.NoError(t, stop())
		require.EqualValues(t, days*24, fires.Load())
		t.Logf("%d commits in %d days", commits.Load()-began, days)
		require.Less(t, commits.Load()-began, int64(days*24*8), "renewals at the pace of production")
	})
}

// In a bubble, Maintain also rarely renews its lock but still runs at the interval given by Every.
func TestBubble_Maintain_CommitsOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds, commits atomic.Int64
		db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{
			Maintained: func(observe.Maintained) { rounds.Add(1) },
			Tx:         func(observe.TxEnded) { commits.Add(1) },
		}})
		began := commits.Load()
		stop := testkit.Background(t, func(ctx context.Context) error {
			return db.Maintain(ctx, &honker.MaintainOptions{Every: time.Hour})
		})
		time.Sleep(24*time.Hour + time.Second)
		require.NoError(t, stop())
		require.EqualValues(t, 25, rounds.Load())
		t.Logf("%d commits in a day", commits.Load()-began)
		require.Less(t, commits.Load()-began, int64(24*8), "renewals at the pace of production")
	})
}

// A crashed leader is replaced within a minute, even in a bubble.
func TestCrash_Leader_IsReplacedInAMinute(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Register(t, db, testkit.Every("tea", "@every 10s"))
		stop := testkit.Background(t, db.Scheduler().Run)
		time.Sleep(15*time.Minute + 5*time.Second) // between two due times
		crashed := honkertest.Crash(t, db)
		require.NoError(t, stop())
		at := func() int64 {
			stats, err := honker.NewQueue[any](crashed, "jobs", nil).Stats(t.Context())
			require.NoError(t, err)
			return stats.Ready.N
		}
		before := at()
		stop = testkit.Background(t, crashed.Scheduler().Run)
		time.Sleep(59 * time.Second)
		require.Equal(t, before, at(), "the lock of the leader that crashed lasts")
		time.Sleep(2 * time.Second)
		require.Equal(t, before+6, at(), "caught up")
		require.NoError(t, stop())
	})
}
