package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// requireKept checks that a result is kept for ttl, or at most until the next second. A ttl of 0 means
// forever.
func requireKept(t testing.TB, ttl, kept time.Duration) {
	t.Helper()
	if ttl == 0 {
		require.Zero(t, kept)
		return
	}
	require.GreaterOrEqual(t, kept, ttl)
	require.Less(t, kept, ttl+2*time.Second)
}

// resultTTL returns how long a result is kept; 0 means forever.
func resultTTL(t testing.TB, db *honker.DB, id int64) time.Duration {
	t.Helper()
	return time.Duration(testkit.QueryInt(t, db.SQL(),
		`SELECT coalesce(expires_at - created_at, 0) FROM _honker_results WHERE job_id = ?`, id)) * time.Second
}

// A result is saved with the ack.
func TestResult_SavedWithAck(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, c := range map[string]struct{ ttl, kept time.Duration }{
		"by default": {0, time.Hour}, "rounded up": {1500 * time.Millisecond, 1500 * time.Millisecond}, "for ever": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{ResultTTL: c.ttl})
			id := testkit.Enqueue(t, q, 1)
			job := testkit.ClaimOne(t, q)
			require.NoError(t, job.SetResult("first"))
			require.NoError(t, job.SetResult(map[string]int{"sum": 3}))
			_, err := honker.Result[any](ctx, db, id)
			require.ErrorIs(t, err, honker.ErrNotFound, "not yet")
			require.NoError(t, job.Ack(ctx))
			got, err := honker.Result[map[string]int](ctx, db, id)
			require.NoError(t, err)
			require.Equal(t, map[string]int{"sum": 3}, got)
			requireKept(t, c.kept, resultTTL(t, db, id))
		})
	}
}

// An unsuccessful attempt's result is not saved.
func TestResult_FailedAttempt(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	for _, end := range []func(*honker.Job[int]) error{
		func(j *honker.Job[int]) error { return j.Snooze(ctx, 0) },
		func(j *honker.Job[int]) error { return j.Retry(ctx, 0, nil) },
		func(j *honker.Job[int]) error { return j.Reject(ctx, nil) },
	} {
		job := testkit.ClaimOne(t, q)
		require.NoError(t, job.SetResult(1))
		require.NoError(t, end(job))
	}
	_, err := honker.Result[int](ctx, db, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// A saved result is kept for its TTL and can be replaced.
func TestResult_Save_KeptAndReplaced(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	const id = 42 // no such job exists; results do not need a job
	require.NoError(t, q.SaveResult(ctx, id, "old", time.Hour))
	requireKept(t, time.Hour, resultTTL(t, db, id))
	require.NoError(t, q.SaveResult(ctx, id, nil, 0))
	require.Zero(t, resultTTL(t, db, id))
	got, err := honker.Result[any](ctx, db, id)
	require.NoError(t, err, "null is a result")
	require.Nil(t, got)

	testkit.Exec(t, db, `UPDATE _honker_results SET expires_at = unixepoch()`)
	_, err = honker.Result[any](ctx, db, id)
	require.ErrorIs(t, err, honker.ErrNotFound, "expired")
	require.NoError(t, q.SaveResult(ctx, id, "new", time.Millisecond))
	text, err := honker.Result[string](ctx, db, id)
	require.NoError(t, err)
	require.Equal(t, "new", text)
	_, err = honker.Result[int](ctx, db, id)
	require.ErrorContains(t, err, "cannot decode result")
	require.NotErrorIs(t, err, honker.ErrNotFound)
}

// SaveResult returns an error if a trigger drops the result. Dropping a handler's result does not prevent
// its job from being acked.
func TestResult_Save_Dropped(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, `CREATE TRIGGER drops BEFORE INSERT ON _honker_results BEGIN SELECT RAISE(IGNORE); END`)
	require.ErrorIs(t, q.SaveResult(ctx, 42, "new", 0), honker.ErrNotInserted)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorIs(t, q.SaveResultTx(ctx, tx, 42, "new", 0), honker.ErrNotInserted)
		return nil
	}))
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT honker_result_save(42, '1', 0) IS NULL`))
	id := testkit.Enqueue(t, q, 1)
	job := testkit.ClaimOne(t, q)
	require.NoError(t, job.SetResult("done"))
	require.NoError(t, job.Ack(ctx))
	testkit.RequireGone(t, q, id)
	_, err := honker.WaitResult[string](ctx, db, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
}

// A result saved in a transaction is rolled back with it.
func TestResult_SaveTx_Rollback(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	save := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(q.SaveResultTx(ctx, tx, 1, "done", 0), end)
		})
	}
	require.ErrorIs(t, save(testkit.ErrCause), testkit.ErrCause)
	_, err := honker.Result[string](ctx, db, 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.NoError(t, save(nil))
	got, err := honker.Result[string](ctx, db, 1)
	require.NoError(t, err)
	require.Equal(t, "done", got)
}

// awaited waits for the result "done" in a new goroutine.
func awaited(t testing.TB, ctx context.Context, db *honker.DB, id int64) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		got, err := honker.WaitResult[string](ctx, db, id)
		if err == nil && got != "done" {
			err = errors.New("got " + got)
		}
		ended <- err
	}()
	return ended
}

// WaitResult finds a result that was saved before or after the call.
func TestResult_Wait_BeforeAndAfter(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	before := testkit.Enqueue(t, q, 1, honker.Delay(time.Hour))
	require.NoError(t, q.SaveResult(ctx, before, "done", time.Hour))
	require.NoError(t, <-awaited(t, ctx, db, before))

	for range 50 { // at any point during the wait
		id := testkit.Enqueue(t, q, 2)
		ended := awaited(t, ctx, db, id)
		job := testkit.ClaimOne(t, q)
		require.NoError(t, job.SetResult("done"))
		require.NoError(t, job.Ack(ctx))
		require.NoError(t, <-ended)
	}

	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return q.SaveResultTx(ctx, tx, 9999, "done", 0)
	}))
	require.NoError(t, <-awaited(t, ctx, db, 9999), "a result needs no job")
}

// WaitResult ends when the job is dead-lettered.
func TestResult_Wait_DeadLetter(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, &honker.QueueOptions{MaxAttempts: 2})
	id := testkit.Enqueue(t, q, 1)
	ended := awaited(t, ctx, db, id)
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, errors.New("not yet")))
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, 0, testkit.ErrCause))
	for _, err := range []error{<-ended, <-awaited(t, ctx, db, id)} {
		var failed *honker.JobFailedError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, honker.JobFailedError{ID: id, Attempts: 2, LastError: testkit.ErrCause.Error()}, *failed)
		require.ErrorContains(t, err, "failed after 2 attempts: "+testkit.ErrCause.Error())
	}
}

// WaitResult returns ErrNotFound if the job no longer exists and has left no result.
func TestResult_Wait_NotFound(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	acked, cancelled := testkit.Enqueue(t, q, 1), testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
	waits := []<-chan error{awaited(t, ctx, db, acked), awaited(t, ctx, db, cancelled)}
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	_, err := q.Cancel(ctx, cancelled)
	require.NoError(t, err)
	waits = append(waits, awaited(t, ctx, db, acked), awaited(t, ctx, db, cancelled))
	for _, ended := range waits {
		require.ErrorIs(t, <-ended, honker.ErrNotFound)
	}
}

// WaitResult returns ErrNotFound for an ID that was never assigned.
func TestResult_Wait_NoSuchJob(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	last := testkit.Enqueue(t, q, 1)
	for _, id := range []int64{last + 1, 9999, 0, -1} {
		require.ErrorIs(t, <-awaited(t, ctx, db, id), honker.ErrNotFound, id)
	}
}

// WaitResult ends with its context.
func TestResult_Wait_Context(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, <-awaited(t, short, db, testkit.Enqueue(t, q, 1)), context.DeadlineExceeded)
}

// Many callers can wait for the results of many jobs.
func TestResult_Wait_Many(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 50))
	require.NoError(t, err)
	var waits []<-chan error
	for _, id := range ids {
		waits = append(waits, awaited(t, ctx, db, id), awaited(t, ctx, db, id))
	}
	for _, job := range testkit.Claim(t, q, len(ids)) {
		require.NoError(t, job.SetResult("done"))
		require.NoError(t, job.Ack(ctx))
	}
	for _, ended := range waits {
		require.NoError(t, <-ended)
	}
}

// A caller waiting for a result is told that the job failed, even if the dead row's numeric columns don't contain
// numbers.
func TestWaitResult_ForeignDeadRow(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	id := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, testkit.ErrCause))
	for _, value := range []string{`'many'`, `x'00'`, `1.5`, `1e300`} {
		testkit.Exec(t, db, `UPDATE _honker_dead SET attempts = `+value+`, died_at = `+value)
		_, err := honker.WaitResult[int](ctx, db, id)
		var failed *honker.JobFailedError
		require.ErrorAs(t, err, &failed, value)
		require.Equal(t, testkit.ErrCause.Error(), failed.LastError)
		require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
	}
}

// Commits between another binding's ack and its result do not end WaitResult's grace period. A round in which they
// outlast that period shows nothing and is repeated.
func TestWaitResult_CommitsBetween(t *testing.T) {
	testkit.FileOnly(t)
	db, b := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	const grace = 250 * time.Millisecond
	for commits, took := 50, grace; took >= grace; commits = max(commits/2, 2) {
		id := b.Enqueue("mail", "1")
		b.Claim("mail", "python", 1, 300)
		saved := awaited(t, ctx, db, id)
		began := time.Now()
		b.Ack(id, "python")
		for range commits {
			b.Enqueue("elsewhere", "1")
		}
		b.SaveResult(id, `"done"`)
		took = time.Since(began)
		if err := <-saved; took < grace {
			require.NoError(t, err)
		}
	}
}
