package admin_test

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// workers returns db's workers.
func workers(t *testing.T, db *honker.DB) []admin.WorkerInfo {
	t.Helper()
	all, err := admin.Workers(t.Context(), db)
	require.NoError(t, err)
	return all
}

// startWork starts a call to Work and returns once it's listed. stop ends it.
func startWork(t *testing.T, db *honker.DB, work func(ctx context.Context) error) (stop func() error) {
	t.Helper()
	before := len(workers(t, db))
	stop = testkit.Background(t, work)
	testkit.Eventually(t, testkit.Timeout, "the worker is listed", func() bool { return len(workers(t, db)) > before })
	return stop
}

// idle returns a call to q.Work that has nothing to do.
func idle(q *honker.Queue[int]) func(context.Context) error {
	return func(ctx context.Context) error { return q.Work(ctx, testkit.Succeed[int], nil) }
}

// A Work is listed with its jobs while it runs and is removed when it ends.
func TestWorkers_Work(t *testing.T) {
	ctx, db, q, _ := open(t)
	require.Empty(t, workers(t, db))
	running := make(chan int64, 1)
	handler := func(ctx context.Context, j *honker.Job[int]) error {
		running <- j.ID
		<-ctx.Done()
		return nil
	}
	began := time.Now()
	stop := startWork(t, db, func(ctx context.Context) error {
		return q.Work(ctx, handler, &honker.WorkOptions{WorkerID: "w", Workers: 3, DrainTimeout: time.Millisecond})
	})
	w := workers(t, db)[0]
	host, _ := os.Hostname()
	require.WithinDuration(t, began, w.Since, time.Minute)
	require.WithinDuration(t, began, w.Seen, time.Minute)
	want := admin.WorkerInfo{
		ID: "w", Queue: "jobs", Host: host, PID: os.Getpid(), Version: w.Version, Slots: 3, Since: w.Since, Seen: w.Seen, Alive: admin.Alive,
	}
	require.Equal(t, want, w)

	id := testkit.Enqueue(t, q, 1)
	require.Equal(t, id, <-running)
	_, err := q.EnqueueMany(ctx, []int{2, 3})
	require.NoError(t, err)
	<-running
	<-running
	want.Running, want.Oldest = 3, id
	require.Equal(t, []admin.WorkerInfo{want}, workers(t, db))
	require.NoError(t, stop())
	require.Empty(t, workers(t, db))
	honkertest.Check(t, db)
}

// Each queue of a Workers has its own row. Two loops that share a name by mistake share a row until
// both have ended.
func TestWorkers_SeveralQueues(t *testing.T) {
	_, db, _, _ := open(t)
	work := func(ctx context.Context) error {
		return testkit.Workers(db, nil, []string{"a", "b"}, testkit.Succeed[int]).Work(ctx, &honker.WorkOptions{WorkerID: "w"})
	}
	stop := startWork(t, db, work)
	stopTwin := testkit.Background(t, work)
	all := workers(t, db)
	require.Len(t, all, 2)
	require.Equal(t, []string{"a", "b"}, []string{all[0].Queue, all[1].Queue})
	require.NoError(t, stopTwin())
	require.Len(t, workers(t, db), 2)
	require.NoError(t, stop())
	require.Empty(t, workers(t, db))
}

// Workers in other bindings, and callers of Claim, are listed while they hold jobs.
func TestWorkers_Foreign(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q, _ := open(t)
	other := honkertest.Foreign(t, db, "jobs")
	first := testkit.Enqueue(t, q, 1)
	require.Len(t, other.Claim(1, time.Minute), 1)
	second := testkit.Enqueue(t, q, 2)
	_, err := q.Claim(ctx, "mine", 1)
	require.NoError(t, err)
	all := workers(t, db)
	require.Len(t, all, 2)
	require.ElementsMatch(t, []admin.WorkerInfo{
		{ID: all[0].ID, Queue: "jobs", Running: 1, Oldest: first, Alive: admin.Unknown, Foreign: true},
		{ID: "mine", Queue: "jobs", Running: 1, Oldest: second, Alive: admin.Unknown, Foreign: true},
	}, all)
	honkertest.Lapse(t, db, first)
	require.Len(t, workers(t, db), 1)
}

// WorkDue is not listed and leaves no row behind.
func TestWorkers_WorkDue(t *testing.T) {
	ctx, db, q, _ := open(t)
	testkit.Enqueue(t, q, 1)
	n, err := q.WorkDue(ctx, func(ctx context.Context, _ *honker.Job[int]) error {
		all := workers(t, db)
		require.Len(t, all, 1)
		require.True(t, all[0].Foreign)
		return nil
	}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, rows(t, db, `SELECT worker FROM _honkerx_workers`))
}

// Rows that processes left behind are deleted by the next worker to start and by Maintain: rows from
// before a reboot, and rows of unknown processes that haven't been seen for a day.
func TestWorkers_Left(t *testing.T) {
	seen := time.Now()
	plant := func(db *honker.DB) {
		testkit.Exec(t, db, testkit.Either(`INSERT INTO _honkerx_workers (worker, queue, host, boot, pid_space, pid, pid_start, since_ms, seen_ms)
VALUES ('boot', 'jobs', 'h', 'another', 's', 1, 1, 1, 1)`, `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ('boot', 'jobs', 'h', 'another', 's', 1, 1, '', 0, 'epoch', 'epoch')`))
		for name, at := range map[string]time.Time{"old": seen.Add(-25 * time.Hour), "new": seen.Add(-23 * time.Hour)} {
			testkit.Exec(t, db, testkit.Either(`INSERT INTO _honkerx_workers (worker, queue, host, boot, pid_space, pid, pid_start, since_ms, seen_ms)
VALUES ($1, 'jobs', 'h', NULL, NULL, NULL, NULL, 1, $2)`, `INSERT INTO worker (worker, queue, host, boot, pid_space, pid, pid_start, version, slots, since, seen_at)
VALUES ($1, 'jobs', 'h', '', '', 0, 0, '', 0, 'epoch', to_timestamp($2::bigint / 1000.0))`), name, at.UnixMilli())
		}
	}
	for name, clean := range map[string]func(db *honker.DB, q *honker.Queue[int]){
		"start": func(db *honker.DB, q *honker.Queue[int]) {
			stop := testkit.Background(t, idle(q))
			testkit.Eventually(t, testkit.Timeout, "they are deleted", func() bool { return len(workers(t, db)) == 2 })
			require.NoError(t, stop())
		},
		"maintain": func(db *honker.DB, q *honker.Queue[int]) {
			stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
			testkit.Eventually(t, testkit.Timeout, "they are deleted", func() bool { return len(workers(t, db)) == 1 })
			require.NoError(t, stop())
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db, q, _ := open(t)
			plant(db)
			lives := map[string]admin.Life{}
			for _, w := range workers(t, db) {
				lives[w.ID] = w.Alive
			}
			boot := admin.Gone
			if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
				boot = admin.Unknown
			}
			require.Equal(t, map[string]admin.Life{"boot": boot, "old": admin.Unknown, "new": admin.Unknown}, lives)
			clean(db, q)
			require.Equal(t, []string{"new"}, rows(t, db, `SELECT worker FROM _honkerx_workers`))
		})
	}
}

// A worker whose row cannot be written works anyway, and the write is retried.
func TestWorkers_Refused(t *testing.T) {
	_, db, q, _ := open(t)
	testkit.Exec(t, db, testkit.Either(`CREATE TRIGGER refuse BEFORE INSERT ON _honkerx_workers BEGIN SELECT RAISE(ABORT, 'no'); END`, `DO $$ BEGIN
  CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
  CREATE TRIGGER refuse BEFORE INSERT ON worker FOR EACH ROW EXECUTE FUNCTION refuse();
END $$`))
	done := make(chan int, 1)
	stop := testkit.Work(t, q, func(_ context.Context, j *honker.Job[int]) error { done <- j.Args; return nil }, nil)
	testkit.Enqueue(t, q, 7)
	require.Equal(t, 7, <-done)
	require.NoError(t, stop())
	require.Empty(t, workers(t, db))
}

// Workers are listed on a read-only DB, too.
func TestWorkers_ReadOnly(t *testing.T) {
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	startWork(t, db, idle(q))
	reader, err := honker.Open(t.Context(), path, &honker.Options{ReadOnly: true})
	require.NoError(t, err)
	defer reader.Close()
	all := workers(t, reader)
	require.Len(t, all, 1)
	require.Equal(t, admin.Alive, all[0].Alive)
}

// A nil DB and a ctx that has ended are errors.
func TestWorkers_Bad(t *testing.T) {
	_, err := admin.Workers(t.Context(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, db, _, _ := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = admin.Workers(ctx, db)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "list workers")
}
