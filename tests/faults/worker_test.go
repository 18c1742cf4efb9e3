package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// brokenError panics in Error if it is a nil pointer, which is a common mistake.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// A handler may return an error whose Error method panics. The attempt counts as failed.
func TestWorker_Error_Panics(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(0), MaxAttempts: 2})
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	id, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, 2)
	require.NoError(t, err)
	// The panic must not surface in the goroutine that writes, which is Work here.
	require.NotPanics(t, func() {
		require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			if job.Args == 1 {
				var none *brokenError
				return none
			}
			time.AfterFunc(500*time.Millisecond, cancel)
			return nil
		}, &honker.WorkOptions{Workers: 1}))
	})
	info, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, honker.StateDead, info.State)
	require.NotEmpty(t, info.LastError)
}

// A panic in an error passed to Reject does not affect other callers.
func TestWorker_Error_PanicAlone(t *testing.T) {
	db := honkertest.Open(t, &honker.Options{BusyTimeout: time.Second})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	func() {
		defer func() { _ = recover() }() // as net/http does
		var none *brokenError
		_ = jobs[0].Reject(ctx, none)
	}()
	for range 3 {
		_, err = q.Enqueue(ctx, 2)
		require.NoError(t, err, "the write lock was not given back")
	}
	stored := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE payload = '2'`)
	require.EqualValues(t, 3, stored, "acknowledged, and never committed")
}

// When jobs cannot be settled, the running handlers are still cancelled after the drain.
func TestWorker_Drain_Unwritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := honker.Open(context.Background(), path, nil)
	require.NoError(t, err)
	defer db.Close()
	q := honker.NewQueue[bool](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, err = q.EnqueueMany(ctx, []bool{true, false})
	require.NoError(t, err)
	blocked, goOn := make(chan bool), make(chan bool)
	cancelled := make(chan error, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, func(ctx context.Context, job *honker.Job[bool]) error {
			if !job.Args {
				<-goOn
				return nil
			}
			close(blocked)
			select {
			case <-ctx.Done():
			case <-time.After(testkit.Timeout): // ends the test in case of a failure
			}
			cancelled <- ctx.Err()
			return ctx.Err()
		}, &honker.WorkOptions{Workers: 2, DrainTimeout: 200 * time.Millisecond})
	}()
	<-blocked
	require.NoError(t, os.Rename(path, path+".old"))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	time.Sleep(150 * time.Millisecond) // longer than the interval at which the identity of the file is checked
	close(goOn)
	require.Error(t, <-cancelled, "its ctx has not ended")
	require.ErrorIs(t, <-ended, honker.ErrDatabaseReplaced)
}

// Jobs claimed ahead for fast handlers are released when the handlers become slow.
func TestWorker_Prefetch_Slow(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	for round := range 2 {
		ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
		const fast, slow = 3000, 40
		_, err := q.EnqueueMany(ctx, make([]int, fast))
		require.NoError(t, err)
		args := make([]int, slow)
		for i := range args {
			args[i] = 1
		}
		_, err = q.EnqueueMany(ctx, args)
		require.NoError(t, err)
		var started atomic.Int64
		ended := make(chan error, 1)
		go func() {
			ended <- q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
				if job.Args == 1 {
					started.Add(1)
					<-ctx.Done()
				}
				return ctx.Err()
			}, &honker.WorkOptions{Workers: 2, DrainTimeout: time.Millisecond})
		}()
		testkit.Eventually(t, testkit.Timeout, "two block", func() bool { return started.Load() == 2 })
		testkit.Eventually(t, testkit.Timeout, fmt.Sprint("the others are let go, in round ", round), func() bool {
			return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'processing'`) == 2
		})
		cancel()
		require.NoError(t, <-ended)
		testkit.ExecAll(t, db.SQL(), `DELETE FROM _honker_live`)
	}
}

// If a handler panics after acknowledging its job in the transaction, the attempt fails.
func TestWorker_WorkTx_PanicAfterAck(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("after the ack") },
		"Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			db := honkertest.Open(t, nil)
			q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
			ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
			defer cancel()
			id, err := q.Enqueue(ctx, 1)
			require.NoError(t, err)
			var told atomic.Int64
			ended := make(chan error, 1)
			go func() {
				ended <- q.WorkTx(ctx, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
					if err := job.AckTx(ctx, tx); err != nil {
						return err
					}
					end()
					return nil
				}, &honker.WorkOptions{Workers: 1, OnError: func(context.Context, *honker.JobInfo, error) { told.Add(1) }})
			}()
			testkit.Eventually(t, testkit.Timeout, "it is dead", func() bool {
				info, err := q.Get(ctx, id)
				return err == nil && info.State == honker.StateDead
			})
			cancel()
			require.NoError(t, <-ended)
			require.EqualValues(t, 1, told.Load())
		})
	}
}

// OnError may call runtime.Goexit, as t.FailNow does.
func TestWorker_OnError_Goexit(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	bad, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, 2)
	require.NoError(t, err)
	ended := make(chan error, 1)
	ran := make(chan bool, 1)
	go func() {
		ended <- q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
			if job.Args == 1 {
				return errors.New("no")
			}
			ran <- true
			return nil
		}, &honker.WorkOptions{Workers: 1, DrainTimeout: 50 * time.Millisecond,
			OnError: func(context.Context, *honker.JobInfo, error) { runtime.Goexit() }})
	}()
	select {
	case <-ran:
	case <-time.After(testkit.Timeout / 2): // before ctx ends
		t.Error("the worker's only slot is gone")
	}
	cancel()
	require.NoError(t, <-ended)
	info, err := q.Get(context.Background(), bad)
	require.NoError(t, err)
	require.Equal(t, honker.StateDead, info.State)
	require.True(t, strings.Contains(info.LastError, "no"))
}

// A job that is retried and claimed again by the same worker must not be reported as lost, even if
// another process ended its first lease.
func TestWorker_RetriedNotLost(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1 << 30})
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	_, err := q.EnqueueMany(ctx, make([]int, 4))
	require.NoError(t, err)
	var lost atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
			time.Sleep(100 * time.Microsecond)
			if errors.Is(context.Cause(ctx), honker.ErrClaimLost) && time.Now().Before(job.ClaimExpiresAt) {
				lost.Add(1)
			}
			return honker.RetryAfter(0, errors.New("again"))
		}, &honker.WorkOptions{Workers: 4, Lease: 3 * time.Millisecond}) // the leases are renewed every millisecond
	}()
	time.Sleep(time.Second)
	cancel()
	require.NoError(t, <-ended)
	require.Zero(t, lost.Load(), "the claim was there all the time")
}

type hollowError struct{ inner error }

func (e *hollowError) Error() string { return "hollow" }

func (e *hollowError) Unwrap() error { return e.inner }

// A handler may return a typed nil error whose Unwrap method panics. The attempt counts as failed.
func TestWorker_Error_UnwrapPanics(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	id, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, func(context.Context, *honker.Job[int]) error {
			var hollow *hollowError
			return hollow
		}, nil)
	}()
	testkit.Eventually(t, testkit.Timeout, "it is dead", func() bool {
		info, err := q.Get(ctx, id)
		return err == nil && info.State == honker.StateDead && info.LastError == "hollow"
	})
	cancel()
	require.NoError(t, <-ended)
}

// A job that cannot be settled does not block other jobs. A trigger of the application may reject
// such a write.
func TestWorker_Settle_Fails(t *testing.T) {
	db := honkertest.Open(t, nil)
	testkit.ExecAll(t, db.SQL(), `CREATE TRIGGER keep BEFORE DELETE ON _honker_live WHEN OLD.payload = '13'
BEGIN SELECT RAISE(ABORT, 'not this one'); END`)
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	defer cancel()
	_, err := q.EnqueueMany(ctx, []int{1, 13, 2, 3, 4, 5})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- q.Work(ctx, func(context.Context, *honker.Job[int]) error { return nil }, nil)
	}()
	testkit.Eventually(t, testkit.Timeout, "the others are gone", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 1
	})
	cancel()
	require.NoError(t, <-ended)
	require.EqualValues(t, 13, testkit.QueryInt(t, db.SQL(), `SELECT payload FROM _honker_live`))
}

// Finished jobs are settled even if a trigger rejects the claim in the same transaction. Waiting
// jobs are claimed once the trigger is gone.
func TestWorker_Claim_Fails(t *testing.T) {
	for name, raise := range map[string]string{"an error": "ABORT, 'not now'", "nothing is done": "IGNORE"} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				ids, err := q.EnqueueMany(t.Context(), []int{1, 2})
				require.NoError(t, err)
				testkit.Exec(t, db, `CREATE TRIGGER no BEFORE UPDATE ON _honker_live WHEN OLD.payload = '2' BEGIN SELECT RAISE(`+raise+`); END`)
				stop := testkit.Work(t, q, testkit.Succeed[int], &honker.WorkOptions{Workers: 1})
				time.Sleep(150 * time.Millisecond)
				testkit.RequireGone(t, q, ids[0])
				testkit.Exec(t, db, `DROP TRIGGER no`)
				time.Sleep(time.Second)
				testkit.RequireGone(t, q, ids[1])
				require.NoError(t, stop())
			})
		})
	}
}

// If a job cannot become a dead letter, the failure is logged and repeated later. Other jobs of the
// queue are not blocked.
func TestWorker_Dead_Refused(t *testing.T) {
	for name, spent := range map[string]string{
		"lapsed":    `state = 'processing', worker_id = 'killed', claim_expires_at = 1, attempts = 25`,
		"exhausted": `attempts = 25`,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, log *testkit.Log) {
				q := honker.NewQueue[int](db, "jobs", nil)
				kept := testkit.Enqueue(t, q, 1)
				testkit.Exec(t, db, `UPDATE _honker_live SET `+spent)
				testkit.Exec(t, db, `CREATE TRIGGER no BEFORE INSERT ON _honker_dead BEGIN SELECT RAISE(ABORT, 'none may die'); END`)
				stop := testkit.Work(t, q, testkit.Succeed[int], nil)
				for range 30 {
					id := testkit.Enqueue(t, q, 2)
					time.Sleep(10 * time.Second)
					testkit.RequireGone(t, q, id)
				}
				require.NotZero(t, log.Times("none may die"))
				require.LessOrEqual(t, log.Times("none may die"), 10, "once or twice a minute")
				testkit.Exec(t, db, `DROP TRIGGER no`)
				time.Sleep(2 * time.Minute)
				require.Equal(t, honker.StateDead, testkit.GetJob(t, q, kept).State)
				require.NoError(t, stop())
			})
		})
	}
}
