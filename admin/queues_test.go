package admin_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// A queue is listed while it has jobs of any kind, with the same statistics that its handle returns.
func TestQueues_EachKind(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		ctx := context.Background()
		queue := func(name string) *honker.Queue[int] { return honker.NewQueue[int](db, name, nil) }
		all, err := admin.Queues(ctx, db)
		require.NoError(t, err)
		require.Empty(t, all)

		_, err = queue("ready").Enqueue(ctx, 1)
		require.NoError(t, err)
		_, err = queue("scheduled").Enqueue(ctx, 1, honker.Delay(time.Hour))
		require.NoError(t, err)
		for _, name := range []string{"dead", "gone", "running"} {
			_, err = queue(name).Enqueue(ctx, 1)
			require.NoError(t, err)
			jobs, err := queue(name).Claim(ctx, "w", 1)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			switch name {
			case "dead":
				require.NoError(t, jobs[0].Reject(ctx, nil))
			case "gone":
				require.NoError(t, jobs[0].Ack(ctx))
			}
		}

		all, err = admin.Queues(ctx, db)
		require.NoError(t, err)
		var names []string
		for _, s := range all {
			names = append(names, s.Queue)
			own, err := queue(s.Queue).Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, own, s)
		}
		require.Equal(t, []string{"dead", "ready", "running", "scheduled"}, names)
		require.EqualValues(t, 1, all[0].Dead.N)
		require.EqualValues(t, 1, all[1].Ready.N)
		require.EqualValues(t, 1, all[2].Running.N)
		require.EqualValues(t, 1, all[3].Scheduled.N)
	})
}

// The error from a failed read names the operation.
func TestQueues_Errors(t *testing.T) {
	_, err := admin.Queues(context.Background(), nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "list queues")

	db := honkertest.Open(t, nil)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = admin.Queues(ended, db)
	require.ErrorIs(t, err, context.Canceled)

	closed, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "app.db"), nil)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = admin.Queues(context.Background(), closed)
	require.ErrorIs(t, err, honker.ErrClosed)
}

// A paused, empty queue is listed with its pause.
func TestQueues_Paused(t *testing.T) {
	ctx, db, q, _ := open(t)
	_, err := q.Pause(ctx, &honker.PauseOptions{Reason: "deploy"})
	require.NoError(t, err)
	all, err := admin.Queues(ctx, db)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "jobs", all[0].Queue)
	require.Equal(t, "deploy", all[0].Pause.Reason)
	_, err = q.Resume(ctx)
	require.NoError(t, err)
	all, err = admin.Queues(ctx, db)
	require.NoError(t, err)
	require.Empty(t, all)
}

// All queues' counts are from the same moment: a job that moves between two queues is counted once.
func TestQueues_OneMoment(t *testing.T) {
	ctx, db, _, _ := open(t)
	const jobs = 200
	testkit.StoreLive(t, db, jobs, func(n int64) testkit.StoredJob {
		return testkit.StoredJob{Queue: []string{"b", "a"}[n%2], Priority: n % 3}
	})
	stop := make(chan struct{})
	moved := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				moved <- nil
				return
			default:
			}
			_, err := db.SQL().Exec(testkit.Either(`UPDATE _honker_live`, `UPDATE job`) + ` SET queue = CASE queue WHEN 'a' THEN 'b' ELSE 'a' END, priority = 3 - priority`)
			if err != nil {
				moved <- err
				return
			}
		}
	}()
	for range 100 {
		all, err := admin.Queues(ctx, db)
		require.NoError(t, err)
		n := int64(0)
		for _, s := range all {
			n += s.Ready.N
		}
		require.EqualValues(t, jobs, n)
	}
	close(stop)
	require.NoError(t, <-moved)
}

// A pause and its effect on the times are visible immediately, even with hundreds of queues.
func TestQueues_Hundreds(t *testing.T) {
	ctx, db, _, _ := open(t)
	testkit.StoreLive(t, db, 300, func(n int64) testkit.StoredJob {
		j := testkit.StoredJob{Queue: fmt.Sprint("queue", n), RunAt: 1000}
		if n == 7 {
			j.RunAt = 4_000_000_000
		}
		return j
	})
	find := func(name string) honker.QueueStats {
		all, err := admin.Queues(ctx, db)
		require.NoError(t, err)
		require.Len(t, all, 300)
		i := slices.IndexFunc(all, func(s honker.QueueStats) bool { return s.Queue == name })
		require.NotEqual(t, -1, i)
		return all[i]
	}
	require.Equal(t, int64(4_000_000_000), find("queue7").NextAt.Unix())
	for _, name := range []string{"queue7", "queue8"} {
		q := honker.NewQueue[int](db, name, nil)
		_, err := q.Pause(ctx, &honker.PauseOptions{Until: time.Unix(5_000_000_000, 0)})
		require.NoError(t, err)
		s := find(name)
		require.Equal(t, int64(5_000_000_000), s.NextAt.Unix(), name)
		require.Equal(t, int64(5_000_000_000), s.Pause.Until.Unix())
		_, err = q.Resume(ctx)
		require.NoError(t, err)
		require.Nil(t, find(name).Pause)
	}
	require.Equal(t, int64(4_000_000_000), find("queue7").NextAt.Unix())
	require.True(t, find("queue8").NextAt.IsZero())
}
