package honker_test

import (
	"context"
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

func init() { children["archivist"] = sayQueueRetention }

// sayQueueRetention prints the retention of a queue and acks a job of it.
func sayQueueRetention() {
	_, db := testkit.OpenChild(nil)
	q := honker.NewQueue[int](db, "jobs", nil)
	r, err := q.Retention(testkit.ChildContext())
	testkit.Must(err)
	jobs, err := q.Claim(testkit.ChildContext(), "archivist", 1)
	testkit.Must(err)
	testkit.Must(jobs[0].Ack(testkit.ChildContext()))
	testkit.Say(r.Done.MaxCount, r.Dead.MaxAge)
	testkit.Must(db.Close())
}

// everDone keeps every completed job.
var everDone = honker.QueueRetention{Done: honker.Retention{MaxCount: math.MaxInt64 / 4}}

func keepJobs[T any](t testing.TB, q *honker.Queue[T], r honker.QueueRetention) {
	t.Helper()
	require.NoError(t, q.SetRetention(context.Background(), r))
}

func keptJobs(t testing.TB, db *honker.DB) int64 {
	t.Helper()
	return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_done`)
}

// A completed job is deleted unless its queue keeps completed jobs. A kept job is shown as it was.
func TestQueue_SetRetention_Done(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	gone := testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	keepJobs(t, q, everDone)
	began := time.Now().Truncate(time.Second)
	id := testkit.Enqueue(t, q, 17, honker.Priority(4), honker.Unique("order:17", nil))
	require.NoError(t, testkit.ClaimOneAs(t, q, "anna").Ack(ctx))

	_, err := db.Job(ctx, gone)
	require.ErrorIs(t, err, honker.ErrNotFound)
	job, err := db.Job(ctx, id)
	require.NoError(t, err)
	require.False(t, job.DoneAt.Before(began))
	require.Equal(t, honker.JobInfo{
		ID: id, Queue: q.Name(), State: honker.StateDone, Phase: honker.PhaseDone, Payload: []byte("17"), Priority: 4,
		Attempts: 1, MaxAttempts: 25, WorkerID: "anna", CreatedAt: job.CreatedAt, RunAt: job.RunAt, DoneAt: job.DoneAt, Unique: "order:17",
	}, *job)
	same := testkit.GetJob(t, q, id)
	require.Equal(t, job, same)
	_, err = honker.NewQueue[int](db, "others", nil).Get(ctx, id)
	require.ErrorIs(t, err, honker.ErrNotFound)
	again := testkit.Enqueue(t, q, 18, honker.Unique("order:17", nil))
	require.NotEqual(t, id, again, "a job that is done has no key any more")
	require.NoError(t, db.Check(ctx))
}

// Every verb of this library that acks a job keeps it, in the transaction of the ack.
func TestQueue_SetRetention_EveryAck(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	keepJobs(t, q, everDone)
	claim := func() *honker.Job[int] {
		testkit.Enqueue(t, q, 1)
		return testkit.ClaimOne(t, q)
	}
	kept := int64(0)
	more := func(what string) {
		t.Helper()
		kept++
		require.Equal(t, kept, keptJobs(t, db), what)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`), what)
	}
	job := claim()
	require.NoError(t, job.SetResult("x"))
	require.NoError(t, job.Ack(ctx))
	more("Ack with a result")

	job = claim()
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return job.AckTx(ctx, tx) }))
	more("AckTx")

	job = claim()
	require.Error(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, job.AckTx(ctx, tx))
		return context.Canceled
	}))
	require.Equal(t, kept, keptJobs(t, db), "rolled back")
	n, err := q.AckMany(ctx, job.WorkerID, []int64{job.ID})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	more("AckMany")

	job = claim()
	require.EqualValues(t, 1, testkit.QueryInt(t, db.SQL(), `SELECT honker_ack(?, ?)`, job.ID, job.WorkerID))
	more("honker_ack")

	testkit.Enqueue(t, q, 1)
	worked, err := q.WorkDue(ctx, testkit.Succeed[int], nil)
	require.NoError(t, err)
	require.Equal(t, 1, worked)
	more("WorkDue")

	stop := testkit.Work(t, q, testkit.Succeed[int], nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 100))
	require.NoError(t, err)
	kept += int64(len(ids))
	require.Eventually(t, func() bool { return keptJobs(t, db) == kept }, testkit.Timeout, time.Millisecond)
	require.NoError(t, stop())
	require.NoError(t, db.Check(ctx))
}

// Only acks keep jobs. Cancelled and dead jobs are not kept as completed.
func TestQueue_SetRetention_OnlyAcks(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	keepJobs(t, q, everDone)
	_, err := q.Cancel(ctx, testkit.Enqueue(t, q, 1))
	require.NoError(t, err)
	running := testkit.Enqueue(t, q, 1)
	testkit.ClaimOne(t, q)
	_, err = q.Cancel(ctx, running)
	require.NoError(t, err)
	testkit.Enqueue(t, q, 1)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, context.Canceled))
	require.Zero(t, keptJobs(t, db))
	require.NoError(t, db.Check(ctx))
}

// A retention is stored in the file and applies to all handles and processes.
func TestQueue_SetRetention_OfFile(t *testing.T) {
	path, db := testkit.OpenShared(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	r := honker.QueueRetention{Done: honker.Retention{MaxCount: 5}, Dead: honker.Retention{MaxAge: 1500 * time.Millisecond}}
	keepJobs(t, q, r)
	id := testkit.Enqueue(t, q, 1)
	require.Equal(t, "5 2s", testkit.StartChild(t, "archivist", testkit.Task{Path: path}).Line(testkit.Timeout))
	require.Equal(t, honker.PhaseDone, testkit.GetJob(t, q, id).Phase)

	r.Dead.MaxAge = 2 * time.Second // rounded to whole seconds
	got, err := honker.NewQueue[string](honkertest.OpenFile(t, path, nil), "jobs", nil).Retention(context.Background())
	require.NoError(t, err)
	require.Equal(t, r, got)
	none, err := honker.NewQueue[int](db, "others", nil).Retention(context.Background())
	require.NoError(t, err)
	require.Zero(t, none)
}

// Maintain deletes jobs beyond either bound, even if the queue no longer keeps jobs.
func TestQueue_SetRetention_Maintain(t *testing.T) {
	maintained(t, honker.Options{}, func(t *testing.T, db *honker.DB, log *testkit.Log) {
		ctx := t.Context()
		q := honker.NewQueue[int](db, "jobs", nil)
		end := func(n int) {
			for range n {
				testkit.Enqueue(t, q, 1)
				require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
				testkit.Enqueue(t, q, 1, honker.Unique("k", nil))
				require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, context.Canceled))
			}
		}
		dead := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_dead`) }
		keepJobs(t, q, honker.QueueRetention{Done: honker.Retention{MaxCount: 5}, Dead: honker.Retention{MaxCount: 3}})
		end(8)
		require.EqualValues(t, 8, keptJobs(t, db), "up to twice as many")
		maintain(t, db)
		require.EqualValues(t, 5, keptJobs(t, db))
		require.EqualValues(t, 3, dead())
		require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_dead_job`), "nothing else of them stays")
		require.Equal(t, 1, log.Times(`"honker: dead letters deleted by the retention of their queue" queue=jobs jobs=5`))

		keepJobs(t, q, honker.QueueRetention{Done: honker.Retention{MaxAge: time.Hour}, Dead: honker.Retention{MaxAge: time.Hour}})
		time.Sleep(40 * time.Minute)
		end(2)
		time.Sleep(20*time.Minute - 5*time.Second)
		maintain(t, db)
		require.EqualValues(t, 7, keptJobs(t, db), "not an hour old")
		time.Sleep(10 * time.Second)
		maintain(t, db)
		require.EqualValues(t, 2, keptJobs(t, db))
		require.EqualValues(t, 2, dead())

		keepJobs(t, q, honker.QueueRetention{})
		maintain(t, db)
		require.Zero(t, keptJobs(t, db))
		require.EqualValues(t, 2, dead(), "all of them stay, without a bound")
		end(1)
		require.Zero(t, keptJobs(t, db))
		require.NoError(t, db.Check(ctx))
	})
}

// Maintain does not touch a queue without a retention. Invalid retentions are refused.
func TestQueue_SetRetention_Invalid(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	before := testkit.Dump(t, db.SQL())
	for _, r := range []honker.QueueRetention{
		{Done: honker.Retention{MaxCount: -1}}, {Done: honker.Retention{MaxAge: -1}},
		{Dead: honker.Retention{MaxCount: -1}}, {Dead: honker.Retention{MaxAge: -1}},
	} {
		require.ErrorIs(t, q.SetRetention(ctx, r), honker.ErrInvalid)
	}
	require.ErrorIs(t, honker.NewQueue[int](db, "", nil).SetRetention(ctx, everDone), honker.ErrInvalid)
	_, err := honker.NewQueue[int](db, "", nil).Retention(ctx)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error { return q.SetRetention(ctx, everDone) }), honker.ErrInTx)
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}
