package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
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
	const behind = 4
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	path := filepath.Join(t.TempDir(), "file.db")
	for name, db := range map[string]*honker.DB{"opened": honkertest.OpenFile(t, path, nil), "attached": testkit.Attach(t, path)} {
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

// Jobs that other writers have enqueued meanwhile, in any way, are claimed before the job that is handed
// over.
func TestHandoff_OthersFirst(t *testing.T) {
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

// A job is handed over with a whole lease. The lease starts when the enqueue gets the writer, however long
// it waited for it.
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

// A job that is handed over costs one statement and one commit from its enqueue to its handler. The
// counting trigger has a name that honker reserves, because a trigger of the application prevents the
// handoff.
func TestHandoff_WrittenOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{MaxAttempts: 5})
		testkit.Exec(t, db, `CREATE TABLE updates (id)`)
		testkit.Exec(t, db, `CREATE TRIGGER _honker_test AFTER UPDATE ON _honker_live BEGIN INSERT INTO updates VALUES (NEW.id); END`)
		var said, stored *honker.JobInfo
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			said, stored = &job.JobInfo, testkit.GetJob(t, q, job.ID)
			return nil
		}, nil)
		synctest.Wait()
		testkit.Enqueue(t, q, 1, honker.Priority(3), honker.ExpiresIn(time.Hour))
		synctest.Wait()
		require.Equal(t, stored, said)
		require.Equal(t, 5, said.MaxAttempts)
		require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM updates`))
		require.NoError(t, stop())
	})
}

// A failed enqueue hands over no job.
func TestHandoff_FailedEnqueue(t *testing.T) {
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
		require.LessOrEqual(t, testkit.QueryInt(t, db.SQL(), processing), int64(4))
		close(release)
		require.NoError(t, stop())
	})
}

const slow = 1

// A worker that stops leaves no job claimed, at whatever moment of its shutdown a job is handed over.
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
		<-time.After(time.Duration(round%10) * 100 * time.Microsecond) // any moment of its start
		all.Go(func() { testkit.Enqueue(t, q, round) })
		<-time.After(time.Duration(round%7) * 20 * time.Microsecond)
		stop()
		all.Wait()
		require.Zero(t, testkit.QueryInt(t, db.SQL(), processing))
	}
}

// Each job is delivered once while loops begin, end and are called in any order.
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
				part, stop := context.WithTimeout(ctx, time.Duration(1+round%5)*time.Millisecond)
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
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
}

// If the application has a trigger on the jobs, nothing is handed over. The handler sees the row as the
// trigger left it.
func TestEnqueue_Handoff_ForeignTrigger(t *testing.T) {
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

// mirrored is a trigger that copies every job of "jobs" to "audit" with the SQL functions, as an
// application might.
const mirrored = `CREATE TRIGGER mirror AFTER INSERT ON _honker_live WHEN NEW.queue = 'jobs'
BEGIN SELECT honker_enqueue('audit', NEW.payload, NULL, NULL, 0, 3, NULL); END`

// EnqueueMany returns the ids of its own jobs even if a trigger inserts others in between.
func TestQueue_EnqueueMany_TriggerAdds(t *testing.T) {
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

// An enqueue whose job is dropped by a trigger returns an error and not the id of another job. EnqueueMany
// then adds no job of the batch.
func TestQueue_Enqueue_TriggerDrops(t *testing.T) {
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
