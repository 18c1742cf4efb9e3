package honker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Next returns the next fire times of a schedule in order. The schedule then fires at these times.
func TestScheduler_Next(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, s := t.Context(), db.Scheduler()
		testkit.Register(t, db, testkit.Every("tea", "0 16 * * *"))
		testkit.Register(t, db, testkit.Every("beat", "@every 90s"))
		for _, name := range []string{"tea", "beat"} {
			want, err := s.Next(ctx, name, 4)
			require.NoError(t, err)
			require.Len(t, want, 4)
			require.Equal(t, testkit.GetSchedule(t, db, name).Next, want[0].Unix())
			for _, at := range want {
				fires, err := s.Tick(ctx, at)
				require.NoError(t, err)
				fired := func(f honker.Fire) bool { return f.Name == name && f.FireAt.Equal(at) }
				require.True(t, slices.ContainsFunc(fires, fired), "%s at %v: %v", name, at, fires)
			}
		}
	})
}

// The first time of an overdue schedule is in the past, and the others are future times in its interval. A
// paused schedule reports the times that it would have.
func TestScheduler_Next_Overdue(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx, s := t.Context(), db.Scheduler()
		began := time.Now().Truncate(time.Second)
		testkit.Register(t, db, testkit.Every("beat", "@every 90s"))
		testkit.RequireChanged(t, true)(s.Pause(ctx, "beat"))
		time.Sleep(200 * time.Second)
		times, err := s.Next(ctx, "beat", 3)
		require.NoError(t, err)
		for i, after := range []time.Duration{90, 270, 360} {
			require.True(t, times[i].Equal(began.Add(after*time.Second)), "%v: %v", after, times)
		}
	})
}

// Next returns an error if it cannot compute the times.
func TestScheduler_Next_Errors(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	ctx, s := testkit.Context(t, testkit.Timeout), db.Scheduler()
	testkit.Register(t, db, testkit.Every("tea", "@every 1h"))
	for _, n := range []int{0, -1, 1001} {
		_, err := s.Next(ctx, "tea", n)
		require.ErrorIs(t, err, honker.ErrInvalid)
	}
	_, err := s.Next(ctx, "", 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = s.Next(ctx, "none", 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	spec(t, db, "tea", "every now and then")
	_, err = s.Next(ctx, "tea", 2)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "every now and then")
}
