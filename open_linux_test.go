package honker_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// If the path is temporarily inaccessible, verbs return the reason and loops retry.
func TestDB_PathClosedForAMoment(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	db, err := honker.Open(context.Background(), filepath.Join(dir, "file.db"), &honker.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[int](db, "jobs", nil)
	var handled atomic.Int64
	stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { handled.Add(1); return nil }, nil)
	testkit.Enqueue(t, q, 1)
	testkit.Eventually(t, testkit.Timeout, "it works", func() bool { return handled.Load() == 1 })

	// The exchange is a single step: a path that leads nowhere even for a moment means that the file is gone.
	loop := dir + ".loop"
	require.NoError(t, os.Symlink(dir, loop))
	exchange := func() {
		require.NoError(t, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, loop, unix.RENAME_EXCHANGE))
	}
	exchange()
	enqueue := func() error { _, err := q.Enqueue(context.Background(), 2); return err }
	testkit.Eventually(t, testkit.Timeout, "the path is looked at", func() bool { err = enqueue(); return err != nil })
	require.ErrorIs(t, err, syscall.ELOOP)
	require.NotErrorIs(t, err, honker.ErrDatabaseReplaced)
	exchange()
	before := handled.Load()
	testkit.Eventually(t, testkit.Timeout, "it can be used", func() bool { return enqueue() == nil })
	testkit.Eventually(t, testkit.Timeout, "it works again", func() bool { return handled.Load() > before })
	require.NoError(t, stop())
}
