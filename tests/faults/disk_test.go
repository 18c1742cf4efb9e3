//go:build unix

package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/faultvfs"
)

// onFaultyDisk opens a DB on a faultvfs.Disk. The database must be intact when the test ends.
func onFaultyDisk(t *testing.T) (*faultvfs.Disk, *honker.DB) {
	t.Helper()
	dir := t.TempDir()
	disk, err := faultvfs.New(dir)
	require.NoError(t, err)
	db, err := honker.Open(context.Background(), filepath.Join(dir, "app.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Check(context.Background()))
		require.NoError(t, db.Close())
		disk.Remove()
	})
	return disk, db
}

// While the disk is full, no write is acknowledged and workers do not spin. When there is space
// again, all work resumes and no acknowledged write is missing.
func TestWorker_DiskFull_Resumes(t *testing.T) {
	disk, db := onFaultyDisk(t)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (job INTEGER)`)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1000, Backoff: honker.Constant(0)})
	_, err := q.EnqueueMany(ctx, make([]int, 50))
	require.NoError(t, err)
	var writes, handled atomic.Int64
	disk.Fail(func(c faultvfs.Call) int32 {
		code := noSpace(c)
		if code != 0 {
			writes.Add(1)
		}
		return code
	})
	stop := testkit.Background(t, func(ctx context.Context) error {
		return q.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, job.ID)
			handled.Add(1)
			return err
		}, &honker.WorkOptions{Lease: time.Second, Workers: 2})
	})
	testkit.Eventually(t, testkit.Timeout, "the worker tries", func() bool { return writes.Load() > 0 })
	time.Sleep(time.Second)
	require.Less(t, writes.Load(), int64(100), "and does not spin")
	_, err = q.Enqueue(ctx, 1)
	require.Error(t, err)
	require.Zero(t, handled.Load(), "nothing was claimed")

	disk.Fail(nil)
	testkit.Eventually(t, testkit.Timeout, "all jobs done", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0 })
	require.NoError(t, stop())
	require.EqualValues(t, 50, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM effects`))
	require.EqualValues(t, 50, testkit.QueryInt(t, db.SQL(), `SELECT count(DISTINCT job) FROM effects`))
}

func noSpace(c faultvfs.Call) int32 {
	if c.Kind == faultvfs.Write {
		return faultvfs.Full
	}
	return 0
}

// A write that fails on a full disk has no effect: the claim is still held and the schedule is
// still due. Both continue when there is space.
func TestScheduler_DiskFull(t *testing.T) {
	disk, db := onFaultyDisk(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "jobs", nil)
	for n := range 4 {
		testkit.Enqueue(t, q, n)
	}
	testkit.Register(t, db, testkit.Every("tea", "@every 10s"))
	first, err := db.Scheduler().Soonest(ctx)
	require.NoError(t, err)
	jobs := testkit.Claim(t, q, 4)
	disk.Fail(noSpace)
	for what, verb := range map[string]func() error{
		"Ack":    func() error { return jobs[0].Ack(ctx) },
		"Retry":  func() error { return jobs[1].Retry(ctx, 0, testkit.ErrCause) },
		"Reject": func() error { return jobs[2].Reject(ctx, testkit.ErrCause) },
		"Tick":   func() error { _, err := db.Scheduler().Tick(ctx, first.Add(15*time.Second)); return err },
	} {
		err := verb()
		require.ErrorContains(t, err, "full", what)
		require.NotErrorIs(t, err, honker.ErrClaimLost, what)
	}
	disk.Fail(nil)
	require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'processing' AND worker_id = 'w'`))
	require.NoError(t, jobs[0].Ack(ctx))
	require.NoError(t, jobs[1].Retry(ctx, 0, testkit.ErrCause))
	require.NoError(t, jobs[2].Reject(ctx, testkit.ErrCause))
	testkit.ExpireClaim(t, db, jobs[3].ID) // its worker is gone
	require.Len(t, testkit.Claim(t, q, 4), 2)
	fires, err := db.Scheduler().Tick(ctx, first.Add(15*time.Second))
	require.NoError(t, err)
	require.Len(t, fires, 2, "both times that were due")
	require.True(t, fires[0].FireAt.Equal(first))
}

// honkertest's simulated full disk fails the same calls with the same error code as a real full
// disk.
func TestDiskFull_AsInTheKit(t *testing.T) {
	disk, db := onFaultyDisk(t)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE effects (job INTEGER)`)
	q := honker.NewQueue[int](db, "jobs", nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.Claim(t, q, 1)[0]
	testkit.Enqueue(t, q, 2)
	verbs := map[string]func() error{
		"Enqueue":     func() error { _, err := q.Enqueue(ctx, 3); return err },
		"EnqueueMany": func() error { _, err := q.EnqueueMany(ctx, make([]int, 100)); return err },
		"Claim":       func() error { _, err := q.Claim(ctx, "w", 1); return err },
		"Ack":         func() error { return job.Ack(ctx) },
		"DELETE":      func() error { _, err := db.SQL().ExecContext(ctx, `DELETE FROM _honker_live`); return err },
		"Tx": func() error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (1)`)
				return err
			})
		},
	}
	before := testkit.Dump(t, db.SQL())
	refused := func() map[string]int {
		codes := make(map[string]int)
		for name, verb := range verbs {
			var coded interface{ Code() int }
			if err := verb(); errors.As(err, &coded) {
				codes[name] = coded.Code()
			}
		}
		require.Equal(t, before, testkit.Dump(t, db.SQL()))
		return codes
	}
	disk.Fail(noSpace)
	onDisk := refused()
	disk.Fail(nil)
	require.Len(t, onDisk, len(verbs))
	end := honkertest.DiskFull(t, db)
	require.Equal(t, onDisk, refused(), "in the kit")
	end()
	for name, verb := range verbs {
		if name != "DELETE" {
			require.NoError(t, verb(), name)
		}
	}
}

// A worker backs off when reads, writes or syncs fail. Each kind of failure stops it at a different
// place.
func TestWorker_DiskFull_BacksOff(t *testing.T) {
	for _, kind := range []faultvfs.Kind{faultvfs.Write, faultvfs.Sync, faultvfs.Read} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			disk, err := faultvfs.New(dir)
			require.NoError(t, err)
			db, err := honker.Open(context.Background(), filepath.Join(dir, "app.db"),
				&honker.Options{Durability: honker.Full, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, db.Close())
				disk.Remove()
			})
			q := honker.NewQueue[int](db, "jobs", nil)
			_, err = q.EnqueueMany(context.Background(), make([]int, 50))
			require.NoError(t, err)
			testkit.ExecAll(t, db.SQL(), `PRAGMA wal_checkpoint(TRUNCATE)`)
			var refused atomic.Int64
			disk.Fail(func(c faultvfs.Call) int32 {
				if c.Kind != kind {
					return 0
				}
				refused.Add(1)
				return kind.Code()
			})
			stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { return nil }, &honker.WorkOptions{Workers: 2})
			testkit.Eventually(t, testkit.Timeout, "the worker tries", func() bool { return refused.Load() > 0 })
			time.Sleep(time.Second)
			require.Less(t, refused.Load(), int64(50), "and does not spin")
			disk.Fail(nil)
			testkit.Eventually(t, testkit.Timeout, "all jobs done", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0 })
			require.NoError(t, stop())
		})
	}
}

// A long reader prevents the write-ahead log from being reused. After it has ended, Maintain makes
// the log small again and keeps it small.
func TestMaintain_WAL_LongReader(t *testing.T) {
	commits := 20_000
	if testing.Short() {
		commits = 2000
	}
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(context.Background(), path, &honker.Options{WALLimit: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ctx := testkit.Context(t, 3*testkit.Timeout)
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		return info.Size()
	}
	write := func(n int) {
		for range n {
			_, err := db.Notify(ctx, "news", 1)
			require.NoError(t, err)
		}
	}
	stop := testkit.Background(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			_ = testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications WHERE id % 100 = 0`)
			time.Sleep(time.Millisecond) // the log can only restart while no connection reads
		}
		return nil
	})
	write(commits)
	require.NoError(t, stop())
	t.Logf("%d KiB after %d commits with readers that come and go", size()>>10, commits)
	require.Less(t, size(), int64(80<<20))

	rows, err := db.SQL().QueryContext(context.Background(), `SELECT id FROM _honker_notifications`)
	require.NoError(t, err)
	require.True(t, rows.Next())
	write(commits / 5)
	grown := size()
	require.Greater(t, grown, int64(1<<20), "a reader that does not end holds the log")
	require.NoError(t, rows.Close())
	stop = testkit.Background(t, func(ctx context.Context) error {
		return db.Maintain(ctx, &honker.MaintainOptions{Every: 20 * time.Millisecond})
	})
	testkit.Eventually(t, testkit.Timeout, "a small log", func() bool { return size() < 1<<20 })
	require.NoError(t, stop())
	t.Logf("%d KiB with a long reader", grown>>10)
}
