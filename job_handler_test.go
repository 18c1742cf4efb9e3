package honker_test

import (
	"context"
	"database/sql"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// identity holds the fields of a job beyond its arguments.
type identity struct {
	Key, Unique string
	Batch       int64
	Headers     map[string]string
}

func identityOf(j *honker.JobInfo) identity {
	return identity{j.Key, j.Unique, j.Batch, j.Headers}
}

// takers are the ways in which a program receives a job of "jobs". Each passes the next job to saw.
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
	"strict lanes": func(t *testing.T, db *honker.DB, _ *honker.Queue[int], saw func(*honker.JobInfo)) {
		takeByLanes(t, db, &honker.LaneOptions{Strict: true}, saw)
	},
	"lanes": func(t *testing.T, db *honker.DB, _ *honker.Queue[int], saw func(*honker.JobInfo)) {
		takeByLanes(t, db, nil, saw)
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

func takeByLanes(t *testing.T, db *honker.DB, opts *honker.LaneOptions, saw func(*honker.JobInfo)) {
	ctx, cancel := context.WithCancel(testkit.Context(t, testkit.Timeout))
	require.NoError(t, honker.NewLanes[int](db, []string{"others", "jobs"}, opts).Work(ctx, func(_ context.Context, job *honker.Job[int]) error {
		defer cancel()
		saw(&job.JobInfo)
		return nil
	}, &honker.WorkOptions{Workers: 1}))
}

// A claimed job has its key, unique key, batch and headers. That holds for every way of claiming, for each
// field alone and all together, and with and without limits of its key.
func TestJob_Identity_InHandlers(t *testing.T) {
	t.Parallel()
	for name, take := range takers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db, q := testkit.NewQueue[int](t, nil)
			batch, err := db.NewBatch(ctx, nil)
			require.NoError(t, err)
			key, unique := honker.Key(`a "quoted" \ key`), honker.Unique("ünique", nil)
			in, headers := honker.In(batch.ID), honker.Headers(map[string]string{"trace": "1"})
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

// A job that an enqueue has handed to an idle worker is complete as well: it has its headers and no fields
// that were not set.
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

// A retried job has its other fields beside its checkpoint. A checkpoint of another program that is not
// JSON does not affect them.
func TestJob_Identity_Checkpoint(t *testing.T) {
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

// Each verb of a job that was constructed by hand returns an explanation, and no verb panics.
func TestJob_MadeByHand(t *testing.T) {
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Enqueue(t, q, 1)
	claimed := testkit.ClaimOne(t, q)
	var inside honker.JobInfo // the form in which a middleware receives it
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

// requireRefused calls a verb of job with valid arguments and checks that it is refused.
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
