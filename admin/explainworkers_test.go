package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// Without a worker, a claimable job waits for a worker. A killed worker is named.
func TestExplain_NoWorker(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "mails", nil)
		id := testkit.Enqueue(t, q, 1)
		ex, r := why(t, db, id, admin.ReasonNoWorker)
		require.Equal(t, "can be claimed, but no worker of its queue is known: no process runs Work on it, and no other worker holds a job", ex.Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionListWorkers, Queue: "mails"}}, r.Actions)
		require.Equal(t, "job 1 can be claimed, but no worker of its queue is known: no process runs Work on it, and no other worker holds a job",
			whyQueue(t, db, admin.ReasonNoWorker).Text)

		running := make(chan struct{})
		stop := testkit.Background(t, func(ctx context.Context) error {
			return q.Work(ctx, func(ctx context.Context, _ *honker.Job[int]) error { close(running); <-ctx.Done(); return nil },
				&honker.WorkOptions{WorkerID: "w-17", Workers: 1, DrainTimeout: time.Millisecond})
		})
		<-running
		time.Sleep(time.Second)
		next := testkit.Enqueue(t, q, 2)
		why(t, db, next, admin.ReasonWorkersBusy)
		testkit.Exec(t, db, `UPDATE _honkerx_workers SET pid_start = pid_start - 1`) // as if another process had reused the process ID
		ex, r = why(t, db, next, admin.ReasonNoWorker)
		require.Contains(t, ex.Text, `can be claimed, but its queue has no worker: "w-17", process `)
		require.Equal(t, "w-17", r.Who)
		require.NoError(t, stop())
	})
}

// While every handler of every worker is busy, the next job waits for the first handler to return.
func TestExplain_WorkersBusy(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		testkit.AddWorker(t, db, "mails", "near", 1)
		for i := range 6 {
			testkit.Enqueue(t, q, i)
		}
		_, err := q.Claim(t.Context(), "near", 1)
		require.NoError(t, err)
		_, err = q.Claim(t.Context(), "far", 3)
		require.NoError(t, err)
		why(t, db, 6, admin.ReasonInTurn)
		_, err = q.Claim(t.Context(), "far", 1)
		require.NoError(t, err)
		ex, r := why(t, db, 6, admin.ReasonWorkersBusy)
		require.Equal(t, `can be claimed when a handler is free: all 5 handlers of "near", "far" are busy, the oldest jobs 1, 2`, ex.Text)
		require.Equal(t, []int64{1, 2}, r.Jobs)
		_, err = q.Claim(t.Context(), "a foreign one", 1)
		require.NoError(t, err)
		id := testkit.Enqueue(t, q, 7)
		why(t, db, id, admin.ReasonInTurn) // its number of slots is unknown
	})
}

// A job's wait is estimated from the claims of the last few minutes.
func TestExplain_InTurn_About(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		testkit.Exec(t, db, `INSERT INTO _honkerx_minutes (minute, queue, claimed) VALUES (?1, 'mails', 40), (?1, '', 40)`, time.Now().Unix()/60)
		time.Sleep(time.Minute)
		for i := range 9 {
			testkit.Enqueue(t, q, i)
		}
		ex, _ := why(t, db, 9, admin.ReasonInTurn)
		require.Equal(t, "can be claimed, after 8 jobs before it: about 2m at the rate of the last 10m", ex.Text)
	})
}

// If more than a thousand jobs come first and their key blocks them, the number of claimable jobs
// ahead is unknown. The explanation says so.
func TestExplain_FarBehind(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
		testkit.Enqueue(t, q, 1, honker.Key("acme"))
		testkit.ClaimOne(t, q)
		_, err := q.EnqueueMany(t.Context(), make([]int, 1100), honker.Key("acme"))
		require.NoError(t, err)
		id := testkit.Enqueue(t, q, 1, honker.Key("others"))
		ex, _ := why(t, db, id, admin.ReasonInTurn)
		require.Equal(t, honker.Count{More: true}, ex.Ahead)
		require.Equal(t, "can be claimed, after more than 1,000 jobs that the limits of their keys hold back", ex.Text)
		ex, err = admin.ExplainQueue(t.Context(), db, "mails")
		require.NoError(t, err)
		require.Equal(t, `job 2 comes first: its key "acme" is full: 1 of 1 running, job 1`, ex.Text)
		require.Equal(t, "more than 1,000 jobs can be claimed or are held back by the limits of their keys, and the first of them are held back", ex.Reasons[2].Text)
		require.Equal(t, id, testkit.ClaimOne(t, q).ID)
	})
}

// If the next claim dead-letters a predecessor, the same claim takes a waiting job with EvenIfDead.
func TestExplain_WaitsFor_EvenIfDead(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		first := testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
		other := testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
		testkit.ClaimOne(t, q)
		id := testkit.Enqueue(t, q, 3, honker.After(first), honker.EvenIfDead())
		both := testkit.Enqueue(t, q, 4, honker.After(first, other), honker.EvenIfDead())
		strict := testkit.Enqueue(t, q, 5, honker.After(first))
		ex, r := why(t, db, id, admin.ReasonWaitsFor)
		require.Equal(t, "waits for job 1", ex.Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionExplainJob, Job: 1}}, r.Actions)
		time.Sleep(2 * time.Minute)
		why(t, db, id, admin.ReasonInTurn)
		why(t, db, both, admin.ReasonWaitsFor)
		why(t, db, strict, admin.ReasonWaitsFor)
		require.Equal(t, id, testkit.ClaimOne(t, q).ID)
		ex, _ = why(t, db, strict, admin.ReasonWaitsFor)
		require.Equal(t, "waits for job 1, which is dead; requeue it, or cancel this job", ex.Text)
	})
}

// If a claim has postponed a job to the end of a pause, the pause is the only reason.
func TestExplain_Paused_Key(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.Key("acme"))
		_, err := q.Pause(t.Context(), &honker.PauseOptions{Key: "acme", Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		for range 2 { // before and after a claim has reached it
			ex, _ := why(t, db, id, admin.ReasonPaused)
			require.Equal(t, `its key "acme" has been paused since 00:00:00 UTC (now), until 01:00:00 UTC (in 1h)`, ex.Text)
			require.True(t, ex.NextAt.Equal(time.Now().Add(time.Hour)))
			require.Empty(t, testkit.Claim(t, q, 1))
		}
		require.Equal(t, honker.PhaseScheduled, testkit.GetJob(t, q, id).Phase)
	})
}

// Held jobs that the next claims release are assigned their start times before the jobs behind
// them.
func TestExplain_KeyRate_Held(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1, KeyRate: honker.Rate{N: 1, Per: 10 * time.Second}}))
		ids, err := q.EnqueueMany(t.Context(), make([]int, 4), honker.Key("acme"))
		require.NoError(t, err)
		job := testkit.ClaimOne(t, q)
		require.Empty(t, testkit.Claim(t, q, 9)) // holds the other jobs
		require.NoError(t, job.Ack(t.Context()))
		for range 2 { // before and after the claims that assign the start times
			ex, _ := why(t, db, ids[3], admin.ReasonKeyRate)
			require.True(t, ex.NextAt.Equal(time.Now().Add(30*time.Second)), ex.Text)
			require.Empty(t, testkit.Claim(t, q, 1))
		}
	})
}

// With InOrder, an expired job blocks no other job, because the claim dead-letters it first.
func TestExplain_InOrder_Expired(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{InOrder: true}))
		testkit.Enqueue(t, q, 1, honker.Key("acme"), honker.ExpiresIn(time.Minute), honker.Delay(30*time.Second))
		id := testkit.Enqueue(t, q, 2, honker.Key("acme"))
		why(t, db, id, admin.ReasonKeyLimit)
		time.Sleep(2 * time.Minute)
		why(t, db, id, admin.ReasonInTurn)
		require.Equal(t, id, testkit.ClaimOne(t, q).ID)
	})
}
