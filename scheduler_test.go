package honker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

func TestARunningSchedulerFiresWhenASpecIsDue(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		s := db.Scheduler()
		require.NoError(t, s.Register(t.Context(), honker.Schedule{Name: "tea", Queue: "kitchen", Spec: "@every 90s", Payload: "brew"}))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer stop()
		require.NoError(t, s.Run(ctx))
		jobs, err := honker.NewQueue[string](db, "kitchen", nil).Claim(t.Context(), "cook", 100)
		require.NoError(t, err)
		require.Len(t, jobs, 6)
		require.Equal(t, "brew", jobs[0].Args)
	})
}

func TestMaintainTakesWhatTimeHasMadeUseless(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id, err := q.Enqueue(t.Context(), 1, honker.ExpiresIn(time.Minute))
		require.NoError(t, err)
		kept, err := q.Enqueue(t.Context(), 1)
		require.NoError(t, err)
		s := honker.NewStream[int](db, "events", nil)
		_, _, err = s.PublishMany(t.Context(), make([]int, 10))
		require.NoError(t, err)
		require.NoError(t, s.SetRetention(t.Context(), honker.Retention{MaxAge: time.Minute}))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		require.NoError(t, db.Maintain(ctx, time.Minute))
		job, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, honker.Dead, job.State)
		job, err = q.Get(t.Context(), kept)
		require.NoError(t, err)
		require.Equal(t, honker.Pending, job.State)
		head, err := s.Head(t.Context())
		require.NoError(t, err)
		require.Zero(t, head)
	})
}
