package honker_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
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
	"github.com/honker-go/honker/observe"
)

// ledger adds the application's own table to a fresh file.
func ledger(t testing.TB, opts *honker.Options) (context.Context, *honker.DB, *honker.Queue[int]) {
	t.Helper()
	db := honkertest.Open(t, opts)
	testkit.Exec(t, db, `CREATE TABLE ledger (n INTEGER)`)
	return testkit.Context(t, testkit.Timeout), db, honker.NewQueue[int](db, "jobs", nil)
}

// entries counts the rows of the ledger.
func entries(t testing.TB, db *honker.DB) int64 {
	t.Helper()
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM ledger`)
}

const enter = `INSERT INTO ledger VALUES (1)`

// Tx commits all its function's writes.
func TestTx_Commits(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	cancelled := testkit.Enqueue(t, q, 1)
	var id int64
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, enter)
		require.NoError(t, err)
		id, err = q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		ids, err := q.EnqueueManyTx(ctx, tx, []int{2, 3})
		require.NoError(t, err)
		require.Equal(t, []int64{id + 1, id + 2}, ids)
		done, err := q.CancelTx(ctx, tx, cancelled)
		require.NoError(t, err)
		require.True(t, done)
		_, err = db.NotifyTx(ctx, tx, "news", 1)
		require.NoError(t, err)
		return q.SaveResultTx(ctx, tx, cancelled, "result", 0)
	}))
	require.EqualValues(t, 1, entries(t, db))
	require.Len(t, testkit.Claim(t, q, 10), 3)
	testkit.RequireGone(t, q, cancelled)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
}

// A Tx whose function fails or panics changes nothing.
func TestTx_FailsOrPanics(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	kept := testkit.Enqueue(t, q, 1)
	before := *testkit.GetJob(t, q, kept)
	writeAll := func(ctx context.Context, tx *sql.Tx) {
		_, err := tx.ExecContext(ctx, enter)
		_, err2 := q.EnqueueTx(ctx, tx, 1)
		_, err3 := q.EnqueueManyTx(ctx, tx, []int{2, 3})
		_, err4 := q.CancelTx(ctx, tx, kept)
		_, err5 := db.NotifyTx(ctx, tx, "news", 1)
		require.NoError(t, errors.Join(err, err2, err3, err4, err5, q.SaveResultTx(ctx, tx, kept, 1, 0)))
	}
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		writeAll(ctx, tx)
		return testkit.ErrCause
	})
	require.Equal(t, testkit.ErrCause, err, "as fn returned it")
	require.PanicsWithValue(t, "oh", func() {
		_ = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			writeAll(ctx, tx)
			panic("oh")
		})
	})
	require.Zero(t, entries(t, db))
	require.Equal(t, before, *testkit.GetJob(t, q, kept))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
	testkit.Enqueue(t, q, 2) // the writer is free again
}

// A plain verb inside a Tx is rejected immediately, and the error names the Tx form.
func TestTx_PlainVerb_NamesTwin(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	s := honker.NewStream[int](db, "events", nil)
	listener, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	type c = context.Context
	for verb, v := range map[string]struct {
		twin string // empty if there is no Tx form
		call func(c) error
	}{
		"Enqueue":      {"EnqueueTx", func(c c) error { _, err := q.Enqueue(c, 1); return err }},
		"EnqueueMany":  {"EnqueueManyTx", func(c c) error { _, err := q.EnqueueMany(c, []int{1}); return err }},
		"Cancel":       {"CancelTx", func(c c) error { _, err := q.Cancel(c, job.ID); return err }},
		"SaveResult":   {"SaveResultTx", func(c c) error { return q.SaveResult(c, job.ID, 1, 0) }},
		"Notify":       {"NotifyTx", func(c c) error { _, err := db.Notify(c, "news", 1); return err }},
		"Ack":          {"AckTx", job.Ack},
		"AckMany":      {"AckTx", func(c c) error { _, err := q.AckMany(c, "w", []int64{job.ID}); return err }},
		"Reject":       {"RejectTx", func(c c) error { return job.Reject(c, nil) }},
		"Retry":        {"", func(c c) error { return job.Retry(c, 0, nil) }},
		"Snooze":       {"", func(c c) error { return job.Snooze(c, 0) }},
		"Extend":       {"", func(c c) error { return job.Extend(c, time.Minute) }},
		"Claim":        {"", func(c c) error { _, err := q.Claim(c, "w", 1); return err }},
		"Jobs":         {"", func(c c) error { return testkit.LastError(q.Jobs(c, "w")) }},
		"Work":         {"", func(c c) error { return q.Work(c, testkit.Succeed, nil) }},
		"WorkTx":       {"", func(c c) error { return q.WorkTx(c, testkit.SucceedTx, nil) }},
		"SweepExpired": {"", func(c c) error { _, err := q.SweepExpired(c); return err }},
		"WaitResult":   {"Result", func(c c) error { _, err := honker.WaitResult[int](c, db, job.ID); return err }},
		"Listen":       {"", func(c c) error { _, err := db.Listen(c, "news"); return err }},
		"Next":         {"", func(c c) error { _, err := listener.Next(c); return err }},
		"Tail":         {"Read", func(c c) error { return testkit.LastError(s.Tail(c, honker.End, nil)) }},
		"Prune":        {"", func(c c) error { _, err := db.PruneNotifications(c, 0, 0); return err }},
		"Tx":           {"", func(c c) error { return db.Tx(c, func(context.Context, *sql.Tx) error { return nil }) }},
	} {
		t.Run(verb, func(t *testing.T) {
			require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				began := time.Now()
				err := v.call(ctx)
				require.ErrorIs(t, err, honker.ErrInTx)
				require.ErrorContains(t, err, "honker: ")
				require.ErrorContains(t, err, v.twin)
				require.Less(t, time.Since(began), testkit.Timeout/2)
				return nil
			}))
		})
	}
	require.NoError(t, job.Ack(ctx), "nothing was changed")
}

// The ctx of a Tx that has ended is rejected with its own error text, even by reads.
func TestTx_Context_OfEndedTx(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	var inner context.Context
	keep := func(ctx context.Context, _ *sql.Tx) error { inner = ctx; return nil }
	require.NoError(t, db.Tx(ctx, keep))
	for name, call := range map[string]func() error{
		"Enqueue":    func() error { _, err := q.Enqueue(inner, 1); return err },
		"Get":        func() error { _, err := q.Get(inner, 1); return err },
		"WaitResult": func() error { _, err := honker.WaitResult[int](inner, db, 1); return err },
		"Tx":         func() error { return db.Tx(inner, keep) },
	} {
		err := call()
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.NotErrorIs(t, err, honker.ErrInTx, name)
		require.ErrorContains(t, err, "a DB.Tx that has ended", name)
	}
	require.NoError(t, db.Tx(ctx, func(_ context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(inner, tx, 1)
		return err
	}), "the Tx form runs in the transaction at hand")
}

// Reads inside a Tx see its writes. Other reads see only committed data.
func TestTx_Reads(t *testing.T) {
	t.Parallel()
	outer, db, q := ledger(t, nil)
	id := testkit.Enqueue(t, q, 1, honker.Delay(time.Hour))
	require.NoError(t, q.SaveResult(outer, id, 7, 0))
	require.NoError(t, db.Tx(outer, func(ctx context.Context, tx *sql.Tx) error {
		inner, err := q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		_, err = q.Get(ctx, inner)
		require.NoError(t, err)
		_, err = q.Get(outer, inner)
		require.ErrorIs(t, err, honker.ErrNotFound)
		next, err := q.NextClaimAt(ctx)
		require.NoError(t, err)
		require.NotZero(t, next)
		got, err := honker.Result[int](ctx, db, id)
		require.NoError(t, err)
		require.Equal(t, 7, got)
		require.NoError(t, q.SaveResultTx(ctx, tx, id, 8, 0))
		got, err = honker.Result[int](ctx, db, id)
		require.NoError(t, err)
		require.Equal(t, 8, got)
		return nil
	}))
}

// Slow reads don't take a connection away from a writer. When ctx ends, a read stops waiting for a free connection.
func TestTx_BesideSlowReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{Readers: 2, NoFileNotices: true, PollInterval: time.Hour})
		q := honker.NewQueue[int](db, "jobs", nil)
		reading, stop := context.WithCancel(t.Context())
		var entered atomic.Int64
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				_ = engine.Of(db).Read(reading, func(context.Context, engine.Querier) error {
					entered.Add(1)
					<-reading.Done()
					return nil
				})
			})
		}
		synctest.Wait()
		require.EqualValues(t, 2, entered.Load(), "Readers")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			id, err := q.EnqueueTx(ctx, tx, 1)
			require.NoError(t, err)
			_, err = q.Get(ctx, id)
			return err
		}))
		_, err := q.Enqueue(ctx, 2)
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "writers")
		_, err = q.Get(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		stop()
		readers.Wait()
	})
}

// A Tx on one DB does not block another DB.
func TestTx_TwoDBs(t *testing.T) {
	t.Parallel()
	ctx, db, _ := ledger(t, nil)
	_, _, other := testkit.NewQueue[int](t, nil)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		_, err := other.Enqueue(ctx, 1)
		return err
	}))
}

// A plain verb in a goroutine with an open transaction returns a busy error with a hint.
func TestTx_PlainVerb_BusyHint(t *testing.T) {
	testkit.Differs(t, "db.Tx")
	t.Parallel()
	ctx, db, q := ledger(t, &honker.Options{BusyTimeout: 500 * time.Millisecond})
	_, err := db.Notify(ctx, "news", 1)
	require.NoError(t, err)
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, enter)
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"Enqueue": func() error { _, err := q.Enqueue(ctx, 1); return err },
		"Notify":  func() error { _, err := db.Notify(ctx, "news", 1); return err },
		"Prune":   func() error { _, err := db.PruneNotifications(ctx, 0, 0); return err },
		"Tx":      func() error { return db.Tx(ctx, func(context.Context, *sql.Tx) error { return nil }) },
		"BeginTx": func() error { _, err := db.SQL().BeginTx(ctx, nil); return err },
	} {
		began := time.Now()
		err := call()
		require.ErrorIs(t, err, honker.ErrBusy, name)
		require.ErrorContains(t, err, "use the Tx form of the call", name)
		require.Less(t, time.Since(began), testkit.Timeout/2, name)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = q.Enqueue(short, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded, "whichever comes first")
	_, err = q.EnqueueTx(ctx, tx, 1)
	require.NoError(t, err, "the Tx form works")
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 1, entries(t, db))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// A read-only transaction is a snapshot and doesn't block writers.
func TestTx_ReadOnly_Snapshot(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	count := func(tx *sql.Tx) (n int) {
		require.NoError(t, tx.QueryRowContext(ctx, `SELECT count(*) FROM _honker_live`).Scan(&n))
		return n
	}
	var snapshots [2]*sql.Tx
	for i := range snapshots {
		tx, err := db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.Equal(t, i, count(tx))
		testkit.Enqueue(t, q, i)
		require.Equal(t, i, count(tx))
		snapshots[i] = tx
	}
	for i, tx := range snapshots {
		require.Equal(t, i, count(tx))
		require.NoError(t, tx.Commit())
	}
}

// A transaction on the caller's connection is accepted.
func TestTx_CallersConn(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	conn, err := db.SQL().Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		_, err = conn.ExecContext(ctx, "BEGIN")
		require.NoError(t, err)
		_, err = q.EnqueueTx(ctx, conn, 1)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, end)
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// If a context ends the transaction, everything is rolled back.
func TestTx_Context_LeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	for name, begin := range map[string]func(context.Context, func(*sql.Tx) error) error{
		"BeginTx": func(ctx context.Context, fn func(*sql.Tx) error) error {
			tx, err := db.SQL().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err = fn(tx); err == nil {
				err = tx.Commit()
			}
			return err
		},
		"Tx": func(ctx context.Context, fn func(*sql.Tx) error) error {
			return db.Tx(ctx, func(_ context.Context, tx *sql.Tx) error { return fn(tx) })
		},
	} {
		ending, end := context.WithCancel(ctx)
		err := begin(ending, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, enter)
			require.NoError(t, err)
			_, err = q.EnqueueTx(ctx, tx, 1)
			require.NoError(t, err)
			end()
			_, _ = tx.ExecContext(ctx, enter) // an application that ignores errors
			_, _ = q.EnqueueTx(ctx, tx, 1)
			return nil
		})
		require.Error(t, err, name)
		require.Zero(t, entries(t, db), name)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs), name)
	}
	testkit.Enqueue(t, q, 1)
}

// A transaction isn't broken when a statement's context ends.
func TestTx_Context_OfStatement(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	const many = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
		INSERT INTO ledger SELECT i FROM n`
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = q.EnqueueTx(ctx, tx, 1)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 2*time.Millisecond) // ends in the middle of the statement
	defer cancel()
	_, failed := tx.ExecContext(short, many)
	_, after := q.EnqueueTx(ctx, tx, 2)
	err = tx.Commit()
	jobs, rows := testkit.QueryInt(t, db.SQL(), testkit.CountJobs), entries(t, db)
	if err != nil {
		require.Zero(t, jobs)
		require.Zero(t, rows)
		return
	}
	require.NoError(t, after)
	require.EqualValues(t, 2, jobs)
	require.Equal(t, failed == nil, rows == 40_000)
	require.Equal(t, failed != nil, rows == 0)
}

// A statement with an ended context has no effect.
func TestTx_Context_Ended(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	ended, end := context.WithCancel(ctx)
	end()
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, enter)
	require.NoError(t, err)
	_, err = q.EnqueueTx(ended, tx, 1)
	require.ErrorIs(t, err, context.Canceled)
	if tx.Commit() == nil { // database/sql did not execute the statement
		require.EqualValues(t, 1, entries(t, db))
	} else {
		require.Zero(t, entries(t, db))
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// A finished transaction is rejected.
func TestTx_Finished(t *testing.T) {
	t.Parallel()
	ctx, db, q := ledger(t, nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	tx, err := db.SQL().BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	for name, call := range map[string]func() error{
		"EnqueueTx":     func() error { _, err := q.EnqueueTx(ctx, tx, 1); return err },
		"EnqueueManyTx": func() error { _, err := q.EnqueueManyTx(ctx, tx, []int{1}); return err },
		"CancelTx":      func() error { _, err := q.CancelTx(ctx, tx, job.ID); return err },
		"SaveResultTx":  func() error { return q.SaveResultTx(ctx, tx, 1, 1, 0) },
		"NotifyTx":      func() error { _, err := db.NotifyTx(ctx, tx, "news", 1); return err },
		"AckTx":         func() error { return job.AckTx(ctx, tx) },
		"RejectTx":      func() error { return job.RejectTx(ctx, tx, nil) },
	} {
		require.ErrorIs(t, call(), sql.ErrTxDone, name)
	}
	require.Error(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return tx.Rollback() }),
		"nothing was committed")
	require.NoError(t, job.Ack(ctx))
}

// A handler whose transaction was rolled back has not settled its job.
func TestTx_HandlerRollback(t *testing.T) {
	t.Parallel()
	ctx, db, _ := ledger(t, nil)
	ctx, stop := context.WithCancel(ctx)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(0)})
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
		if job.Attempts == 1 {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(job.AckTx(ctx, tx), testkit.ErrCause)
			})
		}
		stop()
		return nil
	}, &honker.WorkOptions{Workers: 1}))
	testkit.RequireGone(t, q, id)
}

// A pool is rejected where a transaction is required. A pool has a transaction's methods, but commits
// each statement on its own.
func TestTx_PoolRefused(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := context.Background()
	conn, err := db.SQL().Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	for name, pool := range map[string]honker.Tx{"pool": db.SQL(), "connection": conn} {
		_, err := q.EnqueueTx(ctx, pool, 1)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.Regexp(t, "no transaction is open|not an open transaction", err.Error(), name)
	}
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
}

// A goroutine that outlives its Tx's function gets errors and doesn't disturb anything.
func TestTx_GoroutineLeftBehind(t *testing.T) {
	t.Parallel()
	ctx, db, _ := ledger(t, nil)
	s := honker.NewStream[int](db, "events", nil)
	var left sync.WaitGroup
	for range 20 {
		require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			left.Go(func() {
				for late := 0; late < 100; {
					if _, err := s.PublishTx(ctx, tx, 1, honker.EventKey(rand.Text())); err != nil {
						assert.ErrorIs(t, err, sql.ErrTxDone)
						late++
					}
				}
			})
			_, err := s.PublishTx(ctx, tx, 1)
			return err
		}))
	}
	left.Wait()
}

// withoutTxForm maps writing verbs without a Tx form to the reason.
var withoutTxForm = map[string]string{
	"DB.Tx":                 "it is the transaction",
	"DB.Lock":               "a lock that the rollback takes away guards nothing",
	"DB.TryLock":            "a lock that the rollback takes away guards nothing",
	"DB.Maintain":           "a loop",
	"DB.PruneNotifications": "several transactions",
	"DB.SweepRateLimits":    "several transactions",
	"Queue.SweepExpired":    "several transactions",
	"Stream.Compact":        "several transactions",
	"Group.Delete":          "several transactions",
	"Scheduler.Tick":        "several transactions",
	"Batch.Cancel":          "several transactions",
	"Queue.AckMany":         "AckTx of each job is for transactions",
	"Queue.Claim":           "a claim waits for jobs, and handlers run outside of transactions",
	"Queue.Jobs":            "a loop",
	"Queue.Work":            "a loop; WorkTx is another one, with a transaction for each job",
	"Queue.WorkDue":         "a loop; WorkDueTx is another one, with a transaction for each job",
	"Workers.Work":          "a loop; HandleTx is for transactions",
	"Workers.WorkDue":       "a loop; HandleTx is for transactions",
	"Outbox.Run":            "a loop",
	"Scheduler.Run":         "a loop",
	"Stream.Consume":        "a loop",
	"Stream.Subscribe":      "a loop",
	"Group.Work":            "a loop",
	"Group.Join":            "a membership is renewed outside of transactions",
	"RateLimit.Wait":        "it waits",
	"Job.Extend":            "a lease is renewed outside of transactions",
	"Delivery.Extend":       "a lease is renewed outside of transactions",
	"Member.All":            "a loop",
	"Member.Claim":          "a claim waits for events, and handlers run outside of transactions",
	"Member.Leave":          "a membership ends outside of transactions",
	"Lock.Unlock":           "a lock is released outside of transactions",
}

// handles lists the types whose verbs aren't classified in readonly_test.go.
var handles = map[string]reflect.Type{
	"Job":      reflect.TypeFor[*honker.Job[int]](),
	"Event":    reflect.TypeFor[*honker.Event[int]](),
	"Delivery": reflect.TypeFor[*honker.Delivery[int]](),
	"Member":   reflect.TypeFor[*honker.Member[int]](),
	"Lock":     reflect.TypeFor[*honker.Lock](),
}

// Every writing verb has a Tx form, or a documented reason why it has none.
func TestTxForm_EveryWrite(t *testing.T) {
	t.Parallel()
	table, values := readOnlyVerbs(honkertest.Open(t, nil), nil)
	types := map[string]reflect.Type{}
	for name, value := range values {
		types[name] = reflect.TypeOf(value)
	}
	writes := map[string]bool{}
	for verb := range table.writes {
		writes[verb] = true
	}
	for name, typ := range handles {
		types[name] = typ
		for m := range typ.Methods() {
			writes[name+"."+m.Name] = takesContext(m)
		}
	}
	for verb, is := range writes {
		name, method, ok := strings.Cut(verb, ".")
		if !is || !ok || strings.HasSuffix(method, "Tx") && withoutTxForm[verb] == "" {
			continue // functions such as Pipe are not verbs of a handle
		}
		_, found := types[name].MethodByName(method + "Tx")
		switch why := withoutTxForm[verb]; {
		case !found:
			require.NotEmpty(t, why, "%s writes, and has neither a Tx form nor a reason to have none", verb)
		case why != "":
			require.Contains(t, why, method+"Tx is another one", "%s has a Tx form", verb)
		}
	}
	for verb := range withoutTxForm {
		require.True(t, writes[verb], "%s is no verb that writes", verb)
	}
}

// takesContext reports whether a method takes a ctx, and so may access the file.
func takesContext(m reflect.Method) bool {
	return m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]()
}

// twoForms pairs an operator verb with its Tx form. Each returns whether it changed anything.
type twoForms struct {
	plain func(ctx context.Context, db *honker.DB) (bool, error)
	tx    func(ctx context.Context, db *honker.DB, tx honker.Tx) (bool, error)
}

// form returns the twoForms of a verb on a handle; of returns the handle for a DB.
func form[H any](of func(*honker.DB) H, plain func(context.Context, H) (bool, error), tx func(context.Context, honker.Tx, H) (bool, error)) twoForms {
	return twoForms{
		func(ctx context.Context, db *honker.DB) (bool, error) { return plain(ctx, of(db)) },
		func(ctx context.Context, db *honker.DB, t honker.Tx) (bool, error) { return tx(ctx, t, of(db)) },
	}
}

// operatorForms returns verbs that all change a file written by stockForForms.
func operatorForms() map[string]twoForms {
	type (
		ctx = context.Context
		q   = *honker.Queue[int]
		s   = *honker.Stream[int]
		g   = *honker.Group[int]
		sch = *honker.Scheduler
		in  = honker.Tx
	)
	queue := func(name string) func(*honker.DB) q {
		return func(db *honker.DB) q { return honker.NewQueue[int](db, name, nil) }
	}
	mails, halted := queue("mails"), queue("halted")
	orders := func(db *honker.DB) s { return honker.NewStream[int](db, "orders", nil) }
	group := func(db *honker.DB) g { return formGroup(db) }
	scheduler := func(db *honker.DB) sch { return db.Scheduler() }
	did := func(err error) (bool, error) { return err == nil, err }
	limits, kept := honker.Limits{PerKey: 3}, honker.Retention{MaxCount: 2}
	prio := 7
	change := honker.ScheduleChange{Priority: &prio}
	return map[string]twoForms{
		"Queue.Pause": form(mails, func(c ctx, q q) (bool, error) { return q.Pause(c, nil) }, func(c ctx, t in, q q) (bool, error) { return q.PauseTx(c, t, nil) }),
		"Queue.Pause of a key": form(mails, func(c ctx, q q) (bool, error) { return q.Pause(c, &honker.PauseOptions{Key: "ada"}) },
			func(c ctx, t in, q q) (bool, error) { return q.PauseTx(c, t, &honker.PauseOptions{Key: "ada"}) }),
		"Queue.Resume": form(halted, func(c ctx, q q) (bool, error) { return q.Resume(c) }, func(c ctx, t in, q q) (bool, error) { return q.ResumeTx(c, t) }),
		"Queue.ResumeKey": form(halted, func(c ctx, q q) (bool, error) { return q.ResumeKey(c, "bob") },
			func(c ctx, t in, q q) (bool, error) { return q.ResumeKeyTx(c, t, "bob") }),
		"Queue.SetLimits": form(mails, func(c ctx, q q) (bool, error) { return did(q.SetLimits(c, limits)) },
			func(c ctx, t in, q q) (bool, error) { return did(q.SetLimitsTx(c, t, limits)) }),
		"Queue.SetRetention": form(mails, func(c ctx, q q) (bool, error) { return did(q.SetRetention(c, honker.QueueRetention{Dead: kept})) },
			func(c ctx, t in, q q) (bool, error) {
				return did(q.SetRetentionTx(c, t, honker.QueueRetention{Dead: kept}))
			}),
		"Queue.ReleaseUnique": form(mails, func(c ctx, q q) (bool, error) { return q.ReleaseUnique(c, "k") },
			func(c ctx, t in, q q) (bool, error) { return q.ReleaseUniqueTx(c, t, "k") }),
		"Stream.Seek": form(orders, func(c ctx, s s) (bool, error) { return did(s.Seek(c, "view", honker.Beginning)) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SeekTx(c, t, "view", honker.Beginning)) }),
		"Stream.Seek beyond the head": form(orders, func(c ctx, s s) (bool, error) { return did(s.Seek(c, "view", honker.Offset(99))) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SeekTx(c, t, "view", honker.Offset(99))) }),
		"Stream.SetRetention": form(orders, func(c ctx, s s) (bool, error) { return did(s.SetRetention(c, kept)) },
			func(c ctx, t in, s s) (bool, error) { return did(s.SetRetentionTx(c, t, kept)) }),
		"Stream.DeleteConsumer": form(orders, func(c ctx, s s) (bool, error) { return s.DeleteConsumer(c, "view") },
			func(c ctx, t in, s s) (bool, error) { return s.DeleteConsumerTx(c, t, "view") }),
		"Group.Redeliver": form(group, func(c ctx, g g) (bool, error) { return g.Redeliver(c, 1) }, func(c ctx, t in, g g) (bool, error) { return g.RedeliverTx(c, t, 1) }),
		"Group.Discard":   form(group, func(c ctx, g g) (bool, error) { return g.Discard(c, 1) }, func(c ctx, t in, g g) (bool, error) { return g.DiscardTx(c, t, 1) }),
		"Scheduler.Update": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Update(c, "tea", change) },
			func(c ctx, t in, s sch) (bool, error) { return s.UpdateTx(c, t, "tea", change) }),
		"Scheduler.Pause":  form(scheduler, func(c ctx, s sch) (bool, error) { return s.Pause(c, "tea") }, func(c ctx, t in, s sch) (bool, error) { return s.PauseTx(c, t, "tea") }),
		"Scheduler.Resume": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Resume(c, "lunch") }, func(c ctx, t in, s sch) (bool, error) { return s.ResumeTx(c, t, "lunch") }),
		"Scheduler.Unregister": form(scheduler, func(c ctx, s sch) (bool, error) { return s.Unregister(c, "tea") },
			func(c ctx, t in, s sch) (bool, error) { return s.UnregisterTx(c, t, "tea") }),
		"Scheduler.Trigger": form(scheduler, func(c ctx, s sch) (bool, error) { id, err := s.Trigger(c, "tea"); return id > 0, err },
			func(c ctx, t in, s sch) (bool, error) { id, err := s.TriggerTx(c, t, "tea"); return id > 0, err }),
	}
}

func formGroup(db *honker.DB) *honker.Group[int] {
	return honker.NewStream[int](db, "orders", nil).Group("g", &honker.GroupOptions{MaxAttempts: 1})
}

func stockForForms(t *testing.T, db *honker.DB) {
	t.Helper()
	ctx, s := t.Context(), honker.NewStream[int](db, "orders", nil)
	testkit.PublishUpTo(t, s, 3)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 2))
	m, err := formGroup(db).Join(ctx, "m")
	require.NoError(t, err)
	ds, err := m.Claim(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, ds[0].Nack(ctx, testkit.ErrCause))
	require.NoError(t, m.Leave(ctx))
	testkit.Exec(t, db, `UPDATE _honkerx_group_claims SET holder = 'm'`) // the original holder has a random part
	testkit.Enqueue(t, honker.NewQueue[int](db, "mails", nil), 1, honker.Unique("k", nil))
	halted := honker.NewQueue[int](db, "halted", nil)
	for _, key := range []string{"", "bob"} {
		testkit.RequireChanged(t, true)(halted.Pause(ctx, &honker.PauseOptions{Key: key}))
	}
	mails := honker.NewQueue[int](db, "mails", nil) // one of ada's jobs is running, and three more are held for its key
	require.NoError(t, mails.SetLimits(ctx, honker.Limits{PerKey: 1}))
	for range 4 {
		testkit.Enqueue(t, mails, 2, honker.Key("ada"), honker.Priority(1))
	}
	testkit.Claim(t, mails, 2)
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	testkit.Register(t, db, testkit.Every("lunch", "@every 1h"))
	testkit.RequireChanged(t, true)(db.Scheduler().Pause(ctx, "lunch"))
}

// A Tx form makes the same writes as the plain verb in the caller's transaction, including an actor's audit entry. A
// rollback undoes them. Inside the transaction the plain verb is rejected, and the error names the Tx form. A nil
// transaction returns ErrInvalid.
func TestTxForm_Operators(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, f := range operatorForms() {
		t.Run(name, func(t *testing.T) {
			var plain []string
			use := func(run func(t *testing.T, ctx context.Context, db *honker.DB)) func(*testing.T) {
				return func(t *testing.T) {
					honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
						stockForForms(t, db)
						run(t, honker.WithActor(t.Context(), "anna"), db)
					})
				}
			}
			t.Run("plain", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				before := rowsOf(t, db)
				testkit.RequireChanged(t, true)(f.plain(ctx, db))
				plain = rowsOf(t, db)
				require.NotEqual(t, before, plain)
			}))
			t.Run("committed", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
					return nil
				}))
				require.Equal(t, plain, rowsOf(t, db))
			}))
			t.Run("committed on the pool", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				tx, err := db.SQL().BeginTx(ctx, nil)
				require.NoError(t, err)
				testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
				require.NoError(t, tx.Commit())
				require.Equal(t, plain, rowsOf(t, db))
			}))
			t.Run("not committed", use(func(t *testing.T, ctx context.Context, db *honker.DB) {
				before := rowsOf(t, db)
				err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					_, err := f.plain(ctx, db)
					require.ErrorIs(t, err, honker.ErrInTx)
					verb, _, _ := strings.Cut(name, " ")
					_, verb, _ = strings.Cut(verb, ".")
					require.ErrorContains(t, err, verb+"Tx")
					testkit.RequireChanged(t, true)(f.tx(ctx, db, tx))
					return testkit.ErrCause
				})
				require.ErrorIs(t, err, testkit.ErrCause)
				_, err = f.tx(ctx, db, nil)
				require.ErrorIs(t, err, honker.ErrInvalid)
				require.Equal(t, before, rowsOf(t, db))
			}))
		})
	}
}

// rowsOf returns every row in the file except the per-minute job counts, which are written together with
// other writes.
func rowsOf(t *testing.T, db *honker.DB) []string {
	return slices.DeleteFunc(testkit.Dump(t, db.SQL()), func(row string) bool { return strings.HasPrefix(row, "_honkerx_minutes|") })
}

// A Tx form accepts an attached pool's transaction.
func TestTxForm_Attached(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, f := range operatorForms() {
		path, db := testkit.OpenShared(t)
		stockForForms(t, db)
		attached := testkit.Attach(t, path, nil)
		tx, err := attached.SQL().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(`UPDATE _honkerx_meta SET value = value`)
		require.NoError(t, err)
		changed, err := f.tx(t.Context(), attached, tx)
		require.NoError(t, err, name)
		require.True(t, changed, name)
		require.NoError(t, tx.Rollback())
	}
}

// A pause in a transaction is reported, and workers wake, after the commit. After a rollback neither
// happens.
func TestTxForm_AfterCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []observe.Paused
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour,
			Observer: &observe.Observer{Paused: func(p observe.Paused) { told = append(told, p) }}})
		ctx, q := t.Context(), honker.NewQueue[int](db, "mails", nil)
		testkit.RequireChanged(t, true)(q.Pause(ctx, nil))
		testkit.Enqueue(t, q, 1)
		ran := 0
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { ran++; return nil }, nil)
		synctest.Wait()
		told = nil
		resume := func(end error) {
			err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				testkit.RequireChanged(t, true)(q.ResumeTx(ctx, tx))
				testkit.RequireChanged(t, false)(q.ResumeTx(ctx, tx))
				require.Empty(t, told)
				return end
			})
			require.ErrorIs(t, err, end)
			synctest.Wait()
		}
		resume(testkit.ErrCause)
		require.Empty(t, told)
		require.Zero(t, ran)
		resume(nil)
		require.Equal(t, []observe.Paused{{Queue: "mails", Resumed: true}}, told)
		require.Equal(t, 1, ran)
		require.NoError(t, stop())
	})
}

// In a single transaction, a read model is emptied and its consumer is moved to the beginning. A rebuild that is
// rolled back changes neither, and a committed rebuild counts each event once.
func TestStream_SeekTx_Rebuild(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 10)
	testkit.Exec(t, db, `CREATE TABLE seen (n INTEGER)`)
	project := func() {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		require.NoError(t, s.Consume(ctx, "view", func(ctx context.Context, e *honker.Event[int]) error {
			if e.Data == 9 {
				defer stop()
			}
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO seen VALUES ($1)`, e.Data); err != nil {
					return err
				}
				return e.AckTx(ctx, tx)
			})
		}, nil))
	}
	rebuild := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `DELETE FROM seen`); err != nil {
				return err
			}
			if err := s.SeekTx(ctx, tx, "view", honker.Beginning); err != nil {
				return err
			}
			return end
		})
	}
	count := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM seen`) }
	project()
	require.ErrorIs(t, rebuild(testkit.ErrCause), testkit.ErrCause)
	require.EqualValues(t, 10, count())
	require.EqualValues(t, 10, testkit.SavedOffset(t, s, "view"))
	require.NoError(t, rebuild(nil))
	require.Zero(t, count())
	project()
	require.EqualValues(t, 10, count())
}

// SeekTx with an unknown consumer or an invalid offset changes nothing.
func TestStream_SeekTx_BadInput(t *testing.T) {
	t.Parallel()
	ctx, db, s := testkit.NewStream[int](t, "orders")
	testkit.PublishUpTo(t, s, 3)
	testkit.RequireChanged(t, true)(s.SaveOffset(ctx, "view", 2))
	before := testkit.Dump(t, db.SQL())
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := s.SeekTx(ctx, tx, "none", honker.Beginning)
		require.ErrorIs(t, err, honker.ErrNotFound)
		require.ErrorContains(t, err, `honker: seek "orders": consumer "none"`)
		require.ErrorIs(t, s.SeekTx(ctx, tx, "view", honker.Offset(-1)), honker.ErrInvalid)
		require.ErrorIs(t, s.SeekTx(ctx, tx, "", honker.Beginning), honker.ErrInvalid)
		return nil
	}))
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}
