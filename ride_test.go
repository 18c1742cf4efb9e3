package honker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
)

// enqueues are the ways to add one job.
var enqueues = map[string]func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error){
	"Enqueue": func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error) {
		return q.Enqueue(ctx, 1, opts...)
	},
	"EnqueueMany": func(ctx context.Context, q *honker.Queue[int], opts ...honker.EnqueueOption) (int64, error) {
		ids, err := q.EnqueueMany(ctx, []int{1}, opts...)
		return append(ids, 0)[0], err
	},
}

func TestAWorkerThatSleepsHasClaimedAJobByTheTimeItIsCommitted(t *testing.T) {
	for name, enqueue := range enqueues {
		bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
			q := honker.NewQueue[int](db, "jobs", nil)
			release := make(chan struct{})
			stop := working(t, q, func(context.Context, *honker.Job[int]) error { <-release; return nil }, &honker.WorkOptions{Workers: 2})
			for n := range 3 {
				synctest.Wait()
				id, err := enqueue(context.Background(), q)
				require.NoError(t, err)
				want := honker.Processing
				if n == 2 {
					want = honker.Pending // both are busy
				}
				require.Equal(t, want, look(t, q, id).State, name)
			}
			id, err := enqueue(context.Background(), q, honker.Delay(time.Hour))
			require.NoError(t, err)
			require.Equal(t, honker.Pending, look(t, q, id).State, "it is not due")
			close(release)
			require.NoError(t, stop())
		})
	}
}

func TestALoopOverJobsThatSleepsHasClaimedAJobByTheTimeItIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
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
		id := add(t, q, 1)
		require.Equal(t, honker.Processing, look(t, q, id).State)
		close(release)
		synctest.Wait()
		gone(t, q, id)
		cancel()
		<-ended
	})
}

// What was fast an hour ago says nothing about the next jobs.
func TestAWorkerThatSleepsClaimsForIdleHandlersOnly(t *testing.T) {
	bubble(t, func(t *testing.T, db *honker.DB, _ *seen) {
		q := honker.NewQueue[int](db, "jobs", nil)
		release := make(chan struct{})
		stop := working(t, q, func(_ context.Context, job *honker.Job[int]) error {
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
		require.LessOrEqual(t, number(t, db.SQL(), processing), int64(4))
		close(release)
		require.NoError(t, stop())
	})
}

const slow = 1

// A claim may be carried at any moment of a worker's end: none is forgotten.
func TestAWorkerThatEndsLeavesNothingClaimed(t *testing.T) {
	db := honkertest.Open(t, nil)
	ctx := bounded(t, patient)
	for round := range 150 {
		q := honker.NewQueue[int](db, fmt.Sprint("jobs", round), nil)
		working, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() {
			require.NoError(t, q.Work(working, func(context.Context, *honker.Job[int]) error { return nil }, nil))
		})
		<-time.After(time.Duration(round%10) * 100 * time.Microsecond) // any moment of its beginning
		all.Go(func() { add(t, q, round) })
		<-time.After(time.Duration(round%7) * 20 * time.Microsecond)
		stop()
		all.Wait()
		require.Zero(t, number(t, db.SQL(), processing))
	}
}
