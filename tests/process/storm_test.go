//go:build unix

package process_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["storm writer"] = writeForAWhile }

// writeForAWhile enqueues jobs as fast as possible, alternately with and without an explicit
// transaction. It prints the number of jobs and the longest duration.
func writeForAWhile() {
	a, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int64](db, "jobs", nil)
	testkit.Say("ready")
	testkit.ReadLine()
	n, worst := 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < a.Span; n++ {
		each := time.Now()
		var err error
		if n%2 == 0 {
			_, err = q.Enqueue(context.Background(), 0)
		} else {
			err = db.Tx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.EnqueueTx(ctx, tx, 0)
				return err
			})
		}
		testkit.Must(err) // no writer may fail with ErrBusy
		worst = max(worst, time.Since(each))
	}
	testkit.Must(db.Close())
	testkit.Say(n, int64(worst))
}

// hogAndTruncate holds the write lock half of the time, for half a second each, and truncates the
// log in between, waiting as long as that takes.
func hogAndTruncate(t *testing.T, path string) func() error {
	conn, err := testkit.OpenPool(t, path).Conn(context.Background())
	require.NoError(t, err)
	return testkit.Background(t, func(ctx context.Context) error {
		defer conn.Close()
		for ctx.Err() == nil {
			for _, s := range []string{`BEGIN IMMEDIATE`, `COMMIT`, `PRAGMA wal_checkpoint(TRUNCATE)`} {
				if _, err := conn.ExecContext(context.Background(), s); err != nil {
					return fmt.Errorf("%s: %w", s, err)
				}
				if s != `COMMIT` {
					_ = testkit.Within(ctx, nil, 500*time.Millisecond)
				}
			}
		}
		return nil
	})
}

// inMemory returns a directory in memory, if the system has one. On a disk that is busy with other
// work, a write can block all processes for seconds.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "honker-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Each of many processes gets its share of the writes, and none fails with ErrBusy. A busy machine
// can also slow down a single process, so the test fails only after three unfair runs.
func TestProcess_Writers_Fair(t *testing.T) {
	testkit.FileOnly(t) // a server has no write lock
	path := filepath.Join(inMemory(t), "shared.db")
	db := honkertest.OpenFile(t, path, nil)
	testkit.KeepOnFailure(t, filepath.Dir(path))
	all := 0
	for try := range 3 {
		total, least, longest := storm(t, path)
		all += total
		require.EqualValues(t, all, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		t.Logf("%d commits, the unluckiest of %d made %d; the longest wait was %v", total, stormWriters, least, longest)
		if least >= total/50 && longest < 5*time.Second { // the default BusyTimeout
			return
		}
		require.Less(t, try, 2, "unfair in three runs")
	}
}

const stormWriters = 8

// storm lets many processes write for a while. It returns the total number of commits, the lowest
// number of a process, and the duration of the slowest commit.
func storm(t *testing.T, path string) (total, least int, longest time.Duration) {
	t.Helper()
	span := 2 * time.Second
	if testing.Short() {
		span = time.Second
	}
	var procs []*testkit.Child
	for range stormWriters {
		p := testkit.StartChild(t, "storm writer", testkit.Task{Path: path, Span: span})
		procs = append(procs, p)
	}
	for _, p := range procs {
		require.Equal(t, "ready", p.Line(testkit.Timeout))
	}
	stop := hogAndTruncate(t, path)
	for _, p := range procs {
		p.Tell("go")
	}
	least = 1 << 30
	for _, p := range procs {
		var n int
		var worst time.Duration
		line := p.Line(testkit.Timeout)
		_, err := fmt.Sscan(line, &n, (*int64)(&worst))
		require.NoError(t, err, line)
		total, least, longest = total+n, min(least, n), max(longest, worst)
	}
	require.NoError(t, stop())
	return total, least, longest
}
