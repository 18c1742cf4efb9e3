package compat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Go and another binding claim and acknowledge each other's jobs.
func TestForeign_ClaimAndAck(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[map[string]int](db, "jobs", nil)
	first, err := q.Enqueue(ctx, map[string]int{"n": 1})
	require.NoError(t, err)
	second := other.Enqueue("jobs", `{"n": 2}`)
	third := testkit.QueryInt(t, other.Pool, `INSERT INTO _honker_live (queue, payload) VALUES ('jobs', '{"n": 3}') RETURNING id`)
	require.Equal(t, []int64{first + 1, first + 2}, []int64{second, third}, "one sequence of ids")

	theirs := other.Claim("jobs", "other", 1, 60)
	require.Equal(t, []testkit.BindingJob{{ID: first, Attempts: 1, Payload: `{"n":1}`}}, theirs)
	for n, id := range []int64{second, third} {
		job := testkit.ClaimOneAs(t, q, "go")
		require.Equal(t, id, job.ID)
		require.Equal(t, n+2, job.Args["n"])
		require.Equal(t, 3, job.MaxAttempts)
		require.Zero(t, other.Ack(job.ID, "other"), "it is not theirs")
		require.NoError(t, job.Ack(ctx))
	}
	n, err := q.AckMany(ctx, "go", []int64{first})
	require.NoError(t, err)
	require.Zero(t, n, "it is not ours")
	require.EqualValues(t, 1, other.Ack(first, "other"))
	require.Zero(t, testkit.QueryInt(t, other.Pool, testkit.CountJobs))
}

// Go and another binding settle jobs that the other claimed before.
func TestForeign_SettleAcross(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "jobs", nil)
	id, err := q.Enqueue(ctx, 7)
	require.NoError(t, err)

	require.Len(t, other.Claim("jobs", "other", 1, 60), 1)
	require.EqualValues(t, 1, other.Change(`UPDATE _honker_live SET state = 'pending', run_at = unixepoch(),
  worker_id = NULL, claim_expires_at = NULL`+testkit.ValidClaim+` AND state = 'processing' AND attempts < max_attempts`, id, "other"))
	job := testkit.ClaimOneAs(t, q, "go")
	require.Equal(t, 2, job.Attempts)
	require.NoError(t, job.Extend(ctx, time.Hour))
	require.EqualValues(t, 1, testkit.QueryInt(t, other.Pool, `SELECT claim_expires_at > unixepoch() + 3000 FROM _honker_live`))
	require.NoError(t, job.Retry(ctx, 0, errors.New("again")))

	theirs := other.Claim("jobs", "other", 1, 60)
	require.Equal(t, []testkit.BindingJob{{ID: id, Attempts: 3, Payload: "7"}}, theirs)
	require.ErrorIs(t, job.Ack(ctx), honker.ErrClaimLost)
	require.EqualValues(t, 1, other.Change(`UPDATE _honker_live SET claim_expires_at = unixepoch() + 1000`+testkit.ValidClaim, id, "other"))
	info, err := q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "other", info.WorkerID)
	require.Equal(t, "again", info.LastError)
	require.Greater(t, time.Until(info.ClaimExpiresAt), 900*time.Second)
	other.Fail(id, "other", "of no use")
	info, err = q.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, honker.StateDead, info.State)
	require.Equal(t, "of no use", info.LastError)

	cancelled := other.Enqueue("jobs", "8")
	job = testkit.ClaimOneAs(t, q, "go")
	require.EqualValues(t, 1, other.Change(`DELETE FROM _honker_live WHERE id = ?`, cancelled))
	require.ErrorIs(t, job.Extend(ctx, time.Minute), honker.ErrClaimLost)
	require.ErrorIs(t, job.Retry(ctx, 0, nil), honker.ErrClaimLost)
}

// A lapsed claim of Go is taken over by another binding, and a lapsed claim of that binding by Go.
func TestForeign_LapsedClaim(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Second})
	id, err := q.Enqueue(ctx, 7)
	require.NoError(t, err)
	job := testkit.ClaimOneAs(t, q, "go")
	var theirs []testkit.BindingJob
	testkit.Eventually(t, testkit.Timeout, "lapsed for the binding", func() bool {
		theirs = other.Claim("jobs", "other", 1, 0)
		return len(theirs) > 0
	})
	require.True(t, time.Now().After(job.ClaimExpiresAt.Add(time.Second)))
	require.Equal(t, []testkit.BindingJob{{ID: id, Attempts: 2, Payload: "7"}}, theirs)
	require.ErrorIs(t, job.Ack(ctx), honker.ErrClaimLost)
	long := honker.NewQueue[int](db, "jobs", nil) // its lease outlasts the rest of the test
	for job, err := range long.Jobs(ctx, "go") {
		require.NoError(t, err)
		require.Equal(t, 3, job.Attempts)
		require.Zero(t, other.Ack(id, "other"))
		require.NoError(t, job.Ack(ctx))
		break
	}
}

// Go opens a file with jobs that another binding created.
func TestForeign_Open(t *testing.T) {
	path := filepath.Join(t.TempDir(), "theirs.db")
	other := testkit.OpenBinding(t, path)
	other.Bootstrap()
	other.Enqueue("jobs", "1")
	db := honkertest.OpenFile(t, path, nil)
	require.Equal(t, 1, testkit.ClaimOneAs(t, honker.NewQueue[int](db, "jobs", nil), "go").Args)
	other.Bootstrap() // a binding opens the file later
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_jobs WHERE state = 'processing'`))
}

// Another binding can bootstrap the file while Work is running.
func TestForeign_BootstrapBesideWork(t *testing.T) {
	const jobs = 400
	db, other := testkit.OpenWithBinding(t)
	ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
	q := honker.NewQueue[int](db, "jobs", nil)
	var ran atomic.Int64
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(ctx, func(context.Context, *honker.Job[int]) error { ran.Add(1); return nil },
			&honker.WorkOptions{OnError: func(_ context.Context, _ *honker.JobInfo, err error) { assert.NoError(t, err) }})
	}()
	for i := range jobs {
		if i%10 == 0 {
			other.Bootstrap()
		}
		_, err := q.Enqueue(ctx, i)
		require.NoError(t, err)
	}
	testkit.Eventually(t, testkit.Timeout, "all jobs handled", func() bool { return testkit.QueryInt(t, other.Pool, testkit.CountJobs) == 0 })
	stop()
	require.NoError(t, <-worked)
	require.EqualValues(t, jobs, ran.Load())
	require.EqualValues(t, 7, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = '_honker_live'`))
}

// A listener delivers messages whose payload is not JSON.
func TestForeign_Listen_NoJSON(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	l, err := db.Listen(ctx, "honker:jobs")
	require.NoError(t, err)
	defer l.Close()
	sent := []string{"new", "wake", "", `{"a": 1}`, "NaN"}
	for _, text := range sent {
		other.Change(`INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:jobs', ?1), ('elsewhere', ?1)`, text)
	}
	other.Change(`INSERT INTO _honker_notifications (channel, payload) VALUES ('honker:jobs', x'ff00')`)
	for _, text := range append(sent, "\xff\x00") {
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, text, string(n.Payload))
		var v any
		require.Equal(t, json.Valid([]byte(text)), n.Decode(&v) == nil, text)
	}
}

// Jobs that cannot be decoded become dead letters, and the loop continues.
func TestForeign_Jobs_Undecodable(t *testing.T) {
	type queue = *honker.Queue[int]
	for name, loop := range map[string]func(context.Context, queue, func(int)) error{
		"Work": func(ctx context.Context, q queue, got func(int)) error {
			return q.Work(ctx, func(_ context.Context, j *honker.Job[int]) error { got(j.Args); return nil }, nil)
		},
		"Jobs": func(ctx context.Context, q queue, got func(int)) (last error) {
			for j, err := range q.Jobs(ctx, "w") {
				if last = err; err == nil {
					got(j.Args)
					last = j.Ack(context.Background())
				}
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, other := testkit.OpenWithBinding(t)
			insert := func(payload string, maxAttempts int) int64 {
				return testkit.QueryInt(t, other.Pool, `INSERT INTO _honker_live (queue, payload, max_attempts)
VALUES ('jobs', `+payload+`, ?) RETURNING id`, maxAttempts)
			}
			reasons := map[int64]string{
				insert(`'not json'`, 3): "cannot decode",
				insert(`''`, 3):         "cannot decode",
				insert(`'"text"'`, 3):   "cannot decode",
				insert(`'NaN'`, 3):      "cannot decode",
				insert(`x'31'`, 3):      "not as text",
				insert(`'1'`, 0):        "max attempts exceeded",
				insert(`'1'`, -1):       "max attempts exceeded",
			}
			insert(`'42'`, 3)
			ctx, stop := context.WithCancel(testkit.Context(t, testkit.Timeout))
			ended := make(chan error, 1)
			q := honker.NewQueue[int](db, "jobs", nil)
			go func() { ended <- loop(ctx, q, func(n int) { assert.Equal(t, 42, n) }) }()
			testkit.Eventually(t, testkit.Timeout, "all jobs settled", func() bool { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) == 0 })
			stop()
			require.NoError(t, <-ended)
			for id, reason := range reasons {
				info, err := q.Get(context.Background(), id)
				require.NoError(t, err)
				require.Equal(t, honker.StateDead, info.State, reason)
				require.Contains(t, info.LastError, reason)
			}
			require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead WHERE typeof(payload) = 'blob'`), "kept as it was")
		})
	}
}

// waitFor starts to wait for a result in a goroutine. The returned function blocks until the result
// is known.
func waitFor[R any](t testing.TB, db *honker.DB, id int64) func() (R, error) {
	ctx, ended := testkit.Context(t, testkit.Timeout), make(chan struct{})
	var value R
	var err error
	go func() {
		defer close(ended)
		value, err = honker.WaitResult[R](ctx, db, id)
	}()
	return func() (R, error) { <-ended; return value, err }
}

// Go reads results saved by another binding.
func TestForeign_ResultsRead(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	ctx := testkit.Context(t, testkit.Timeout)
	id, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.NoError(t, err)
	wait := waitFor[map[string]int](t, db, id)
	other.Claim("jobs", "other", 1, 60)
	other.SaveResult(id, `{"sum": 3}`)
	other.Ack(id, "other")
	got, err := wait()
	require.NoError(t, err)
	require.Equal(t, map[string]int{"sum": 3}, got)
	for value, want := range map[any]string{"bare text": "cannot decode", nil: "not found", "null": "<nil>"} {
		other.SaveResult(id, value)
		_, err = honker.Result[any](ctx, db, id)
		require.Contains(t, fmt.Sprint(err), want)
	}
}

// WaitResult returns JobFailedError when another binding fails the job.
func TestForeign_WaitResult_Failed(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	id := other.Enqueue("jobs", `1`)
	other.Claim("jobs", "other", 1, 60)
	wait := waitFor[int](t, db, id)
	other.Fail(id, "other", "of no use")
	_, err := wait()
	var failed *honker.JobFailedError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "of no use", failed.LastError)
}
