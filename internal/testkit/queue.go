package testkit

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// ClaimOneAs claims a job for the given worker. It fails the test if there is no job.
func ClaimOneAs[T any](t testing.TB, q *honker.Queue[T], worker string) *honker.Job[T] {
	t.Helper()
	jobs, err := q.Claim(context.Background(), worker, 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// ErrCause is returned by failing handlers.
var ErrCause = errors.New("the printer is on fire")

// NewQueue returns a queue in a new file, and a ctx that ends after Timeout.
func NewQueue[T any](t testing.TB, opts *honker.QueueOptions) (context.Context, *honker.DB, *honker.Queue[T]) {
	t.Helper()
	db := honkertest.Open(t, nil)
	return Context(t, Timeout), db, honker.NewQueue[T](db, "jobs", opts)
}

// Enqueue enqueues a job and returns its ID.
func Enqueue[T any](t testing.TB, q *honker.Queue[T], args T, opts ...honker.EnqueueOption) int64 {
	t.Helper()
	id, err := q.Enqueue(context.Background(), args, opts...)
	require.NoError(t, err)
	return id
}

// Claim claims up to n jobs for the worker "w".
func Claim[T any](t testing.TB, q *honker.Queue[T], n int) []*honker.Job[T] {
	t.Helper()
	jobs, err := q.Claim(context.Background(), "w", n)
	require.NoError(t, err)
	return jobs
}

// ClaimOne claims the only claimable job. It fails the test unless there is exactly a single such job.
func ClaimOne[T any](t testing.TB, q *honker.Queue[T]) *honker.Job[T] {
	t.Helper()
	jobs := Claim(t, q, 2)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// ExpireClaim makes the claim on a job expire.
func ExpireClaim(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	Exec(t, db, expireClaim, id)
}

// MakeDue makes a delayed job due.
func MakeDue(t testing.TB, db *honker.DB, id int64) {
	t.Helper()
	Exec(t, db, makeDue, id)
}

// GetJob reads a job.
func GetJob[T any](t testing.TB, q *honker.Queue[T], id int64) *honker.JobInfo {
	t.Helper()
	info, err := q.Get(context.Background(), id)
	require.NoError(t, err)
	return info
}

// RequireGone asserts that the job no longer exists.
func RequireGone[T any](t testing.TB, q *honker.Queue[T], id int64) {
	t.Helper()
	_, err := q.Get(context.Background(), id)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// ClaimAll claims all claimable jobs for the worker "w" and returns them by ID.
func ClaimAll[T any](t testing.TB, q *honker.Queue[T]) map[int64]*honker.Job[T] {
	t.Helper()
	jobs, err := q.Claim(context.Background(), "w", 1000)
	require.NoError(t, err)
	all := make(map[int64]*honker.Job[T], len(jobs))
	for _, j := range jobs {
		all[j.ID] = j
	}
	return all
}

// PhaseOf returns a job's phase.
func PhaseOf(t testing.TB, db *honker.DB, id int64) honker.Phase {
	t.Helper()
	j, err := db.Job(context.Background(), id)
	require.NoError(t, err)
	return j.Phase
}
