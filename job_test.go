package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// settles returns the plain verbs that settle a claim.
func settles[T any](job *honker.Job[T]) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Ack":    job.Ack,
		"Retry":  func(ctx context.Context) error { return job.Retry(ctx, 0, testkit.ErrCause) },
		"Reject": func(ctx context.Context) error { return job.Reject(ctx, testkit.ErrCause) },
		"Snooze": func(ctx context.Context) error { return job.Snooze(ctx, 0) },
		"Extend": func(ctx context.Context) error { return job.Extend(ctx, time.Hour) },
	}
}

// settlesTx returns the verbs that settle a claim within a transaction.
func settlesTx[T any](job *honker.Job[T]) map[string]func(context.Context, honker.Tx) error {
	return map[string]func(context.Context, honker.Tx) error{
		"AckTx":    job.AckTx,
		"RejectTx": func(ctx context.Context, tx honker.Tx) error { return job.RejectTx(ctx, tx, testkit.ErrCause) },
	}
}

// Retry runs the job again and keeps the error.
func TestJob_Retry_KeepsError(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	require.Empty(t, job.LastError)
	began := time.Now()
	require.NoError(t, job.Retry(ctx, 1500*time.Millisecond, testkit.ErrCause))
	info := testkit.GetJob(t, q, id)
	after(t, began, 1500*time.Millisecond, info.RunAt)
	require.Equal(t, honker.StatePending, info.State)
	require.Equal(t, 1, info.Attempts)
	require.Equal(t, testkit.ErrCause.Error(), info.LastError)
	require.Empty(t, info.WorkerID)
	require.Zero(t, info.ClaimExpiresAt)
	require.Empty(t, testkit.Claim(t, q, 1), "not before its time")

	testkit.MakeDue(t, db, id)
	job = testkit.ClaimOne(t, q)
	require.Equal(t, 2, job.Attempts)
	require.Equal(t, testkit.ErrCause.Error(), job.LastError)
	require.Equal(t, testkit.ErrCause.Error(), testkit.GetJob(t, q, id).LastError)
	require.NoError(t, job.Retry(ctx, 0, errors.New("and the fire brigade is late")))
	require.Equal(t, "and the fire brigade is late", testkit.ClaimOne(t, q).LastError)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_notifications`))
}

// Retry on the last attempt dead-letters the job.
func TestJob_Retry_LastAttempt(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[string](t, &honker.QueueOptions{MaxAttempts: 2})
	began := time.Now()
	id := testkit.Enqueue(t, q, "args", honker.Priority(4))
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, errors.New("first")))
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, time.Hour, testkit.ErrCause))
	dead := testkit.GetJob(t, q, id)
	require.Equal(t, honker.StateDead, dead.State)
	require.Equal(t, testkit.ErrCause.Error(), dead.LastError)
	require.Equal(t, 2, dead.Attempts)
	require.Equal(t, 2, dead.MaxAttempts)
	require.Equal(t, 4, dead.Priority)
	require.Equal(t, `"args"`, string(dead.Payload))
	after(t, began, 0, dead.DiedAt)
	after(t, began, 0, dead.CreatedAt)
	require.Empty(t, testkit.Claim(t, q, 1))
}

// Reject dead-letters the job immediately.
func TestJob_Reject_DeadLetter(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, testkit.ErrCause))
	dead := testkit.GetJob(t, q, id)
	require.Equal(t, honker.StateDead, dead.State)
	require.Equal(t, 1, dead.Attempts)
	require.Equal(t, testkit.ErrCause.Error(), dead.LastError)

	id = testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, nil))
	require.Empty(t, testkit.GetJob(t, q, id).LastError)
}

// An error text is stored as valid text of limited length.
func TestJob_ErrorText_Bounded(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	for _, fail := range []func(*honker.Job[int], error) error{
		func(j *honker.Job[int], err error) error { return j.Retry(ctx, 0, err) },
		func(j *honker.Job[int], err error) error { return j.Reject(ctx, err) },
	} {
		id := testkit.Enqueue(t, q, 1)
		require.NoError(t, fail(testkit.ClaimOne(t, q), errors.New("a\x00b\xff"+strings.Repeat("ü", 1<<20))))
		got := testkit.GetJob(t, q, id).LastError
		require.True(t, strings.HasPrefix(got, "a�b�üü"), "%.20q", got)
		require.LessOrEqual(t, len(got), 16<<10)
		require.NotContains(t, got[len(got)-4:], "�", "not cut inside a character")
		_, err := q.Cancel(ctx, id)
		require.NoError(t, err)
	}
}

// Snooze doesn't use up an attempt.
func TestJob_Snooze_AttemptUnspent(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{MaxAttempts: 2})
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, testkit.ErrCause))
	for range 3 { // any number of times, even on the last attempt
		job := testkit.ClaimOne(t, q)
		require.Equal(t, 2, job.Attempts)
		require.Equal(t, testkit.ErrCause.Error(), job.LastError)
		began := time.Now()
		require.NoError(t, job.Snooze(ctx, time.Hour))
		info := testkit.GetJob(t, q, id)
		require.Equal(t, honker.StatePending, info.State)
		require.Equal(t, 1, info.Attempts)
		require.Empty(t, info.WorkerID)
		after(t, began, time.Hour, info.RunAt)
		testkit.MakeDue(t, db, id)
	}
}

// Extend starts a new lease now.
func TestJob_Extend_FromNow(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	for _, extend := range []time.Duration{time.Hour, 1500 * time.Millisecond, 10 * time.Second} { // longer and shorter leases
		began := time.Now()
		require.NoError(t, job.Extend(ctx, extend))
		leased(t, began, extend, testkit.GetJob(t, q, id).ClaimExpiresAt)
	}
	require.NoError(t, job.Ack(ctx))
}

// A stale claim cannot change its job.
func TestJob_StaleClaim(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *honker.DB, *honker.Queue[int], *honker.Job[int]){
		"lapsed": func(t *testing.T, db *honker.DB, _ *honker.Queue[int], job *honker.Job[int]) {
			testkit.ExpireClaim(t, db, job.ID)
		},
		"claimed by another worker": func(t *testing.T, db *honker.DB, q *honker.Queue[int], job *honker.Job[int]) {
			testkit.ExpireClaim(t, db, job.ID)
			_, err := q.Claim(context.Background(), "another", 1)
			require.NoError(t, err)
		},
		"claimed again by the same worker": func(t *testing.T, db *honker.DB, q *honker.Queue[int], job *honker.Job[int]) {
			testkit.ExpireClaim(t, db, job.ID)
			testkit.ClaimOne(t, q)
		},
		"retried": func(t *testing.T, _ *honker.DB, _ *honker.Queue[int], job *honker.Job[int]) {
			require.NoError(t, job.Retry(context.Background(), 0, nil))
		},
		"dead": func(t *testing.T, _ *honker.DB, _ *honker.Queue[int], job *honker.Job[int]) {
			require.NoError(t, job.Reject(context.Background(), nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db, q := testkit.NewQueue[int](t, nil)
			id := testkit.Enqueue(t, q, 1)
			job := testkit.ClaimOne(t, q)
			require.NoError(t, job.SetResult("stale"))
			lose(t, db, q, job)
			before := *testkit.GetJob(t, q, id)
			for verb, settle := range settles(job) {
				require.ErrorIs(t, settle(ctx), honker.ErrClaimLost, verb)
				require.Equal(t, before, *testkit.GetJob(t, q, id), verb)
			}
			for verb, settle := range settlesTx(job) {
				require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					require.ErrorIs(t, settle(ctx, tx), honker.ErrClaimLost, verb)
					return nil // the transaction is committed anyway
				}))
				require.Equal(t, before, *testkit.GetJob(t, q, id), verb)
			}
			require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_results`))
		})
	}
}

// A job can be settled only once.
func TestJob_SettledOnce(t *testing.T) {
	t.Parallel()
	ctx, _, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	require.NoError(t, job.Ack(ctx))
	for verb, settle := range settles(job) {
		err := settle(ctx)
		require.ErrorIs(t, err, honker.ErrClaimLost, verb)
		require.ErrorContains(t, err, "honker: "+strings.ToLower(verb)+" job 1: ")
	}
}

// An ack is committed together with a business write.
func TestJob_AckTx_WithBusinessWrite(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[string](t, nil)
	testkit.Exec(t, db, `CREATE TABLE paid (item TEXT)`)
	id := testkit.Enqueue(t, q, "tea")
	pay := func(job *honker.Job[string], end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO paid VALUES ($1)`, job.Args)
			return errors.Join(err, job.SetResult("paid"), job.AckTx(ctx, tx), end)
		})
	}
	job := testkit.ClaimOne(t, q)
	require.ErrorIs(t, pay(job, testkit.ErrCause), testkit.ErrCause)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM paid`))
	require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State)
	_, err := honker.Result[string](ctx, db, id)
	require.ErrorIs(t, err, honker.ErrNotFound)

	require.NoError(t, pay(job, nil), "the claim still stands")
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM paid`))
	testkit.RequireGone(t, q, id)
	got, err := honker.Result[string](ctx, db, id)
	require.NoError(t, err)
	require.Equal(t, "paid", got)

	require.ErrorIs(t, pay(job, nil), honker.ErrClaimLost)
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM paid`), "not paid twice")
}

// RejectTx is rolled back with its transaction.
func TestJob_RejectTx_Rollback(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	before := *testkit.GetJob(t, q, id)
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, job.RejectTx(ctx, tx, testkit.ErrCause))
		return testkit.ErrCause
	}), testkit.ErrCause)
	require.Equal(t, before, *testkit.GetJob(t, q, id))
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return job.RejectTx(ctx, tx, testkit.ErrCause) }))
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
}

// A snoozed job's handle doesn't settle the next claim. A snooze doesn't use up an attempt, so the same worker's next
// claim has the same worker and attempt.
func TestJob_Snooze_StaleHandle(t *testing.T) {
	t.Parallel()
	_, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	_, err := q.Enqueue(ctx, 1)
	require.NoError(t, err)
	first, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.NoError(t, first[0].Snooze(ctx, 0))
	second, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.ErrorIs(t, first[0].Ack(ctx), honker.ErrClaimLost)
	require.ErrorIs(t, first[0].Extend(ctx, time.Hour), honker.ErrClaimLost)
	require.NoError(t, second[0].Ack(ctx))
}

// The observer receives a settle in the caller's transaction when the transaction commits, and never if it
// is rolled back. If the commit cannot be observed, the observer receives the settle immediately.
func TestObserver_SettleTx_AtCommit(t *testing.T) {
	type inTx = func(*honker.DB, func(context.Context, *sql.Tx) error) error
	ownTx := func(db *honker.DB, fn func(context.Context, *sql.Tx) error) error {
		return db.Tx(context.Background(), fn)
	}
	callersTx := func(db *honker.DB, fn func(context.Context, *sql.Tx) error) error {
		tx, err := db.SQL().BeginTx(context.Background(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fn(context.Background(), tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	for name, c := range map[string]struct {
		attached, unseen bool
		inTx             inTx
	}{
		"DB.Tx":            {false, false, ownTx},
		"sql.Tx":           {false, false, callersTx},
		"DB.Tx of a pool":  {true, false, ownTx},
		"sql.Tx of a pool": {true, true, callersTx},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(testkit.Recorder)
			opts := &honker.Options{Observer: &observe.Observer{Settled: func(e observe.Settled) { testkit.Record(s, &s.Settled, e) }}}
			db := honkertest.Open(t, opts)
			if c.attached {
				path := filepath.Join(t.TempDir(), "app.db")
				testkit.MakeFile(t, path)
				db = testkit.Attach(t, path, opts)
			}
			job, event := claimedBoth(t, db)
			settle := func(want int, result error) error {
				return c.inTx(db, func(ctx context.Context, tx *sql.Tx) error {
					require.NoError(t, job.AckTx(ctx, tx))
					require.NoError(t, event.NackTx(ctx, tx, testkit.ErrCause))
					require.Len(t, testkit.Recorded(s, &s.Settled), want)
					return result
				})
			}
			early := 0
			if c.unseen || name == "sql.Tx" && !testkit.AsFile("settles in a *sql.Tx") {
				early = 2
			}
			require.ErrorIs(t, settle(early, testkit.ErrCause), testkit.ErrCause)
			require.Len(t, testkit.Recorded(s, &s.Settled), early)
			require.NoError(t, settle(2*early, nil))
			require.ElementsMatch(t, []honker.Outcome{honker.OutcomeAcked, honker.OutcomeDied}, s.Outcomes()[early:])
		})
	}
}

// claimedBoth returns a claimed job, and a group event that dies when it is nacked.
func claimedBoth(t *testing.T, db *honker.DB) (*honker.Job[int], *honker.Delivery[int]) {
	t.Helper()
	q, stream := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "events", nil)
	testkit.Enqueue(t, q, 1)
	testkit.Publish(t, stream, 1)
	m, err := stream.Group("g", &honker.GroupOptions{MaxAttempts: 1}).Join(t.Context(), "m")
	require.NoError(t, err)
	events, err := m.Claim(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, events, 1)
	return testkit.ClaimOne(t, q), events[0]
}

// If a handler settles its own job, the observer receives the handler's run time up to that point, once for each
// handler that started.
func TestObserver_Settled_ByHandler(t *testing.T) {
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder, _ *testkit.Log) {
		q := honker.NewQueue[string](db, "jobs", nil)
		_, err := q.EnqueueMany(t.Context(), []string{"plain", "tx", "rolled back"})
		require.NoError(t, err)
		stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[string]) error {
			defer time.Sleep(time.Hour)
			time.Sleep(3 * time.Second)
			if job.Args == "plain" {
				return job.Ack(ctx)
			}
			_ = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, job.AckTx(ctx, tx))
				if job.Args == "tx" {
					return nil
				}
				return testkit.ErrCause
			})
			return nil
		}, &honker.WorkOptions{Workers: 3})
		time.Sleep(2 * time.Hour)
		require.NoError(t, stop())
		require.Len(t, testkit.Recorded(s, &s.Started), 3)
		ran := map[int64]time.Duration{}
		for _, e := range testkit.Recorded(s, &s.Settled) {
			require.Equal(t, honker.OutcomeAcked, e.Outcome)
			require.NotContains(t, ran, e.ID)
			ran[e.ID] = e.Ran
		}
		require.Equal(t, map[int64]time.Duration{1: 3 * time.Second, 2: 3 * time.Second, 3: time.Hour + 3*time.Second}, ran)
	})
}

// identity holds a job's fields other than its arguments.
type identity struct {
	Key, Unique string
	Batch       int64
	Headers     map[string]string
}

func identityOf(j *honker.JobInfo) identity {
	return identity{j.Key, j.Unique, j.Batch, j.Headers}
}

// takers are the ways in which a program can receive a job from "jobs". Each passes the next job to saw.
var takers = map[string]func(t *testing.T, db *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)){
	"Work": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		takeByWork(t, q, nil, saw)
	},
	"a pool": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		takeByWork(t, q, honker.NewPool(1), saw)
	},
	"WorkTx": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
		require.NoError(t, q.WorkTx(ctx, func(_ context.Context, _ *sql.Tx, job *honker.Job[int]) error {
			defer cancel()
			saw(&job.JobInfo)
			return nil
		}, &honker.WorkOptions{Workers: 1}))
	},
	"WorkDue": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		_, err := q.WorkDue(testkit.Context(t, testkit.Timeout), func(_ context.Context, job *honker.Job[int]) error {
			saw(&job.JobInfo)
			return nil
		}, nil)
		require.NoError(t, err)
	},
	"a middleware": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		look := func(next honker.WorkFunc) honker.WorkFunc {
			return func(ctx context.Context, job *honker.JobInfo) error { saw(job); return next(ctx, job) }
		}
		_, err := q.WorkDue(testkit.Context(t, testkit.Timeout), testkit.Succeed, &honker.WorkOptions{Middleware: []honker.Middleware{look}})
		require.NoError(t, err)
	},
	"OnError": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		fail := func(context.Context, *honker.Job[int]) error { return honker.Reject(testkit.ErrCause) }
		_, err := q.WorkDue(testkit.Context(t, testkit.Timeout), fail, &honker.WorkOptions{
			OnError: func(_ context.Context, job *honker.JobInfo, _ error) { saw(job) },
		})
		require.NoError(t, err)
	},
	"Claim": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		saw(&testkit.ClaimOne(t, q).JobInfo)
	},
	"Jobs": func(t *testing.T, _ *honker.DB, q *honker.Queue[int], saw func(*honker.JobInfo)) {
		for job, err := range q.Jobs(testkit.Context(t, testkit.Timeout), "w") {
			require.NoError(t, err)
			saw(&job.JobInfo)
			break
		}
	},
	"Workers": func(t *testing.T, db *honker.DB, _ *honker.Queue[int], saw func(*honker.JobInfo)) {
		ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
		require.NoError(t, testkit.Workers(db, nil, []string{"others", "jobs"}, func(_ context.Context, job *honker.Job[int]) error {
			defer cancel()
			saw(&job.JobInfo)
			return nil
		}).Work(ctx, &honker.WorkOptions{Workers: 1}))
	},
}

func takeByWork(t *testing.T, q *honker.Queue[int], pool *honker.Pool, saw func(*honker.JobInfo)) {
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	require.NoError(t, q.Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		defer cancel()
		saw(&job.JobInfo)
		return nil
	}, &honker.WorkOptions{Workers: 1, Pool: pool}))
}

// A claimed job has its key, unique key, batch and headers. This is true for every way of claiming, for each field
// alone and all together, and with and without limits on its key.
func TestJob_Identity_InHandlers(t *testing.T) {
	t.Parallel()
	for name, take := range takers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db, q := testkit.NewQueue[int](t, nil)
			batch, err := db.NewBatch(ctx, nil)
			require.NoError(t, err)
			key, unique := honker.Key(`a "quoted" \ key`), honker.Unique("ünique", nil)
			in, headers := honker.InBatch(batch.ID), honker.Headers(map[string]string{"trace": "1"})
			for _, opts := range [][]honker.EnqueueOption{{}, {key}, {unique}, {in}, {headers}, {key, unique, in, headers}} {
				id := testkit.Enqueue(t, q, 1, opts...)
				want := identityOf(testkit.GetJob(t, q, id))
				var got identity
				take(t, db, q, func(job *honker.JobInfo) { require.Equal(t, id, job.ID); got = identityOf(job) })
				require.Equal(t, want, got)
				_, err := q.Cancel(ctx, id) // removes a job that was not acked
				require.NoError(t, err)
			}
			require.NoError(t, q.SetLimits(ctx, honker.Limits{PerKey: 1}))
			testkit.Enqueue(t, q, 1, key)
			take(t, db, q, func(job *honker.JobInfo) { require.Equal(t, `a "quoted" \ key`, job.Key) })
		})
	}
}

// A job handed to an idle worker by an enqueue is complete as well: it has its headers, and no fields that
// were not set.
func TestJob_Identity_HandedOver(t *testing.T) {
	t.Parallel()
	_, _, q := testkit.NewQueue[int](t, nil)
	jobs := make(chan honker.JobInfo, 1)
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { jobs <- job.JobInfo; return nil }, nil)
	for range 20 {
		testkit.Enqueue(t, q, 1, honker.Headers(map[string]string{"trace": "1"}))
		job := <-jobs
		require.Equal(t, identity{Headers: map[string]string{"trace": "1"}}, identityOf(&job))
		testkit.Enqueue(t, q, 1, honker.Key("acme"))
		job = <-jobs
		require.Equal(t, identity{Key: "acme"}, identityOf(&job))
	}
	require.NoError(t, stop())
}

// A retried job has its other fields in addition to its checkpoint. They aren't affected if another program's
// checkpoint isn't JSON.
func TestJob_Identity_Checkpoint(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{Backoff: honker.Constant(0)})
	id := testkit.Enqueue(t, q, 1, honker.Key("acme"), honker.Headers(map[string]string{"trace": "1"}))
	first := testkit.ClaimOne(t, q)
	require.NoError(t, first.Checkpoint(ctx, 7))
	require.NoError(t, first.Retry(ctx, 0, testkit.ErrCause))
	second := testkit.ClaimOne(t, q)
	var at int
	kept, err := second.Checkpointed(&at)
	require.NoError(t, err)
	require.True(t, kept)
	require.Equal(t, 7, at)
	require.Equal(t, identity{Key: "acme", Headers: map[string]string{"trace": "1"}}, identityOf(&second.JobInfo))
	require.NoError(t, second.Retry(ctx, 0, testkit.ErrCause))
	testkit.Exec(t, db, `UPDATE _honkerx_job SET headers = '{', checkpoint = x'00', unique_key = x'ff', batch = 'none' WHERE job_id = ?`, id)
	third := testkit.ClaimOne(t, q)
	require.Equal(t, "acme", third.Key)
	require.Nil(t, third.Headers)
}

// Each verb of a job that was constructed by hand returns an error that explains why, and no verb panics.
func TestJob_MadeByHand(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	claimed := testkit.ClaimOne(t, q)
	var inside honker.JobInfo // as passed to a middleware
	testkit.Enqueue(t, q, 2)
	honkertest.Drain(t, q, testkit.Succeed)
	look := func(next honker.WorkFunc) honker.WorkFunc {
		return func(ctx context.Context, job *honker.JobInfo) error { inside = *job; return next(ctx, job) }
	}
	testkit.Enqueue(t, q, 3)
	_, err := q.WorkDue(ctx, testkit.Succeed, &honker.WorkOptions{Middleware: []honker.Middleware{look}})
	require.NoError(t, err)
	for name, job := range map[string]*honker.Job[int]{
		"zero":              {},
		"with its JobInfo":  {JobInfo: claimed.JobInfo, Args: 1},
		"of a middleware's": {JobInfo: inside, Args: 3},
	} {
		t.Run(name, func(t *testing.T) {
			verbs := reflect.TypeOf(job)
			for i := range verbs.NumMethod() {
				verb := verbs.Method(i)
				require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					requireRefused(t, verb, job, ctx, tx)
					return nil
				}))
			}
		})
	}
	require.NoError(t, claimed.Ack(ctx), "the claim was not touched")
}

// requireRefused calls a verb of job with valid arguments and checks that it is rejected.
func requireRefused(t *testing.T, verb reflect.Method, job *honker.Job[int], ctx context.Context, tx *sql.Tx) {
	t.Helper()
	values := map[reflect.Type]any{
		reflect.TypeFor[context.Context](): ctx, reflect.TypeFor[honker.Tx](): tx, reflect.TypeFor[time.Duration](): time.Second,
		reflect.TypeFor[error](): testkit.ErrCause, reflect.TypeFor[any](): new(int), reflect.TypeFor[int64](): int64(1),
		reflect.TypeFor[string](): "note",
	}
	args := []reflect.Value{reflect.ValueOf(job)}
	for i := 1; i < verb.Type.NumIn(); i++ {
		value, known := values[verb.Type.In(i)]
		require.True(t, known, "%s has a parameter that this test does not know: %s", verb.Name, verb.Type.In(i))
		args = append(args, reflect.ValueOf(value))
	}
	var out []reflect.Value
	require.NotPanics(t, func() { out = verb.Func.Call(args) }, verb.Name)
	if len(out) == 0 || verb.Type.Out(len(out)-1) != reflect.TypeFor[error]() {
		return
	}
	err, _ := out[len(out)-1].Interface().(error)
	require.ErrorIs(t, err, honker.ErrInvalid, verb.Name)
	require.ErrorContains(t, err, "the job was not claimed; use honkertest.Perform to test a handler", verb.Name)
}
