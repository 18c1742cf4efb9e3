package honker_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

const limitTriggers = `SELECT name FROM sqlite_schema WHERE type = 'trigger' AND (name GLOB '_honkerx_key*' OR name IN ('_honkerx_gate', '_honkerx_rate')) ORDER BY name`

func setLimits[T any](t testing.TB, q *honker.Queue[T], l honker.Limits) {
	t.Helper()
	require.NoError(t, q.SetLimits(context.Background(), l))
}

func enqueueKeys(t testing.TB, q *honker.Queue[int], keys ...string) (ids []int64) {
	t.Helper()
	for i, key := range keys {
		id, err := q.Enqueue(context.Background(), i, honker.Key(key))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids
}

func claimedIDs(t testing.TB, q *honker.Queue[int], n int) (ids []int64) {
	t.Helper()
	for _, job := range testkit.Claim(t, q, n) {
		ids = append(ids, job.ID)
	}
	return ids
}

// Limits are stored in the file. Setting the same limits again writes nothing, and a file without limits
// has no triggers for them.
func TestLimits_InTheFile(t *testing.T) {
	testkit.FileOnly(t)
	ctx := testkit.Context(t, testkit.Timeout)
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := honker.Open(ctx, path, nil)
	require.NoError(t, err)
	all := honker.Limits{
		Running: 10, PerKey: 2, InOrder: true,
		Rate: honker.Rate{N: 5, Per: time.Second, Burst: 3}, KeyRate: honker.Rate{N: 1, Per: time.Minute, Burst: 1},
	}
	q := honker.NewQueue[int](db, "jobs", nil)
	none, err := q.Limits(ctx)
	require.NoError(t, err)
	require.Zero(t, none)
	setLimits(t, q, honker.Limits{}) // nothing to remove
	require.Empty(t, rows(t, db, limitTriggers))
	setLimits(t, q, all)
	require.NoError(t, db.Close())

	db = honkertest.OpenFile(t, path, nil)
	q = honker.NewQueue[int](db, "jobs", nil)
	got, err := q.Limits(ctx)
	require.NoError(t, err)
	require.Equal(t, all, got)
	require.Len(t, rows(t, db, limitTriggers), 13)
	version := oneRow(t, db, `PRAGMA data_version`)
	other := testkit.Attach(t, path, nil)
	setLimits(t, honker.NewQueue[int](other, "jobs", nil), all)
	require.Equal(t, version, oneRow(t, db, `PRAGMA data_version`))
	require.NoError(t, db.Check(ctx))

	setLimits(t, q, honker.Limits{Running: 1})
	require.Equal(t, []string{"_honkerx_gate"}, rows(t, db, limitTriggers))
	setLimits(t, q, honker.Limits{})
	require.Empty(t, rows(t, db, limitTriggers))
	require.NoError(t, db.Check(ctx))
}

func TestLimits_Invalid(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	for _, l := range []honker.Limits{
		{Running: -1}, {Running: 10_001}, {PerKey: -1}, {PerKey: 10_001},
		{Rate: honker.Rate{N: 1}}, {Rate: honker.Rate{Per: time.Second}}, {Rate: honker.Rate{N: 1, Per: time.Microsecond}},
		{KeyRate: honker.Rate{N: -1, Per: time.Second}}, {KeyRate: honker.Rate{N: 1, Per: time.Second, Burst: -1}},
		{Rate: honker.Rate{N: 1_000_001, Per: time.Second}},
	} {
		require.ErrorIs(t, q.SetLimits(ctx, l), honker.ErrInvalid, "%+v", l)
	}
	for _, key := range []string{"", "\x00", strings.Repeat("k", 1025)} {
		_, err := q.Enqueue(ctx, 1, honker.Key(key))
		require.ErrorIs(t, err, honker.ErrInvalid)
		_, err = q.ResumeKey(ctx, key)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_queues`))
	require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honker_live`))
}

// With a limit of 7 and 5 running jobs, a claim for 10 returns exactly 2. Lowering the limit doesn't stop running
// jobs.
func TestLimits_Running(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	_, err := q.EnqueueMany(ctx, make([]int, 20))
	require.NoError(t, err)
	setLimits(t, q, honker.Limits{Running: 7})
	held := testkit.Claim(t, q, 5)
	require.Len(t, held, 5)
	require.Len(t, testkit.Claim(t, q, 10), 2)
	require.Empty(t, testkit.Claim(t, q, 1))
	require.Empty(t, rows(t, db, honkersClaim, "jobs"), "nor does another binding get one")
	setLimits(t, q, honker.Limits{Running: 3})
	for range 4 {
		require.NoError(t, held[0].Ack(ctx))
		held = held[1:]
		require.Empty(t, testkit.Claim(t, q, 10))
	}
	require.NoError(t, held[0].Ack(ctx))
	require.Len(t, rows(t, db, honkersClaim, "jobs"), 1, "another binding is given what there is room for")
	require.NoError(t, db.Check(ctx))
}

// A full key's jobs are held. The next job is released when a running job ends, in any way and in any
// binding.
func TestLimits_PerKey(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids := enqueueKeys(t, q, "a", "a", "b", "a", "b", "c")
	setLimits(t, q, honker.Limits{PerKey: 1})
	jobs := testkit.Claim(t, q, 6)
	require.Equal(t, []int64{ids[0], ids[2], ids[5]}, []int64{jobs[0].ID, jobs[1].ID, jobs[2].ID})
	second, err := q.Get(ctx, ids[1])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseHeld, second.Phase)
	require.Equal(t, honker.StatePending, second.State)
	require.Equal(t, "a", second.Key)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, stats.Held.N)
	require.Equal(t, honker.Limits{PerKey: 1}, stats.Limits)
	keys, err := q.Keys(ctx)
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.Equal(t, "a 1 2 0", fmt.Sprint(keys[0].Key, " ", keys[0].Running, " ", keys[0].Held, " ", keys[0].Waiting))
	require.Equal(t, second.CreatedAt, keys[0].Oldest)

	require.NoError(t, jobs[0].Retry(ctx, time.Hour, testkit.ErrCause))
	require.Equal(t, []int64{ids[1]}, claimedIDs(t, q, 6), "a retry lets the next one go")
	testkit.Exec(t, db, `DELETE FROM _honker_live WHERE id = ?`, ids[1])
	require.Equal(t, []string{fmt.Sprint(ids[3])}, rows(t, db, honkersClaim, "jobs"), "so does the ack of another binding, and its claim is bound")
	require.NoError(t, jobs[1].Reject(ctx, testkit.ErrCause))
	require.Equal(t, []int64{ids[4]}, claimedIDs(t, q, 6), "and a death")
	dead, err := q.Get(ctx, ids[2])
	require.NoError(t, err)
	require.Equal(t, "b", dead.Key)
	require.NoError(t, db.Check(ctx))
}

// Raising or removing a limit releases held jobs immediately.
func TestLimits_Raised(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids := enqueueKeys(t, q, "a", "a", "a", "a", "a", "a")
	setLimits(t, q, honker.Limits{PerKey: 1})
	require.Equal(t, ids[:1], claimedIDs(t, q, 9))
	setLimits(t, q, honker.Limits{PerKey: 3})
	require.NoError(t, db.Check(ctx))
	require.Equal(t, ids[1:3], claimedIDs(t, q, 9))
	setLimits(t, q, honker.Limits{})
	require.Equal(t, ids[3:], claimedIDs(t, q, 9))
	require.NoError(t, db.Check(ctx))
}

// A key's jobs run in enqueue order, regardless of priority, so a retry delays the key's other jobs.
func TestLimits_InOrder(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	setLimits(t, q, honker.Limits{InOrder: true})
	first, err := q.Enqueue(ctx, 1, honker.Key("a"))
	require.NoError(t, err)
	second, err := q.Enqueue(ctx, 2, honker.Key("a"), honker.Priority(9))
	require.NoError(t, err)
	job := testkit.ClaimOne(t, q)
	require.Equal(t, first, job.ID)
	require.NoError(t, job.Retry(ctx, time.Hour, testkit.ErrCause))
	require.Empty(t, testkit.Claim(t, q, 2))
	require.Empty(t, rows(t, db, honkersClaim, "jobs"))
	require.NoError(t, db.Check(ctx))
	gone, err := q.Cancel(ctx, first)
	require.NoError(t, err)
	require.True(t, gone)
	require.Equal(t, []int64{second}, claimedIDs(t, q, 2))
}

// After a burst, starts are evenly spaced, and a waiting worker wakes for the next start. Each attempt
// counts as a start.
func TestLimits_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, _, q := testkit.NewQueue[int](t, nil)
		setLimits(t, q, honker.Limits{Rate: honker.Rate{N: 5, Per: time.Second, Burst: 3}})
		_, err := q.EnqueueMany(ctx, make([]int, 8))
		require.NoError(t, err)
		began := time.Now()
		var starts []time.Duration
		ctx, stop := context.WithCancel(ctx)
		require.NoError(t, q.Work(ctx, func(context.Context, *honker.Job[int]) error {
			if starts = append(starts, time.Since(began).Round(10*time.Millisecond)); len(starts) == 8 {
				stop()
			}
			return nil
		}, &honker.WorkOptions{Workers: 1}))
		require.Equal(t, []time.Duration{0, 0, 0, 200e6, 400e6, 600e6, 800e6, 1000e6}, starts)
	})
}

// NextClaimAt takes limits into account. It returns the next start that the rate permits or, if the maximum
// number of jobs is running, the time at which a claim expires.
func TestLimits_NextClaimAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			limits honker.Limits
			claim  int             // number of the three jobs to claim
			later  []time.Duration // delays of additional jobs
			want   time.Duration
		}{
			"room for what is due":           {honker.Limits{Rate: honker.Rate{N: 1, Per: 10 * time.Second, Burst: 4}}, 1, nil, 61 * time.Second},
			"the next start":                 {honker.Limits{Rate: honker.Rate{N: 1, Per: 10 * time.Second}}, 1, nil, 10 * time.Second},
			"rounded up":                     {honker.Limits{Rate: honker.Rate{N: 1, Per: 9100 * time.Millisecond}}, 1, []time.Duration{time.Second}, 10 * time.Second},
			"the burst is left":              {honker.Limits{Rate: honker.Rate{N: 1, Per: 10 * time.Second, Burst: 2}}, 1, []time.Duration{5 * time.Second}, 5 * time.Second},
			"none is due before":             {honker.Limits{Rate: honker.Rate{N: 3, Per: 30 * time.Second, Burst: 3}}, 3, []time.Duration{5 * time.Second}, 10 * time.Second},
			"none is due by then":            {honker.Limits{Rate: honker.Rate{N: 3, Per: 30 * time.Second, Burst: 3}}, 3, []time.Duration{20 * time.Second}, 20 * time.Second},
			"full":                           {honker.Limits{Running: 1}, 1, []time.Duration{time.Second}, 61 * time.Second},
			"full, and the rate is slower":   {honker.Limits{Running: 1, Rate: honker.Rate{N: 1, Per: 2 * time.Minute}}, 1, nil, 2 * time.Minute},
			"not full, and others are later": {honker.Limits{Running: 4}, 3, []time.Duration{2 * time.Second}, 2 * time.Second},
		} {
			ctx, _, q := testkit.NewQueue[int](t, &honker.QueueOptions{Lease: time.Minute})
			setLimits(t, q, c.limits)
			_, err := q.EnqueueMany(ctx, make([]int, 3))
			require.NoError(t, err)
			for _, d := range c.later {
				testkit.Enqueue(t, q, 1, honker.Delay(d))
			}
			require.Len(t, testkit.Claim(t, q, c.claim), c.claim)
			want := time.Now().Add(c.want)
			next, err := q.NextClaimAt(ctx)
			require.NoError(t, err)
			require.WithinDuration(t, want, next, 0, name)
			stats, err := q.Stats(ctx)
			require.NoError(t, err)
			require.WithinDuration(t, want, stats.NextAt, 0, name)
		}
	})
}

// A job that comes too early for its key's rate is assigned its start only once, and other keys' jobs overtake it.
func TestLimits_KeyRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db, q := testkit.NewQueue[int](t, nil)
		setLimits(t, q, honker.Limits{KeyRate: honker.Rate{N: 1, Per: 10 * time.Second}})
		ids := enqueueKeys(t, q, "a", "a", "a", "b")
		require.Equal(t, []int64{ids[0], ids[3]}, claimedIDs(t, q, 9))
		for i, id := range ids[1:3] {
			job, err := q.Get(ctx, id)
			require.NoError(t, err)
			require.Equal(t, honker.PhaseScheduled, job.Phase)
			require.Equal(t, time.Duration(i+1)*10*time.Second, time.Until(job.RunAt).Round(time.Second))
		}
		time.Sleep(10 * time.Second)
		require.Equal(t, ids[1:2], claimedIDs(t, q, 9))
		require.NoError(t, db.Check(ctx))
		setLimits(t, q, honker.Limits{})
		require.Equal(t, ids[2:3], claimedIDs(t, q, 9), "without the rate there is nothing to wait for")
		require.NoError(t, db.Check(ctx))
	})
}

// SlowDown delays a key's or a queue's starts without using up an attempt.
func TestLimits_SlowDown(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"", "a"} {
			ctx, db, q := testkit.NewQueue[int](t, nil)
			opts := []honker.EnqueueOption{}
			if key != "" {
				opts = append(opts, honker.Key(key))
			}
			_, err := q.EnqueueMany(ctx, make([]int, 3), opts...)
			require.NoError(t, err)
			other, err := q.Enqueue(ctx, 7, honker.Key("b"), honker.Priority(-1))
			require.NoError(t, err)
			n, err := q.WorkDue(ctx, func(_ context.Context, job *honker.Job[int]) error {
				if job.Args == 7 {
					return nil
				}
				return honker.SlowDown(time.Minute, errors.New("429"))
			}, nil)
			require.NoError(t, err)
			want, table := 1, "_honkerx_queues"
			if key != "" {
				want, table = 2, "_honkerx_keys"
			}
			require.Equal(t, want, n, "only %d can start", other)
			require.Equal(t, "slow down: 429", oneRow(t, db, `SELECT reason FROM `+table+` WHERE paused_ms IS NOT NULL`))
			time.Sleep(61 * time.Second)
			ran := 0
			_, err = q.WorkDue(context.Background(), func(_ context.Context, job *honker.Job[int]) error {
				ran++
				require.Equal(t, 1, job.Attempts)
				return nil
			}, nil)
			require.NoError(t, err)
			require.Equal(t, 5-want, ran)
			maintain(t, db)
			require.NoError(t, db.Check(context.Background()))
			require.Empty(t, rows(t, db, limitTriggers))
		}
	})
}

// A key is paused indefinitely or until a given time, for every binding. Other keys are not affected.
func TestQueue_Pause_Key(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	ids := enqueueKeys(t, q, "a", "b", "a")
	pauseQueue(t, q, &honker.PauseOptions{Key: "a", Reason: "moves"})
	require.Equal(t, []string{fmt.Sprint(ids[1])}, rows(t, db, honkersClaim, "jobs"))
	require.NoError(t, db.Check(ctx))
	again, err := q.Pause(ctx, &honker.PauseOptions{Key: "a", Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.False(t, again)
	require.Empty(t, testkit.Claim(t, q, 9))
	job, err := q.Get(ctx, ids[2])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseScheduled, job.Phase, "it has the time of the end")
	was, err := q.ResumeKey(ctx, "a")
	require.NoError(t, err)
	require.True(t, was)
	require.Equal(t, []int64{ids[0], ids[2]}, claimedIDs(t, q, 9))
	was, err = q.ResumeKey(ctx, "a")
	require.NoError(t, err)
	require.False(t, was)
	require.NoError(t, db.Check(ctx))
	require.Empty(t, rows(t, db, limitTriggers))
}

// Keys lists each paused key with its Pause until the pause is over, including keys without jobs.
func TestQueue_Keys_Paused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, q := testkit.NewQueue[int](t, nil)
		ctx := t.Context()
		enqueueKeys(t, q, "a", "b", "a")
		began := time.Now()
		pauseQueue(t, q, &honker.PauseOptions{Key: "a", Until: began.Add(time.Minute), Reason: "moves", By: "ann"})
		pauseQueue(t, q, &honker.PauseOptions{Key: "later"})
		keys, err := q.Keys(ctx)
		require.NoError(t, err)
		require.Equal(t, []honker.KeyStats{
			{Key: "a", Waiting: 2, Oldest: keys[0].Oldest, Pause: &honker.Pause{Since: keys[0].Pause.Since, Until: keys[0].Pause.Until, Reason: "moves", By: "ann"}},
			{Key: "b", Waiting: 1, Oldest: keys[1].Oldest},
			{Key: "later", Pause: &honker.Pause{Since: keys[2].Pause.Since}},
		}, keys)
		require.WithinDuration(t, began.Add(time.Minute), keys[0].Pause.Until, 0)
		time.Sleep(time.Minute)
		keys, err = q.Keys(ctx)
		require.NoError(t, err)
		require.Nil(t, keys[0].Pause)
		_, err = q.ResumeKey(ctx, "later")
		require.NoError(t, err)
		keys, err = q.Keys(ctx)
		require.NoError(t, err)
		require.Len(t, keys, 2)
	})
}

// Work calls in two simulated processes never run more jobs at a time than the limit, and together they run
// every job.
func TestLimits_Work(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, other := honkertest.OpenFile(t, path, nil), honkertest.OpenFile(t, path, nil)
	ctx, stop := context.WithTimeout(context.Background(), testkit.Timeout)
	defer stop()
	q := honker.NewQueue[int](db, "jobs", nil)
	setLimits(t, q, honker.Limits{Running: 3, PerKey: 1})
	for i := range 60 {
		_, err := q.Enqueue(ctx, i%4, honker.Key(fmt.Sprint("k", i%4)))
		require.NoError(t, err)
	}
	var all, ended atomic.Int32
	var perKey [4]atomic.Int32
	work := func(_ context.Context, job *honker.Job[int]) error {
		if all.Add(1) > 3 || perKey[job.Args].Add(1) > 1 {
			t.Errorf("job %d starts above the limit", job.ID)
		}
		time.Sleep(time.Millisecond)
		perKey[job.Args].Add(-1)
		all.Add(-1)
		if ended.Add(1) == 60 {
			stop()
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		done <- honker.NewQueue[int](other, "jobs", nil).Work(ctx, work, &honker.WorkOptions{Workers: 8})
	}()
	require.NoError(t, q.Work(ctx, work, &honker.WorkOptions{Workers: 8}))
	require.NoError(t, <-done)
	require.EqualValues(t, 60, ended.Load())
	require.NoError(t, db.Check(context.Background()))
}

// A Work loop that is waiting for room in its queue wakes when a job claimed by another handle ends.
func TestLimits_Running_OtherHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		q := honker.NewQueue[int](db, "jobs", nil)
		setLimits(t, q, honker.Limits{Running: 1})
		enqueueN(t, q, 1)
		held := testkit.ClaimOne(t, q)
		ran := make(chan int64, 1)
		stop := testkit.Work(t, honker.NewQueue[int](db, "jobs", nil), func(_ context.Context, job *honker.Job[int]) error {
			ran <- job.ID
			return nil
		}, nil)
		synctest.Wait()
		enqueueN(t, q, 1)
		synctest.Wait()
		require.Empty(t, ran)
		require.NoError(t, held.Ack(t.Context()))
		synctest.Wait()
		require.Len(t, ran, 1)
		require.NoError(t, stop())
	})
}

// Workers respects the limits of each queue, and a full queue does not delay the others.
func TestLimits_Workers(t *testing.T) {
	ctx, db, first := testkit.NewQueue[int](t, nil)
	second := honker.NewQueue[int](db, "second", nil)
	setLimits(t, first, honker.Limits{Running: 1})
	setLimits(t, second, honker.Limits{PerKey: 2})
	for _, order := range orders {
		for _, q := range []*honker.Queue[int]{first, second} {
			_, err := q.EnqueueMany(ctx, make([]int, 9), honker.Key("a"))
			require.NoError(t, err)
		}
		var running, most atomic.Int32
		ctx, stop := context.WithTimeout(ctx, testkit.Timeout)
		var ended atomic.Int32
		w := testkit.Workers(db, &honker.WorkersOptions{Order: order}, []string{"jobs", "second"}, func(context.Context, *honker.Job[int]) error {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			running.Add(-1)
			if ended.Add(1) == 18 {
				stop()
			}
			return nil
		})
		require.NoError(t, w.Work(ctx, &honker.WorkOptions{Workers: 8}))
		stop()
		require.EqualValues(t, 18, ended.Load())
		require.LessOrEqual(t, most.Load(), int32(3))
	}
	require.NoError(t, db.Check(context.Background()))
}

// ways are the ways in which this library can cancel a running job.
var ways = map[string]func(ctx context.Context, db *honker.DB, q *honker.Queue[int], batch *honker.Batch, id int64) error{
	"Cancel": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int], _ *honker.Batch, id int64) error {
		_, err := q.Cancel(ctx, id)
		return err
	},
	"CancelTx": func(ctx context.Context, db *honker.DB, q *honker.Queue[int], _ *honker.Batch, id int64) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.CancelTx(ctx, tx, id)
			return err
		})
	},
	"Batch.Cancel": func(ctx context.Context, _ *honker.DB, _ *honker.Queue[int], batch *honker.Batch, _ int64) error {
		_, err := batch.Cancel(ctx)
		return err
	},
	"honker_cancel": func(ctx context.Context, db *honker.DB, _ *honker.Queue[int], _ *honker.Batch, id int64) error {
		_, err := db.SQL().ExecContext(ctx, `SELECT honker_cancel(?)`, id)
		return err
	},
}

// A cancelled job occupies its slot until its handler returns, no matter how it is cancelled and which limit counts
// it. Then the next job starts immediately. Until then, the verbs that describe a queue report the slot.
func TestQueue_Cancel_KeepsThePlace(t *testing.T) {
	testkit.FileOnly(t)
	for name, limits := range map[string]honker.Limits{"Running": {Running: 1}, "PerKey": {PerKey: 1}, "InOrder": {InOrder: true}} {
		for way, cancel := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				ctx, db, q := testkit.NewQueue[int](t, nil)
				setLimits(t, q, limits)
				batch, err := db.NewBatch(ctx, nil)
				require.NoError(t, err)
				first, err := q.Enqueue(ctx, 1, honker.Key("a"), honker.InBatch(batch.ID))
				require.NoError(t, err)
				second, err := q.Enqueue(ctx, 2, honker.Key("a"))
				require.NoError(t, err)
				started, heard, leave := make(chan int64, 2), make(chan struct{}), make(chan struct{})
				end := sync.OnceFunc(func() { close(leave) })
				defer end()
				stop := testkit.Background(t, func(ctx context.Context) error {
					return q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
						started <- job.ID
						if job.ID == first {
							<-ctx.Done()
							close(heard)
							<-leave
						}
						return nil
					}, &honker.WorkOptions{Workers: 2})
				})
				require.Equal(t, first, <-started)
				require.NoError(t, cancel(ctx, db, q, batch, first))
				<-heard

				require.Empty(t, claimedIDs(t, q, 2))
				require.Empty(t, rows(t, db, honkersClaim, "jobs"), "nor does another binding get one")
				require.NoError(t, db.Check(ctx))
				stats, err := q.Stats(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 1, stats.Cancelled)
				keys, err := q.Keys(ctx)
				require.NoError(t, err)
				require.Len(t, keys, 1)
				require.EqualValues(t, 1, keys[0].Cancelled)
				require.Zero(t, keys[0].Running)

				end()
				require.Equal(t, second, <-started)
				require.NoError(t, stop())
				require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_cancelled`))
				require.NoError(t, db.Check(ctx))
			})
		}
	}
}

// While a cancelled job's handler runs, its worker renews the slot. A dead worker's slot expires with its
// lease, and a sleeping worker wakes at that time.
func TestQueue_Cancel_PlaceEndsWithTheLease(t *testing.T) {
	for name, limits := range map[string]honker.Limits{"Running": {Running: 1}, "PerKey": {PerKey: 1}, "InOrder": {InOrder: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, db, q := testkit.NewQueue[int](t, nil)
				ctx := context.Background() // longer than a test
				setLimits(t, q, limits)
				ids := enqueueKeys(t, q, "a", "a", "a")
				gone := testkit.ClaimOne(t, honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: 10 * time.Second}))
				ends := gone.ClaimExpiresAt.Add(time.Second)
				_, err := q.Cancel(ctx, gone.ID)
				require.NoError(t, err)

				var mu sync.Mutex // guards times
				times := make(map[int64]time.Time)
				began := func() map[int64]time.Time {
					mu.Lock()
					defer mu.Unlock()
					all := make(map[int64]time.Time, len(times))
					for id, at := range times {
						all[id] = at
					}
					return all
				}
				leave := make(chan struct{})
				end := sync.OnceFunc(func() { close(leave) })
				defer end()
				stop := testkit.Background(t, func(ctx context.Context) error {
					return q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
						mu.Lock()
						times[job.ID] = time.Now()
						mu.Unlock()
						if job.ID == ids[1] {
							<-leave
						}
						return nil
					}, &honker.WorkOptions{Workers: 2, Lease: 6 * time.Second})
				})
				time.Sleep(time.Minute)
				require.Equal(t, map[int64]time.Time{ids[1]: ends}, began())
				_, err = q.Cancel(ctx, ids[1])
				require.NoError(t, err)
				require.Len(t, began(), 1)
				end()
				synctest.Wait()
				require.Len(t, began(), 2)
				require.NoError(t, stop())
				require.NoError(t, db.Check(ctx))
			})
		})
	}
}

// Maintain removes the slots of expired leases, for workers of other bindings. A queue without limits has
// no slots.
func TestQueue_Cancel_PlacesAreSwept(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		_, db, q := testkit.NewQueue[int](t, nil)
		ctx := context.Background()
		plain := honker.NewQueue[int](db, "plain", nil)
		_, err := plain.Enqueue(ctx, 1, honker.Key("a"))
		require.NoError(t, err)
		setLimits(t, q, honker.Limits{PerKey: 1})
		ids := enqueueKeys(t, q, "a", "a")
		for _, job := range []*honker.Job[int]{testkit.ClaimOne(t, q), testkit.ClaimOne(t, plain)} {
			_, err = honker.NewQueue[int](db, job.Queue, nil).Cancel(ctx, job.ID)
			require.NoError(t, err)
		}
		require.Equal(t, fmt.Sprint(ids[0]), oneRow(t, db, `SELECT job_id FROM _honkerx_cancelled`))
		require.Empty(t, testkit.Claim(t, q, 1))
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Equal(t, "held", oneRow(t, db, `SELECT state FROM _honker_live`))
		time.Sleep(time.Hour)
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Equal(t, "pending", oneRow(t, db, `SELECT state FROM _honker_live`))
		require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_cancelled`))
		require.NoError(t, db.Check(ctx))
	})
}

// heldJobs opens a file in which n jobs with the same key are held behind a running job.
func heldJobs(t *testing.T, n int, observer *observe.Observer) (*honker.DB, *honker.Queue[int]) {
	t.Helper()
	db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "app.db"), &honker.Options{Observer: observer})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	q := honker.NewQueue[int](db, "jobs", nil)
	setLimits(t, q, honker.Limits{PerKey: 1})
	_, err = q.EnqueueMany(context.Background(), make([]int, n+1), honker.Key("a"))
	require.NoError(t, err)
	for testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`) < int64(n) {
		testkit.Claim(t, q, 1)
	}
	return db, q
}

// Removing the limits of a queue with many held jobs takes many transactions. Other writers get their turn in
// between.
func TestQueue_SetLimits_KeepsTheWriterFree(t *testing.T) {
	testkit.FileOnly(t)
	const held, atOnce = 4000, 256
	var transactions atomic.Int64
	db, q := heldJobs(t, held, &observe.Observer{Tx: func(observe.TxEnded) { transactions.Add(1) }})
	before := transactions.Load()
	setLimits(t, q, honker.Limits{})
	require.GreaterOrEqual(t, transactions.Load()-before, int64(held/atOnce))
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`))
	require.Empty(t, rows(t, db, limitTriggers))
	require.NoError(t, db.Check(context.Background()))
}

// An interrupted SetLimits is completed by the next SetLimits, by Maintain, or by a worker's claims. Until then, the
// file is consistent.
func TestQueue_SetLimits_IsFinished(t *testing.T) {
	testkit.FileOnly(t)
	finish := map[string]func(ctx context.Context, db *honker.DB, q *honker.Queue[int]) error{
		"SetLimits": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int]) error {
			return q.SetLimits(ctx, honker.Limits{})
		},
		"Maintain": func(ctx context.Context, db *honker.DB, _ *honker.Queue[int]) error {
			return db.Maintain(ctx, &honker.MaintainOptions{Once: true})
		},
		"claims": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int]) error {
			for range 100 {
				if _, err := q.Claim(ctx, "w", 1); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for name, do := range finish {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			const held = 4000
			var transactions atomic.Int64
			transactions.Store(-1 << 40)
			db, q := heldJobs(t, held, &observe.Observer{Tx: func(observe.TxEnded) {
				if transactions.Add(1) == 3 {
					cancel()
				}
			}})
			transactions.Store(0)
			require.ErrorIs(t, q.SetLimits(ctx, honker.Limits{}), context.Canceled)
			left := testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`)
			require.NotZero(t, left)
			require.Less(t, left, int64(held))
			ctx = context.Background()
			limits, err := q.Limits(ctx)
			require.NoError(t, err)
			require.Zero(t, limits)
			require.NoError(t, db.Check(ctx))
			require.NoError(t, do(ctx, db, q))
			require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live WHERE state = 'held'`))
			require.Empty(t, rows(t, db, limitTriggers))
			require.NoError(t, db.Check(ctx))
		})
	}
}
