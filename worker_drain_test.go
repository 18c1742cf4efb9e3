package honker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/testkit"
)

const processing = `SELECT count(*) FROM _honker_live WHERE state = 'processing'`

// Handlers finish after the ctx of Work has ended.
func TestWorker_Drain_Finishes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		for n := range 3 {
			testkit.Enqueue(t, q, n)
		}
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			time.Sleep(time.Duration(10*(1+job.Args)) * time.Second)
			return ctx.Err()
		}, &honker.WorkOptions{Workers: 3, Lease: 2 * time.Second, DrainTimeout: 31 * time.Second})
		synctest.Wait()
		began := time.Now()
		after := testkit.Enqueue(t, q, 9)
		require.NoError(t, stop())
		require.Equal(t, 30*time.Second, time.Since(began), "no longer than the last of them")
		require.Equal(t, " acked acked acked", fmtAll(s.Outcomes()))
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, after).State, "no job starts any more")
		require.Zero(t, testkit.GetJob(t, q, after).Attempts)
	})
}

// Handlers are cancelled after DrainTimeout, and their attempts are not spent, whatever they return.
func TestWorker_Drain_Timeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[string](db, "jobs", nil)
		returns := map[string]func(context.Context) error{
			"acked":    func(context.Context) error { return nil },
			"released": func(ctx context.Context) error { return fmt.Errorf("printing: %w", ctx.Err()) },
			"panicked": func(ctx context.Context) error { panic(ctx.Err()) },
			"snoozed":  func(context.Context) error { return fmt.Errorf("%w", honker.Snooze(time.Hour)) },
			"retried":  func(context.Context) error { return honker.RetryAfter(time.Hour, testkit.ErrCause) },
			"died":     func(context.Context) error { return honker.Reject(testkit.ErrCause) },
		}
		ids := map[string]int64{}
		for name := range returns {
			ids[name] = testkit.Enqueue(t, q, name)
		}
		var told atomic.Int64
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[string]) error {
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.NotErrorIs(t, context.Cause(ctx), honker.ErrClaimLost)
			return returns[job.Args](ctx)
		}, &honker.WorkOptions{Workers: len(ids), DrainTimeout: 5 * time.Second,
			OnError: func(context.Context, *honker.JobInfo, error) { told.Add(1) }})
		synctest.Wait()
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 5*time.Second, time.Since(began))

		testkit.RequireGone(t, q, ids["acked"])
		for _, name := range []string{"released", "panicked"} {
			info := testkit.GetJob(t, q, ids[name])
			require.Equal(t, honker.StatePending, info.State, name)
			require.Zero(t, info.Attempts, name)
			require.Empty(t, info.LastError, name)
		}
		require.Zero(t, testkit.GetJob(t, q, ids["snoozed"]).Attempts)
		require.Equal(t, 1, testkit.GetJob(t, q, ids["retried"]).Attempts)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, ids["died"]).State)
		require.EqualValues(t, 2, told.Load(), "of those who said that they failed")
		require.Equal(t, map[honker.Outcome]int{"acked": 1, "released": 2, "snoozed": 1, "retried": 1, "died": 1}, count(s.Outcomes()))
		require.Len(t, testkit.Claim(t, q, 9), 2, "at once")
	})
}

func count[V comparable](all []V) map[V]int {
	n := map[V]int{}
	for _, v := range all {
		n[v]++
	}
	return n
}

// A handler that ignores its ctx delays the return of Work, but does not keep its job.
func TestWorker_Drain_IgnoresContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		for n := range endings {
			testkit.Enqueue(t, q, n)
		}
		late := make(chan error, len(endings))
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			time.Sleep(time.Minute)
			late <- job.Ack(context.Background())
			return endings[job.Args](ctx)
		}, &honker.WorkOptions{Workers: len(endings), Lease: 3 * time.Second, DrainTimeout: 10 * time.Second})
		synctest.Wait()
		began := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- stop() }()
		time.Sleep(10 * time.Second)
		require.Empty(t, testkit.Claim(t, q, 9), "they may still finish")
		time.Sleep(2 * time.Second)
		theirs := testkit.Claim(t, q, 9)
		require.Len(t, theirs, len(endings))
		require.Equal(t, 1, theirs[0].Attempts)
		require.Empty(t, ended, "Work waits for its handlers")
		require.NoError(t, <-ended)
		require.Equal(t, time.Minute, time.Since(began))
		for _, job := range theirs {
			require.ErrorIs(t, <-late, honker.ErrClaimLost)
			require.Equal(t, job.JobInfo, *testkit.GetJob(t, q, job.ID), "nothing was changed")
		}
		require.Equal(t, map[honker.Outcome]int{honker.OutcomeReleased: len(endings), honker.OutcomeLost: len(endings)}, count(s.Outcomes()))
	})
}

// The waiting time of a job is also reported if its handler is given up. The handler does nothing that the
// race detector could regard as synchronization with the drain.
func TestWorker_Drain_GivenUp_Wait(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		time.Sleep(time.Minute)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
			time.Sleep(time.Minute)
			return nil
		}, &honker.WorkOptions{DrainTimeout: time.Second})
		time.Sleep(time.Second)
		require.NoError(t, stop())
		require.Len(t, s.Settled, 1)
		require.Equal(t, honker.OutcomeReleased, s.Settled[0].Outcome)
		require.Equal(t, time.Minute, s.Settled[0].Wait)
	})
}

// After Work has returned, it holds no job, however fast its handlers were and at whatever moment it was
// interrupted.
func TestWorker_Drain_NothingHeld(t *testing.T) {
	const jobs = 400
	for name, c := range map[string]struct {
		each    func(n int64) time.Duration
		run     time.Duration
		workers int
	}{
		"no time":                {func(int64) time.Duration { return 0 }, 0, 2},
		"microseconds":           {func(int64) time.Duration { return 20 * time.Microsecond }, time.Millisecond, 4},
		"milliseconds":           {func(int64) time.Duration { return 3 * time.Millisecond }, 40 * time.Millisecond, 8},
		"seconds":                {func(int64) time.Duration { return 3 * time.Second }, 7 * time.Second, 3},
		"longer than the drain":  {func(int64) time.Duration { return time.Hour }, time.Second, 5},
		"fast, then slow":        {func(n int64) time.Duration { return time.Duration(n/200) * time.Hour }, time.Second, 3},
		"now and then, and slow": {func(n int64) time.Duration { return time.Duration(n%10/9) * time.Hour }, time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				_, err := q.EnqueueMany(context.Background(), make([]int, jobs))
				require.NoError(t, err)
				var n, done atomic.Int64
				stop := testkit.Work(t, q, func(ctx context.Context, _ *honker.Job[int]) error {
					select {
					case <-time.After(c.each(n.Add(1))):
						done.Add(1)
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}, &honker.WorkOptions{Workers: c.workers, DrainTimeout: 5 * time.Second})
				time.Sleep(c.run)
				require.NoError(t, stop())
				require.Zero(t, testkit.QueryInt(t, db.SQL(), processing))
				require.EqualValues(t, jobs, done.Load()+testkit.QueryInt(t, db.SQL(), testkit.CountJobs), "each is done or still there")
				require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT total(attempts) FROM _honker_live`))
				require.EqualValues(t, done.Load(), count(s.Outcomes())[honker.OutcomeAcked])
			})
		})
	}
}

// Work with an ended ctx returns at once.
func TestWorker_EndedContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		began := time.Now()
		require.NoError(t, q.Work(ctx, testkit.Succeed, nil))
		require.Zero(t, time.Since(began))
		require.Empty(t, s.Outcomes())
		require.Zero(t, testkit.GetJob(t, q, id).Attempts)
	})
}

// Close drains Work, which returns ErrClosed.
func TestWorker_Drain_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		opts := &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)}
		db, err := honker.Open(context.Background(), path, opts)
		require.NoError(t, err)
		q := honker.NewQueue[time.Duration](db, "jobs", nil)
		short, long := testkit.Enqueue(t, q, 3*time.Second), testkit.Enqueue(t, q, time.Hour)
		ended := make(chan error, 1)
		go func() {
			ended <- q.Work(context.Background(), func(ctx context.Context, job *honker.Job[time.Duration]) error {
				select {
				case <-time.After(job.Args):
				case <-ctx.Done():
				}
				return ctx.Err()
			}, &honker.WorkOptions{Workers: 2, DrainTimeout: 10 * time.Second})
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, db.Close())
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, <-ended, honker.ErrClosed)
		err = q.Work(context.Background(), testkit.Succeed, nil)
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorContains(t, err, `honker: work "jobs": `)

		q = honker.NewQueue[time.Duration](honkertest.OpenFile(t, path, opts), "jobs", nil)
		testkit.RequireGone(t, q, short)
		info := testkit.GetJob(t, q, long)
		require.Equal(t, honker.StatePending, info.State)
		require.Zero(t, info.Attempts)
	})
}

// Work ends when its file is replaced.
func TestWorker_FileReplaced(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"while it waits": false, "while it works": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file.db")
			db, err := honker.Open(context.Background(), path, &honker.Options{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer db.Close()
			q := honker.NewQueue[int](db, "jobs", nil)
			running, goOn := make(chan bool, 1), make(chan bool)
			ended := make(chan error, 1)
			go func() {
				ended <- q.Work(testkit.Context(t, testkit.Timeout), func(context.Context, *honker.Job[int]) error {
					running <- true
					<-goOn
					return nil
				}, nil)
			}()
			if busy {
				testkit.Enqueue(t, q, 1)
				<-running
			}
			require.NoError(t, os.Rename(path, path+".old"))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			close(goOn)
			require.ErrorIs(t, <-ended, honker.ErrDatabaseReplaced)
		})
	}
}

// Work survives another process that holds the write lock for longer than BusyTimeout.
func TestWorker_SlowWriter(t *testing.T) {
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 30 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	const jobs = 20
	_, err := q.EnqueueMany(ctx, make([]int, jobs))
	require.NoError(t, err)
	var runs atomic.Int64
	goOn := make(chan bool)
	stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
		runs.Add(1)
		<-goOn
		return nil
	}, &honker.WorkOptions{Workers: 2})
	testkit.Eventually(t, testkit.Timeout, "two run", func() bool { return runs.Load() == 2 })

	other, err := testkit.OpenPool(t, path).Conn(ctx)
	require.NoError(t, err)
	defer other.Close()
	_, err = other.ExecContext(ctx, `BEGIN IMMEDIATE`)
	require.NoError(t, err)
	close(goOn) // the acks have to wait
	testkit.Eventually(t, testkit.Timeout, "it has tried several times", func() bool { return log.Times("transaction failed, retrying") >= 3 })
	require.EqualValues(t, 2, runs.Load())
	_, err = other.ExecContext(ctx, `ROLLBACK`)
	require.NoError(t, err)
	testkit.Eventually(t, testkit.Timeout, "it goes on", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0 })
	require.NoError(t, stop())
	require.EqualValues(t, jobs, runs.Load(), "each of them once")
}

// If another process holds the write lock when Work ends, the drain waits for it.
func TestWorker_Drain_SlowWriter(t *testing.T) {
	t.Parallel()
	path, log := filepath.Join(t.TempDir(), "file.db"), new(testkit.Log)
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 30 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	testkit.Enqueue(t, q, 1)
	running, goOn := make(chan bool), make(chan bool)
	stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
		close(running)
		<-goOn
		return nil
	}, nil)
	<-running
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(goOn)
	testkit.Eventually(t, testkit.Timeout, "it has tried", func() bool { return log.Times("transaction failed, retrying") >= 2 })
	require.Empty(t, ended)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-ended)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// The drain ends within its timeout even if another process holds the write lock, and even if a batch
// already waits for the lock when the ctx of Work ends. The leases lapse.
func TestWorker_Drain_WriterTaken(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		const jobs = 3
		for n := range jobs {
			testkit.Enqueue(t, q, n)
		}
		goOn := make(chan bool)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { <-goOn; return nil },
			&honker.WorkOptions{Workers: jobs, DrainTimeout: 2 * time.Second, Lease: 3 * time.Second})
		synctest.Wait()
		other, err := testkit.OpenPool(t, engine.Of(db).Backend.Name()).Conn(t.Context())
		require.NoError(t, err)
		defer other.Close()
		_, err = other.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
		require.NoError(t, err)
		close(goOn)
		time.Sleep(50 * time.Millisecond) // the batch with the acks waits
		began := time.Now()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), 4*time.Second)
		require.EqualValues(t, jobs, testkit.QueryInt(t, db.SQL(), processing))
	})
}

// A handler may linger while its job already runs again, because the handler has settled the job or its
// lease has lapsed. The drain still waits for that handler.
func TestWorker_Drain_LingeringHandler(t *testing.T) {
	for name, c := range map[string]struct {
		again func(context.Context, *honker.DB, *honker.Job[int]) error
		lost  bool
	}{
		"retried": {func(ctx context.Context, _ *honker.DB, job *honker.Job[int]) error {
			return job.Retry(ctx, 0, testkit.ErrCause)
		}, false},
		"lapsed": {func(ctx context.Context, db *honker.DB, job *honker.Job[int]) error {
			_, err := db.SQL().ExecContext(ctx, `UPDATE _honker_live SET claim_expires_at = ? WHERE id = ?`, time.Now().Unix()-1, job.ID)
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				again := testkit.Enqueue(t, q, 1)
				var runs atomic.Int64
				causes := make(chan error, 1)
				stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					switch {
					case job.ID != again:
						time.Sleep(20 * time.Second)
					case runs.Add(1) == 1:
						require.NoError(t, c.again(ctx, db, job))
						select {
						case <-ctx.Done():
						case <-time.After(time.Hour): // unblocks the handler if the test fails
						}
						causes <- context.Cause(ctx)
					}
					return nil
				}, &honker.WorkOptions{Workers: 2, DrainTimeout: 5 * time.Second})
				time.Sleep(time.Second) // after a pause, earlier speed is no reason to claim ahead
				testkit.RequireGone(t, q, again)
				for range 2 { // a job for the other worker
					testkit.Enqueue(t, q, 2)
				}
				time.Sleep(15 * time.Second) // more than a third of the lease
				synctest.Wait()
				if c.lost {
					assert.Len(t, causes, 1, "it has not heard of that")
				} else {
					assert.Zero(t, count(s.Outcomes())[honker.OutcomeReleased], "claimed, and given back, for a worker that is busy")
				}
				time.Sleep(30 * time.Second)
				began := time.Now()
				require.NoError(t, stop())
				require.LessOrEqual(t, time.Since(began), 5*time.Second, "DrainTimeout")
				require.Equal(t, c.lost, errors.Is(<-causes, honker.ErrClaimLost))
			})
		})
	}
}

// The longest DrainTimeout is unlimited, and no handler is given up.
func TestWork_DrainTimeout_Longest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		stop := testkit.Work(t, q, func(ctx context.Context, _ *honker.Job[int]) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}, &honker.WorkOptions{DrainTimeout: math.MaxInt64})
		g := stocked(t, db, 1).Group("g", nil)
		stopGroup := testkit.Background(t, func(ctx context.Context) error {
			return g.Work(ctx, func(ctx context.Context, _ *honker.Delivery[int]) error {
				time.Sleep(time.Minute)
				return ctx.Err()
			}, &honker.GroupWorkOptions{DrainTimeout: math.MaxInt64})
		})
		testkit.Enqueue(t, q, 1)
		synctest.Wait()
		require.NoError(t, stop())
		require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, s.Outcomes())
		require.NoError(t, stopGroup())
		info := testkit.GroupInfo(t, g)
		require.EqualValues(t, 1, info.LowWater)
		require.Zero(t, info.Leased+info.Reclaim)
	})
}
