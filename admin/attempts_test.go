package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// attemptsOf returns a job's failed attempts.
func attemptsOf(t testing.TB, db *honker.DB, id int64) []admin.Attempt {
	t.Helper()
	all, err := admin.Attempts(t.Context(), db, id)
	require.NoError(t, err)
	return all
}

func requireNoAttempts(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	_, err := admin.Attempts(t.Context(), db, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_attempts WHERE job_id = $1`, id))
	require.NoError(t, db.Check(t.Context()))
}

// Failed attempts in Work are kept with their logs until the job is done.
func TestAttempts_Work(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(time.Second)})
		id := testkit.Enqueue(t, q, 1)
		plain := testkit.Enqueue(t, q, 2)
		began := time.Now()
		run := func(fn func(job *honker.Job[int]) error) {
			_, err := q.WorkDue(t.Context(), func(_ context.Context, job *honker.Job[int]) error {
				if job.ID == plain {
					return nil
				}
				return fn(job)
			}, &honker.WorkOptions{WorkerID: "me"})
			require.NoError(t, err)
			time.Sleep(3 * time.Second) // until the job is due again
		}
		run(func(job *honker.Job[int]) error {
			time.Sleep(300 * time.Millisecond)
			job.Logger().Debug("page", "n", 3)
			job.Logger().With("b", 1).Info("two")
			return errors.New("no paper")
		})
		run(func(job *honker.Job[int]) error {
			time.Sleep(time.Millisecond)
			panic("on fire")
		})
		run(func(job *honker.Job[int]) error {
			job.Logger().Info("dropped with a snooze")
			return honker.Snooze(time.Second)
		})
		all := attemptsOf(t, db, id)
		require.Len(t, all, 2)
		require.Equal(t, "time=2000-01-01T00:00:00.300Z level=DEBUG msg=page n=3\ntime=2000-01-01T00:00:00.300Z level=INFO msg=two b=1\n", all[0].Log)
		require.WithinDuration(t, began, all[0].Start, 0)
		all[0].Log, all[0].Start = "", time.Time{}
		require.Equal(t, admin.Attempt{N: 1, Worker: "me", Ran: 300 * time.Millisecond, Error: "no paper"}, all[0])
		require.Equal(t, 2, all[1].N)
		require.Contains(t, all[1].Error, "panic: on fire")
		require.Equal(t, time.Millisecond, all[1].Ran)
		require.Empty(t, all[1].Log)
		run(func(job *honker.Job[int]) error {
			job.Logger().Info("dropped with success")
			return nil
		})
		requireNoAttempts(t, db, id)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_attempts`))
	})
}

// A dead job keeps its attempts until it's discarded, even across a requeue.
func TestAttempts_Death(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := testkit.Enqueue(t, q, 1)
	numbers := func() (all []string) {
		for _, a := range attemptsOf(t, db, id) {
			all = append(all, fmt.Sprint(a.N, a.Error))
		}
		return all
	}
	require.Empty(t, numbers())
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, errors.New("a")))
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, nil)) // not a failure
	job := testkit.ClaimOne(t, q)
	job.Logger().Info("last words")
	require.NoError(t, job.Reject(ctx, errors.New("b")))
	require.Equal(t, []string{"1a", "3b"}, numbers())
	_, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{id}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"1a", "3b"}, numbers())
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, errors.New("c")))
	require.Equal(t, []string{"1a", "3b", "4c"}, numbers())
	require.Contains(t, attemptsOf(t, db, id)[1].Log, "last words")
	require.NoError(t, db.Check(ctx))
	_, err = admin.Discard(ctx, db, admin.JobFilter{IDs: []int64{id}}, nil)
	require.NoError(t, err)
	requireNoAttempts(t, db, id)
}

// failedOnce enqueues a job and fails its first attempt.
func failedOnce(t *testing.T, db *honker.DB, q *honker.Queue[int]) int64 {
	t.Helper()
	id := testkit.Enqueue(t, q, 1, honker.Priority(1))
	require.NoError(t, testkit.Claim(t, q, 1)[0].Retry(t.Context(), 0, errors.New("a")))
	require.Len(t, attemptsOf(t, db, id), 1)
	return id
}

// A job's attempts are deleted along with it, whether by a cancel, by the ack of a requeued job, or by
// dead-job retention.
func TestAttempts_GoWithTheJob(t *testing.T) {
	ctx, db, q, _ := open(t)
	dead := func() int64 {
		id := failedOnce(t, db, q)
		require.NoError(t, testkit.Claim(t, q, 1)[0].Reject(ctx, errors.New("b")))
		require.Len(t, attemptsOf(t, db, id), 2)
		return id
	}
	id := failedOnce(t, db, q)
	_, err := q.Cancel(ctx, id)
	require.NoError(t, err)
	requireNoAttempts(t, db, id)

	id = dead()
	_, err = admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{id}}, nil)
	require.NoError(t, err)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	requireNoAttempts(t, db, id)

	id = dead()
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Dead: honker.Retention{MaxCount: 1}}))
	last := dead()
	maintain, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- db.Maintain(maintain, nil) }()
	testkit.Eventually(t, testkit.Timeout, "one dead job is left", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`) == 1
	})
	stop()
	require.NoError(t, <-ended)
	requireNoAttempts(t, db, id)
	require.Len(t, attemptsOf(t, db, last), 2)
}

// A job's attempts are deleted along with it by another binding, too.
func TestAttempts_GoWithTheJob_Binding(t *testing.T) {
	testkit.FileOnly(t)
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := t.Context()
	id := failedOnce(t, db, q)
	require.Len(t, other.Claim("jobs", "them", 1, 60), 1)
	require.EqualValues(t, 1, other.Ack(id, "them"))
	requireNoAttempts(t, db, id)

	id = failedOnce(t, db, q)
	require.Len(t, other.Claim("jobs", "them", 1, 60), 1)
	other.Fail(id, "them", "no")
	require.Len(t, attemptsOf(t, db, id), 1)
	require.NoError(t, db.Check(ctx))

	id = failedOnce(t, db, q)
	testkit.Exec(t, db, `DELETE FROM _honker_live WHERE id = ?`, id)
	testkit.Exec(t, db, `INSERT INTO _honker_dead (id, queue, payload) VALUES (?, 'jobs', '1')`, id)
	require.Empty(t, attemptsOf(t, db, id), "that is the order in some bindings")
	require.NoError(t, db.Check(ctx))
}

// Only the last 20 attempts and the last 256 KiB of their logs are kept.
func TestAttempts_Bounded(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := testkit.Enqueue(t, q, 1, honker.MaxAttempts(100))
	line := strings.Repeat("x", 1000)
	for n := range 27 {
		job := testkit.ClaimOne(t, q)
		for i := range 100 * (n % 2) {
			job.Logger().Info(line, "i", i)
		}
		require.NoError(t, job.Retry(ctx, 0, fmt.Errorf("%d", n+1)))
	}
	all := attemptsOf(t, db, id)
	require.Len(t, all, 20)
	logs := 0
	for i, a := range all {
		require.Equal(t, i+8, a.N)
		require.Equal(t, fmt.Sprint(i+8), a.Error)
		if a.Log == "" {
			continue
		}
		logs++
		require.LessOrEqual(t, len(a.Log), 64<<10)
		require.Greater(t, len(a.Log), 62<<10)
		lines := strings.Split(strings.TrimSuffix(a.Log, "\n"), "\n")
		require.Equal(t, "… earlier lines were dropped", lines[0])
		require.True(t, strings.HasPrefix(lines[1], "time="), "whole lines")
		require.True(t, strings.HasSuffix(lines[len(lines)-1], " i=99"), "the last ones")
		require.GreaterOrEqual(t, a.N, 20, "the last logs")
	}
	require.Equal(t, 4, logs)
}

// Attempts are saved only by the transaction that settles the job.
func TestAttempts_WithTheSettle(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	undo := errors.New("undo")
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, job.RetryTx(ctx, tx, 0, errors.New("a")))
		return undo
	})
	require.ErrorIs(t, err, undo)
	require.Empty(t, attemptsOf(t, db, id))
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return job.RetryTx(ctx, tx, 0, errors.New("b")) }))
	require.Equal(t, "b", attemptsOf(t, db, id)[0].Error)

	job = testkit.ClaimOne(t, q)
	testkit.ExpireClaim(t, db, id)
	testkit.ClaimOne(t, q)
	require.ErrorIs(t, job.Retry(ctx, 0, errors.New("late")), honker.ErrClaimLost)
	require.Len(t, attemptsOf(t, db, id), 1)
}

// If an application reinserts a job under its old ID with no attempts, the job can fail again.
func TestAttempts_SameNumberAgain(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, errors.New("first")))
	testkit.Exec(t, db, `UPDATE _honker_live SET attempts = 0`)
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, errors.New("second")))
	all := attemptsOf(t, db, id)
	require.Len(t, all, 1)
	require.Equal(t, "second", all[0].Error)
}

// Each job that fails in a batch gets its own attempt.
func TestAttempts_ManyTogether(t *testing.T) {
	ctx, db, q, _ := open(t)
	ids, err := q.EnqueueMany(ctx, make([]int, 300))
	require.NoError(t, err)
	stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
		job.Logger().Info("of", "job", job.ID)
		if job.ID%3 == 0 {
			return honker.Reject(fmt.Errorf("no %d", job.ID))
		}
		return honker.RetryAfter(time.Hour, fmt.Errorf("no %d", job.ID))
	}, nil)
	testkit.Eventually(t, testkit.Timeout, "all failed", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_attempts`) == 300
	})
	require.NoError(t, stop())
	for _, id := range ids {
		all := attemptsOf(t, db, id)
		require.Len(t, all, 1)
		require.Equal(t, fmt.Sprint("no ", id), all[0].Error)
		require.True(t, strings.HasSuffix(all[0].Log, fmt.Sprintf("msg=of job=%d\n", id)))
	}
	require.NoError(t, db.Check(t.Context()))
}
