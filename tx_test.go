package honker_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
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

// Tx commits all writes of its function.
func TestTx_Commits(t *testing.T) {
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

// A plain verb inside a Tx is refused at once, and the error names the Tx form.
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

// The ctx of an ended Tx is refused with its own text, by reads as well.
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

// Reads inside a Tx see its writes. Other reads see committed data only.
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

// Slow reads do not take a connection from a writer. The end of ctx ends the wait of reads for a free
// connection.
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

// A Tx of one DB does not block another DB.
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

// A read-only transaction is a snapshot and blocks no writer.
func TestTx_ReadOnly_Snapshot(t *testing.T) {
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
		_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		require.NoError(t, err)
		_, err = q.EnqueueTx(ctx, conn, 1)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, end)
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
}

// A context that ends the transaction rolls back everything.
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

// The end of a statement's context does not tear the transaction.
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

// A finished transaction is refused.
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

// A pool is refused where a transaction is required. A pool has the methods of a transaction, but commits
// each statement by itself.
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
		require.ErrorContains(t, err, "no transaction is open", name)
	}
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
}

// A goroutine that outlives the function of its Tx gets errors and disturbs nothing.
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
