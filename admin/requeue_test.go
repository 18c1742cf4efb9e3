package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
)

// A requeued job keeps its ID. A worker with a claim from before the requeue can't settle it.
func TestRequeue_SameID(t *testing.T) {
	ctx, db, q, told := open(t)
	id := testkit.Enqueue(t, q, 1, honker.MaxAttempts(3))
	stale := testkit.ClaimOne(t, q)
	testkit.ExpireClaim(t, db, id)
	require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, testkit.ErrCause))

	r, err := admin.Requeue(honker.WithActor(ctx, "anna"), db, admin.JobFilter{IDs: []int64{id}}, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 1, Changed: 1, Audit: 1}, r)
	require.Equal(t, []string{"requeued jobs [1] anna false"}, told.lines)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, id, job.ID)
	require.Equal(t, 3, job.Attempts)
	require.Equal(t, 5, job.MaxAttempts, "three more than the two it has had")
	require.Equal(t, testkit.ErrCause.Error(), job.LastError)
	require.ErrorIs(t, stale.Ack(ctx), honker.ErrClaimLost)
	require.ErrorIs(t, stale.Reject(ctx, nil), honker.ErrClaimLost)
	require.NoError(t, job.Ack(ctx))
}

// Backoff counts the attempts since the requeue.
func TestRequeue_Backoff(t *testing.T) {
	ctx, db, _, _ := open(t)
	attempts := make(chan int, 9)
	q := honker.NewQueue[int](db, "flaky", &honker.QueueOptions{MaxAttempts: 2, Backoff: func(attempt int, _ error) time.Duration {
		attempts <- attempt
		return 0
	}})
	id := testkit.Enqueue(t, q, 1)
	stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { return testkit.ErrCause }, nil)
	dead := func() bool { return testkit.GetJob(t, q, id).State == honker.StateDead }
	testkit.Eventually(t, testkit.Timeout, "dead", dead)
	_, err := admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	for _, want := range []int{1, 2, 1, 2} {
		require.Equal(t, want, <-attempts)
	}
	testkit.Eventually(t, testkit.Timeout, "dead again", dead)
	require.NoError(t, stop())
}

// Spread distributes the run times evenly, in order of death, and stores them in the file.
func TestRequeue_Spread(t *testing.T) {
	ctx, db, q, _ := open(t)
	for n := range 4 {
		bury(t, q, n, "no")
	}
	testkit.Exec(t, db, testkit.Either(`UPDATE _honker_dead SET died_at = 100 - id`, `UPDATE dead SET died_at = to_timestamp(100 - id)`)) // the last job died first
	began := time.Now().Unix()
	r, err := admin.Requeue(ctx, db, all, &admin.RequeueOptions{Delay: time.Hour, Spread: 4 * time.Minute})
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Changed)
	last := began + 3600
	for _, row := range []int64{4, 3, 2, 1} {
		at := testkit.GetJob(t, q, row).RunAt.Unix()
		require.InDelta(t, last, at, 10)
		last = at + 60
	}
}

// Options move jobs to another queue, set their attempts, and limit the call to the oldest jobs. The other
// jobs stay dead.
func TestRequeue_Options(t *testing.T) {
	ctx, db, q, _ := open(t)
	for n := range 3 {
		bury(t, q, n, "no")
	}
	r, err := admin.Requeue(ctx, db, all, &admin.RequeueOptions{DryRun: true, Limit: 2})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2}, r)
	require.Len(t, rows(t, db, `SELECT id FROM _honker_dead`), 3)
	r, err = admin.Requeue(ctx, db, all, &admin.RequeueOptions{To: "other", Attempts: 1, Limit: 2})
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Changed)
	require.Equal(t, []string{"1|other|2", "2|other|2"}, rows(t, db, `SELECT id, queue, max_attempts FROM _honker_live`))
	require.Equal(t, []string{"3"}, rows(t, db, `SELECT id FROM _honker_dead`))
}

// A job whose unique key is taken is skipped with the key in the reason. The other jobs are requeued.
func TestRequeue_UniqueKeyTaken(t *testing.T) {
	ctx, db, q, _ := open(t)
	first := bury(t, q, 1, "no", honker.Unique("order:17", nil))
	plain := bury(t, q, 2, "no")
	second := testkit.Enqueue(t, q, 3, honker.Unique("order:17", nil))
	r, err := admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 1, Audit: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: first, Why: `unique key "order:17" is taken by job 3`}}}, r)
	require.EqualValues(t, 3, second)
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, plain).State)
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, first).State)
}

// Thousands of jobs are requeued in many transactions. Between two transactions each job is either dead or
// live. If ctx ends, the report counts the changes so far.
func TestRequeue_Chunks(t *testing.T) {
	ctx, db, q, _ := open(t)
	testkit.StoreDead(t, db, 2000, func(n int64) testkit.StoredJob { return testkit.StoredJob{Attempts: 1, DiedAt: n} })
	testkit.Exec(t, db, testkit.Either(`INSERT INTO sqlite_sequence (name, seq) VALUES ('_honker_live', 2000)`, `SELECT setval('job_id_seq', 2000)`))
	stopping, stop := context.WithCancel(ctx)
	done := make(chan *admin.Report, 1)
	go func() {
		r, err := admin.Requeue(stopping, db, all, nil)
		if !errors.Is(err, context.Canceled) && r.Changed != 2000 {
			t.Error(err)
		}
		done <- r
	}()
	testkit.Eventually(t, testkit.Timeout, "begun", func() bool {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`) > 0
	})
	stop()
	r := <-done
	require.EqualValues(t, 2000, r.Matched)
	require.EqualValues(t, 2000, r.Changed+r.Left)
	require.EqualValues(t, r.Changed, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	require.EqualValues(t, r.Changed, testkit.QueryInt(t, db.SQL(), `SELECT coalesce(max(id), 0) FROM _honker_live`), "the oldest")
	r, err := admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	require.Zero(t, r.Left)
	require.EqualValues(t, 2000, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	require.NotNil(t, testkit.Claim(t, q, 1))
}

// Jobs requeued in the caller's transaction are waiting again after it commits.
func TestRequeueTx(t *testing.T) {
	ctx, db, q, told := open(t)
	id := bury(t, q, 1, "no")
	refused := errors.New("not now")
	requeue := func(end error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := admin.Requeue(ctx, db, all, nil)
			require.ErrorIs(t, err, honker.ErrInTx)
			r, err := admin.RequeueTx(ctx, db, tx, all, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, r.Changed)
			return end
		})
	}
	require.ErrorIs(t, requeue(refused), refused)
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
	require.NoError(t, requeue(nil))
	require.Equal(t, id, testkit.ClaimOne(t, q).ID)
	require.Equal(t, "requeued jobs [1]  true", told.lines[len(told.lines)-1])
}

// RequeueTx rejects more than a thousand jobs and changes none of them.
func TestRequeueTx_Bound(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreDead(t, db, 1001, func(int64) testkit.StoredJob { return testkit.StoredJob{} })
	err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := admin.RequeueTx(ctx, db, tx, all, nil)
		require.ErrorIs(t, err, honker.ErrInvalid)
		r, err := admin.RequeueTx(ctx, db, tx, all, &admin.RequeueOptions{Limit: 1000})
		require.NoError(t, err)
		require.EqualValues(t, 1000, r.Changed)
		return testkit.ErrCause
	})
	require.ErrorIs(t, err, testkit.ErrCause)
	require.Len(t, rows(t, db, `SELECT id FROM _honker_dead`), 1001)
}

// Invalid input changes nothing.
func TestActions_BadInput(t *testing.T) {
	ctx, db, q, told := open(t)
	bury(t, q, 1, "no")
	testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
	before := testkit.Dump(t, db.SQL())
	var none context.Context
	requeue := func(f admin.JobFilter, o admin.RequeueOptions) func() (*admin.Report, error) {
		return func() (*admin.Report, error) { return admin.Requeue(ctx, db, f, &o) }
	}
	for name, verb := range map[string]func() (*admin.Report, error){
		"empty filter of Requeue": requeue(admin.JobFilter{}, admin.RequeueOptions{}),
		"empty filter of Discard": func() (*admin.Report, error) { return admin.Discard(ctx, db, admin.JobFilter{}, nil) },
		"empty filter of Cancel":  func() (*admin.Report, error) { return admin.Cancel(ctx, db, admin.JobFilter{}, nil) },
		"empty filter of RunNow":  func() (*admin.Report, error) { return admin.RunNow(ctx, db, admin.JobFilter{}, nil) },
		"nil ctx":                 func() (*admin.Report, error) { return admin.RunNow(none, db, all, nil) },
		"nil tx":                  func() (*admin.Report, error) { return admin.RequeueTx(ctx, db, nil, all, nil) },
		"a bad queue":             requeue(all, admin.RequeueOptions{To: "a\x00"}),
		"a negative delay":        requeue(all, admin.RequeueOptions{Delay: -1}),
		"a negative spread":       requeue(all, admin.RequeueOptions{Spread: -1}),
		"negative attempts":       requeue(all, admin.RequeueOptions{Attempts: -1}),
		"too many attempts":       requeue(all, admin.RequeueOptions{Attempts: math.MaxInt}),
		"a negative limit":        requeue(all, admin.RequeueOptions{Limit: -1}),
		"a filter of no name":     requeue(admin.JobFilter{Queues: []string{""}}, admin.RequeueOptions{}),
		"a filter of no field":    requeue(admin.JobFilter{Where: map[string]string{"": "1"}}, admin.RequeueOptions{}),
		"a field of quotes":       requeue(admin.JobFilter{Where: map[string]string{`a"b`: "1"}}, admin.RequeueOptions{}),
		"negative MinAttempts":    requeue(admin.JobFilter{MinAttempts: -1}, admin.RequeueOptions{}),
		"a worker of dead jobs":   requeue(admin.JobFilter{Worker: "w"}, admin.RequeueOptions{}),
		"deaths of live jobs": func() (*admin.Report, error) {
			return admin.Cancel(ctx, db, admin.JobFilter{DiedSince: time.Now()}, nil)
		},
		"ten thousand ids and one": requeue(admin.JobFilter{IDs: make([]int64, 10001)}, admin.RequeueOptions{}),
	} {
		r, err := verb()
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.Equal(t, &admin.Report{}, r, name)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
	require.Empty(t, told.lines)
	_, err := admin.Discard(ctx, nil, all, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.DeadGroups(ctx, nil, all)
	require.ErrorIs(t, err, honker.ErrInvalid)
	r, err := admin.Discard(ctx, db, admin.JobFilter{IDs: []int64{}}, nil)
	require.NoError(t, err, "no ids are none, and not all")
	require.Equal(t, &admin.Report{}, r)
}

// A dead job keeps its headers through a requeue and can be found by them before and after.
func TestRequeue_Headers(t *testing.T) {
	ctx, db, q, _ := open(t)
	h := map[string]string{"tenant": "acme"}
	id := testkit.Enqueue(t, q, 1, honker.Headers(h))
	testkit.Enqueue(t, q, 2, honker.Headers(map[string]string{"tenant": "other"}))
	require.NoError(t, testkit.Claim(t, q, 1)[0].Reject(ctx, errors.New("no")))
	r, err := admin.Requeue(ctx, db, admin.JobFilter{Header: h}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Changed)
	claimed := testkit.Claim(t, q, 2)
	i := slices.IndexFunc(claimed, func(j *honker.Job[int]) bool { return j.ID == id })
	require.GreaterOrEqual(t, i, 0)
	require.Equal(t, h, claimed[i].Headers)
	for found, err := range admin.EachJob(ctx, db, admin.JobFilter{Header: h}, nil) {
		require.NoError(t, err)
		require.Equal(t, id, found.ID)
		require.Equal(t, h, found.Headers)
	}
}
