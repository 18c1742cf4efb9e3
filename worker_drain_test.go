package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
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

// Handlers are cancelled after DrainTimeout, and their attempts do not count, whatever they return.
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

// A handler that ignores its ctx delays Work's return, but does not keep its job.
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

// A job's waiting time is also reported if its handler is abandoned. The handler does nothing that the race
// detector could regard as synchronization with the drain.
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

// After Work has returned, it holds no job, however fast its handlers were and whenever it was interrupted.
func TestWorker_Drain_NothingHeld(t *testing.T) {
	testkit.FileOnly(t)
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
				require.Zero(t, claimedJobs(t, q))
				require.EqualValues(t, jobs, done.Load()+testkit.QueryInt(t, db.SQL(), testkit.CountJobs), "each is done or still there")
				require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT total(attempts) FROM _honker_live`))
				require.EqualValues(t, done.Load(), count(s.Outcomes())[honker.OutcomeAcked])
			})
		})
	}
}

// Work with an ended ctx returns immediately.
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
	testkit.FileOnly(t)
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

	release := testkit.HoldWriter(t, path)
	close(goOn) // the acks must wait
	if testkit.AsFile("ctx ends, or Close is called, while a verb waits for a lock of the server") {
		testkit.Eventually(t, testkit.Timeout, "it has tried several times", func() bool { return log.Times("transaction failed, retrying") >= 3 })
	}
	require.EqualValues(t, 2, runs.Load())
	release()
	testkit.Eventually(t, testkit.Timeout, "it goes on", func() bool { return testkit.QueryInt(t, db.SQL(), testkit.CountJobs) == 0 })
	require.NoError(t, stop())
	require.EqualValues(t, jobs, runs.Load(), "each of them once")
}

// If another process holds the write lock when Work ends, the drain waits for it.
func TestWorker_Drain_SlowWriter(t *testing.T) {
	testkit.Differs(t, "db.Tx")
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

// The drain ends within its timeout even if another process holds the write lock, and even if a batch is
// already waiting for the lock when Work's ctx ends. The leases lapse.
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
		require.EqualValues(t, jobs, claimedJobs(t, q))
	})
}

// A handler may still be running when its job is already running again, because the handler has settled the
// job or its lease has lapsed. The drain still waits for that handler.
func TestWorker_Drain_LingeringHandler(t *testing.T) {
	testkit.FileOnly(t)
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

// The longest DrainTimeout is unlimited, and no handler is abandoned.
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

type handlerTx = func(context.Context, *sql.Tx, *honker.Job[int]) error

// workingTx runs WorkTx with a single worker in the background.
func workingTx(t testing.TB, q *honker.Queue[int], fn handlerTx, opts honker.WorkOptions) (stop func() error) {
	t.Helper()
	opts.Workers = 1
	return testkit.Background(t, func(ctx context.Context) error { return q.WorkTx(ctx, fn, &opts) })
}

// book is a handler's effect: it enters the attempt in the ledger.
func book(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger VALUES ($1)`, job.Attempts)
	return err
}

// booked runs WorkTx on a single job in a bubble for an hour and books each attempt before it calls fn. It
// returns the attempts whose effect was committed, and the job.
func booked(t *testing.T, fn handlerTx) (effects []int64, l life) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE ledger (n INTEGER)`)
		testkit.Exec(t, db, `CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)`)
		testkit.Exec(t, db, `CREATE TABLE parent (id INTEGER PRIMARY KEY)`)
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(5 * time.Second), MaxAttempts: 2})
		began := time.Now()
		id := testkit.Enqueue(t, q, 1)
		stop := workingTx(t, q, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			l.began = append(l.began, time.Since(began))
			l.attempts = append(l.attempts, job.Attempts)
			return errors.Join(book(ctx, tx, job), fn(ctx, tx, job))
		}, honker.WorkOptions{OnError: func(_ context.Context, _ *honker.JobInfo, err error) { l.failed = append(l.failed, err) }})
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		l.outcomes = s.Outcomes()
		if info, err := q.Get(context.Background(), id); !errors.Is(err, honker.ErrNotFound) {
			require.NoError(t, err)
			l.left = info
		}
		for n := range testkit.QueryInt(t, db.SQL(), `SELECT coalesce(max(n), 0) FROM ledger`) {
			if testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM ledger WHERE n = $1`, n+1) == 1 {
				effects = append(effects, n+1)
			}
		}
		require.EqualValues(t, len(effects), testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM ledger`), "none twice")
	})
	return effects, l
}

// The effect and the ack are committed together.
func TestWorker_WorkTx_EffectAndAck(t *testing.T) {
	effects, l := booked(t, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
		require.NotErrorIs(t, ctx.Err(), context.Canceled)
		return nil
	})
	require.Equal(t, []int64{1}, effects)
	require.Nil(t, l.left)
	require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, l.outcomes)
	require.Empty(t, l.failed)
}

// A failed attempt's effect is rolled back, and the job runs again.
func TestWorker_WorkTx_FailedUndone(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(context.Context, *sql.Tx, *honker.Job[int]) error
		cause string
		after int // in seconds
	}{
		"error": {func(context.Context, *sql.Tx, *honker.Job[int]) error { return testkit.ErrCause }, testkit.ErrCause.Error(), 5},
		"retry": {func(context.Context, *sql.Tx, *honker.Job[int]) error {
			return honker.RetryAfter(7*time.Second, testkit.ErrCause)
		}, testkit.ErrCause.Error(), 7},
		"panic":  {func(context.Context, *sql.Tx, *honker.Job[int]) error { panic("boom") }, "panic: boom", 5},
		"Goexit": {func(context.Context, *sql.Tx, *honker.Job[int]) error { runtime.Goexit(); return nil }, "runtime.Goexit", 1},
		"a statement that fails": {func(ctx context.Context, tx *sql.Tx, _ *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO nowhere VALUES (1)`)
			return err
		}, "no such table", 5},
		"a constraint that fails at the commit": {func(ctx context.Context, tx *sql.Tx, _ *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO child VALUES (99)`)
			return err
		}, "FOREIGN KEY", 5},
		"an ack and an error": {func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			return errors.Join(job.AckTx(ctx, tx), testkit.ErrCause)
		}, testkit.ErrCause.Error(), 5},
		"a failure that is undone": {func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			return errors.Join(job.RejectTx(ctx, tx, errors.New("undone")), testkit.ErrCause)
		}, testkit.ErrCause.Error(), 5},
		"an ack and a commit that fails": {func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO child VALUES (99)`)
			return errors.Join(err, job.AckTx(ctx, tx))
		}, "FOREIGN KEY", 5},
		"a rollback of its own": {func(_ context.Context, tx *sql.Tx, _ *honker.Job[int]) error {
			return tx.Rollback()
		}, sql.ErrTxDone.Error(), 5},
	} {
		t.Run(name, func(t *testing.T) {
			effects, l := booked(t, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
				if job.Attempts == 1 {
					return c.end(ctx, tx, job)
				}
				require.Contains(t, job.LastError, c.cause)
				return nil
			})
			require.Equal(t, secs(0, c.after), l.began)
			require.Equal(t, []int64{2}, effects)
			require.Nil(t, l.left)
			require.Len(t, l.failed, 1)
			require.ErrorContains(t, l.failed[0], c.cause)

			effects, l = booked(t, c.end) // fails in both attempts
			require.Empty(t, effects)
			require.Equal(t, honker.StateDead, l.left.State)
			require.Contains(t, l.left.LastError, c.cause)
		})
	}
}

// Snooze and Reject roll back the effect.
func TestWorker_WorkTx_SnoozeReject(t *testing.T) {
	effects, l := booked(t, func(_ context.Context, _ *sql.Tx, job *honker.Job[int]) error {
		if len(job.LastError) == 0 && time.Now().Second() < 20 {
			return fmt.Errorf("not yet: %w", honker.Snooze(10*time.Second))
		}
		return nil
	})
	require.Equal(t, secs(0, 10, 20), l.began)
	require.Equal(t, []int{1, 1, 1}, l.attempts)
	require.Equal(t, []int64{1}, effects, "of the last")
	require.Nil(t, l.left)
	require.Empty(t, l.failed)

	effects, l = booked(t, func(context.Context, *sql.Tx, *honker.Job[int]) error { return honker.Reject(testkit.ErrCause) })
	require.Empty(t, effects)
	require.Equal(t, honker.StateDead, l.left.State)
	require.Equal(t, 1, l.left.Attempts)
	require.Equal(t, testkit.ErrCause.Error(), l.left.LastError)
}

// A handler may settle its job in its transaction.
func TestWorker_WorkTx_HandlerSettles(t *testing.T) {
	effects, l := booked(t, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
		return job.AckTx(ctx, tx)
	})
	require.Equal(t, []int64{1}, effects)
	require.Nil(t, l.left)
	require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, l.outcomes)

	effects, l = booked(t, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
		return job.RejectTx(ctx, tx, testkit.ErrCause)
	})
	require.Equal(t, []int64{1}, effects, "what it wrote stays")
	require.Equal(t, honker.StateDead, l.left.State)
	require.Equal(t, testkit.ErrCause.Error(), l.left.LastError)
	require.Equal(t, []honker.Outcome{honker.OutcomeDied}, l.outcomes)
	require.Empty(t, l.failed)
}

// If the claim is lost, the effect is rolled back. A slow middleware loses the claim before the transaction
// begins.
func TestWorker_WorkTx_LostClaim(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE ledger (n INTEGER)`)
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		steal := func(next honker.WorkFunc) honker.WorkFunc {
			return func(ctx context.Context, job *honker.JobInfo) error {
				testkit.Exec(t, db, `UPDATE _honker_live SET worker_id = 'thief'`)
				return next(ctx, job)
			}
		}
		stop := workingTx(t, q, book, honker.WorkOptions{Middleware: []honker.Middleware{steal}})
		time.Sleep(time.Second)
		require.NoError(t, stop())
		require.Zero(t, entries(t, db))
		require.Equal(t, "thief", testkit.GetJob(t, q, id).WorkerID)
		require.Equal(t, 1, testkit.GetJob(t, q, id).Attempts)
		require.Contains(t, s.Outcomes(), honker.OutcomeLost)
		require.NotContains(t, s.Outcomes(), honker.OutcomeRetried)
	})
}

// If an attempt's transaction cannot begin because the writer is busy, the handler has not started, and the
// attempt does not count.
func TestWorker_WorkTx_CannotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{
			NoFileNotices: true, PollInterval: time.Hour, BusyTimeout: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		testkit.Exec(t, db, `CREATE TABLE ledger (n INTEGER)`)
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
		id := testkit.Enqueue(t, q, 1)
		claimed, goOn := make(chan bool, 9), make(chan bool)
		var failed []error
		stop := workingTx(t, q, book, honker.WorkOptions{
			Middleware: []honker.Middleware{func(next honker.WorkFunc) honker.WorkFunc {
				return func(ctx context.Context, job *honker.JobInfo) error {
					claimed <- true
					<-goOn
					return next(ctx, job)
				}
			}},
			OnError: func(_ context.Context, _ *honker.JobInfo, err error) { failed = append(failed, err) },
		})
		<-claimed
		tx, err := db.SQL().BeginTx(context.Background(), nil)
		require.NoError(t, err)
		close(goOn)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, testkit.GetJob(t, q, id).Attempts, "nor can it be settled yet")
		require.NoError(t, tx.Rollback())
		time.Sleep(10 * time.Second)
		require.Len(t, claimed, 1, "a second time")
		testkit.RequireGone(t, q, id)
		require.EqualValues(t, 1, entries(t, db))
		require.NoError(t, stop())
		require.Empty(t, failed)
	})
}

// A busy error from the handler itself counts as a failed attempt.
func TestWorker_WorkTx_HandlerBusy(t *testing.T) {
	effects, l := booked(t, func(context.Context, *sql.Tx, *honker.Job[int]) error {
		return fmt.Errorf("elsewhere: %w", honker.ErrBusy)
	})
	require.Empty(t, effects)
	require.Equal(t, secs(0, 5), l.began)
	require.Equal(t, honker.StateDead, l.left.State)
}

// The observer is told about the ack after the commit. The transaction belongs to WorkTx, so a rollback is
// not reported as an ack.
func TestObserver_WorkTx_Committed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES child (id) DEFERRABLE INITIALLY DEFERRED)`)
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		stop := workingTx(t, q, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			time.Sleep(time.Second) // advances the bubble's clock
			if job.Attempts > 1 {
				return nil
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO child VALUES (1, 99)`)
			return err
		}, honker.WorkOptions{})
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		assert.Equal(t, " retried acked", fmtAll(s.Outcomes()))
		for _, e := range testkit.Recorded(s, &s.Settled) {
			assert.Equal(t, time.Second, e.Ran, "%s after", e.Outcome)
		}
	})
}

// If a handler snoozes its job in a transaction, the job may be claimed again with the same attempt number
// before the handler returns. The return must not settle the new claim.
func TestWork_SnoozeTx_ClaimedAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		runs := 0
		again, returned, acked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
			if runs++; runs == 1 {
				defer close(returned)
				err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return job.SnoozeTx(ctx, tx, 0) })
				<-again
				return err
			}
			close(again)
			<-returned
			time.Sleep(time.Second) // the first handler's return has been processed
			acked <- job.Ack(ctx)
			return nil
		}, &honker.WorkOptions{Workers: 2})
		testkit.Enqueue(t, q, 1)
		require.NoError(t, <-acked)
		require.NoError(t, stop())
	})
}

// A commit wakes the waiters for everything that its transaction wrote, whether in DB.Tx or in a
// transaction that the application began. This holds even while other commits have made looks at the file
// less frequent.
func TestWorker_TxCommitWakes(t *testing.T) {
	begin := map[string]func(ctx context.Context, db *honker.DB, fn func(context.Context, honker.Tx) error) error{
		"DB.Tx": func(ctx context.Context, db *honker.DB, fn func(context.Context, honker.Tx) error) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) })
		},
		"BeginTx": func(ctx context.Context, db *honker.DB, fn func(context.Context, honker.Tx) error) error {
			tx, err := db.SQL().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return errors.Join(fn(ctx, tx), tx.Commit())
		},
	}
	for name, inTx := range begin {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
				ctx := testkit.Context(t, time.Hour)
				testkit.Exec(t, db, `CREATE TABLE other (x)`)
				q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "events", nil)
				woken := make(chan time.Time, 3)
				go func() {
					for job, err := range q.Jobs(ctx, "w") {
						require.NoError(t, errors.Join(err, job.Ack(ctx)))
						woken <- time.Now()
						return
					}
				}()
				go func() {
					for _, err := range s.Tail(ctx, honker.Beginning, honker.KeyIs("a")) {
						require.NoError(t, err)
						woken <- time.Now()
						return
					}
				}()
				l, err := db.Listen(ctx, "channel")
				require.NoError(t, err)
				go func() {
					_, err := l.Next(ctx)
					require.NoError(t, err)
					woken <- time.Now()
				}()
				synctest.Wait()
				for range 20 {
					testkit.Exec(t, db, `INSERT INTO other VALUES (1)`)
					time.Sleep(10 * time.Millisecond)
				}
				testkit.Exec(t, db, `INSERT INTO other VALUES (1)`)
				began := time.Now()
				require.NoError(t, inTx(ctx, db, func(ctx context.Context, tx honker.Tx) error {
					_, err1 := q.EnqueueTx(ctx, tx, 1)
					_, err2 := s.PublishTx(ctx, tx, 1, honker.EventKey("a"))
					_, err3 := db.NotifyTx(ctx, tx, "channel", 1)
					return errors.Join(err1, err2, err3)
				}))
				for range 3 {
					require.Equal(t, began, <-woken)
				}
			})
		})
	}
}

// A handler that ends its transaction with an SQL statement has failed. Neither its effects nor its ack are
// committed.
func TestWorkTx_EndedByText(t *testing.T) {
	testkit.Differs(t, "COMMIT or ROLLBACK as a statement in a transaction")
	t.Parallel()
	for _, text := range []string{"ROLLBACK", "COMMIT"} {
		_, db, _ := ledger(t, nil)
		q := honker.NewQueue[int](db, "once", &honker.QueueOptions{MaxAttempts: 1})
		id := testkit.Enqueue(t, q, 1)
		stop := workingTx(t, q, func(ctx context.Context, tx *sql.Tx, _ *honker.Job[int]) error {
			_, err := tx.ExecContext(ctx, enter)
			require.NoError(t, err)
			_, _ = tx.ExecContext(ctx, text) // an application that ignores errors
			return nil
		}, honker.WorkOptions{})
		testkit.Eventually(t, testkit.Timeout, "it is over", func() bool {
			info, err := q.Get(context.Background(), id)
			return err != nil || info.State == honker.StateDead
		})
		require.NoError(t, stop())
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
		require.Contains(t, testkit.GetJob(t, q, id).LastError, text)
		require.Zero(t, entries(t, db))
	}
}
