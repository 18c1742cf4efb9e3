package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// At most one successor waits for the end of a running job. It has the newest arguments, also while the
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

// For holds the key after its job is gone, but no longer than its duration. Enqueues that find the key do
// not prolong it.
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

// The successor of a job holds the key at least as long as the job would have, and is debounced separately.
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

// Debounce runs a job with the latest arguments, wait after the last enqueue and at most max after the
// first.
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

// EnqueueMany gives each job the key of its own arguments.
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

// Invalid combinations of enqueue options are refused with ErrInvalid and change nothing.
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
