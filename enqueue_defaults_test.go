package honker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// The options of a call override the defaults of the handle. An option that excludes a default replaces it.
func TestQueue_Enqueue_Defaults(t *testing.T) {
	type options = []honker.EnqueueOption
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // times in the file are whole seconds
		began := time.Now()
		at := began.Add(24 * time.Hour)
		unique, debounced := honker.Unique("u", nil), honker.Debounce("d", time.Minute, time.Hour)
		for name, c := range map[string]struct {
			defaults, call options
			runAt          time.Duration // after the enqueue
			unique         string
		}{
			"Delay":                        {options{honker.Delay(time.Hour)}, nil, time.Hour, ""},
			"Delay by Delay":               {options{honker.Delay(time.Hour)}, options{honker.Delay(time.Minute)}, time.Minute, ""},
			"Delay by no Delay":            {options{honker.Delay(time.Hour)}, options{honker.Delay(0)}, 0, ""},
			"Delay by RunAt":               {options{honker.Delay(time.Hour)}, options{honker.RunAt(at)}, 24 * time.Hour, ""},
			"Delay by RunAt now":           {options{honker.Delay(time.Hour)}, options{honker.RunAt(time.Time{})}, 0, ""},
			"Delay by Debounce":            {options{honker.Delay(time.Hour)}, options{debounced}, time.Minute, "d"},
			"RunAt":                        {options{honker.RunAt(at)}, nil, 24 * time.Hour, ""},
			"RunAt by Delay":               {options{honker.RunAt(at)}, options{honker.Delay(time.Hour)}, time.Hour, ""},
			"RunAt by no Delay":            {options{honker.RunAt(at)}, options{honker.Delay(0)}, 0, ""},
			"RunAt by Debounce":            {options{honker.RunAt(at)}, options{debounced}, time.Minute, "d"},
			"Unique and Delay":             {options{unique, honker.Delay(time.Hour)}, nil, time.Hour, "u"},
			"Unique by Unique, with Delay": {options{unique, honker.Delay(time.Hour)}, options{honker.Unique("v", nil)}, time.Hour, "v"},
			"Unique by Debounce":           {options{unique}, options{debounced}, time.Minute, "d"},
			"Unique with Delay":            {options{unique}, options{honker.Delay(time.Hour)}, time.Hour, "u"},
			"Debounce":                     {options{debounced}, nil, time.Minute, "d"},
			"Debounce by Unique":           {options{debounced}, options{unique}, 0, "u"},
			"Debounce by Throttle":         {options{debounced}, options{honker.Throttle("t", time.Hour)}, 0, "t"},
		} {
			q := honker.NewQueue[int](db, name, &honker.QueueOptions{Enqueue: c.defaults})
			for range 2 {
				var p honker.Placement
				id := testkit.Enqueue(t, q, 1, append(c.call, honker.Placed(&p))...)
				job := testkit.GetJob(t, q, id)
				require.Equal(t, c.runAt, job.RunAt.Sub(began), name)
				require.Equal(t, c.unique, job.Unique, name)
			}
		}
	})
}

// Options without an opposite are replaced by the same option of the call. Headers are added, and the option for
// a single job leaves the handle's defaults as they are.
func TestQueue_Enqueue_Defaults_Fields(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"source": "default", "tenant": "acme"}
	ctx, _, q := testkit.NewQueue[int](t, &honker.QueueOptions{MaxAttempts: 4, Enqueue: []honker.EnqueueOption{
		honker.Priority(7), honker.MaxAttempts(2), honker.Key("k"), honker.ExpiresIn(time.Hour), honker.Headers(headers),
	}})
	own := []honker.EnqueueOption{honker.Priority(0), honker.MaxAttempts(9), honker.Key("l"), honker.ExpiresIn(2 * time.Hour),
		honker.Headers(map[string]string{"source": "call"})}
	for i, opts := range [][]honker.EnqueueOption{nil, own, nil} {
		ids, err := q.EnqueueMany(ctx, []int{1, 2}, opts...)
		require.NoError(t, err)
		for _, id := range ids {
			job := testkit.GetJob(t, q, id)
			if i == 1 {
				require.Equal(t, []any{0, 9, "l"}, []any{job.Priority, job.MaxAttempts, job.Key})
				require.Equal(t, map[string]string{"source": "call", "tenant": "acme"}, job.Headers)
				require.Greater(t, time.Until(job.ExpiresAt), time.Hour+time.Minute)
				continue
			}
			require.Equal(t, []any{7, 2, "k"}, []any{job.Priority, job.MaxAttempts, job.Key})
			require.Equal(t, headers, job.Headers)
			require.LessOrEqual(t, time.Until(job.ExpiresAt), time.Hour+2*time.Second)
		}
	}
	require.Equal(t, map[string]string{"source": "default", "tenant": "acme"}, headers)
}

// The handle keeps its defaults if the caller changes the slice afterwards.
func TestQueue_Enqueue_Defaults_Kept(t *testing.T) {
	t.Parallel()
	defaults := []honker.EnqueueOption{honker.Priority(5)}
	_, _, q := testkit.NewQueue[int](t, &honker.QueueOptions{Enqueue: defaults})
	defaults[0] = nil
	require.Equal(t, 5, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1)).Priority)
}

// Links of a call override all links of the defaults.
func TestQueue_Enqueue_Defaults_Links(t *testing.T) {
	t.Parallel()
	_, db, first := testkit.NewQueue[int](t, nil)
	one, two := testkit.Enqueue(t, first, 1), testkit.Enqueue(t, first, 2)
	q := honker.NewQueue[int](db, "after", &honker.QueueOptions{Enqueue: []honker.EnqueueOption{honker.After(one), honker.EvenIfDead()}})
	var waits [][]int64
	for _, opts := range [][]honker.EnqueueOption{nil, {honker.After(two)}} {
		testkit.Enqueue(t, q, 1, opts...)
	}
	honkertest.Drain(t, first, testkit.Succeed[int])
	honkertest.Drain(t, q, func(_ context.Context, job *honker.Job[int]) error {
		waits = append(waits, job.After())
		return nil
	})
	require.Equal(t, [][]int64{{one}, {two}}, waits)
}

// Invalid defaults, and defaults that cannot be combined, are refused by the first verb. A default that the call
// cannot be combined with is refused by the call.
func TestQueue_Enqueue_Defaults_Invalid(t *testing.T) {
	t.Parallel()
	ctx, db, _ := testkit.NewQueue[int](t, nil)
	for name, defaults := range map[string][]honker.EnqueueOption{
		"nil":            {nil},
		"Placed":         {honker.Placed(new(honker.Placement))},
		"nil Placed":     {honker.Placed(nil)},
		"negative Delay": {honker.Delay(-1)},
		"Delay, RunAt":   {honker.Delay(1), honker.RunAt(time.Now())},
		"two keys":       {honker.Unique("a", nil), honker.Throttle("b", time.Second)},
		"MaxAttempts":    {honker.MaxAttempts(0)},
		"no name":        {honker.Headers(map[string]string{"": "x"})},
	} {
		q := honker.NewQueue[int](db, "q", &honker.QueueOptions{Enqueue: defaults})
		_, err := q.Enqueue(ctx, 1)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		_, err = q.EnqueueMany(ctx, nil)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	q := honker.NewQueue[int](db, "q", &honker.QueueOptions{Enqueue: []honker.EnqueueOption{honker.Debounce("k", time.Second, time.Minute)}})
	for name, opts := range map[string][]honker.EnqueueOption{
		"nil":             {nil},
		"Delay":           {honker.Delay(time.Second)},
		"RunAt":           {honker.RunAt(time.Now())},
		"two keys":        {honker.Unique("a", nil), honker.Unique("b", nil)},
		"Delay and RunAt": {honker.Unique("a", nil), honker.Delay(time.Second), honker.RunAt(time.Now())},
	} {
		_, err := q.Enqueue(ctx, 1, opts...)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	_, err := q.EnqueueMany(ctx, []int{1, 2})
	require.ErrorIs(t, err, honker.ErrInvalid, "two jobs cannot have one unique key")
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Ready.N+stats.Scheduled.N)
}
