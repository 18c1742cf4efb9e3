package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Verbs that wait for the same writer share a commit. If the first of them fails halfway, it leaves nothing
// behind, and the other calls succeed.
func TestDB_GroupCommit_FirstFails(t *testing.T) {
	testkit.FileOnly(t)
	const behind = 4
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	path := filepath.Join(t.TempDir(), "file.db")
	for name, db := range map[string]*honker.DB{"opened": honkertest.OpenFile(t, path, nil), "attached": testkit.Attach(t, path, nil)} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Context(t, testkit.Timeout)
			testkit.ExecAll(t, db.SQL(), `DELETE FROM _honker_stream`, `DELETE FROM _honker_live`, `CREATE TRIGGER IF NOT EXISTS refuse
BEFORE INSERT ON _honker_stream WHEN NEW.payload = '13' BEGIN SELECT raise(ABORT, 'no 13'); END`)
			q := honker.NewQueue[int](db, "jobs", nil)
			s := honker.NewStream[int](db, "events", nil)
			data := make([]int, 300) // takes several statements
			data[299] = 13
			for range rounds {
				first, others := make(chan error, 1), make(chan error, behind)
				require.NoError(t, db.Tx(ctx, func(context.Context, *sql.Tx) error {
					go func() { _, _, err := s.PublishMany(ctx, data); first <- err }()
					for range 50 {
						runtime.Gosched() // makes the failing call the first, most of the time
					}
					for range behind {
						go func() { _, err := q.EnqueueMany(ctx, []int{1, 2}); others <- err }()
					}
					for range 50 {
						runtime.Gosched()
					}
					return nil
				}))
				require.ErrorContains(t, testkit.Within(ctx, first, testkit.Timeout), "no 13")
				for range behind {
					require.NoError(t, testkit.Within(ctx, others, testkit.Timeout))
				}
			}
			require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_stream`))
			require.EqualValues(t, rounds*behind*2, testkit.QueryInt(t, db.SQL(), testkit.CountJobs))
		})
	}
}

// enqueues lists the ways to add a single job.
var enqueues = map[string]func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error){
	"Enqueue": func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error) {
		return q.Enqueue(ctx, 1, opts...)
	},
	"EnqueueMany": func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error) {
		ids, err := q.EnqueueMany(ctx, []int{1}, opts...)
		return append(ids, 0)[0], err
	},
}

// A sleeping worker has claimed a job by the time the job is committed.
func TestHandoff_Work(t *testing.T) {
	for name, enqueue := range enqueues {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			q := honker.NewQueue[int](db, "jobs", nil)
			release := make(chan struct{})
			stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { <-release; return nil }, &honker.WorkOptions{Workers: 2})
			for n := range 3 {
				synctest.Wait()
				id, err := enqueue(context.Background(), q)
				require.NoError(t, err)
				want := honker.StateProcessing
				if n == 2 {
					want = honker.StatePending // both are busy
				}
				require.Equal(t, want, testkit.GetJob(t, q, id).State, name)
			}
			id, err := enqueue(context.Background(), q, honker.Delay(time.Hour))
			require.NoError(t, err)
			require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State, "it is not due")
			close(release)
			require.NoError(t, stop())
		})
	}
}

// A sleeping loop over Jobs has claimed a job by the time the job is committed.
func TestHandoff_Jobs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		ctx, cancel := context.WithCancel(context.Background())
		release, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for job, err := range q.Jobs(ctx, "w") {
				require.NoError(t, err)
				<-release
				require.NoError(t, job.Ack(context.Background()))
			}
		}()
		synctest.Wait()
		id := testkit.Enqueue(t, q, 1)
		require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State)
		close(release)
		synctest.Wait()
		testkit.RequireGone(t, q, id)
		cancel()
		<-ended
	})
}

// Jobs that other writers have enqueued in the meantime, in any way, are claimed before the job that is
// handed over.
func TestHandoff_OthersFirst(t *testing.T) {
	testkit.FileOnly(t)
	for what, other := range map[string]string{
		"one that waits":  `'pending', NULL, NULL, 0`,
		"one that lapsed": `'processing', 'gone', 1, 1`,
	} {
		testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
			q := honker.NewQueue[int](db, "jobs", nil)
			release, began := make(chan struct{}), make(chan int, 2)
			stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
				began <- job.Args
				<-release
				return nil
			}, &honker.WorkOptions{Workers: 1})
			synctest.Wait()
			testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, run_at, state, worker_id, claim_expires_at, attempts)
VALUES ('jobs', '7', 1, `+other+`)`)
			testkit.Enqueue(t, q, 1)
			require.Equal(t, 7, <-began, what)
			close(release)
			require.Equal(t, 1, <-began, what)
			require.NoError(t, stop())
		})
	}
}

// A handed-over job has a full lease. The lease starts when the enqueue gets the writer, however long the
// enqueue waited.
func TestHandoff_WholeLease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 1})
		var until time.Time
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			until = job.ClaimExpiresAt
			return nil
		}, &honker.WorkOptions{Lease: 2 * time.Second})
		synctest.Wait()
		began := time.Now()
		go func() {
			_ = db.Tx(context.Background(), func(context.Context, *sql.Tx) error { time.Sleep(3 * time.Second); return nil })
		}()
		synctest.Wait()
		testkit.Enqueue(t, q, 1)
		synctest.Wait()
		require.GreaterOrEqual(t, until.Sub(began), 5*time.Second)
		require.Equal(t, []honker.Outcome{honker.OutcomeAcked}, s.Outcomes())
		require.NoError(t, stop())
	})
}

// A handed-over job costs one statement and one commit from its enqueue to its handler. The counting
// trigger has a name reserved for honker, because an application trigger prevents the handoff.
func TestHandoff_WrittenOnce(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 5})
		testkit.Exec(t, db, `CREATE TABLE updates (id)`)
		testkit.Exec(t, db, `CREATE TRIGGER _honker_test AFTER UPDATE ON _honker_live BEGIN INSERT INTO updates VALUES (NEW.id); END`)
		var said, stored *honker.JobInfo
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			said, stored = &job.JobInfo, testkit.GetJob(t, q, job.ID)
			return nil
		}, nil)
		for _, unique := range []honker.EnqueueOption{honker.Headers(nil), honker.Unique("one", nil)} {
			synctest.Wait()
			testkit.Enqueue(t, q, 1, honker.Priority(3), honker.ExpiresIn(time.Hour), honker.Headers(map[string]string{"a": "b"}), unique)
			synctest.Wait()
			require.Equal(t, stored, said)
			require.Equal(t, 5, said.MaxAttempts)
		}
		require.Equal(t, "one", said.Unique)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM updates`))
		require.NoError(t, stop())
	})
}

// A job that is handed over holds its unique key until it ends, unless its first claim releases the key. A job that is found
// by its key is not handed over again.
func TestHandoff_Unique(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		release := make(chan struct{})
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { <-release; return nil }, &honker.WorkOptions{Workers: 9})
		add := func(opts ...honker.EnqueueOption) (id int64, p honker.Placement, s honker.State) {
			synctest.Wait()
			id = testkit.Enqueue(t, q, 1, append(opts, honker.Placed(&p))...)
			return id, p, testkit.GetJob(t, q, id).State
		}
		first, p, state := add(honker.Unique("a", nil))
		require.Equal(t, []any{honker.PlacedNew, honker.StateProcessing}, []any{p.Result, state})
		again, p, _ := add(honker.Unique("a", nil))
		require.Equal(t, []any{honker.PlacedExisting, first}, []any{p.Result, again})
		_, p, _ = add(honker.Unique("b", &honker.Uniqueness{Until: honker.UntilStarted}))
		require.Equal(t, honker.PlacedNew, p.Result)
		_, p, _ = add(honker.Unique("b", &honker.Uniqueness{Until: honker.UntilStarted}))
		require.Equal(t, honker.PlacedNew, p.Result, "it was started")
		synctest.Wait()
		ids, err := q.EnqueueMany(t.Context(), []int{1, 2, 1}, honker.UniqueArgs(nil))
		require.NoError(t, err)
		require.Equal(t, ids[0], ids[2])
		for _, id := range ids {
			require.Equal(t, honker.StateProcessing, testkit.GetJob(t, q, id).State)
		}
		close(release)
		synctest.Wait()
		testkit.Enqueue(t, q, 1, honker.Unique("a", nil), honker.Placed(&p)) // may have ended by now
		require.Equal(t, honker.PlacedNew, p.Result)
		require.NoError(t, stop())
	})
}

// A failed enqueue hands over no job.
func TestHandoff_FailedEnqueue(t *testing.T) {
	testkit.FileOnly(t)
	for what, trigger := range map[string]string{
		"the statement": `BEGIN SELECT RAISE(ABORT, 'not this one'); END`,
		"the commit":    `BEGIN INSERT INTO child VALUES (1); END`,
	} {
		for _, jobs := range [][]int{{1}, {1, 2}} {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
				testkit.Exec(t, db, `CREATE TABLE parent (id INTEGER PRIMARY KEY)`)
				testkit.Exec(t, db, `CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)`)
				testkit.Exec(t, db, `CREATE TRIGGER no AFTER INSERT ON _honker_live WHEN NEW.priority = 9 `+trigger)
				q := honker.NewQueue[int](db, "jobs", nil)
				stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { return nil }, nil)
				for n := range 3 {
					synctest.Wait()
					_, err := q.EnqueueMany(context.Background(), jobs, honker.Priority(9))
					require.Error(t, err, "%s, %v", what, jobs)
					synctest.Wait()
					require.Len(t, s.Outcomes(), n*len(jobs), "%s, %v", what, jobs)
					_, err = q.EnqueueMany(context.Background(), jobs)
					require.NoError(t, err)
					synctest.Wait()
					require.Len(t, s.Outcomes(), (n+1)*len(jobs), "%s, %v", what, jobs)
				}
				require.NoError(t, stop())
			})
		}
	}
}

// A batch hands over as many jobs as there are idle handlers.
func TestHandoff_Batch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, s *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		release := make(chan struct{})
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { <-release; return nil }, &honker.WorkOptions{Workers: 3})
		synctest.Wait()
		ids, err := q.EnqueueMany(context.Background(), make([]int, 50))
		require.NoError(t, err)
		require.True(t, slices.IsSorted(ids))
		for i, id := range ids[:10] {
			require.Equal(t, i < 3, testkit.GetJob(t, q, id).State == honker.StateProcessing, "job %d", i)
		}
		close(release)
		synctest.Wait()
		require.Len(t, s.Outcomes(), 50)
		require.NoError(t, stop())
	})
}

// A sleeping worker claims for idle handlers only, even if earlier jobs were fast.
func TestHandoff_IdleOnly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		release := make(chan struct{})
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			if job.Args == slow {
				<-release
			}
			return nil
		}, &honker.WorkOptions{Workers: 2})
		_, err := q.EnqueueMany(context.Background(), make([]int, 500))
		require.NoError(t, err)
		synctest.Wait()
		time.Sleep(time.Hour)
		_, err = q.EnqueueMany(context.Background(), slices.Repeat([]int{slow}, 50))
		require.NoError(t, err)
		synctest.Wait()
		require.LessOrEqual(t, claimedJobs(t, q), int64(4))
		close(release)
		require.NoError(t, stop())
	})
}

const slow = 1

// A worker that stops leaves no job claimed, whenever during its shutdown a job is handed over.
func TestHandoff_WorkEnds(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	for round := range 150 {
		q := honker.NewQueue[int](db, fmt.Sprint("jobs", round), nil)
		working, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() {
			require.NoError(t, q.Work(working, func(context.Context, *honker.Job[int]) error { return nil }, nil))
		})
		<-time.After(time.Duration(round%10) * 100 * time.Microsecond) // any time during its start
		all.Go(func() { testkit.Enqueue(t, q, round) })
		<-time.After(time.Duration(round%7) * 20 * time.Microsecond)
		stop()
		all.Wait()
		require.Zero(t, claimedJobs(t, q))
	}
}

// Each job is delivered once, in whatever order loops begin, end and are called.
func TestHandoff_LoopsComeAndGo(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := testkit.Context(t, testkit.Timeout)
	q := honker.NewQueue[int](db, "jobs", nil)
	const jobs = 400
	given := make(chan int64, 2*jobs)
	var loops sync.WaitGroup
	for w := range 4 {
		loops.Go(func() {
			for round := 0; len(given) < jobs && ctx.Err() == nil; round++ {
				// Some loops must last longer than a claim, which takes its time behind a pooler on a busy machine.
				part, stop := context.WithTimeout(ctx, time.Duration(1+round%50)*time.Millisecond)
				for job, err := range q.Jobs(part, fmt.Sprintf("%d.%d", w, round)) {
					require.NoError(t, err)
					given <- job.ID
					require.NoError(t, job.Ack(ctx))
				}
				stop()
			}
		})
	}
	var want []int64
	for i := range jobs {
		want = append(want, testkit.Enqueue(t, q, i))
	}
	loops.Wait()
	close(given)
	var got []int64
	for id := range given {
		got = append(got, id)
	}
	require.ElementsMatch(t, want, got)
	require.Zero(t, liveJobs(t, q))
}

// If the application has a trigger on the jobs table, nothing is handed over. The handler sees the row as
// the trigger left it.
func TestEnqueue_Handoff_ForeignTrigger(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		var priorities []int
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			priorities = append(priorities, job.Priority)
			return nil
		}, &honker.WorkOptions{Workers: 1})
		synctest.Wait() // the worker is idle
		testkit.Exec(t, db, `CREATE TRIGGER urgent AFTER INSERT ON _honker_live BEGIN UPDATE _honker_live SET priority = 9 WHERE id = NEW.id; END`)
		synctest.Wait()
		testkit.Enqueue(t, q, 1)
		_, err := q.EnqueueMany(context.Background(), []int{1, 2})
		require.NoError(t, err)
		synctest.Wait()
		testkit.Exec(t, db, `DROP TRIGGER urgent`)
		testkit.Enqueue(t, q, 1)
		synctest.Wait()
		require.NoError(t, stop())
		require.Equal(t, []int{9, 9, 9, 0}, priorities)
	})
}

// mirrored is a trigger that uses the SQL functions to copy every job in "jobs" to "audit", as an
// application might.
const mirrored = `CREATE TRIGGER mirror AFTER INSERT ON _honker_live WHEN NEW.queue = 'jobs'
BEGIN SELECT honker_enqueue('audit', NEW.payload, NULL, NULL, 0, 3, NULL); END`

// EnqueueMany returns its own jobs' ids even if a trigger inserts others in between.
func TestQueue_EnqueueMany_TriggerAdds(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, mirrored)
	args := make([]int, 300)
	for i := range args {
		args[i] = i
	}
	ids, err := q.EnqueueMany(ctx, args)
	require.NoError(t, err)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		more, err := q.EnqueueManyTx(ctx, tx, []int{300, 301})
		ids = append(ids, more...)
		return err
	}))
	ids = append(ids, testkit.Enqueue(t, q, 302))
	for i, id := range ids {
		require.Equal(t, fmt.Sprint(i), string(testkit.GetJob(t, q, id).Payload), "id %d", id)
	}
	require.EqualValues(t, len(ids), testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "audit"))
}

// unique is a trigger that drops a job that already exists, as an application might define it.
const unique = `CREATE TRIGGER once BEFORE INSERT ON _honker_live
WHEN EXISTS (SELECT 1 FROM _honker_live WHERE queue = NEW.queue AND payload = NEW.payload) BEGIN SELECT RAISE(IGNORE); END`

// An enqueue whose job is dropped by a trigger returns an error rather than another job's id. EnqueueMany
// then adds none of its jobs.
func TestQueue_Enqueue_TriggerDrops(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, unique)
	testkit.Enqueue(t, q, 1)
	other := testkit.Enqueue(t, honker.NewQueue[int](db, "payments", nil), 7)
	id, err := q.Enqueue(ctx, 1)
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.ErrorContains(t, err, `honker: enqueue "jobs": not inserted`)
	require.Zero(t, id)
	ids, err := q.EnqueueMany(ctx, []int{2, 1, 3})
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.Empty(t, ids)
	err = db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 1)
		require.ErrorIs(t, err, honker.ErrNotInserted)
		id, err = q.EnqueueTx(ctx, tx, 4) // the transaction is still usable
		return err
	})
	require.NoError(t, err)
	require.Equal(t, "4", string(testkit.GetJob(t, q, id).Payload))
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), testkit.CountQueue, "jobs"))
	var dropped any
	require.NoError(t, db.SQL().QueryRow(`SELECT honker_enqueue('jobs', '1', NULL, NULL, 0, 3, NULL)`).Scan(&dropped))
	require.Nil(t, dropped, "no id, where honker says %d", other)
}

type headers = map[string]string

type tenantKey struct{}

// tenantOf implements Options.Headers. It adds ctx's tenant.
func tenantOf(ctx context.Context) headers {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return nil
	}
	return headers{"tenant": tenant, "by": "options"}
}

// A job keeps its headers through every state.
func TestHeaders_StayWithTheJob(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
	want := headers{"tenant": "acme", "trace.id": `"\` + "\n☃<&>"}
	id := testkit.Enqueue(t, q, 1, honker.Headers(want))
	testkit.Enqueue(t, q, 2)
	has := func(when string, phase honker.Phase) {
		t.Helper()
		job, err := db.Job(ctx, id)
		require.NoError(t, err, when)
		require.Equal(t, phase, job.Phase, when)
		require.Equal(t, want, job.Headers, when)
	}
	claimed := func() *honker.Job[int] {
		t.Helper()
		for _, job := range testkit.Claim(t, q, 2) {
			if job.ID == id {
				require.Equal(t, want, job.Headers, "in the claim")
				return job
			}
			require.Nil(t, job.Headers, "of a plain job")
			require.NoError(t, job.Snooze(ctx, time.Hour))
		}
		t.Fatal("not claimed")
		return nil
	}
	has("it waits", honker.PhaseReady)
	job := claimed()
	has("it runs", honker.PhaseRunning)
	require.NoError(t, job.Retry(ctx, 0, fmt.Errorf("again")))
	has("it waits again", honker.PhaseReady)
	job = claimed()
	require.Equal(t, "again", job.LastError)
	require.NoError(t, job.Reject(ctx, fmt.Errorf("no")))
	has("it is dead", honker.PhaseDead)
	id = testkit.Enqueue(t, q, 1, honker.Headers(want))
	require.NoError(t, claimed().Ack(ctx))
	has("it is done", honker.PhaseDone)
	requireSound(t, db)
}

// Another binding can claim, fail and ack jobs with headers. It sees only the arguments, and jobs that it
// dead-letters keep their headers.
func TestHeaders_Binding(t *testing.T) {
	testkit.FileOnly(t)
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	ids, err := q.EnqueueMany(t.Context(), []int{1, 2}, honker.Headers(headers{"a": "b"}))
	require.NoError(t, err)
	jobs := other.Claim("jobs", "them", 2, 60)
	require.Len(t, jobs, 2)
	require.Equal(t, "1", fmt.Sprint(jobs[0].Payload))
	other.Fail(ids[0], "them", "no")
	require.EqualValues(t, 1, other.Ack(ids[1], "them"))
	job, err := db.Job(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseDead, job.Phase)
	require.Equal(t, headers{"a": "b"}, job.Headers)
	require.Equal(t, int64(0), testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job`))
	requireSound(t, db)
}

// Options.Headers adds headers from each enqueue's ctx. The enqueue's own headers take precedence.
func TestHeaders_Options(t *testing.T) {
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: tenantOf})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := context.WithValue(testkit.Context(t, testkit.Timeout), tenantKey{}, "acme")
	all := headers{"tenant": "acme", "by": "options"}
	own := headers{"by": "hand", "x": "y"}
	mixed := headers{"tenant": "acme", "by": "hand", "x": "y"}
	check := func(what string, id int64, err error, want headers) {
		t.Helper()
		require.NoError(t, err, what)
		job, err := db.Job(ctx, id)
		require.NoError(t, err, what)
		require.Equal(t, want, job.Headers, what)
	}
	id, err := q.Enqueue(ctx, 1)
	check("one", id, err, all)
	id, err = q.Enqueue(ctx, 1, honker.Headers(own))
	check("with its own", id, err, mixed)
	require.Equal(t, headers{"by": "hand", "x": "y"}, own, "they are the caller's")
	id, err = q.Enqueue(ctx, 1, honker.Headers(headers{"x": "1", "z": "2"}), honker.Headers(headers{"x": "3"}))
	check("twice", id, err, headers{"tenant": "acme", "by": "options", "x": "3", "z": "2"})
	id, err = q.Enqueue(testkit.Context(t, testkit.Timeout), 1)
	check("another ctx", id, err, nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 300), honker.Headers(own))
	check("the first of many", ids[0], err, mixed)
	check("the last of many", ids[299], err, mixed)
	id, err = q.Enqueue(ctx, 1, honker.Key("k"))
	check("with a key", id, err, all)
	id, err = q.Enqueue(ctx, 1, honker.Unique("u", nil), honker.Key("k"))
	check("with a unique key", id, err, all)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = q.EnqueueTx(ctx, tx, 1)
		return err
	}))
	check("in a transaction", id, err, all)
	id, err = honker.NewOutbox(db, "mail", func(context.Context, int) error { return nil }, nil).Send(ctx, 1)
	check("outbox", id, err, all)

	s := db.Scheduler()
	require.NoError(t, s.Register(ctx, honker.Schedule{Name: "a", Queue: "cron", Spec: "@every 1s"}))
	id, err = s.Trigger(ctx, "a")
	check("trigger", id, err, all)
	fires, err := s.Tick(ctx, time.Now().Add(3*time.Second))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(fires), 2)
	check("tick", fires[1].JobID, nil, all)
	requireSound(t, db)
}

// A job that is handed to a waiting worker in the same process also has its headers.
func TestHeaders_Handoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db, q := testkit.NewQueue[int](t, nil)
		got := make(chan headers, 2)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { got <- job.Headers; return nil }, nil)
		synctest.Wait()
		_, err := q.EnqueueMany(ctx, []int{1}, honker.Headers(headers{"a": "b"}))
		require.NoError(t, err)
		require.Equal(t, headers{"a": "b"}, <-got)
		stop()
		requireSound(t, db)
	})
}

// An enqueue that replaces the arguments of the job with its unique key also replaces the headers. An
// enqueue that only finds the job changes neither.
func TestHeaders_Unique(t *testing.T) {
	for conflict, want := range map[honker.Conflict]headers{
		honker.KeepExisting: {"n": "1"}, honker.ReplaceWaiting: {"n": "2"}, honker.RunAgain: {"n": "2"},
	} {
		_, db, q := testkit.NewQueue[int](t, nil)
		u := honker.Unique("k", &honker.Uniqueness{Conflict: conflict})
		p := place(t, q, 1, u, honker.Headers(headers{"n": "1"}))
		require.Equal(t, headers{"n": "1"}, place(t, q, 2, u, honker.Headers(headers{"n": "2"})).Of.Headers)
		require.Equal(t, want, testkit.GetJob(t, q, p.ID).Headers, conflict)
		if conflict == honker.RunAgain {
			testkit.ClaimOne(t, q)
			again := place(t, q, 3, u, honker.Headers(headers{"n": "3"}))
			require.Equal(t, headers{"n": "3"}, testkit.GetJob(t, q, again.ID).Headers)
			require.Equal(t, want, testkit.GetJob(t, q, p.ID).Headers, "of the job that runs")
			place(t, q, 4, u)
			require.Nil(t, testkit.GetJob(t, q, again.ID).Headers, "no headers is a change too")
		}
		requireSound(t, db)
	}
}

// Options.Headers is not called for an enqueue that adds nothing, and never with a nil ctx.
func TestHeaders_Options_NothingToAdd(t *testing.T) {
	calls := 0
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: func(ctx context.Context) map[string]string {
		calls++
		return tenantOf(ctx) // panics if ctx is nil
	}})
	ctx, q, s := testkit.Context(t, testkit.Timeout), honker.NewQueue[int](db, "jobs", nil), db.Scheduler()
	require.NoError(t, s.Register(ctx, honker.Schedule{Name: "a", Queue: "jobs", Spec: "@every 1h"}))
	for what, verb := range map[string]func(context.Context) error{
		"Enqueue":     func(ctx context.Context) error { _, err := q.Enqueue(ctx, 1); return err },
		"EnqueueMany": func(ctx context.Context) error { _, err := q.EnqueueMany(ctx, []int{1}); return err },
		"Trigger":     func(ctx context.Context) error { _, err := s.Trigger(ctx, "a"); return err },
		"Tick":        func(ctx context.Context) error { _, err := s.Tick(ctx, time.Now()); return err },
	} {
		require.NotPanics(t, func() { require.ErrorIs(t, verb(nil), honker.ErrInvalid, what) }, what)
	}
	ids, err := q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, ids)
	require.Zero(t, calls)
	_, err = q.EnqueueMany(ctx, nil, honker.Headers(headers{"": "x"}))
	require.ErrorIs(t, err, honker.ErrInvalid, "what is wrong with the call is an error all the same")
}

// Invalid headers are refused, and no job is added.
func TestHeaders_Invalid(t *testing.T) {
	most, many := headers{}, headers{"64": ""}
	for i := range 64 {
		most[fmt.Sprint(i)], many[fmt.Sprint(i)] = "", ""
	}
	ctx, _, q := testkit.NewQueue[int](t, nil)
	for what, h := range map[string]headers{
		"too many": many, "too large": {"a": strings.Repeat("x", 8<<10)}, "no name": {"": "x"}, "NUL": {"a": "\x00"}, "no text": {"a\xff": "x"},
	} {
		_, err := q.Enqueue(ctx, 1, honker.Headers(h))
		require.ErrorIs(t, err, honker.ErrInvalid, what)
		require.ErrorContains(t, err, "header", what)
	}
	require.Zero(t, liveJobs(t, q))
	for _, h := range []headers{most, {"a": strings.Repeat("x", 8<<10-1)}} {
		require.Equal(t, h, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1, honker.Headers(h))).Headers)
	}
	require.Nil(t, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1, honker.Headers(nil), honker.Headers(headers{}))).Headers)

	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: func(context.Context) map[string]string { return many }})
	_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A plain job has no side row, with or without Options.Headers.
func TestHeaders_PlainJob(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: tenantOf})
	testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT (SELECT count(*) FROM _honkerx_job) + (SELECT count(*) FROM sqlite_schema WHERE name = '_honkerx_unique_gone')`))
}
