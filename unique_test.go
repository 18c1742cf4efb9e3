package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
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
	dbs := []*honker.DB{db, honkertest.OpenFile(t, path, nil), testkit.Attach(t, path)}
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

// A rolled-back enqueue leaves no key behind. An enqueue that finds the key taken does not fail the
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

// ends are the ways in which a claimed job can end.
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

// Acks, cancels, deaths and every other end of a job free its key.
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

// A binding without knowledge of unique keys frees them with its acks and deaths.
func TestUnique_Freed_Binding(t *testing.T) {
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
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	started := honker.Unique("k", &honker.Uniqueness{Until: honker.UntilStarted})
	place(t, q, 1, started)
	require.Len(t, other.Claim("jobs", "py", 1, 60), 1)
	require.Equal(t, honker.PlacedNew, place(t, q, 2, started).Result)
	requireSound(t, db)
}

// The conflict policy decides the effect of an enqueue on a waiting job and on a running job.
func TestUnique_Conflict(t *testing.T) {
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

// A job that is replaced between two attempts has the attempts of the new enqueue, and the backoff of the
// failed attempt does not delay it.
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

// An expired job, and a job without attempts left, hold no key even before a sweep.
func TestUnique_NeverRuns(t *testing.T) {
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
	var found []honker.Deduplicated
	db := honkertest.Open(t, &honker.Options{Observer: &honker.Observer{
		Enqueued:     func(e honker.Enqueued) { testkit.Record(s, &s.Enqueued, e) },
		Deduplicated: func(e honker.Deduplicated) { found = append(found, e) },
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
	require.Equal(t, []honker.Enqueued{{Queue: "jobs", IDs: ids[:2]}}, s.Enqueued)
	require.Equal(t, []honker.Deduplicated{{Queue: "jobs", Existing: 1}, {Queue: "jobs", Replaced: 1}, {Queue: "jobs", Existing: 1, Tx: true}}, found)
}

// If a trigger of the application drops the job, no key is left behind.
func TestUnique_NotInserted(t *testing.T) {
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
