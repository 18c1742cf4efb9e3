package honker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

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

// Close ends Work with ErrClosed during the pause after a failed transaction too.
func TestGroup_Work_CloseWhileItRetries(t *testing.T) {
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
	db, err := honker.Open(context.Background(), path, &honker.Options{
		BusyTimeout: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	require.NoError(t, err)
	holdWriter(t, path)
	g, ended := honker.NewStream[int](db, "orders", nil).Group("g", nil), make(chan error, 1)
	go func() {
		ended <- g.Work(context.Background(), func(context.Context, *honker.Delivery[int]) error { return nil }, nil)
	}()
	testkit.Eventually(t, testkit.Timeout, "it pauses", func() bool { return log.Times("transaction failed, retrying") >= 2 })
	require.NoError(t, db.Close())
	require.ErrorIs(t, testkit.Within(context.Background(), ended, testkit.Timeout), honker.ErrClosed)
}

// When ctx ends, no handler starts any more, and running handlers finish.
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

// After DrainTimeout the ctx of the handlers is cancelled. Unfinished events return to the group with their
// attempt unspent, even if a handler ignores its ctx.
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

// If the handlers return when their ctx ends, Work returns with them.
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

// Close drains Work like the end of ctx, and Work returns ErrClosed.
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

// A settle that keeps failing does not prevent Work from returning at the end of its drain.
func TestGroup_Work_SettleFailsToTheEnd(t *testing.T) {
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
