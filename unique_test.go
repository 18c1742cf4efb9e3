package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// place enqueues n and returns the result.
func place(t testing.TB, q *honker.Queue[int], n int, opts ...honker.EnqueueOption) (p honker.Placement) {
	t.Helper()
	id, err := q.Enqueue(context.Background(), n, append(opts, honker.Placed(&p))...)
	require.NoError(t, err)
	require.Equal(t, id, p.ID)
	return p
}

// requireSound runs Check on the file.
func requireSound(t testing.TB, db *honker.DB) {
	t.Helper()
	require.NoError(t, db.Check(context.Background()))
}

// Of many simultaneous enqueues with the same key through several handles, exactly one adds a job.
func TestUnique_Race_OneJob(t *testing.T) {
	path, db := testkit.OpenShared(t)
	dbs := []*honker.DB{db, honkertest.OpenFile(t, path, nil), testkit.Attach(t, path, nil)}
	var mu sync.Mutex
	for round := range 20 {
		key := fmt.Sprint("key", round)
		results := map[honker.PlaceResult]int{}
		ids := map[int64]bool{}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				q := honker.NewQueue[int](dbs[i%len(dbs)], "jobs", nil)
				var p honker.Placement
				_, err := q.Enqueue(context.Background(), i, honker.Unique(key, nil), honker.Placed(&p))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				results[p.Result]++
				ids[p.ID] = true
			})
		}
		wg.Wait()
		require.Equal(t, map[honker.PlaceResult]int{honker.PlacedNew: 1, honker.PlacedExisting: 11}, results)
		require.Len(t, ids, 1)
	}
	requireSound(t, db)
}

// A rolled-back enqueue leaves no key behind. An enqueue that finds the key taken does not break its
// transaction.
func TestUnique_Tx(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	undo := errors.New("undo")
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 1, honker.Unique("k", nil))
		require.NoError(t, err)
		return undo
	}), undo)
	first := place(t, q, 2, honker.Unique("k", nil))
	require.Equal(t, honker.PlacedNew, first.Result)
	var p honker.Placement
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 3, honker.Unique("k", nil), honker.Placed(&p))
		return err
	}))
	require.Equal(t, honker.PlacedExisting, p.Result)
	require.Equal(t, first.ID, p.ID)
	require.Equal(t, "2", string(p.Of.Payload))
	require.Equal(t, honker.StatePending, p.Of.State)
	requireSound(t, db)
}

// ends lists the ways in which a claimed job can end.
var ends = map[string]func(t *testing.T, q *honker.Queue[int], job *honker.Job[int]){
	"ack": func(t *testing.T, _ *honker.Queue[int], job *honker.Job[int]) {
		require.NoError(t, job.Ack(t.Context()))
	},
	"reject": func(t *testing.T, _ *honker.Queue[int], job *honker.Job[int]) {
		require.NoError(t, job.Reject(t.Context(), testkit.ErrCause))
	},
	"ack many": func(t *testing.T, q *honker.Queue[int], job *honker.Job[int]) {
		n, err := q.AckMany(t.Context(), "w", []int64{job.ID})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	},
	"cancel": func(t *testing.T, q *honker.Queue[int], job *honker.Job[int]) {
		_, err := q.Cancel(t.Context(), job.ID)
		require.NoError(t, err)
	},
	"last attempt": func(t *testing.T, _ *honker.Queue[int], job *honker.Job[int]) {
		job.MaxAttempts = 0
		require.NoError(t, job.Retry(t.Context(), 0, testkit.ErrCause))
	},
}

// Acks, cancels, deaths and every other way for a job to end free its key.
func TestUnique_Freed(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			_, db, q := testkit.NewQueue[int](t, nil)
			first := place(t, q, 1, honker.Unique("k", nil), honker.MaxAttempts(1))
			job := testkit.ClaimOne(t, q)
			require.Equal(t, honker.PlacedExisting, place(t, q, 2, honker.Unique("k", nil)).Result, "it runs")
			end(t, q, job)
			second := place(t, q, 3, honker.Unique("k", nil))
			require.Equal(t, honker.PlacedNew, second.Result)
			require.NotEqual(t, first.ID, second.ID)
			requireSound(t, db)
		})
	}
}

// A binding that knows nothing about unique keys frees them with its acks and deaths.
func TestUnique_Freed_Binding(t *testing.T) {
	testkit.FileOnly(t)
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	for _, end := range []func(id int64){
		func(id int64) { require.EqualValues(t, 1, other.Ack(id, "py")) },
		func(id int64) { other.Fail(id, "py", "no") },
		func(id int64) { other.Change(`DELETE FROM _honker_live WHERE id = ?`, id) },
	} {
		p := place(t, q, 1, honker.Unique("k", nil))
		require.Equal(t, honker.PlacedNew, p.Result)
		require.Len(t, other.Claim("jobs", "py", 1, 60), 1)
		again := place(t, q, 2, honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain}))
		require.Equal(t, honker.PlacedAgain, again.Result)
		require.Empty(t, other.Claim("jobs", "py", 1, 60), "the successor is held")
		end(p.ID)
		claimed := other.Claim("jobs", "py", 1, 60)
		require.Len(t, claimed, 1, "it can run in the same commit")
		require.Equal(t, again.ID, claimed[0].ID)
		require.EqualValues(t, 1, other.Ack(again.ID, "py"))
		requireSound(t, db)
	}
	require.Equal(t, honker.PlacedNew, place(t, q, 3, honker.Unique("k", nil)).Result)
}

// An UntilStarted key ends with the first claim. Neither a retry nor a snooze restores it.
func TestUnique_UntilStarted(t *testing.T) {
	started := honker.Unique("k", &honker.Uniqueness{Until: honker.UntilStarted})
	for name, back := range map[string]func(ctx context.Context, job *honker.Job[int]) error{
		"retry":  func(ctx context.Context, job *honker.Job[int]) error { return job.Retry(ctx, 0, nil) },
		"snooze": func(ctx context.Context, job *honker.Job[int]) error { return job.Snooze(ctx, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db, q := testkit.NewQueue[int](t, nil)
			first := place(t, q, 1, started)
			require.Equal(t, honker.PlacedExisting, place(t, q, 2, started).Result)
			require.NoError(t, back(ctx, testkit.ClaimOne(t, q)))
			second := place(t, q, 3, started)
			require.Equal(t, honker.PlacedNew, second.Result)
			require.Equal(t, honker.PlacedExisting, place(t, q, 4, started).Result, "the second one has it")
			require.Len(t, testkit.Claim(t, q, 5), 2, "the key does not bind the first one's own attempts")
			_, err := q.Cancel(ctx, first.ID)
			require.NoError(t, err)
			requireSound(t, db)
		})
	}
}

// A claim by another binding also counts as the first claim.
func TestUnique_UntilStarted_Binding(t *testing.T) {
	testkit.FileOnly(t)
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	started := honker.Unique("k", &honker.Uniqueness{Until: honker.UntilStarted})
	place(t, q, 1, started)
	require.Len(t, other.Claim("jobs", "py", 1, 60), 1)
	require.Equal(t, honker.PlacedNew, place(t, q, 2, started).Result)
	requireSound(t, db)
}

// The conflict policy determines how an enqueue affects a waiting job and a running job.
func TestUnique_Conflict(t *testing.T) {
	testkit.FileOnly(t)
	modes := map[honker.Conflict][2]honker.PlaceResult{
		honker.KeepExisting:   {honker.PlacedExisting, honker.PlacedExisting},
		honker.ReplaceWaiting: {honker.PlacedReplaced, honker.PlacedExisting},
		honker.RunAgain:       {honker.PlacedReplaced, honker.PlacedAgain},
	}
	for conflict, want := range modes {
		t.Run(fmt.Sprint(conflict), func(t *testing.T) {
			_, db, q := testkit.NewQueue[int](t, nil)
			with := func(opts ...honker.EnqueueOption) []honker.EnqueueOption {
				return append(opts, honker.Unique("k", &honker.Uniqueness{Conflict: conflict}))
			}
			first := place(t, q, 1, with(honker.Delay(time.Hour))...)
			got := place(t, q, 2, with(honker.Priority(7), honker.MaxAttempts(3))...)
			require.Equal(t, want[0], got.Result)
			require.Equal(t, first.ID, got.ID)
			require.Equal(t, "1", string(got.Of.Payload), "it is shown as it was")
			info := testkit.GetJob(t, q, first.ID)
			if got.Result == honker.PlacedReplaced {
				require.Equal(t, "2", string(info.Payload))
				require.Equal(t, []int{7, 3}, []int{info.Priority, info.MaxAttempts})
				require.WithinDuration(t, time.Now(), info.RunAt, time.Minute)
			} else {
				require.Equal(t, "1", string(info.Payload))
				testkit.Exec(t, db, `UPDATE _honker_live SET run_at = 0`)
			}
			testkit.ClaimOne(t, q)
			got = place(t, q, 3, with()...)
			require.Equal(t, want[1], got.Result)
			require.Equal(t, honker.StateProcessing, got.Of.State)
			requireSound(t, db)
		})
	}
}

// A job that is replaced between two attempts has the new enqueue's attempts, and the failed attempt's
// backoff does not delay it.
func TestUnique_ReplaceWaiting_Retried(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	replace := honker.Unique("k", &honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	place(t, q, 1, replace, honker.MaxAttempts(2), honker.ExpiresIn(time.Hour))
	require.NoError(t, testkit.ClaimOne(t, q).Retry(ctx, time.Hour, testkit.ErrCause))
	require.Equal(t, honker.PlacedReplaced, place(t, q, 2, replace, honker.MaxAttempts(2)).Result)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, []int{2, 3}, []int{job.Attempts, job.MaxAttempts})
	require.Equal(t, 2, job.Args)
	require.Zero(t, job.ExpiresAt)
	requireSound(t, db)
}

// A job with a lapsed claim counts as waiting, because its worker can no longer settle it.
func TestUnique_Lapsed(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
	p := place(t, q, 1, again, honker.MaxAttempts(1))
	stale := testkit.ClaimOne(t, q)
	testkit.ExpireClaim(t, db, p.ID)
	require.Equal(t, honker.PlacedNew, place(t, q, 2, again, honker.MaxAttempts(1)).Result, "it can never run again")
	_, err := q.Cancel(ctx, p.ID)
	require.NoError(t, err)
	require.ErrorIs(t, stale.Ack(ctx), honker.ErrClaimLost)

	second := testkit.ClaimOne(t, q)
	testkit.Exec(t, db, `UPDATE _honker_live SET max_attempts = 2`)
	testkit.ExpireClaim(t, db, second.ID)
	require.Equal(t, honker.PlacedReplaced, place(t, q, 3, again).Result)
	require.ErrorIs(t, second.Ack(ctx), honker.ErrClaimLost)
	require.Equal(t, 3, testkit.ClaimOne(t, q).Args)
	requireSound(t, db)
}

// An expired job, or a job without attempts left, doesn't hold a key even before a sweep.
func TestUnique_NeverRuns(t *testing.T) {
	testkit.FileOnly(t)
	for name, spoil := range map[string]string{
		"expired":   `UPDATE _honker_live SET expires_at = unixepoch() - 1`,
		"exhausted": `UPDATE _honker_live SET attempts = max_attempts`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db, q := testkit.NewQueue[int](t, nil)
			first := place(t, q, 1, honker.Unique("k", nil))
			testkit.Exec(t, db, spoil)
			second := place(t, q, 2, honker.Unique("k", nil))
			require.Equal(t, honker.PlacedNew, second.Result)
			testkit.Exec(t, db, `DELETE FROM _honker_live WHERE id = ?`, first.ID)
			require.Equal(t, honker.PlacedExisting, place(t, q, 3, honker.Unique("k", nil)).Result, "the old job takes nothing with it")
			_, err := q.Cancel(ctx, second.ID)
			require.NoError(t, err)
			requireSound(t, db)
		})
	}
}

// JobInfo shows the key while the job exists.
func TestUnique_JobInfo(t *testing.T) {
	_, _, q := testkit.NewQueue[int](t, nil)
	require.Equal(t, "k", testkit.GetJob(t, q, place(t, q, 1, honker.Unique("k", nil)).ID).Unique)
	require.Empty(t, testkit.GetJob(t, q, place(t, q, 1).ID).Unique)
}

// ReleaseUnique frees the key and keeps the job. A successor no longer waits for it.
func TestQueue_ReleaseUnique(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
	released, err := q.ReleaseUnique(ctx, "k")
	require.NoError(t, err)
	require.False(t, released)
	first := place(t, q, 1, again)
	job := testkit.ClaimOne(t, q)
	place(t, q, 2, again)
	released, err = q.ReleaseUnique(ctx, "k")
	require.NoError(t, err)
	require.True(t, released)
	require.Equal(t, 2, testkit.ClaimOne(t, q).Args)
	require.Empty(t, testkit.GetJob(t, q, first.ID).Unique)
	requireSound(t, db)
	require.Equal(t, honker.PlacedNew, place(t, q, 3, again).Result)
	require.NoError(t, job.Ack(ctx))
	require.Equal(t, honker.PlacedReplaced, place(t, q, 4, again).Result, "the end of the first job frees nothing")
	released, err = q.ReleaseUnique(ctx, "other")
	require.NoError(t, err)
	require.False(t, released)
}

// Keys of different queues are independent.
func TestUnique_Queues(t *testing.T) {
	_, db, q := testkit.NewQueue[int](t, nil)
	place(t, q, 1, honker.Unique("k", nil))
	require.Equal(t, honker.PlacedNew, place(t, honker.NewQueue[int](db, "other", nil), 1, honker.Unique("k", nil)).Result)
}

// Added jobs and deduplicated enqueues are reported to separate functions of the observer.
func TestUnique_Observer(t *testing.T) {
	s := new(testkit.Recorder)
	var found []observe.Deduplicated
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{
		Enqueued:     func(e observe.Enqueued) { testkit.Record(s, &s.Enqueued, e) },
		Deduplicated: func(e observe.Deduplicated) { found = append(found, e) },
	}})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := testkit.Context(t, testkit.Timeout)
	ids, err := q.EnqueueMany(ctx, []int{1, 2, 1}, honker.UniqueArgs(nil))
	require.NoError(t, err)
	_, err = q.Enqueue(ctx, 2, honker.UniqueArgs(&honker.Uniqueness{Conflict: honker.ReplaceWaiting}))
	require.NoError(t, err)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.EnqueueTx(ctx, tx, 2, honker.UniqueArgs(nil))
		return err
	}))
	require.Equal(t, []observe.Enqueued{{Queue: "jobs", IDs: ids[:2]}}, s.Enqueued)
	require.Equal(t, []observe.Deduplicated{{Queue: "jobs", Existing: 1}, {Queue: "jobs", Replaced: 1}, {Queue: "jobs", Existing: 1, Tx: true}}, found)
}

// If an application trigger drops the job, no key is left behind.
func TestUnique_NotInserted(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	testkit.Exec(t, db, `CREATE TRIGGER drop_it BEFORE INSERT ON _honker_live WHEN NEW.payload = '13' BEGIN SELECT RAISE(IGNORE); END`)
	_, err := q.Enqueue(ctx, 13, honker.Unique("k", nil))
	require.ErrorIs(t, err, honker.ErrNotInserted)
	require.Equal(t, honker.PlacedNew, place(t, q, 1, honker.Throttle("k", time.Hour)).Result)
	require.NoError(t, testkit.ClaimOne(t, q).Ack(ctx))
	testkit.Exec(t, db, `UPDATE _honkerx_unique SET until_ms = 1`)
	_, err = q.Enqueue(ctx, 13, honker.Unique("k", nil))
	require.ErrorIs(t, err, honker.ErrNotInserted, "the key is there, and its time is over")
	requireSound(t, db)
}

// A file without unique keys has no trigger for them, and a plain enqueue creates none.
func TestUnique_Triggers(t *testing.T) {
	testkit.FileOnly(t)
	_, db, q := testkit.NewQueue[int](t, nil)
	triggers := func() int64 {
		return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '_honkerx_unique*'`)
	}
	place(t, q, 1)
	require.Zero(t, triggers())
	place(t, q, 1, honker.Unique("k", nil))
	require.EqualValues(t, 3, triggers())
	place(t, q, 1, honker.Debounce("d", 1, time.Second))
	require.EqualValues(t, 4, triggers())
}

// At most one successor waits for a running job to end. It has the newest arguments, even while the
// running job waits for its next attempt.
func TestUnique_RunAgain_OneSuccessor(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
	place(t, q, 1, again)
	job := testkit.ClaimOne(t, q)
	next := place(t, q, 2, again)
	require.Equal(t, honker.PlacedAgain, next.Result)
	require.Equal(t, job.ID, next.Of.ID)
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, next.ID).State)
	for n := 3; n < 6; n++ {
		p := place(t, q, n, again)
		require.Equal(t, honker.PlacedReplaced, p.Result)
		require.Equal(t, next.ID, p.ID)
	}
	require.NoError(t, job.Retry(ctx, 0, testkit.ErrCause))
	require.Equal(t, next.ID, place(t, q, 6, again).ID)
	require.Equal(t, honker.PlacedExisting, place(t, q, 7, honker.Unique("k", nil)).Result)
	requireSound(t, db)

	job = testkit.ClaimOne(t, q)
	require.Equal(t, 1, job.Args, "the arguments of a job that has run are its own")
	require.Empty(t, testkit.Claim(t, q, 1))
	require.NoError(t, job.Ack(ctx))
	last := testkit.ClaimOne(t, q)
	require.Equal(t, []any{next.ID, 6}, []any{last.ID, last.Args})
	require.Equal(t, honker.PlacedAgain, place(t, q, 8, again).Result, "and so on")
	requireSound(t, db)
}

// Cancelling a successor leaves the key to the running job, and another successor can be enqueued.
func TestUnique_RunAgain_CancelSuccessor(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
	place(t, q, 1, again)
	job := testkit.ClaimOne(t, q)
	next := place(t, q, 2, again)
	cancelled, err := q.Cancel(ctx, next.ID)
	require.NoError(t, err)
	require.True(t, cancelled)
	requireSound(t, db)
	require.Equal(t, honker.PlacedAgain, place(t, q, 3, again).Result)
	require.NoError(t, job.Ack(ctx))
	require.Equal(t, 3, testkit.ClaimOne(t, q).Args)
}

// Work starts the successor as soon as the previous job has ended, without polling.
func TestUnique_RunAgain_Work(t *testing.T) {
	for name, end := range map[string]error{"ack": nil, "death": honker.Reject(testkit.ErrCause)} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				q := honker.NewQueue[int](db, "jobs", nil)
				again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
				release, ran := make(chan struct{}), make(chan int, 10)
				stop := testkit.Work(t, q, func(ctx context.Context, job *honker.Job[int]) error {
					ran <- job.Args
					select {
					case <-release:
					case <-ctx.Done(): // unblocks the handler if the test fails
					}
					return end
				}, &honker.WorkOptions{Workers: 4})
				synctest.Wait() // the workers are idle; a job with a key is not handed to an idle worker
				require.Equal(t, honker.PlacedNew, place(t, q, 1, again).Result)
				synctest.Wait()
				for n := 2; n < 5; n++ {
					place(t, q, n, again)
				}
				synctest.Wait()
				require.Len(t, ran, 1, "not beside the first")
				began := time.Now()
				close(release)
				require.Equal(t, 1, <-ran)
				require.Equal(t, 4, <-ran)
				require.Less(t, time.Since(began), time.Second)
				synctest.Wait()
				require.Empty(t, ran)
				require.NoError(t, stop())
				requireSound(t, db)
			})
		})
	}
}

// For keeps the key after its job is gone, but no longer than the given duration. Enqueues that find the key don't
// prolong it.
func TestUnique_For(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		throttle := honker.Throttle("k", time.Minute)
		first := place(t, q, 1, throttle)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(context.Background()))
		time.Sleep(time.Minute - time.Millisecond)
		p := place(t, q, 2, throttle)
		require.Equal(t, honker.PlacedExisting, p.Result)
		require.Equal(t, honker.JobInfo{ID: first.ID, Queue: "jobs"}, p.Of, "the job is gone")
		for _, conflict := range []honker.Conflict{honker.ReplaceWaiting, honker.RunAgain} {
			require.Equal(t, honker.PlacedExisting, place(t, q, 2, honker.Unique("k", &honker.Uniqueness{Conflict: conflict})).Result)
		}
		time.Sleep(time.Millisecond)
		require.Equal(t, honker.PlacedNew, place(t, q, 3, throttle).Result)
		time.Sleep(2 * time.Minute)
		require.Equal(t, honker.PlacedExisting, place(t, q, 4, throttle).Result, "the job waits still")
		requireSound(t, db)
	})
}

// For outlasts the first claim.
func TestUnique_For_UntilStarted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Hour})
		u := honker.Unique("k", &honker.Uniqueness{Until: honker.UntilStarted, For: time.Minute, Conflict: honker.RunAgain})
		place(t, q, 1, u)
		job := testkit.ClaimOne(t, q)
		next := place(t, q, 2, u)
		require.Equal(t, honker.PlacedAgain, next.Result)
		time.Sleep(2 * time.Minute)
		require.Equal(t, honker.PlacedReplaced, place(t, q, 3, u).Result, "a successor waits")
		require.NoError(t, job.Ack(context.Background()))
		require.Equal(t, 3, testkit.ClaimOne(t, q).Args)
		require.Equal(t, honker.PlacedNew, place(t, q, 4, u).Result)
		requireSound(t, db)
	})
}

// A job's successor holds the key at least as long as the job would have, and is debounced separately.
func TestUnique_For_Successor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Hour})
		place(t, q, 1, honker.Throttle("k", time.Minute))
		job := testkit.ClaimOne(t, q)
		time.Sleep(20 * time.Second)
		again := honker.Unique("k", &honker.Uniqueness{Conflict: honker.RunAgain})
		require.Equal(t, honker.PlacedAgain, place(t, q, 2, again).Result)
		p := place(t, q, 3, honker.Debounce("k", 5*time.Second, 10*time.Second))
		require.Equal(t, honker.PlacedReplaced, p.Result)
		require.Equal(t, time.Now().Add(5*time.Second), testkit.GetJob(t, q, p.ID).RunAt, "max counts from the successor on")
		require.NoError(t, job.Ack(context.Background()))
		time.Sleep(5 * time.Second)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(context.Background()))
		time.Sleep(35*time.Second - time.Millisecond)
		require.Equal(t, honker.PlacedExisting, place(t, q, 4, again).Result)
		time.Sleep(time.Millisecond)
		require.Equal(t, honker.PlacedNew, place(t, q, 5, again).Result)
		requireSound(t, db)
	})
}

// Maintain deletes only keys whose time has passed.
func TestUnique_For_Maintain(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		keys := func() int64 { return testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_unique`) }
		for n := range 10 {
			place(t, q, n, honker.Throttle(fmt.Sprint("short", n), time.Minute))
			place(t, q, n, honker.Throttle(fmt.Sprint("long", n), time.Hour))
		}
		for _, job := range testkit.Claim(t, q, 19) {
			require.NoError(t, job.Ack(context.Background()))
		}
		require.EqualValues(t, 20, keys())
		stop := testkit.Background(t, func(ctx context.Context) error { return db.Maintain(ctx, nil) })
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 20, keys())
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 10, keys(), "the job of a long one waits")
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, keys())
		require.NoError(t, stop())
		require.Equal(t, honker.PlacedExisting, place(t, q, 1, honker.Unique("long9", nil)).Result)
		requireSound(t, db)
	})
}

// Debounce runs a job with the latest arguments, after wait has passed since the last enqueue and no later than max
// after the first.
func TestDebounce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		type run struct {
			args int
			at   time.Duration
		}
		began := time.Now()
		var runs []run
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			runs = append(runs, run{job.Args, time.Since(began)})
			return nil
		}, nil)
		for n := range 25 { // every second from 0.5 s to 24.5 s
			time.Sleep(500 * time.Millisecond)
			place(t, q, n, honker.Debounce("k", 3*time.Second, 10*time.Second))
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		place(t, q, 99, honker.Debounce("k", 300*time.Millisecond, 10*time.Second))
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []run{{10, 11 * time.Second}, {21, 22 * time.Second}, {24, 28 * time.Second}, {99, 86 * time.Second}}, runs)
		requireSound(t, db)
	})
}

// Enqueues while a debounced job is running start the next debounce period.
func TestDebounce_WhileRunning(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[int](db, "jobs", nil)
		debounce := honker.Debounce("k", time.Second, time.Minute)
		place(t, q, 1, debounce)
		time.Sleep(time.Second)
		job := testkit.ClaimOne(t, q)
		require.Equal(t, honker.PlacedNew, place(t, q, 2, debounce).Result)
		require.Equal(t, honker.PlacedReplaced, place(t, q, 3, debounce).Result)
		require.NoError(t, job.Ack(context.Background()))
		time.Sleep(time.Second)
		require.Equal(t, 3, testkit.ClaimOne(t, q).Args)
		requireSound(t, db)
	})
}

// uniqueArgs is a payload with several fields.
type uniqueArgs struct {
	Order  int             `json:"order"`
	Note   string          `json:"note"`
	Amount json.RawMessage `json:"amount"`
}

// UniqueArgs compares the named fields and ignores the others. Numbers are compared as written.
func TestUniqueArgs(t *testing.T) {
	ctx, db, q := testkit.NewQueue[uniqueArgs](t, nil)
	for i, c := range []struct {
		args   uniqueArgs
		fields []string
		want   honker.PlaceResult
	}{
		{uniqueArgs{1, "a", []byte("1")}, []string{"order"}, honker.PlacedNew},
		{uniqueArgs{1, "b", []byte("2")}, []string{"order"}, honker.PlacedExisting},
		{uniqueArgs{2, "b", []byte("2")}, []string{"order"}, honker.PlacedNew},
		{uniqueArgs{1, "a", []byte("1")}, []string{"order", "note"}, honker.PlacedNew},
		{uniqueArgs{1, "a", []byte("3")}, []string{"note", "order"}, honker.PlacedExisting},
		{uniqueArgs{1, "a", []byte("1")}, nil, honker.PlacedNew},
		{uniqueArgs{1, "a", []byte("1")}, nil, honker.PlacedExisting},
		{uniqueArgs{1, "a", []byte("1.0")}, nil, honker.PlacedNew},
		{uniqueArgs{1, "a", []byte(`{"x": 1, "y": 12345678901234567890}`)}, []string{"amount"}, honker.PlacedNew},
		{uniqueArgs{1, "a", []byte(`{"y":12345678901234567890,"x":1}`)}, []string{"amount"}, honker.PlacedExisting},
		{uniqueArgs{1, "a", []byte(`{"y":12345678901234567891,"x":1}`)}, []string{"amount"}, honker.PlacedNew},
		{uniqueArgs{1, "<a>", []byte("null")}, []string{"amount"}, honker.PlacedNew},
	} {
		var p honker.Placement
		_, err := q.Enqueue(ctx, c.args, honker.UniqueArgs(nil, c.fields...), honker.Placed(&p))
		require.NoError(t, err)
		require.Equal(t, c.want, p.Result, "%d", i)
		info, err := q.Get(ctx, p.ID)
		require.NoError(t, err)
		require.Regexp(t, `^h:[0-9a-f]{32}$`, info.Unique)
	}
	requireSound(t, db)
}

// EnqueueMany gives each job a key derived from its own arguments.
func TestUniqueArgs_EnqueueMany(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids, err := q.EnqueueMany(ctx, []int{1, 2, 1, 3}, honker.UniqueArgs(nil))
	require.NoError(t, err)
	require.Equal(t, []int64{ids[0], ids[0] + 1, ids[0], ids[0] + 2}, ids)
	more, err := q.EnqueueMany(ctx, []int{3, 4}, honker.UniqueArgs(nil))
	require.NoError(t, err)
	require.Equal(t, []int64{ids[3], ids[3] + 1}, more)
	requireSound(t, db)
}

// Invalid combinations of enqueue options are rejected with ErrInvalid and change nothing.
func TestUnique_Invalid(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	objects := honker.NewQueue[map[string]int](db, "objects", nil)
	long := strings.Repeat("k", 1025)
	u := func(u honker.Uniqueness) honker.EnqueueOption { return honker.Unique("k", &u) }
	before := testkit.Dump(t, db.SQL())
	for name, opts := range map[string][]honker.EnqueueOption{
		"empty key":               {honker.Unique("", nil)},
		"long key":                {honker.Unique(long, nil)},
		"key that is not UTF-8":   {honker.Unique("\xff", nil)},
		"NUL in key":              {honker.Unique("a\x00", nil)},
		"negative For":            {u(honker.Uniqueness{For: -1})},
		"unknown Until":           {u(honker.Uniqueness{Until: 2})},
		"negative Until":          {u(honker.Uniqueness{Until: -1})},
		"unknown Conflict":        {u(honker.Uniqueness{Conflict: 3})},
		"negative Conflict":       {u(honker.Uniqueness{Conflict: -1})},
		"two keys":                {honker.Unique("a", nil), honker.Throttle("b", time.Second)},
		"two of the same":         {honker.UniqueArgs(nil), honker.UniqueArgs(nil)},
		"no field":                {honker.UniqueArgs(nil, "order")},
		"unknown Until of args":   {honker.UniqueArgs(&honker.Uniqueness{Until: 9})},
		"max 0":                   {honker.Debounce("k", time.Second, 0)},
		"negative max":            {honker.Debounce("k", time.Second, -1)},
		"wait 0":                  {honker.Debounce("k", 0, time.Second)},
		"negative wait":           {honker.Debounce("k", -1, time.Second)},
		"wait beyond max":         {honker.Debounce("k", time.Minute, time.Second)},
		"debounce with a delay":   {honker.Debounce("k", 1, time.Second), honker.Delay(0)},
		"debounce with a time":    {honker.Debounce("k", 1, time.Second), honker.RunAt(time.Now())},
		"debounce without a key":  {honker.Debounce("", 1, time.Second)},
		"throttle of nothing":     {honker.Throttle("k", 0)},
		"negative throttle":       {honker.Throttle("k", -1)},
		"throttle without a key":  {honker.Throttle("", time.Second)},
		"nil placement":           {honker.Placed(nil)},
		"nil placement of unique": {honker.Unique("k", nil), honker.Placed(nil)},
	} {
		_, err := q.Enqueue(ctx, 1, opts...)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorContains(t, err, `honker: enqueue "jobs": `, name)
		_, err = q.EnqueueMany(ctx, nil, opts...)
		if name != "no field" {
			require.ErrorIs(t, err, honker.ErrInvalid, name)
		}
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, 1, opts...)
			return err
		}), honker.ErrInvalid, name)
	}
	for name, opt := range map[string]honker.EnqueueOption{
		"one key for many":      honker.Unique("k", nil),
		"one debounce for many": honker.Debounce("k", 1, time.Second),
		"one throttle for many": honker.Throttle("k", time.Second),
		"one placement":         honker.Placed(new(honker.Placement)),
	} {
		_, err := q.EnqueueMany(ctx, []int{1, 2}, opt)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueManyTx(ctx, tx, []int{1, 2}, opt)
			return err
		}), honker.ErrInvalid, name)
	}
	_, err := objects.EnqueueMany(ctx, []map[string]int{{"a": 1}, {"b": 1}}, honker.UniqueArgs(nil, "a"))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, `job 2 of 2: the arguments have no field "a"`)
	for _, key := range []string{"", long, "a\x00"} {
		_, err := q.ReleaseUnique(ctx, key)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}
