package honkertest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// During reports the changes committed by the function, in all queues, and nothing else.
func TestDuring(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	events := honker.NewStream[string](db, "orders", nil)
	others := honker.NewQueue[int](db, "others", nil)
	for n := range 4 {
		testkit.Enqueue(t, q, n)
	}
	testkit.Publish(t, events, "before")
	require.NoError(t, testkit.Claim(t, q, 1)[0].Reject(ctx, errCause))

	changes := honkertest.During(t, db, func() {
		testkit.Enqueue(t, others, 5)
		require.NoError(t, testkit.Claim(t, q, 1)[0].Ack(ctx))
		require.NoError(t, testkit.Claim(t, q, 1)[0].Reject(ctx, errCause))
		_, err := q.Cancel(ctx, 4)
		require.NoError(t, err)
		testkit.Enqueue(t, q, 6)
		require.NoError(t, testkit.Claim(t, q, 1)[0].Ack(ctx))
		testkit.Publish(t, events, "during", honker.EventKey("k"))
		require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, 7)
			require.NoError(t, err)
			return errCause
		}), errCause)
	})
	require.Len(t, changes.Jobs, 1)
	require.Equal(t, "others", changes.Jobs[0].Queue)
	require.Len(t, changes.Dead, 1)
	require.EqualValues(t, 3, changes.Dead[0].ID)
	require.Equal(t, errCause.Error(), changes.Dead[0].LastError)
	dead, err := db.Job(ctx, 3)
	require.NoError(t, err)
	require.Equal(t, *dead, changes.Dead[0])
	done := []int64{2, 4}
	if testkit.AsFile("IDs of jobs") {
		done = append(done, 6)
	}
	require.Equal(t, done, changes.Done, "acked, cancelled, and on a file enqueued meanwhile")
	require.Len(t, changes.Events, 1)
	require.Equal(t, honkertest.Event{Offset: 2, Topic: "orders", Key: "k", Payload: json.RawMessage(`"during"`), CreatedAt: changes.Events[0].CreatedAt}, changes.Events[0])
	require.False(t, changes.Events[0].CreatedAt.IsZero())
	require.Equal(t, honkertest.Changes{}, honkertest.During(t, db, func() {}))
}

// In every phase, the jobs in Changes equal the results of DB.Job.
func TestDuring_Phases(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		changes := honkertest.During(t, db, func() {
			testkit.Enqueue(t, q, 1)
			testkit.Enqueue(t, q, 2, honker.MaxAttempts(1))
			testkit.Enqueue(t, q, 3, honker.ExpiresIn(time.Minute))
			for _, job := range testkit.Claim(t, q, 3) {
				require.NoError(t, job.Extend(t.Context(), time.Minute))
			}
			testkit.Enqueue(t, q, 4, honker.ExpiresIn(time.Minute))
			time.Sleep(time.Hour)
			testkit.Enqueue(t, q, 5)
			others := honker.NewQueue[int](db, "others", nil)
			testkit.Enqueue(t, others, 6)
			testkit.ClaimOne(t, others)
			testkit.Enqueue(t, q, 7, honker.Delay(time.Hour))
			testkit.Exec(t, db, `INSERT INTO _honker_live (id, queue, payload, attempts, max_attempts, run_at) VALUES (8, 'jobs', '8', 3, 3, 1)`)
		})
		var phases []honker.Phase
		for _, j := range changes.Jobs {
			want, err := db.Job(t.Context(), j.ID)
			require.NoError(t, err)
			require.Equal(t, *want, j)
			phases = append(phases, j.Phase)
		}
		require.Equal(t, []honker.Phase{honker.PhaseLapsed, honker.PhaseExpired, honker.PhaseExpired, honker.PhaseExpired, honker.PhaseReady,
			honker.PhaseRunning, honker.PhaseScheduled, honker.PhaseExpired}, phases)
	})
}
