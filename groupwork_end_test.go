package honker_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// An error that ends Work is returned, also when ctx ends during the drain.
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

// Close ends a Work in the pause after a failed transaction as any other: with ErrClosed.
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
