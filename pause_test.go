package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
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

const gates = `SELECT count(*) FROM sqlite_schema WHERE name = '_honkerx_gate'`

// honkersClaim is the statement with which other bindings claim a queue's first due job.
const honkersClaim = `UPDATE _honker_live SET state = 'processing', worker_id = 'py', claim_expires_at = unixepoch() + 60, attempts = attempts + 1
WHERE id IN (SELECT id FROM _honker_live WHERE queue = ? AND state IN ('pending', 'processing') AND attempts < max_attempts
  AND ((state = 'pending' AND run_at <= unixepoch()) OR (state = 'processing' AND claim_expires_at < unixepoch()))
  ORDER BY priority DESC, run_at, id LIMIT 10)
RETURNING id`

// rows returns the rows of query, each as a line of text.
func rows(t testing.TB, db *honker.DB, query string, args ...any) []string {
	t.Helper()
	lines, err := testkit.Rows(db.SQL(), query, args...)
	require.NoError(t, err, query)
	return lines
}

// oneRow returns the only row of query.
func oneRow(t testing.TB, db *honker.DB, query string, args ...any) string {
	t.Helper()
	lines := rows(t, db, query, args...)
	require.Len(t, lines, 1, query)
	return lines[0]
}

func pauseQueue[T any](t testing.TB, q *honker.Queue[T], opts *honker.PauseOptions) {
	t.Helper()
	changed, err := q.Pause(context.Background(), opts)
	require.NoError(t, err)
	require.True(t, changed)
}

func resumeQueue[T any](t testing.TB, q *honker.Queue[T]) {
	t.Helper()
	was, err := q.Resume(context.Background())
	require.NoError(t, err)
	require.True(t, was)
}

// A pause is stored in the file. It outlives the process and applies to every handle, but only to a single queue. All
// it does is keep jobs from starting.
func TestQueue_Pause_InTheFile(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	q := honker.NewQueue[int](db, "jobs", nil)
	pauseQueue(t, q, nil)
	require.NoError(t, db.Close())

	db = honkertest.OpenFile(t, path, nil)
	q, other := honker.NewQueue[int](db, "jobs", nil), honker.NewQueue[int](db, "other", nil)
	id, cancelled := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
	free := testkit.Enqueue(t, other, 3)
	require.Empty(t, testkit.Claim(t, q, 2))
	require.Equal(t, free, testkit.ClaimOne(t, other).ID)
	gone, err := q.Cancel(ctx, cancelled)
	require.NoError(t, err)
	require.True(t, gone)
	_, err = db.Scheduler().Trigger(ctx, "none")
	require.ErrorIs(t, err, honker.ErrNotFound)
	resumeQueue(t, q)
	require.Equal(t, id, testkit.ClaimOne(t, q).ID)
}

// Pausing a paused queue and resuming a queue that is not paused are not errors. Both report the previous
// state.
func TestQueue_Pause_Idempotent(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	was, err := q.Resume(ctx)
	require.NoError(t, err)
	require.False(t, was)
	pauseQueue(t, q, &honker.PauseOptions{Reason: "deploy", By: "anna"})
	since := oneRow(t, db, `SELECT paused_ms FROM _honkerx_queues`)
	changed, err := q.Pause(ctx, &honker.PauseOptions{Reason: "still", By: "bob", Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.False(t, changed, "it was paused")
	require.Equal(t, since+"|still|bob", oneRow(t, db, `SELECT paused_ms || '|' || reason || '|' || who FROM _honkerx_queues`))
	resumeQueue(t, q)
	was, err = q.Resume(ctx)
	require.NoError(t, err)
	require.False(t, was)
}

// Invalid options change nothing.
func TestQueue_Pause_BadOptions(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	before := oneRow(t, db, `PRAGMA schema_version`)
	for name, o := range map[string]honker.PauseOptions{
		"until the past": {Until: time.Now().Add(-time.Second)},
		"long reason":    {Reason: strings.Repeat("x", 1025)},
		"long name":      {By: strings.Repeat("x", 1025)},
		"far away":       {Until: time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC)},
		"NUL":            {Reason: "a\x00b"},
		"no UTF-8":       {By: "\xff"},
	} {
		_, err := q.Pause(ctx, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorContains(t, err, `honker: pause "jobs": `, name)
	}
	_, err := honker.NewQueue[int](db, "", nil).Pause(ctx, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = honker.NewQueue[int](db, "", nil).Resume(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
	var none context.Context
	_, err = q.Pause(none, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		_, err := q.Pause(ctx, nil)
		require.ErrorIs(t, err, honker.ErrInTx)
		_, err = q.Resume(ctx)
		require.ErrorIs(t, err, honker.ErrInTx)
		return nil
	}))
	require.Equal(t, before, oneRow(t, db, `PRAGMA schema_version`))
	require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_queues`))
}

// A pause applies to other bindings' claims, including claims of lapsed jobs. A claim that names jobs in
// several queues skips the paused queues. The trigger exists only while it is needed.
func TestQueue_Pause_OtherBindings(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	other := honker.NewQueue[int](db, "other", nil)
	require.Equal(t, "0", oneRow(t, db, gates))
	running, lapsed := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2)
	held := testkit.Claim(t, q, 2)
	testkit.ExpireClaim(t, db, lapsed)
	testkit.Enqueue(t, q, 3)
	free := testkit.Enqueue(t, other, 4)
	pauseQueue(t, q, nil)
	pauseQueue(t, honker.NewQueue[int](db, "third", nil), nil)
	require.Empty(t, rows(t, db, honkersClaim, "jobs"))
	require.Equal(t, []string{fmt.Sprint(free)}, rows(t, db, honkersClaim, "other"))
	testkit.Exec(t, db, `UPDATE _honker_live SET claim_expires_at = unixepoch() + 100 WHERE id = ?`, running) // a heartbeat
	require.NoError(t, held[0].Ack(ctx), "what runs goes on")
	resumeQueue(t, q)
	require.Equal(t, "1", oneRow(t, db, gates), "another queue is paused")
	resumeQueue(t, honker.NewQueue[int](db, "third", nil))
	require.Equal(t, "0", oneRow(t, db, gates))
	require.Len(t, rows(t, db, honkersClaim, "jobs"), 2)
}

// The row and the trigger are written in the same transaction, so a failed pause leaves neither behind.
func TestQueue_Pause_Atomic(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON _honkerx_queues BEGIN SELECT RAISE(ABORT, 'no'); END`)
	_, err := q.Pause(ctx, nil)
	require.ErrorContains(t, err, "no")
	testkit.Exec(t, db, `DROP TRIGGER refuse`)
	testkit.Exec(t, db, `CREATE TRIGGER ignore BEFORE INSERT ON _honkerx_queues BEGIN SELECT RAISE(IGNORE); END`)
	_, err = q.Pause(ctx, nil)
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.Equal(t, "0", oneRow(t, db, gates))
	testkit.Exec(t, db, `DROP TRIGGER ignore`)
	pauseQueue(t, q, nil)
	testkit.Exec(t, db, `CREATE TRIGGER refuse BEFORE UPDATE ON _honkerx_queues BEGIN SELECT RAISE(ABORT, 'no'); END`)
	_, err = q.Resume(ctx)
	require.ErrorContains(t, err, "no")
	require.Equal(t, "1", oneRow(t, db, gates))
}

// A pause expires at the given second, whether a worker fell asleep before or after the pause began.
func TestQueue_Pause_Until(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		began := time.Now()
		started := make(chan time.Duration, 9)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			started <- time.Since(began)
			return nil
		}, nil)
		synctest.Wait() // the worker sleeps
		pauseQueue(t, q, &honker.PauseOptions{Until: began.Add(90*time.Second + time.Millisecond)})
		testkit.Enqueue(t, q, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, started)
		next, err := q.NextClaimAt(context.Background())
		require.NoError(t, err)
		require.Equal(t, 91*time.Second, next.Sub(began), "in whole seconds, and not earlier than asked")
		require.Equal(t, 91*time.Second, <-started)
		require.NoError(t, stop())
		was, err := q.Resume(context.Background())
		require.NoError(t, err)
		require.False(t, was, "it is over")
	})
}

// An expired pause's row is deleted in Maintain's next round. Pausing the queue again starts a new pause.
func TestQueue_Pause_Until_Swept(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	pauseQueue(t, q, &honker.PauseOptions{Until: time.Now().Add(time.Hour), Reason: "before"})
	over := func() {
		testkit.Exec(t, db, `UPDATE _honkerx_queues SET paused_ms = 1000, until_ms = unixepoch() * 1000 - 1000`)
	}
	over()
	pauseQueue(t, q, nil)
	require.Equal(t, "1", oneRow(t, db, `SELECT paused_ms > 1000 AND until_ms IS NULL AND reason IS NULL FROM _honkerx_queues`))
	over()
	maintaining, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- db.Maintain(maintaining, nil) }()
	testkit.Eventually(t, testkit.Timeout, "so", func() bool { return oneRow(t, db, gates) == "0" })
	stop()
	require.NoError(t, <-done)
}

// An enqueue doesn't hand jobs to an idle worker of a paused queue, even if the worker began to wait before another
// process paused the queue and hasn't woken since.
func TestQueue_Pause_NoHandoff(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		ctx := context.Background()
		q := honker.NewQueue[int](db, "jobs", nil)
		ran := make(chan int, 9)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			ran <- job.Args
			return nil
		}, nil)
		for name, pause := range map[string]func(){
			"its own": func() { pauseQueue(t, q, nil) },
			"another's": func() {
				testkit.Exec(t, db, `INSERT INTO _honkerx_queues (queue, paused_ms) VALUES ('jobs', 1) ON CONFLICT DO UPDATE SET paused_ms = 1`)
			},
		} {
			synctest.Wait() // the worker is waiting, and could be handed jobs
			pause()
			for n := range 3 {
				testkit.Enqueue(t, q, n)
				synctest.Wait()
				require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					_, err := q.EnqueueTx(ctx, tx, n)
					return err
				}))
				synctest.Wait()
			}
			require.Empty(t, ran, name)
			require.Empty(t, testkit.Claim(t, q, 9), name)
			resumeQueue(t, q)
			for range 6 {
				<-ran
			}
		}
		require.NoError(t, stop())
	})
}

// Work immediately returns jobs that it has claimed ahead but not started, without using up attempts. Running jobs
// continue.
func TestQueue_Pause_ClaimedAhead(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		_, err := q.EnqueueMany(context.Background(), make([]int, 600))
		require.NoError(t, err)
		var begun atomic.Int64
		finish := make(chan struct{})
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			if begun.Add(1) == 300 { // up to this job, handlers are quick and jobs are claimed ahead
				<-finish
			}
			return nil
		}, &honker.WorkOptions{Workers: 1})
		synctest.Wait()
		require.Greater(t, claimedJobs(t, q), int64(1), "some are claimed ahead")
		pauseQueue(t, q, nil)
		synctest.Wait() // no time has passed
		require.EqualValues(t, 1, claimedJobs(t, q))
		close(finish)
		synctest.Wait()
		require.EqualValues(t, 300, begun.Load())
		require.Equal(t, "300|0", oneRow(t, db, `SELECT count(*) || '|' || sum(attempts) FROM _honker_live WHERE state = 'pending'`))
		resumeQueue(t, q)
		synctest.Wait()
		require.EqualValues(t, 600, begun.Load())
		require.NoError(t, stop())
	})
}

// If another process pauses the queue, the next claim returns the jobs that were claimed ahead.
func TestQueue_Pause_ClaimedAhead_ByAnother(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		_, err := q.EnqueueMany(context.Background(), make([]int, 600))
		require.NoError(t, err)
		var begun atomic.Int64
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			switch n := begun.Add(1); {
			case n == 300: // up to this job, handlers are quick and jobs are claimed ahead
				testkit.Exec(t, db, `INSERT INTO _honkerx_queues (queue, paused_ms) VALUES ('jobs', 1)`)
			case n > 300:
				time.Sleep(time.Millisecond) // ends only once all other goroutines are blocked
			}
			return nil
		}, &honker.WorkOptions{Workers: 1})
		time.Sleep(time.Second)
		require.Zero(t, claimedJobs(t, q))
		require.Less(t, begun.Load(), int64(310))
		resumeQueue(t, q)
		time.Sleep(time.Second)
		require.EqualValues(t, 600, begun.Load())
		require.NoError(t, stop())
	})
}

// A paused queue with many ready jobs costs as much as an idle queue. Commits found by reading the file do not wake
// its workers. An enqueue wakes a worker once, for nothing.
func TestQueue_Pause_NothingSpins(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		var woke, claims atomic.Int64
		db := honkertest.Open(t, &honker.Options{
			NoFileNotices: true,
			PollInterval:  time.Hour,
			Observer: &observe.Observer{
				Claimed: func(observe.Claimed) { claims.Add(1) },
				Woke:    func(w observe.Woke) { woke.Add(int64(w.Waiters)) },
			},
		})
		q, other := honker.NewQueue[int](db, "jobs", nil), honker.NewQueue[int](db, "other", nil)
		pauseQueue(t, q, nil)
		testkit.Exec(t, db, testkit.Numbers(20000)+`INSERT INTO _honker_live (queue, payload, run_at) SELECT 'jobs', '1', 1 FROM some`)
		stop := testkit.Work(t, q, testkit.Succeed, nil)
		synctest.Wait()
		woke.Store(0)
		for n := range 50 {
			testkit.Exec(t, db, `UPDATE _honker_live SET priority = ? WHERE id = 1`, n) // found by a query for ready jobs
			synctest.Wait()
			testkit.Enqueue(t, other, n)
			testkit.Enqueue(t, q, n)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		require.Zero(t, woke.Load())
		require.Zero(t, claims.Load())
		resumeQueue(t, q)
		synctest.Wait()
		require.Positive(t, claims.Load())
		require.NoError(t, stop())
	})
}

// WorkDue finds no due job in a paused queue and returns.
func TestQueue_Pause_WorkDue(t *testing.T) {
	ctx, _, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	pauseQueue(t, q, nil)
	ran, err := q.WorkDue(ctx, testkit.Succeed, nil)
	require.NoError(t, err)
	require.Zero(t, ran)
	resumeQueue(t, q)
	ran, err = q.WorkDue(ctx, testkit.Succeed, nil)
	require.NoError(t, err)
	require.Equal(t, 1, ran)
}

// Jobs without attempts left are dead-lettered while the queue is paused.
func TestQueue_Pause_Deaths(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
	testkit.ClaimOne(t, q)
	testkit.ExpireClaim(t, db, id)
	pauseQueue(t, q, nil)
	require.Empty(t, testkit.Claim(t, q, 1))
	info, err := q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, honker.StateDead, info.State)
}
