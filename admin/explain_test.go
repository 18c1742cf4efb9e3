package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// why explains a job and requires that it has a single reason with the given code.
func why(t *testing.T, db *honker.DB, id int64, code admin.ReasonCode) (*admin.Explanation, admin.Reason) {
	t.Helper()
	ex, err := admin.Explain(context.Background(), db, id)
	require.NoError(t, err)
	require.Len(t, ex.Reasons, 1, ex.Reasons)
	require.Equal(t, code, ex.Reasons[0].Code, ex.Text)
	require.Equal(t, ex.Text, ex.Reasons[0].Text)
	return ex, ex.Reasons[0]
}

// inQueue runs f in a bubble that starts at midnight, with a queue and a remote worker.
func inQueue(t *testing.T, f func(t *testing.T, db *honker.DB, q *honker.Queue[int])) {
	t.Helper()
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.AddWorker(t, db, "mails", "far", 4)
		f(t, db, honker.NewQueue[int](db, "mails", &honker.QueueOptions{Lease: time.Minute}))
	})
}

func TestExplain_InTurn(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		last := testkit.Enqueue(t, q, 1, honker.Priority(-1))
		first := testkit.Enqueue(t, q, 2)
		ex, _ := why(t, db, first, admin.ReasonInTurn)
		require.Equal(t, "is next: the next claim on the queue takes it", ex.Text)
		require.Zero(t, ex.Ahead)
		require.Zero(t, ex.NextAt)
		require.Equal(t, honker.PhaseReady, ex.Job.Phase)
		ex, _ = why(t, db, last, admin.ReasonInTurn)
		require.Equal(t, "can be claimed, after 1 job before it", ex.Text)
		require.Equal(t, honker.Count{N: 1}, ex.Ahead)
	})
}

func TestExplain_Running(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1)
		testkit.ClaimOneAs(t, q, "w-17")
		ex, r := why(t, db, id, admin.ReasonRunning)
		require.Equal(t, `is running: worker "w-17" holds its claim until 00:01:00 UTC (in 1m) unless it renews it, attempt 1 of 25`, ex.Text)
		require.Equal(t, "w-17", r.Who)
		require.True(t, r.Until.Equal(time.Now().Add(61*time.Second)), r.Until)
		require.Zero(t, ex.NextAt)
	})
}

// A job whose claim has lapsed can be claimed when its turn comes.
func TestExplain_Lapsed(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1)
		testkit.ClaimOneAs(t, q, "w-17")
		time.Sleep(2 * time.Minute)
		ex, err := admin.Explain(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, ex.Reasons, 2)
		require.Equal(t, admin.ReasonLapsed, ex.Reasons[0].Code)
		require.Equal(t, admin.ReasonInTurn, ex.Reasons[1].Code)
		require.Equal(t, `worker "w-17" has not renewed its claim, which expired at 00:01:00 UTC (1m ago); any worker may claim the job again, attempt 1 of 25 so far`, ex.Text)
	})
}

func TestExplain_NotDue(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.Delay(90*time.Minute))
		ex, r := why(t, db, id, admin.ReasonNotDue)
		require.Equal(t, "is not due before 01:30:00 UTC (in 1h30m)", ex.Text)
		require.True(t, ex.NextAt.Equal(time.Now().Add(90*time.Minute)))
		require.Equal(t, ex.NextAt, r.Until)
		require.Equal(t, []admin.Action{{Verb: admin.ActionRunJobNow, Job: 1}}, r.Actions)

		failed := testkit.Enqueue(t, q, 2, honker.MaxAttempts(3))
		job := testkit.ClaimOne(t, q)
		require.NoError(t, job.Retry(t.Context(), time.Minute, errors.New("no route\nto host")))
		ex, _ = why(t, db, failed, admin.ReasonNotDue)
		require.Equal(t, `waits until 00:01:00 UTC (in 1m) for attempt 2 of 3; the last error was "no route"`, ex.Text)

		snoozed := testkit.Enqueue(t, q, 3)
		job = testkit.ClaimOne(t, q)
		require.NoError(t, job.Snooze(t.Context(), 36*time.Hour))
		ex, _ = why(t, db, snoozed, admin.ReasonNotDue)
		require.Equal(t, "is not due before 2000-01-02 12:00:00 UTC (in 1d12h)", ex.Text)
	})
}

func TestExplain_Paused(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.Key("it's me"), honker.Delay(time.Second))
		_, err := q.Pause(t.Context(), &honker.PauseOptions{By: "ann", Reason: "deploy", Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		ex, r := why(t, db, id, admin.ReasonPaused)
		require.Equal(t, `its queue "mails" has been paused since 00:00:00 UTC (1m ago) by ann, until 01:00:00 UTC (in 59m): deploy`, ex.Text)
		require.Equal(t, "ann", r.Who)
		require.Equal(t, []admin.Action{{Verb: admin.ActionResumePaused, Queue: "mails"}}, r.Actions)
		require.True(t, ex.NextAt.Equal(time.Now().Add(59*time.Minute)))

		_, err = q.Pause(t.Context(), &honker.PauseOptions{Key: "it's me"})
		require.NoError(t, err)
		ex, err = admin.Explain(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, ex.Reasons, 2)
		require.Equal(t, `its key "it's me" has been paused since 00:01:00 UTC (now) (and 1 more reason)`, ex.Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionResumePaused, Queue: "mails", Key: "it's me"}}, ex.Reasons[0].Actions)
		require.Zero(t, ex.NextAt, "one of the pauses has no end")
	})
}

func TestExplain_QueueLimit(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{Running: 2}))
		for i := range 4 {
			testkit.Enqueue(t, q, i)
		}
		first(t, q)
		why(t, db, 2, admin.ReasonInTurn)
		ex, _ := why(t, db, 3, admin.ReasonQueueLimit)
		require.Equal(t, "its queue will be full after the jobs before it start: 1 of 2 running", ex.Text)
		first(t, q)
		ex, r := why(t, db, 4, admin.ReasonQueueLimit)
		require.Equal(t, "its queue is full: 2 of 2 running, jobs 1, 2", ex.Text)
		require.Equal(t, []int64{1, 2}, r.Jobs)
		require.Equal(t, honker.Count{N: 1}, ex.Ahead)
		require.Zero(t, ex.NextAt)
	})
}

func TestExplain_KeyLimit(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
		testkit.Enqueue(t, q, 1, honker.Key("acme"))
		id := testkit.Enqueue(t, q, 2, honker.Key("acme"))
		ex, _ := why(t, db, id, admin.ReasonKeyLimit)
		require.Equal(t, `its key "acme" will be full after the jobs before it start: 0 of 1 running`, ex.Text)
		testkit.ClaimOne(t, q)
		for range 2 { // ready, then held
			ex, r := why(t, db, id, admin.ReasonKeyLimit)
			require.Equal(t, `its key "acme" is full: 1 of 1 running, job 1`, ex.Text)
			require.Equal(t, []int64{1}, r.Jobs)
			require.Equal(t, []admin.Action{{Verb: admin.ActionListKeys, Queue: "mails"}}, r.Actions)
			require.Empty(t, testkit.Claim(t, q, 1))
		}
		require.Equal(t, honker.PhaseHeld, testkit.GetJob(t, q, id).Phase)
	})
}

// With InOrder, the first job of a key blocks the others even while it waits for its time.
func TestExplain_InOrder(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{InOrder: true}))
		testkit.Enqueue(t, q, 1, honker.Key("acme"), honker.Delay(time.Hour))
		id := testkit.Enqueue(t, q, 2, honker.Key("acme"))
		ex, r := why(t, db, id, admin.ReasonKeyLimit)
		require.Equal(t, `jobs of its key "acme" run in order, and job 1 comes first`, ex.Text)
		require.Equal(t, []int64{1}, r.Jobs)
		require.Equal(t, []admin.Action{{Verb: admin.ActionExplainJob, Job: 1}}, r.Actions)
		require.Zero(t, ex.NextAt)
	})
}

func TestExplain_QueueRate(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{Rate: honker.Rate{N: 1, Per: 10 * time.Second, Burst: 2}}))
		for i := range 4 {
			testkit.Enqueue(t, q, i)
		}
		first(t, q)
		ex, _ := why(t, db, 3, admin.ReasonQueueRate)
		require.Equal(t, "its queue may start 1 job every 10s, 2 at once; this job follows 1 job and can start at about 00:00:10 UTC (in 10s)", ex.Text)
		require.Zero(t, ex.NextAt, "that is a matter of the job before it")
		first(t, q)
		ex, r := why(t, db, 3, admin.ReasonQueueRate)
		require.Equal(t, "its queue may start 1 job every 10s, 2 at once, the next at 00:00:10 UTC (in 10s)", ex.Text)
		require.True(t, ex.NextAt.Equal(time.Now().Add(10*time.Second)))
		require.Equal(t, ex.NextAt, r.Until)
		ex, _ = why(t, db, 4, admin.ReasonQueueRate)
		require.Equal(t, "its queue may start 1 job every 10s, 2 at once, the next at 00:00:10 UTC (in 10s); this job follows 1 job and can start at about 00:00:20 UTC (in 20s)", ex.Text)
	})
}

func TestExplain_KeyRate(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{KeyRate: honker.Rate{N: 1, Per: 10 * time.Second}}))
		testkit.Enqueue(t, q, 1, honker.Key("acme"))
		id := testkit.Enqueue(t, q, 2, honker.Key("acme"))
		first(t, q)
		for range 2 { // before and after a claim has reached it
			ex, _ := why(t, db, id, admin.ReasonKeyRate)
			require.Equal(t, `its key "acme" may start 1 job every 10s; this job can start at 00:00:10 UTC (in 10s)`, ex.Text)
			require.True(t, ex.NextAt.Equal(time.Now().Add(10*time.Second)))
			require.Empty(t, testkit.Claim(t, q, 1))
		}
		require.Equal(t, honker.PhaseScheduled, testkit.GetJob(t, q, id).Phase)
	})
}

func TestExplain_WaitsFor_Unique(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		again := honker.Unique("report", &honker.Uniqueness{Conflict: honker.RunAgain})
		testkit.Enqueue(t, q, 1, again)
		testkit.ClaimOne(t, q)
		id := testkit.Enqueue(t, q, 2, again)
		ex, r := why(t, db, id, admin.ReasonWaitsFor)
		require.Equal(t, `waits for the end of job 1, which holds its unique key "report" (RunAgain)`, ex.Text)
		require.Equal(t, []int64{1}, r.Jobs)
	})
}

// If the next claim dead-letters a predecessor that has expired, the same claim takes the waiting job.
func TestExplain_WaitsFor_Expired(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		again := honker.Unique("report", &honker.Uniqueness{Conflict: honker.RunAgain})
		testkit.Enqueue(t, q, 1, again, honker.ExpiresIn(time.Minute))
		job := testkit.ClaimOne(t, q)
		id := testkit.Enqueue(t, q, 2, again)
		require.NoError(t, job.Retry(t.Context(), 0, nil))
		time.Sleep(2 * time.Minute)
		why(t, db, id, admin.ReasonWaitsFor) // for Maintain, because claims of a queue without limits ignore it
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
		why(t, db, id, admin.ReasonInTurn)
		require.Equal(t, id, testkit.ClaimOne(t, q).ID)
	})
}

// The explanation names the unfinished and the dead jobs and batches that a job waits for.
func TestExplain_WaitsFor_After(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		lost := bury(t, q, 1, "broken")
		later := testkit.Enqueue(t, q, 2, honker.Delay(time.Hour))
		b, err := db.NewBatch(t.Context(), &honker.BatchOptions{Name: "pages"})
		require.NoError(t, err)
		ids, err := q.EnqueueMany(t.Context(), []int{3, 4}, honker.InBatch(b.ID))
		require.NoError(t, err)
		require.NoError(t, first(t, q).Ack(t.Context()))
		id := testkit.Enqueue(t, q, 5, honker.After(lost, later), honker.AfterBatch(b.ID))
		ex, err := admin.Explain(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, ex.Reasons, 3)
		require.Equal(t, "waits for job 1, which is dead; requeue it, or cancel this job (and 2 more reasons)", ex.Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionRequeueJob, Job: 1}}, ex.Reasons[0].Actions)
		require.Equal(t, "waits for job 2", ex.Reasons[1].Text)
		require.Equal(t, []int64{later}, ex.Reasons[1].Jobs)
		require.Equal(t, `waits for batch 1 "pages": 1 of its 2 members are waiting or running, and it is not sealed`, ex.Reasons[2].Text)
		require.Equal(t, ids[1:], ex.Reasons[2].Jobs)
		require.Equal(t, []admin.Action{{Verb: admin.ActionExplainJob, Job: 4}}, ex.Reasons[2].Actions)

		require.NoError(t, b.Seal(t.Context()))
		require.NoError(t, first(t, q).Reject(t.Context(), errors.New("broken")))
		ex, err = admin.Explain(t.Context(), db, id)
		require.NoError(t, err)
		require.Equal(t, `waits for batch 1 "pages": 0 of its 2 members are waiting or running, and 1 is dead: job 4`, ex.Reasons[2].Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionRequeueJob, Job: 4}}, ex.Reasons[2].Actions)
	})
}

func TestExplain_Expired(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.ExpiresIn(time.Minute))
		late := testkit.Enqueue(t, q, 2, honker.ExpiresIn(time.Hour), honker.Delay(2*time.Hour))
		ex, err := admin.Explain(t.Context(), db, late)
		require.NoError(t, err)
		require.Equal(t, "must start by 01:00:00 UTC (in 1h), but cannot start before 02:00:00 UTC (in 2h) (and 1 more reason)", ex.Text)
		require.Zero(t, ex.NextAt)
		time.Sleep(2 * time.Minute)
		ex, _ = why(t, db, id, admin.ReasonExpired)
		require.Equal(t, "had to start by 00:01:00 UTC (1m ago); Maintain, SweepExpired or a claim will dead-letter it", ex.Text)
	})
}

func TestExplain_Exhausted(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1, honker.MaxAttempts(1))
		testkit.ClaimOne(t, q)
		time.Sleep(2 * time.Minute)
		ex, _ := why(t, db, id, admin.ReasonExhausted)
		require.Equal(t, "has no attempts left, 1 of 1; the next claim on the queue dead-letters it", ex.Text)
	})
}

func TestExplain_Undecodable(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1)
		for _, payload := range []any{"{", []byte("1")} {
			testkit.Exec(t, db, `UPDATE _honker_live SET payload = ? WHERE id = ?`, payload, id)
			ex, err := admin.Explain(t.Context(), db, id)
			require.NoError(t, err)
			require.Len(t, ex.Reasons, 2)
			require.Equal(t, admin.ReasonUndecodable, ex.Reasons[0].Code)
			require.Equal(t, "its payload is not JSON text; a worker of this library dead-letters the job when it claims it", ex.Text)
		}
	})
}

func TestExplain_Clock(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := testkit.Enqueue(t, q, 1)
		testkit.Exec(t, db, `UPDATE _honker_live SET run_at = run_at * 1000, created_at = created_at + 3600 WHERE id = ?`, id)
		ex, err := admin.Explain(t.Context(), db, id)
		require.NoError(t, err)
		require.Len(t, ex.Reasons, 3)
		require.Equal(t, admin.ReasonNotDue, ex.Reasons[0].Code)
		require.Equal(t, "was enqueued at 01:00:00 UTC (in 1h) by another machine, whose clock is ahead of the clock of this machine", ex.Reasons[1].Text)
		require.Contains(t, ex.Reasons[2].Text, "it may have been written in milliseconds instead of seconds")
	})
}

func TestExplain_Dead(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		id := bury(t, q, 1, "no such address")
		time.Sleep(time.Hour)
		ex, r := why(t, db, id, admin.ReasonDead)
		require.Equal(t, `has been dead since 00:00:00 UTC (1h ago), after attempt 1 of 25: "no such address"; requeue it to run it again under its id`, ex.Text)
		require.Equal(t, []admin.Action{{Verb: admin.ActionRequeueJob, Job: 1}}, r.Actions)
	})
}

// An acked job is done if it's kept and gone if it isn't. An ID that hasn't been assigned yet is
// reported as never used.
func TestExplain_Gone(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		gone := testkit.Enqueue(t, q, 1)
		require.NoError(t, testkit.ClaimOne(t, q).Ack(t.Context()))
		require.NoError(t, q.SetRetention(t.Context(), honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
		done := testkit.Enqueue(t, q, 2)
		require.NoError(t, testkit.ClaimOneAs(t, q, "w-17").Ack(t.Context()))

		ex, r := why(t, db, done, admin.ReasonDone)
		require.Equal(t, `is done: worker "w-17" acked attempt 1 of 25 at 00:00:00 UTC (now)`, ex.Text)
		require.Equal(t, "w-17", r.Who)
		ex, _ = why(t, db, gone, admin.ReasonGone)
		require.Equal(t, "is gone: it was acked, cancelled or discarded, and the file keeps no record of it (see SetRetention)", ex.Text)
		require.Nil(t, ex.Job)
		for _, never := range []int64{done + 1, 0, -1} {
			ex, _ = why(t, db, never, admin.ReasonNever)
			require.Equal(t, "has never existed: the highest id assigned so far is 2", ex.Text)
		}
	})
}

func TestExplain_Invalid(t *testing.T) {
	_, db, _, _ := open(t)
	_, err := admin.Explain(t.Context(), nil, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	var none context.Context
	_, err = admin.Explain(none, db, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.ExplainQueue(t.Context(), db, "")
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = admin.ExplainQueue(t.Context(), nil, "jobs")
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// In a transaction, Explain sees that transaction's changes.
func TestExplain_Tx(t *testing.T) {
	ctx, db, q, _ := open(t)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		id, err := q.EnqueueTx(ctx, tx, 1)
		require.NoError(t, err)
		ex, err := admin.Explain(ctx, db, id)
		require.NoError(t, err)
		require.Equal(t, admin.ReasonNoWorker, ex.Reasons[0].Code)
		return nil
	}))
}

// first claims a single job.
func first(t *testing.T, q *honker.Queue[int]) *honker.Job[int] {
	t.Helper()
	jobs := testkit.Claim(t, q, 1)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// whyQueue explains a queue and requires that it has a single reason with the given code.
func whyQueue(t *testing.T, db *honker.DB, code admin.ReasonCode) *admin.Explanation {
	t.Helper()
	ex, err := admin.ExplainQueue(t.Context(), db, "mails")
	require.NoError(t, err)
	require.Len(t, ex.Reasons, 1, ex.Reasons)
	require.Equal(t, code, ex.Reasons[0].Code, ex.Text)
	require.Nil(t, ex.Job)
	return ex
}

// ExplainQueue names the first job of the queue and the running jobs.
func TestExplainQueue(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		ex, err := admin.ExplainQueue(t.Context(), db, "mails")
		require.NoError(t, err)
		require.Equal(t, "has no waiting or running jobs", ex.Text)
		require.Empty(t, ex.Reasons)

		testkit.Enqueue(t, q, 1, honker.Delay(time.Hour), honker.Priority(1))
		testkit.Enqueue(t, q, 2, honker.Delay(time.Minute))
		ex = whyQueue(t, db, admin.ReasonNotDue)
		require.Equal(t, "job 2 comes first: is not due before 00:01:00 UTC (in 1m)", ex.Text)
		require.True(t, ex.NextAt.Equal(time.Now().Add(time.Minute)))

		time.Sleep(time.Minute)
		ex = whyQueue(t, db, admin.ReasonInTurn)
		require.Equal(t, "job 2 can be claimed", ex.Text)
		require.Equal(t, honker.Count{N: 1}, ex.Ahead)
		require.Zero(t, ex.NextAt)
		testkit.Enqueue(t, q, 3)
		require.Equal(t, "2 jobs can be claimed, job 2 first", whyQueue(t, db, admin.ReasonInTurn).Text)

		_, err = q.Pause(t.Context(), &honker.PauseOptions{Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		ex = whyQueue(t, db, admin.ReasonPaused)
		require.Equal(t, `job 2 comes first: its queue "mails" has been paused since 00:01:00 UTC (now), until 01:01:00 UTC (in 1h)`, ex.Text)
		require.True(t, ex.NextAt.Equal(time.Now().Add(time.Hour)))
		_, err = q.Resume(t.Context())
		require.NoError(t, err)

		require.Len(t, testkit.Claim(t, q, 9), 2)
		ex, err = admin.ExplainQueue(t.Context(), db, "mails")
		require.NoError(t, err)
		require.Equal(t, "job 1 comes first: is not due before 01:00:00 UTC (in 59m)", ex.Text)
		require.Equal(t, "2 jobs are running, jobs 2, 3", ex.Reasons[1].Text)
	})
}

// If a key blocks the first jobs, ExplainQueue names the first job of another key.
func TestExplainQueue_Keys(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		require.NoError(t, q.SetLimits(t.Context(), honker.Limits{PerKey: 1}))
		for i := range 5 {
			testkit.Enqueue(t, q, i, honker.Key("acme"))
		}
		testkit.ClaimOne(t, q)
		ex, err := admin.ExplainQueue(t.Context(), db, "mails")
		require.NoError(t, err)
		require.Equal(t, `job 2 comes first: its key "acme" is full: 1 of 1 running, job 1`, ex.Text)
		require.Equal(t, "job 1 is running, and no other job of the queue", ex.Reasons[1].Text)
		id := testkit.Enqueue(t, q, 6, honker.Key("others"))
		ex, err = admin.ExplainQueue(t.Context(), db, "mails")
		require.NoError(t, err)
		require.Equal(t, admin.ReasonInTurn, ex.Reasons[1].Code)
		require.Equal(t, []int64{id}, ex.Reasons[1].Jobs)
	})
}

// With Reasons, a list says why each of its jobs isn't running.
func TestListJobs_Reasons(t *testing.T) {
	inQueue(t, func(t *testing.T, db *honker.DB, q *honker.Queue[int]) {
		bury(t, q, 1, "broken")
		testkit.Enqueue(t, q, 2)
		testkit.Enqueue(t, q, 3, honker.Delay(time.Hour))
		page, err := admin.ListJobs(t.Context(), db, admin.JobFilter{}, nil)
		require.NoError(t, err)
		require.Nil(t, page.Reasons)
		page, err = admin.ListJobs(t.Context(), db, admin.JobFilter{}, &admin.PageOptions{Reasons: true})
		require.NoError(t, err)
		require.Len(t, page.Jobs, 3)
		var codes []admin.ReasonCode
		for _, r := range page.Reasons {
			codes = append(codes, r.Code)
		}
		require.Equal(t, []admin.ReasonCode{admin.ReasonNotDue, admin.ReasonInTurn, admin.ReasonDead}, codes)
	})
}
