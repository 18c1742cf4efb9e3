//go:build unix

package compat_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// This file has the most valuable tests of the original honker that are not covered elsewhere.

func init() {
	children["lock prober"] = probeLocks
	children["cramped writer"] = writeWithoutRoom
}

// A job on its last attempt is not dead-lettered by other claims before its lease has expired.
func TestQueue_Claim_LastAttempt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		ctx := context.Background()
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1, Lease: 10 * time.Second})
		id := testkit.Enqueue(t, q, 1)
		job := testkit.ClaimOne(t, q)
		for _, wait := range []time.Duration{0, 10 * time.Second} { // at 10 seconds the lease is in its last second
			time.Sleep(wait)
			jobs, err := q.Claim(ctx, "other", 1)
			require.NoError(t, err)
			require.Empty(t, jobs)
			require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State)
		}
		require.NoError(t, job.Ack(ctx))
		testkit.RequireGone(t, q, id)
	})
}

// Enqueueing and claiming jobs writes no notifications.
func TestQueue_NoNotifications(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	for n := range 50 {
		testkit.Enqueue(t, q, n)
	}
	_, err := q.EnqueueMany(ctx, make([]int, 50))
	require.NoError(t, err)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 1)
		return err
	}))
	testkit.ExecAll(t, db.SQL(), `SELECT honker_enqueue('jobs', '1', NULL, NULL, 0, 3, NULL)`)
	jobs := testkit.Claim(t, q, 200)
	require.Len(t, jobs, 102)
	require.NoError(t, jobs[0].Ack(ctx))
	require.NoError(t, jobs[1].Retry(ctx, time.Minute, testkit.ErrCause))
	require.NoError(t, jobs[2].Reject(ctx, testkit.ErrCause))
	require.NoError(t, jobs[3].Snooze(ctx, 0))
	require.Equal(t, jobs[3].ID, testkit.ClaimOne(t, q).ID)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
}

// Many goroutines can call the SQL functions of queues, streams and notify at the same time.
func TestSQL_ManyGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, rounds = 6, 40
	db := honkertest.Open(t, nil)
	var acked atomic.Int64
	round := func(worker, payload string) error {
		if _, err := testkit.Rows(db.SQL(), `SELECT honker_enqueue('jobs', ?1, NULL, NULL, 0, 3, NULL),
honker_stream_publish('events', NULL, ?1), notify('news', ?1)`, payload); err != nil {
			return err
		}
		for {
			jobs, err := testkit.Rows(db.SQL(), `SELECT honker_claim_batch('jobs', ?1, 3, 60)`, worker)
			if err != nil || jobs[0] == "[]" {
				return err
			}
			n, err := testkit.Rows(db.SQL(), `SELECT honker_ack_batch(json_group_array(json_extract(value, '$.id')), ?2), count(*)
FROM json_each(?1)`, jobs[0], worker)
			if err != nil {
				return err
			}
			var done, held int64
			if _, err := fmt.Sscanf(n[0], "%d|%d", &done, &held); err != nil || done != held {
				return fmt.Errorf("acked %s: %v", n, err)
			}
			acked.Add(done)
		}
	}
	ended := make(chan error, goroutines)
	for g := range goroutines {
		go func() {
			var err error
			for i := 0; i < rounds && err == nil; i++ {
				err = round(fmt.Sprint("w", g), fmt.Sprint(i))
			}
			ended <- err
		}()
	}
	for range goroutines {
		require.NoError(t, <-ended)
	}
	require.EqualValues(t, goroutines*rounds, acked.Load())
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	for _, rows := range []string{`_honker_stream`, `_honker_notifications`, `_honker_notifications WHERE channel = 'news'`} {
		require.EqualValues(t, goroutines*rounds, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM `+rows), rows)
	}
}

// Reading a damaged file returns an error rather than an empty queue.
func TestDB_FileDamaged(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]float64{"all but the first page": 0, "the second half": 0.5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, path := testkit.Context(t, testkit.Timeout), filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(ctx, path, nil)
			require.NoError(t, err)
			args := slices.Repeat([]string{strings.Repeat("x", 1000)}, 1000)
			_, err = honker.NewQueue[string](db, "jobs", nil).EnqueueMany(ctx, args)
			require.NoError(t, err)
			require.NoError(t, db.Close())
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			for i := max(4096, int(from*float64(len(b)))); i < len(b); i++ {
				b[i] = 0xff
			}
			require.NoError(t, os.WriteFile(path, b, 0o600))

			db, err = honker.Open(ctx, path, nil)
			if from == 0 {
				require.ErrorContains(t, err, "malformed")
				return
			}
			require.NoError(t, err)
			defer db.Close()
			require.Error(t, db.Check(ctx))
			q := honker.NewQueue[string](db, "jobs", nil)
			for err == nil {
				var jobs []*honker.Job[string]
				jobs, err = q.Claim(ctx, "w", 50)
				require.True(t, err != nil || len(jobs) > 0, "the jobs are gone, without an error")
			}
			require.ErrorContains(t, err, "malformed")
			require.ErrorContains(t, testkit.LastError(q.Jobs(ctx, "w")), "malformed")
		})
	}
}

// writeWithoutRoom enqueues until the file size limit is reached, and continues after the limit is
// lifted. It reports the number of successful calls.
func writeWithoutRoom() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[string](db, "jobs", nil)
	signal.Ignore(syscall.SIGXFSZ) // otherwise the signal would end the process
	var room syscall.Rlimit
	testkit.Must(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &room))
	testkit.Must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: room.Max}))
	done, refused := 0, 0
	for refused < 5 {
		if _, err := q.Enqueue(context.Background(), strings.Repeat("x", 10_000)); err != nil {
			refused++
		} else {
			done++
		}
	}
	_, err := q.Enqueue(context.Background(), strings.Repeat("x", 10_000))
	testkit.Say(done, err)
	testkit.Must(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &room))
	_, err = q.Enqueue(context.Background(), "there is room again")
	testkit.Must(err)
	testkit.Must(db.Close())
}

// A write that fails for lack of space returns an error, and writes succeed again when there is
// space.
func TestDB_NoRoom(t *testing.T) {
	path, db := testkit.OpenShared(t)
	child := testkit.StartChild(t, "cramped writer", testkit.Task{Path: path})
	var done int64
	line := child.Line(testkit.Timeout)
	_, err := fmt.Sscan(line, &done)
	require.NoError(t, err, line)
	require.Contains(t, line, `honker: enqueue "jobs": `)
	child.End()
	require.Greater(t, done, int64(10))
	require.Equal(t, done+1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs), "what was no error, and nothing else")
}

// Idle listeners and subscribers hold no snapshot and no lock, so they block neither writers nor
// checkpoints.
func TestDB_SleepersHoldNothing(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.Publish(t, s, 1)
	l := testkit.Listen(t, db, "news")
	asleep, ended := make(chan error, 2), make(chan struct{})
	body := func(err error) bool {
		asleep <- err
		select {
		case <-ended:
		case <-ctx.Done():
		}
		return false
	}
	go s.Subscribe(ctx, "c", nil)(func(_ *honker.Event[int], err error) bool { return body(err) })
	go db.Updates(ctx)(func(_ struct{}, err error) bool { return body(err) })
	require.NoError(t, <-asleep)
	require.NoError(t, <-asleep)
	began := time.Now()
	var sent []int64
	for i := range 500 {
		sent = append(sent, testkit.Notify(t, db, "news", i))
	}
	require.Less(t, time.Since(began), 10*time.Second)
	// The first attempts may fail, because l may still be reading the last message. An idle reader
	// with a snapshot would fail all of them until ctx ends, which is later.
	testkit.Eventually(t, testkit.Timeout/2, "the whole log is copied: neither busy nor anything left", func() bool {
		got, err := testkit.Rows(db.SQL(), `PRAGMA wal_checkpoint(TRUNCATE)`)
		require.NoError(t, err)
		return slices.Equal(got, []string{"0|0|0"})
	})
	close(ended)
	testkit.Receive(t, l, sent...)
}

// A closed listener leaves no goroutine running.
func TestListen_NoGoroutineLeft(t *testing.T) {
	db := honkertest.Open(t, nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	cycle := func(i int) {
		l, err := db.Listen(context.Background(), fmt.Sprint("channel", i%7))
		require.NoError(t, err)
		testkit.Receive(t, l, testkit.Notify(t, db, fmt.Sprint("channel", i%7), i))
		_, err = l.Next(over)
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Close())
	}
	cycle(0) // starts the watcher
	before := runtime.NumGoroutine()
	for i := range 300 {
		cycle(i)
	}
	testkit.Eventually(t, testkit.Timeout, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
}

// probeLocks reports for each path on stdin whether another process holds SQLite's locks on it: the
// readers' locks on the database and the users' lock on the -shm file.
func probeLocks() {
	held := func(path string, at, span int64) bool {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		testkit.Must(err)
		defer f.Close()
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: at, Len: span}
		testkit.Must(syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock))
		return lock.Type != syscall.F_UNLCK
	}
	for path, ok := testkit.ReadLine(); ok; path, ok = testkit.ReadLine() {
		testkit.Say(held(path, 1<<30+2, 510), held(path+"-shm", 128, 1))
	}
}

// Closing watchers and other DBs of a file does not drop SQLite's locks on it.
func TestDB_WatcherKeepsFileLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	prober := testkit.StartChild(t, "lock prober", nil)
	locked := func(want bool, when string) {
		t.Helper()
		prober.Tell(path)
		require.Equal(t, fmt.Sprint(want, " ", want), prober.Line(testkit.Timeout), when)
	}
	locked(true, "open")
	for i := range 3 {
		l, err := db.Listen(context.Background(), "news")
		require.NoError(t, err)
		testkit.Receive(t, l, testkit.Notify(t, db, "news", i))
		locked(true, "while it watches")
		require.NoError(t, l.Close())
		locked(true, "when nothing waits any more")
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	second, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, testkit.LastError(second.Updates(over)))
	require.NoError(t, second.Close())
	locked(true, "when another DB on the file was closed")
	if runtime.GOOS == "linux" { // elsewhere, reading the file would drop the locks
		_, err = os.ReadFile(path)
		require.NoError(t, err)
		locked(true, "when this process has opened and closed the file by itself")
	}
	require.NoError(t, db.Close())
	locked(false, "closed")
}

// Work runs a job that is enqueued while Work starts. No other commit could wake the worker.
func TestWorker_Begin_SeesJob(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	other := testkit.OpenPool(t, path)
	for round := range 60 {
		name, ran := fmt.Sprint("queue", round), make(chan error, 1)
		q := honker.NewQueue[int](db, name, nil)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { ran <- nil; return nil }, nil)
		for range round % 10 {
			runtime.Gosched()
		}
		if round%2 == 0 {
			testkit.Enqueue(t, q, 1)
		} else {
			testkit.ExecAll(t, other, `INSERT INTO _honker_live (queue, payload) VALUES ('`+name+`', '1')`)
		}
		require.NoError(t, testkit.Within(context.Background(), ran, testkit.Timeout), name)
		require.NoError(t, stop())
	}
}

// Opening a file leaves tables of old versions alone, even if other bindings drop them.
func TestDB_Open_OldTables(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "old.db")
	old := testkit.OpenPool(t, path)
	tables := []string{"_honker_pending", "_honker_processing", "_honker_scheduler_state", "_joblite_live"}
	for _, table := range tables {
		testkit.ExecAll(t, old, `CREATE TABLE `+table+` (name TEXT PRIMARY KEY, n INTEGER)`, `INSERT INTO `+table+` VALUES ('x', 7)`)
	}
	db := honkertest.OpenFile(t, path, nil)
	testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	for _, table := range tables {
		require.EqualValues(t, 7, testkit.QueryInt(t, db.SQL(), `SELECT n FROM `+table))
		testkit.ExecAll(t, old, `DROP TABLE `+table) // as other bindings do
	}
	require.Equal(t, 1, testkit.ClaimOne(t, honker.NewQueue[int](db, "jobs", nil)).Args)
}

// Go and another binding share jobs, events and messages.
func TestForeign_ShareAll(t *testing.T) {
	t.Parallel()
	const jobs = 25
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "to go", nil)
	theirs := testkit.Listen(t, db, "news")
	for n := range jobs {
		testkit.Enqueue(t, honker.NewQueue[int](db, "from go", nil), n)
		other.Enqueue("to go", fmt.Sprint(n))
	}
	for n, c := range other.Claim("from go", "other", jobs, 60) {
		require.Equal(t, fmt.Sprint(n), c.Payload)
		require.EqualValues(t, 1, other.Ack(c.ID, "other"))
	}
	var ids []int64
	for n, job := range testkit.Claim(t, q, jobs) {
		require.Equal(t, n, job.Args)
		ids = append(ids, job.ID)
	}
	acked, err := q.AckMany(ctx, "w", ids)
	require.NoError(t, err)
	require.Equal(t, jobs, acked)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))

	sent := testkit.Notify(t, db, "news", 1)
	require.Equal(t, sent, testkit.QueryInt(t, other.Pool, `SELECT id FROM _honker_notifications WHERE channel = 'news' AND payload = '1'`))
	testkit.Receive(t, theirs, sent, testkit.QueryInt(t, other.Pool, `INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '2') RETURNING id`))
	s := honker.NewStream[int](db, "events", nil)
	testkit.Publish(t, s, 1)
	testkit.ExecAll(t, other.Pool, `INSERT INTO _honker_stream (topic, payload) VALUES ('events', '2')`)
	require.Equal(t, []int{1, 2}, testkit.EventData(testkit.Take(t, s, "c", nil, 2)))
	require.EqualValues(t, 2, testkit.QueryInt(t, other.Pool, `SELECT count(*) FROM _honker_stream WHERE topic = 'events' AND payload IN ('1', '2')`))
}

// TestDB_SpeedFloors checks generous upper bounds on run times, taken from the original honker. It
// is skipped under the race detector.
func TestDB_SpeedFloors(t *testing.T) {
	built, _ := debug.ReadBuildInfo()
	if slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector is slow")
	}
	ctx, db, q := testkit.NewQueue[int](t, nil)
	floor := func(limit time.Duration, what string, do func()) {
		t.Helper()
		began := time.Now()
		do()
		require.Less(t, time.Since(began), limit, what)
	}
	floor(3*time.Second, "10,000 jobs in a transaction, one by one", func() {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			for n := range 10_000 {
				if _, err := q.EnqueueTx(ctx, tx, n); err != nil {
					return err
				}
			}
			return nil
		}))
	})
	floor(3*time.Second, "claimed by 100", func() {
		for range 100 {
			require.Len(t, testkit.Claim(t, q, 100), 100)
		}
	})
	l := testkit.Listen(t, db, "news")
	floor(time.Second, "100 messages", func() {
		var sent []int64
		for n := range 100 {
			sent = append(sent, testkit.Notify(t, db, "news", n))
		}
		testkit.Receive(t, l, sent...)
	})
}
