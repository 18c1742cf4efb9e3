//go:build unix

package move_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/honkerpg/move"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

func openFile(t *testing.T) *honker.DB {
	t.Helper()
	db, err := honker.Open(t.Context(), filepath.Join(t.TempDir(), "app.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Check(context.Background()))
		require.NoError(t, db.Close())
	})
	return db
}

func openServer(t *testing.T) *honker.DB {
	t.Helper()
	db, err := honkerpg.Open(t.Context(), pgtest.DSN(t), &honkerpg.Options{Schema: pgtest.Schema(t)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, db.Check(context.Background()))
		require.NoError(t, db.Close())
	})
	return db
}

func run(t *testing.T, from, to *honker.DB, o *move.Options) *move.Report {
	t.Helper()
	r, err := move.Run(t.Context(), from, to, o)
	require.NoError(t, err)
	return r
}

func queue(db *honker.DB) *honker.Queue[int] { return honker.NewQueue[int](db, "a", nil) }

func enqueue(t *testing.T, q *honker.Queue[int], n int, opts ...honker.EnqueueOption) int64 {
	t.Helper()
	id, err := q.Enqueue(t.Context(), n, opts...)
	require.NoError(t, err)
	return id
}

func claim(t *testing.T, q *honker.Queue[int]) *honker.Job[int] {
	t.Helper()
	jobs, err := q.Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// empty reports whether the file has no live and no dead jobs.
func empty(t *testing.T, r *move.Report) {
	t.Helper()
	for _, l := range r.Left {
		require.Zero(t, l.Waiting+l.Running+l.Dead, "%+v", l)
	}
}

// A job keeps its id and everything that it carries: the file's description of a waiting, delayed, failed or dead job is
// the server's.
func TestRun_Jobs(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	later := time.Now().Add(time.Hour)
	ids := []int64{
		enqueue(t, q, 1),
		enqueue(t, q, 2, honker.RunAt(later), honker.ExpiresIn(2*time.Hour), honker.Priority(-3), honker.MaxAttempts(7)),
		enqueue(t, q, 3, honker.Key("ann"), honker.Headers(map[string]string{"tenant": "x"}), honker.Unique("u", nil)),
		enqueue(t, q, 4, honker.Priority(9)),
	}
	failed := claim(t, q)
	require.Equal(t, ids[3], failed.ID)
	failed.SetProgress(1, 3, "one")
	require.NoError(t, failed.Checkpoint(t.Context(), 17))
	require.NoError(t, failed.Retry(t.Context(), time.Hour, errors.New("first")))
	ids = append(ids, enqueue(t, q, 5, honker.Priority(9), honker.Key("bob")))
	require.NoError(t, claim(t, q).Reject(t.Context(), errors.New("never")))

	before := map[int64]*honker.JobInfo{}
	for _, id := range ids {
		info, err := from.Job(t.Context(), id)
		require.NoError(t, err)
		before[id] = info
	}
	r := run(t, from, to, nil)
	require.EqualValues(t, 4, r.Jobs)
	require.EqualValues(t, 1, r.Dead)
	empty(t, r)
	for _, id := range ids {
		info, err := to.Job(t.Context(), id)
		require.NoError(t, err)
		want := *before[id]
		want.ClaimExpiresAt, info.ClaimExpiresAt = time.Time{}, time.Time{}
		require.Equal(t, want, *info)
		_, err = from.Job(t.Context(), id)
		require.ErrorIs(t, err, honker.ErrNotFound)
	}
	// The server goes on with larger ids, and knows the unique key.
	next := enqueue(t, queue(to), 6)
	require.Greater(t, next, ids[4])
	require.Equal(t, ids[2], enqueue(t, queue(to), 7, honker.Unique("u", nil)))
}

// A waiter moves together with the jobs that it waits for, and runs after them. A batch keeps its members, also those
// that are done, and its waiter reads their results.
func TestRun_Links(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	first := enqueue(t, q, 1)
	second := enqueue(t, q, 2, honker.After(first))
	b, err := from.NewBatch(t.Context(), &honker.BatchOptions{Name: "b"})
	require.NoError(t, err)
	member := enqueue(t, q, 3, honker.InBatch(b.ID), honker.Priority(5))
	done := claim(t, q)
	require.Equal(t, member, done.ID)
	require.NoError(t, done.SetResult("three"))
	require.NoError(t, done.Ack(t.Context()))
	enqueue(t, q, 4, honker.InBatch(b.ID))
	require.NoError(t, b.Seal(t.Context()))
	last := enqueue(t, q, 5, honker.AfterBatch(b.ID), honker.After(second))

	r := run(t, from, to, nil)
	require.EqualValues(t, 4, r.Jobs)
	require.EqualValues(t, 1, r.Batches)
	empty(t, r)

	q = queue(to)
	var order []int
	for range 4 {
		job := claim(t, q)
		order = append(order, job.Args)
		if job.ID == last {
			require.Contains(t, job.After(), member)
			result, err := honker.Result[string](t.Context(), to, member)
			require.NoError(t, err)
			require.Equal(t, "three", result)
		}
		require.NoError(t, job.Ack(t.Context()))
	}
	require.Equal(t, []int{1, 2, 4, 5}, order)
}

// A job that runs stays until it has ended, and with it the job that waits for it. Run waits for both.
func TestRun_Running(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	first := enqueue(t, q, 1)
	enqueue(t, q, 2, honker.After(first))
	job := claim(t, q)
	r := run(t, from, to, &move.Options{Once: true})
	require.Zero(t, r.Jobs)
	require.Equal(t, []move.Left{{Queue: "a", Waiting: 1, Running: 1}}, r.Left)

	done := make(chan *move.Report)
	go func() {
		defer close(done)
		done <- run(t, from, to, nil)
	}()
	require.NoError(t, job.Ack(t.Context()))
	r = <-done
	require.EqualValues(t, 1, r.Jobs)
	empty(t, r)
	require.Equal(t, 2, claim(t, queue(to)).Args)
}

// ackBeforeCount acks a job after a pass has looked for jobs to move, and before it counts those that are left.
type ackBeforeCount struct {
	engine.MoveStore
	ack func() error
}

func (s *ackBeforeCount) Left(ctx context.Context, q engine.Querier, now time.Time) ([]row.MoveQueue, error) {
	if err := s.ack(); err != nil {
		return nil, err
	}
	return s.MoveStore.Left(ctx, q, now)
}

// A job that ends while a pass goes on leaves no waiter behind: Run makes one more pass.
func TestRun_EndsDuringPass(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	enqueue(t, q, 2, honker.After(enqueue(t, q, 1)))
	job := claim(t, q)
	stores := &engine.Of(from).Stores
	stores.Moves = &ackBeforeCount{stores.Moves, sync.OnceValue(func() error { return job.Ack(t.Context()) })}
	r := run(t, from, to, nil)
	require.EqualValues(t, 1, r.Jobs)
	empty(t, r)
}

// A key that a job of the target holds is not held twice: a plain job of the file is dropped, as by an enqueue, and a job
// with failed attempts is kept without the key. A key of a job that runs in the file is taken in the target meanwhile.
func TestRun_Unique(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	enqueue(t, q, 1, honker.Unique("runs", nil))
	runs := claim(t, q)
	run(t, from, to, &move.Options{Once: true})
	require.Equal(t, runs.ID, enqueue(t, queue(to), 9, honker.Unique("runs", nil)))

	plain := enqueue(t, q, 2, honker.Unique("plain", nil))
	by := enqueue(t, queue(to), 3, honker.Unique("plain", nil))
	failed := enqueue(t, q, 4, honker.Unique("failed", nil), honker.Priority(1))
	require.NoError(t, claim(t, q).Retry(t.Context(), 0, errors.New("no")))
	also := enqueue(t, queue(to), 5, honker.Unique("failed", nil))
	require.NoError(t, runs.Ack(t.Context()))

	r := run(t, from, to, nil)
	require.ElementsMatch(t, []move.Lost{
		{Queue: "a", Key: "plain", ID: plain, By: by, Dropped: true},
		{Queue: "a", Key: "failed", ID: failed, By: also},
	}, r.Lost)
	empty(t, r)
	info, err := to.Job(t.Context(), failed)
	require.NoError(t, err)
	require.Equal(t, "", info.Unique)
	_, err = to.Job(t.Context(), plain)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.NotEqual(t, runs.ID, enqueue(t, queue(to), 9, honker.Unique("runs", nil)))
}

// Two jobs of a key of which the second runs after the first still do.
func TestRun_RunAgain(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	q := queue(from)
	again := honker.Unique("u", &honker.Uniqueness{Conflict: honker.RunAgain})
	enqueue(t, q, 1, again)
	job := claim(t, q)
	enqueue(t, q, 2, again)
	require.NoError(t, job.Retry(t.Context(), 0, errors.New("no")))
	r := run(t, from, to, nil)
	require.EqualValues(t, 2, r.Jobs)
	first := claim(t, queue(to))
	require.Equal(t, 1, first.Args)
	none, err := queue(to).Claim(t.Context(), "w", 1)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, first.Ack(t.Context()))
	require.Equal(t, 2, claim(t, queue(to)).Args)
}

// Only the queues that are named move. A job that is linked to a job of another queue stays, and the report says so.
func TestRun_Queues(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	a, b := queue(from), honker.NewQueue[int](from, "b", nil)
	enqueue(t, a, 1)
	first := enqueue(t, b, 2)
	enqueue(t, a, 3, honker.After(first))
	s := honker.NewStream[int](from, "s", nil)
	_, err := s.Publish(t.Context(), 1)
	require.NoError(t, err)
	r := run(t, from, to, &move.Options{Queues: []string{"a"}})
	require.EqualValues(t, 1, r.Jobs)
	require.Zero(t, r.Events)
	require.Equal(t, []move.Left{{Queue: "a", Waiting: 1}}, r.Left)
	require.Equal(t, []string{"2 jobs are linked to jobs of queues that are not moved: move these queues together"}, r.Notes)
	r = run(t, from, to, &move.Options{Queues: []string{"a", "b"}})
	require.EqualValues(t, 2, r.Jobs)
}

// A job whose claim has lapsed goes on in the target, with its attempt. A job without attempts left, which another
// binding can leave behind, becomes a dead letter there.
func TestRun_Lapsed(t *testing.T) {
	t.Parallel()
	from, to := openFile(t), openServer(t)
	lapsed, spent := enqueue(t, queue(from), 1), enqueue(t, queue(from), 2)
	claim(t, queue(from))
	for _, statement := range []string{
		`UPDATE _honker_live SET claim_expires_at = 1 WHERE state = 'processing'`,
		`UPDATE _honker_live SET attempts = max_attempts WHERE state = 'pending'`,
	} {
		_, err := from.SQL().ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, run(t, from, to, nil).Jobs)
	job := claim(t, queue(to))
	require.Equal(t, lapsed, job.ID)
	require.Equal(t, 2, job.Attempts)
	info, err := to.Job(t.Context(), spent)
	require.NoError(t, err)
	require.Equal(t, honker.StateDead, info.State)
}
