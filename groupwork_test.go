package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type deliveryHandler = func(context.Context, *honker.Delivery[int]) error

// workGroup runs a group's Work in the background. stop ends its ctx and returns Work's error.
func workGroup(t testing.TB, g *honker.Group[int], fn deliveryHandler, opts *honker.GroupWorkOptions) (stop func() error) {
	t.Helper()
	return testkit.Background(t, func(ctx context.Context) error { return g.Work(ctx, fn, opts) })
}

// logged returns a DB for use in a bubble, and its log.
func logged(t testing.TB) (*honker.DB, *testkit.Log) {
	log := new(testkit.Log)
	return honkertest.Open(t, &honker.Options{
		NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}), log
}

// Each event is handled once and acked, regardless of the number of workers and processes.
func TestGroup_Work_Once(t *testing.T) {
	t.Parallel()
	events := 1500
	if testing.Short() {
		events = 300
	}
	path, db := testkit.OpenShared(t)
	s := stocked(t, db, events/2)
	var mu sync.Mutex
	var seen []int
	for i, db := range []*honker.DB{db, db, honkertest.OpenFile(t, path, nil), testkit.Attach(t, path, nil)} {
		stop := workGroup(t, testkit.MemberGroup(db, time.Minute), func(_ context.Context, d *honker.Delivery[int]) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, d.Data)
			return nil
		}, &honker.GroupWorkOptions{Workers: 1 + 3*i})
		defer func() { require.NoError(t, stop()) }()
	}
	for n := events/2 + 1; n <= events; n++ {
		testkit.Publish(t, s, n)
	}
	g := testkit.MemberGroup(db, time.Minute)
	testkit.Eventually(t, testkit.Timeout, "all acked", func() bool {
		return testkit.GroupInfo(t, g).LowWater == int64(events)
	})
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(seen)
	require.Len(t, seen, events)
	require.Len(t, slices.Compact(seen), events)
}

// Work runs as many handlers at a time as it has workers, under the given member name. The member leaves
// when ctx ends.
func TestGroup_Work_Workers(t *testing.T) {
	for _, workers := range []int{0, 1, 3, 100} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			g := stocked(t, db, 300).Group("g", nil)
			var now, most atomic.Int64
			opts := &honker.GroupWorkOptions{Workers: workers, Member: "me"}
			if workers == 0 {
				opts = nil
				workers = runtime.GOMAXPROCS(0)
			}
			began := time.Now()
			stop := workGroup(t, g, func(context.Context, *honker.Delivery[int]) error {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			}, opts)
			synctest.Wait()
			require.Len(t, testkit.GroupInfo(t, g).Members, 1)
			if opts != nil {
				require.Equal(t, []string{"me"}, testkit.GroupInfo(t, g).Members)
			}
			time.Sleep(time.Duration(300/workers)*time.Second - time.Millisecond)
			require.Less(t, testkit.GroupInfo(t, g).LowWater, int64(300))
			time.Sleep(2 * time.Millisecond)
			require.EqualValues(t, 300, testkit.GroupInfo(t, g).LowWater, "after %v", time.Since(began))
			require.EqualValues(t, workers, most.Load())
			require.NoError(t, stop())
			require.Empty(t, testkit.GroupInfo(t, g).Members)
		})
	}
}

// A handler's return value settles its event. An error delays the event for the Backoff until it has no
// attempts left.
func TestGroup_Work_Nacks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 2).Group("g", &honker.GroupOptions{
			MaxAttempts: 3,
			Backoff: func(attempt int, err error) time.Duration {
				require.ErrorIs(t, err, testkit.ErrCause)
				return time.Duration(attempt) * time.Minute
			},
		})
		began := time.Now()
		var tries []time.Duration
		stop := workGroup(t, g, func(_ context.Context, d *honker.Delivery[int]) error {
			if d.Data == 2 {
				return nil
			}
			tries = append(tries, time.Since(began))
			return fmt.Errorf("try %d: %w", d.Attempts, testkit.ErrCause)
		}, &honker.GroupWorkOptions{Workers: 1})
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		for i, at := range []time.Duration{0, time.Minute, 3 * time.Minute} {
			require.InDelta(t, at, tries[i], float64(time.Second))
		}
		require.Len(t, tries, 3)
		dead := deadEvents(t, g)
		require.Len(t, dead, 1)
		require.Equal(t, 1, dead[0].Data)
		require.Equal(t, "try 3: "+testkit.ErrCause.Error(), dead[0].LastError)
		require.EqualValues(t, 2, testkit.GroupInfo(t, g).LowWater)
	})
}

// A panic counts as an error that includes the stack trace, even in Backoff. A handler that ends its goroutine
// doesn't end the worker.
func TestGroup_Work_Panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, log := logged(t)
		g := stocked(t, db, 3).Group("g", &honker.GroupOptions{
			MaxAttempts: 2, Backoff: func(int, error) time.Duration { panic("backoff") },
		})
		stop := workGroup(t, g, func(_ context.Context, d *honker.Delivery[int]) error {
			switch d.Data {
			case 1:
				panic("on the floor")
			case 2:
				runtime.Goexit()
			}
			return nil
		}, &honker.GroupWorkOptions{Workers: 1})
		time.Sleep(59 * time.Second)
		require.EqualValues(t, 2, testkit.GroupInfo(t, g).Reclaim, "a Backoff that panics means a minute")
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		dead := deadEvents(t, g)
		require.Len(t, dead, 2)
		require.Contains(t, dead[0].LastError, "panic: on the floor")
		require.Contains(t, dead[0].LastError, "groupwork_test.go")
		require.Contains(t, dead[1].LastError, "the handler called runtime.Goexit")
		require.Equal(t, 4, log.Times("Backoff panicked"))
	})
}

// deadEvents returns a group's dead events.
func deadEvents(t testing.TB, g *honker.Group[int]) (dead []*honker.DeadEvent[int]) {
	t.Helper()
	for d, err := range g.Dead(context.Background()) {
		require.NoError(t, err)
		dead = append(dead, d)
	}
	return dead
}

// The lease and the membership are renewed while fn runs.
func TestGroup_Work_Renews(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 5).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
			time.Sleep(100 * time.Second)
			return ctx.Err()
		}, &honker.GroupWorkOptions{Workers: 5, Member: "long"})
		other := enrol(t, g, "other")
		for range 99 {
			time.Sleep(time.Second)
			require.Empty(t, given(t, other, 10))
			require.Equal(t, []string{"long", "other"}, testkit.GroupInfo(t, g).Members)
		}
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 5, testkit.GroupInfo(t, g).LowWater, "one attempt each")
		require.NoError(t, stop())
	})
}

// A lost claim cancels the handler's ctx with ErrClaimLost, and the handler's result changes nothing.
func TestGroup_Work_ClaimLost(t *testing.T) {
	testkit.FileOnly(t)
	for name, result := range map[string]error{"nil": nil, "an error": testkit.ErrCause} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, log := logged(t)
				g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: 30 * time.Second, MaxAttempts: 5})
				ended := make(chan error, 10)
				stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return result
				}, &honker.GroupWorkOptions{Workers: 1})
				synctest.Wait()
				testkit.Exec(t, db, `UPDATE _honkerx_group_claims SET deadline_ms = 1`)
				d := given(t, enrol(t, g, "thief"), 1)[0]
				time.Sleep(11 * time.Second)
				require.ErrorIs(t, <-ended, honker.ErrClaimLost)
				synctest.Wait()
				require.Equal(t, 1, log.Times("claim lost"))
				require.NoError(t, d.Ack(context.Background()), "it is the thief's")
				require.NoError(t, stop())
				require.Empty(t, ended)
			})
		})
	}
}

// A lost claim does not keep events that were handled at the same time from being acked.
func TestGroup_Work_ClaimLostAmongOthers(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db, log := logged(t)
		g := stocked(t, db, 5).Group("g", &honker.GroupOptions{Lease: time.Hour})
		stop := workGroup(t, g, func(_ context.Context, d *honker.Delivery[int]) error {
			time.Sleep(time.Minute)
			if d.Data == 5 {
				return testkit.ErrCause
			}
			return nil
		}, &honker.GroupWorkOptions{Workers: 5})
		synctest.Wait()
		testkit.Exec(t, db, `UPDATE _honkerx_group_claims SET deadline_ms = 1 WHERE offset IN (2, 5)`)
		lost := given(t, enrol(t, g, "thief"), 5)
		require.Len(t, lost, 2)
		time.Sleep(2 * time.Minute)
		info := testkit.GroupInfo(t, g)
		require.Equal(t, []int64{2, 0, 1}, []int64{info.Leased, info.Reclaim, info.LowWater}, "1, 3 and 4 are acked")
		require.Equal(t, 2, log.Times("claim lost"))
		for _, d := range lost {
			require.NoError(t, d.Ack(t.Context()))
		}
		require.NoError(t, stop())
		require.EqualValues(t, 5, testkit.GroupInfo(t, g).LowWater)
	})
}

// An event that cannot be settled does not keep other events from being claimed and acked.
func TestGroup_Work_SettleRefused(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 100).Group("g", &honker.GroupOptions{Lease: 10 * time.Second})
		testkit.Exec(t, db, `CREATE TRIGGER no BEFORE DELETE ON _honkerx_group_claims WHEN old.offset = 3 BEGIN SELECT RAISE(ABORT, 'no'); END`)
		handled := make(chan int, 1000)
		stop := workGroup(t, g, func(_ context.Context, d *honker.Delivery[int]) error { handled <- d.Data; return nil },
			&honker.GroupWorkOptions{Workers: 2})
		time.Sleep(time.Minute)
		info := testkit.GroupInfo(t, g)
		require.Equal(t, []int64{1, 2, 0}, []int64{info.Leased, info.LowWater, info.Lag})
		testkit.Exec(t, db, `DROP TRIGGER no`)
		time.Sleep(time.Minute)
		require.EqualValues(t, 100, testkit.GroupInfo(t, g).LowWater)
		require.NoError(t, stop())
		require.Len(t, handled, 100)
	})
}

// Storage errors during a join, a claim or a settle are logged and retried.
func TestGroup_Work_Retries(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db, log := logged(t)
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{MaxAttempts: 1})
		refuse := func(what string) {
			testkit.Exec(t, db, `CREATE TRIGGER no BEFORE `+what+` BEGIN SELECT RAISE(ABORT, 'no space'); END`)
		}
		allow := func() { testkit.Exec(t, db, `DROP TRIGGER no`) }
		fails := func(line string) {
			t.Helper()
			before := log.Times(line)
			time.Sleep(20 * time.Second)
			require.Greater(t, log.Times(line), before+2, line)
			require.Less(t, log.Times(line), before+30, "it pauses")
		}
		refuse(`INSERT ON _honkerx_groups`)
		handled := 0
		stop := workGroup(t, g, func(context.Context, *honker.Delivery[int]) error { handled++; return nil }, &honker.GroupWorkOptions{Workers: 1})
		fails("transaction failed, retrying")
		allow()
		refuse(`INSERT ON _honkerx_group_claims`)
		fails("transaction failed, retrying")
		require.Zero(t, handled)
		allow()
		refuse(`DELETE ON _honkerx_group_claims`)
		time.Sleep(5 * time.Second)
		fails("event not settled, retrying")
		require.Equal(t, 1, handled)
		allow()
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).LowWater)
		require.NoError(t, stop())
		require.Equal(t, 1, handled)
	})
}

// Work doesn't touch an event that its handler has settled, no matter what the handler returns, and doesn't cancel
// the handler's ctx.
func TestGroup_Work_SettledByTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, log := logged(t)
		g := stocked(t, db, 6).Group("g", &honker.GroupOptions{Lease: time.Minute, Backoff: func(int, error) time.Duration { return 24 * time.Hour }})
		inTx := func(ctx context.Context, settle func(ctx context.Context, tx honker.Tx) error, end error) {
			err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, settle(ctx, tx))
				return end
			})
			require.ErrorIs(t, err, end)
		}
		stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
			nackTx := func(ctx context.Context, tx honker.Tx) error { return d.NackTx(ctx, tx, testkit.ErrCause) }
			switch d.Data {
			case 1:
				require.NoError(t, d.Ack(ctx))
			case 2:
				require.NoError(t, d.Nack(ctx, testkit.ErrCause))
			case 3:
				inTx(ctx, d.AckTx, nil)
			case 4:
				inTx(ctx, nackTx, nil)
			case 5:
				inTx(ctx, d.AckTx, testkit.ErrCause) // rolled back, so Work acks the event
			case 6:
				inTx(ctx, d.AckTx, testkit.ErrCause) // rolled back, so Work nacks the event
			}
			time.Sleep(10 * time.Minute)
			require.NoError(t, ctx.Err(), "of event %d", d.Data)
			if d.Data%2 == 0 {
				return testkit.ErrCause
			}
			return nil
		}, &honker.GroupWorkOptions{Workers: 6})
		time.Sleep(11 * time.Minute)
		require.NoError(t, stop())
		require.Zero(t, log.Times("claim lost"))
		require.Zero(t, log.Times("level=ERROR"))
		info := testkit.GroupInfo(t, g)
		require.Equal(t, []int64{3, 1}, []int64{info.Reclaim, info.LowWater}, "2, 4 and 6 came back")
		time.Sleep(25 * time.Hour)
		back := given(t, enrol(t, g, "next"), 6)
		data := contentsOf(back)
		slices.Sort(data)
		require.Equal(t, []int{2, 4, 6}, data)
		for _, d := range back {
			require.Equal(t, 2, d.Attempts)
		}
	})
}

// Events claimed ahead are returned immediately when handlers become slow.
func TestGroup_Work_ClaimsAhead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 500).Group("g", nil)
		slow := make(chan struct{})
		stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
			if d.Data > 200 {
				<-slow
			}
			return nil
		}, &honker.GroupWorkOptions{Workers: 2})
		time.Sleep(time.Second)
		require.EqualValues(t, 2, testkit.GroupInfo(t, g).Leased, "no more than there are handlers")
		rest := given(t, enrol(t, g, "other"), 500)
		require.Len(t, rest, 298)
		for _, d := range rest {
			require.Equal(t, 1, d.Attempts)
		}
		close(slow)
		require.NoError(t, stop())
	})
}

// Work doesn't claim ahead for slow handlers that end together.
func TestGroup_Work_HoldsNoMoreThanItHandles(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 500).Group("g", nil)
		stop := workGroup(t, g, func(context.Context, *honker.Delivery[int]) error {
			time.Sleep(time.Second)
			return nil
		}, &honker.GroupWorkOptions{Workers: 4})
		for range 100 {
			time.Sleep(49 * time.Millisecond)
			require.LessOrEqual(t, testkit.GroupInfo(t, g).Leased, int64(4))
		}
		require.NoError(t, stop())
	})
}

// While Work waits for events, it writes nothing but its membership.
func TestGroup_Work_IdleWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "waits.db")
		db := honkertest.OpenFile(t, path, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		stop := workGroup(t, testkit.MemberGroup(db, 72*time.Hour), func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
		synctest.Wait()
		unchanged := testkit.WatchFile(t, path)
		time.Sleep(23 * time.Hour)
		unchanged("a Work that waits")
		time.Sleep(100 * time.Hour)
		require.Len(t, testkit.GroupInfo(t, testkit.MemberGroup(db, 72*time.Hour)).Members, 1)
		require.NoError(t, stop())
	})
}

// The handler's ctx carries the values of the ctx passed to Work.
func TestGroup_Work_Values(t *testing.T) {
	t.Parallel()
	type key struct{}
	g := stocked(t, honkertest.Open(t, nil), 1).Group("g", nil)
	got := make(chan any, 1)
	stop := testkit.Background(t, func(ctx context.Context) error {
		return g.Work(context.WithValue(ctx, key{}, "value"), func(ctx context.Context, _ *honker.Delivery[int]) error {
			got <- ctx.Value(key{})
			return nil
		}, nil)
	})
	require.Equal(t, "value", <-got)
	require.NoError(t, stop())
}

// Work rejects a name that another member has, and the name of a deleted group.
func TestGroup_Work_MembershipLost(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		g := stocked(t, db, 1).Group("g", nil)
		other := enrol(t, g, "me")
		none := func(context.Context, *honker.Delivery[int]) error { return nil }
		require.ErrorIs(t, g.Work(ctx, none, &honker.GroupWorkOptions{Member: "me"}), honker.ErrMemberTaken)
		require.NoError(t, other.Leave(ctx))
		ended := make(chan error)
		go func() { ended <- g.Work(ctx, none, &honker.GroupWorkOptions{Member: "me"}) }()
		synctest.Wait()
		testkit.Exec(t, db, `UPDATE _honkerx_group_members SET instance = 'another'`)
		require.ErrorIs(t, <-ended, honker.ErrMemberTaken)
		go func() { ended <- g.Work(ctx, none, nil) }()
		synctest.Wait()
		deleted, err := g.Delete(ctx)
		require.True(t, deleted && err == nil, err)
		require.ErrorIs(t, <-ended, honker.ErrNotFound)
	})
}

func TestGroup_Work_Refuses(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	s := honker.NewStream[int](db, "orders", nil)
	none := func(context.Context, *honker.Delivery[int]) error { return nil }
	with := func(o honker.GroupWorkOptions) testkit.Refusal {
		return func(c context.Context) error { return s.Group("g", nil).Work(c, none, &o) }
	}
	calls := map[string]testkit.Refusal{
		"nil function":  func(c context.Context) error { return s.Group("g", nil).Work(c, nil, nil) },
		"workers":       with(honker.GroupWorkOptions{Workers: -1}),
		"drain timeout": with(honker.GroupWorkOptions{DrainTimeout: -1}),
		"lease":         func(c context.Context) error { return s.Group("g", &honker.GroupOptions{Lease: -1}).Work(c, none, nil) },
	}
	for what, name := range badNames {
		calls["group "+what] = func(c context.Context) error { return s.Group(name, nil).Work(c, none, nil) }
		if name != "" {
			calls["member "+what] = with(honker.GroupWorkOptions{Member: name})
		}
	}
	testkit.RequireRefused(t, path, calls)
	require.NoError(t, db.Tx(testkit.Context(t, testkit.Timeout), func(ctx context.Context, _ *sql.Tx) error {
		require.ErrorIs(t, s.Group("g", nil).Work(ctx, none, nil), honker.ErrInTx)
		return nil
	}))
	ended, end := context.WithCancel(context.Background())
	end()
	unchanged := testkit.WatchFile(t, path)
	require.NoError(t, s.Group("g", nil).Work(ended, none, nil))
	unchanged("Work whose ctx has ended")
	_, err := s.Group("g", nil).Info(context.Background())
	require.True(t, errors.Is(err, honker.ErrNotFound))
}

// Work returns the error that ended it, even if ctx ends during the drain.
func TestGroup_Work_ErrorBeforeTheEndOfCtx(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 1).Group("g", &honker.GroupOptions{Lease: 3 * time.Second})
		stop := testkit.Background(t, func(ctx context.Context) error {
			return g.Work(ctx, func(context.Context, *honker.Delivery[int]) error {
				time.Sleep(10 * time.Second)
				return nil
			}, &honker.GroupWorkOptions{Workers: 2})
		})
		synctest.Wait()
		deleted, err := g.Delete(context.Background())
		require.True(t, deleted && err == nil, err)
		time.Sleep(5 * time.Second)
		require.ErrorIs(t, stop(), honker.ErrNotFound)
	})
}

// Close ends Work with ErrClosed, even during the pause after a failed transaction.
func TestGroup_Work_CloseWhileItRetries(t *testing.T) {
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
	db, err := honker.Open(context.Background(), path, &honker.Options{
		BusyTimeout: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	testkit.HoldWriter(t, path)
	g, ended := honker.NewStream[int](db, "orders", nil).Group("g", nil), make(chan error, 1)
	go func() {
		ended <- g.Work(context.Background(), func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
	}()
	testkit.Eventually(t, testkit.Timeout, "it pauses", func() bool { return log.Times("transaction failed, retrying") >= 2 })
	require.NoError(t, db.Close())
	require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), honker.ErrClosed)
}

// When ctx ends, no more handlers start, and running handlers finish.
func TestGroup_Work_Drains(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		s := stocked(t, db, 3)
		g := s.Group("g", &honker.GroupOptions{Lease: 2 * time.Second, MaxAttempts: 1})
		stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
			time.Sleep(time.Duration(10*d.Data) * time.Second)
			if d.Data == 2 {
				return testkit.ErrCause
			}
			return ctx.Err()
		}, &honker.GroupWorkOptions{Workers: 3, DrainTimeout: 31 * time.Second})
		synctest.Wait()
		began := time.Now()
		testkit.PublishRange(t, s, 4, 4)
		require.NoError(t, stop())
		require.Equal(t, 30*time.Second, time.Since(began), "no longer than the last of them")
		info := testkit.GroupInfo(t, g)
		require.Equal(t, []int64{0, 0, 1, 3}, []int64{info.Leased, info.Reclaim, info.Dead, info.LowWater}, "an error is one")
		d := given(t, enrol(t, g, "next"), 1)[0]
		require.Equal(t, []int{4, 1}, []int{d.Data, d.Attempts})
	})
}

// After DrainTimeout the handlers' ctx is cancelled. Unfinished events return to the group without using up an
// attempt, even if a handler ignores its ctx.
func TestGroup_Work_DrainTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 20 * time.Second, 5 * time.Second: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			db, log := logged(t)
			g := stocked(t, db, 4).Group("g", &honker.GroupOptions{MaxAttempts: 5})
			stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
				<-ctx.Done()
				require.NotErrorIs(t, context.Cause(ctx), honker.ErrClaimLost)
				switch d.Data {
				case 1:
					return nil
				case 2:
					panic(ctx.Err())
				case 3:
					time.Sleep(10 * time.Second)
					return nil
				}
				return fmt.Errorf("printing: %w", ctx.Err())
			}, &honker.GroupWorkOptions{Workers: 4, DrainTimeout: timeout})
			synctest.Wait()
			began, freed := time.Now(), make(chan time.Duration)
			next := enrol(t, g, "next")
			go func() {
				for d, err := range next.All(t.Context()) {
					require.NoError(t, err)
					require.Equal(t, 1, d.Attempts)
					require.NoError(t, d.Ack(context.Background()))
					freed <- time.Since(began)
				}
			}()
			ended := make(chan error)
			go func() { ended <- stop() }()
			for range 3 {
				require.Equal(t, want+time.Second, <-freed, "with the member's leave")
			}
			require.NoError(t, <-ended)
			require.Equal(t, want+10*time.Second, time.Since(began), "Work waits for its goroutines")
			require.Equal(t, 1, log.Times("still running after its context was cancelled"))
			require.EqualValues(t, 4, testkit.GroupInfo(t, g).LowWater)
		})
	}
}

// If the handlers return when their ctx ends, Work returns when they do.
func TestGroup_Work_DrainTimeoutObeyed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		g := stocked(t, db, 2).Group("g", nil)
		stop := workGroup(t, g, func(ctx context.Context, d *honker.Delivery[int]) error {
			<-ctx.Done()
			return ctx.Err()
		}, &honker.GroupWorkOptions{DrainTimeout: 5 * time.Second, Workers: 2})
		synctest.Wait()
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 5*time.Second, time.Since(began))
		for _, d := range given(t, enrol(t, g, "next"), 2) {
			require.Equal(t, 1, d.Attempts, "unspent")
		}
	})
}

// Close drains Work, as when ctx ends, and Work returns ErrClosed.
func TestGroup_Work_Close(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	g := stocked(t, db, 1).Group("g", nil)
	busy, ended := make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- g.Work(context.Background(), func(ctx context.Context, _ *honker.Delivery[int]) error {
			close(busy)
			time.Sleep(50 * time.Millisecond)
			return ctx.Err()
		}, nil)
	}()
	go func() {
		<-busy
		ended <- g.Work(context.Background(), func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
	}()
	<-busy
	testkit.Eventually(t, testkit.Timeout, "two members", func() bool { return len(testkit.GroupInfo(t, g).Members) == 2 })
	require.NoError(t, db.Close())
	for range cap(ended) {
		err := <-ended
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorContains(t, err, `honker: work "g": `)
	}
	db, err = honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	info := testkit.GroupInfo(t, honker.NewStream[int](db, "orders", nil).Group("g", nil))
	require.EqualValues(t, 1, info.LowWater)
	require.Empty(t, info.Members)
}

// Work ends when its file is replaced.
func TestGroup_Work_Replaced(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	g, handled := stocked(t, db, 1).Group("g", nil), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- g.Work(testkit.Context(t, testkit.Timeout), func(context.Context, *honker.Delivery[int]) error {
			close(handled)
			return nil
		}, nil)
	}()
	<-handled
	testkit.MakeFile(t, path+".new")
	require.NoError(t, os.Rename(path+".new", path))
	require.ErrorIs(t, <-ended, honker.ErrDatabaseReplaced)
}

// A settle that keeps failing doesn't prevent Work from returning when its drain is over.
func TestGroup_Work_SettleFailsToTheEnd(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		db, _ := logged(t)
		g := stocked(t, db, 1).Group("g", nil)
		testkit.Exec(t, db, `CREATE TRIGGER no BEFORE DELETE ON _honkerx_group_claims BEGIN SELECT RAISE(ABORT, 'no space'); END`)
		stop := workGroup(t, g, func(context.Context, *honker.Delivery[int]) error { return nil }, &honker.GroupWorkOptions{DrainTimeout: time.Minute})
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, time.Minute+time.Second, time.Since(began))
		require.EqualValues(t, 1, testkit.GroupInfo(t, g).Reclaim)
		testkit.Exec(t, db, `DROP TRIGGER no`)
	})
}
