package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type handlerTx = func(context.Context, *sql.Tx, *honker.Job[int]) error

// workingTx runs WorkTx with a single worker in the background.
func workingTx(t testing.TB, q *honker.Queue[int], fn handlerTx, opts honker.WorkOptions) (stop func() error) {
	t.Helper()
	opts.Workers = 1
	return testkit.Background(t, func(ctx context.Context) error { return q.WorkTx(ctx, fn, &opts) })
}

// book is the effect of a handler: it enters the attempt in the ledger.
func book(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger VALUES (?)`, job.Attempts)
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
			if testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM ledger WHERE n = ?`, n+1) == 1 {
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

// The effect of a failed attempt is rolled back, and the job runs again.
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

// The effect of a lost claim is rolled back. A slow middleware loses the claim before the transaction
// begins.
func TestWorker_WorkTx_LostClaim(t *testing.T) {
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

// If the transaction of an attempt cannot begin because the writer is busy, the handler has not started,
// and the job has lost no attempt.
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

// The observer hears of the ack after the commit. The transaction belongs to WorkTx, so a rollback is not
// reported as an ack.
func TestObserver_WorkTx_Committed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		testkit.Exec(t, db, `CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES child (id) DEFERRABLE INITIALLY DEFERRED)`)
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1)
		stop := workingTx(t, q, func(ctx context.Context, tx *sql.Tx, job *honker.Job[int]) error {
			time.Sleep(time.Second) // advances the clock of the bubble
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
			time.Sleep(time.Second) // the return of the first handler has been processed
			acked <- job.Ack(ctx)
			return nil
		}, &honker.WorkOptions{Workers: 2})
		testkit.Enqueue(t, q, 1)
		require.NoError(t, <-acked)
		require.NoError(t, stop())
	})
}

// A commit wakes the waiters for everything that its transaction has written, in DB.Tx and in a transaction
// that the application has begun. That holds even while other commits have reduced the rate of looks at the
// file.
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
