package honkertest_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// No matter how a handler ends, the outcome is the same as in Work, and Performed reports it.
func TestPerform_Outcomes(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		opts := &honker.QueueOptions{Backoff: honker.Constant(time.Hour), Timeout: time.Minute}
		q := honker.NewQueue[string](db, "jobs", opts)
		for name, c := range map[string]struct {
			fn      honkertest.Handler[string]
			outcome honker.Outcome
			next    time.Duration
			err     string
		}{
			"ack":    {testkit.Succeed[string], honker.OutcomeAcked, 0, ""},
			"fail":   {func(context.Context, *honker.Job[string]) error { return errCause }, honker.OutcomeRetried, time.Hour, "no paper"},
			"reject": {func(context.Context, *honker.Job[string]) error { return honker.Reject(errCause) }, honker.OutcomeDied, 0, "no paper"},
			"snooze": {func(context.Context, *honker.Job[string]) error { return honker.Snooze(time.Minute) }, honker.OutcomeSnoozed, time.Minute, ""},
			"retry": {func(context.Context, *honker.Job[string]) error { return honker.RetryAfter(2*time.Hour, errCause) },
				honker.OutcomeRetried, 2 * time.Hour, "no paper"},
			"panic": {func(context.Context, *honker.Job[string]) error { panic("on fire") }, honker.OutcomeRetried, time.Hour, "panic: on fire\n\ngoroutine"},
			"timeout": {func(ctx context.Context, _ *honker.Job[string]) error { <-ctx.Done(); return ctx.Err() },
				honker.OutcomeRetried, time.Hour, "timeout after 1m0s"},
			"settled": {func(ctx context.Context, job *honker.Job[string]) error { return job.Retry(ctx, 3*time.Hour, errCause) },
				honker.OutcomeRetried, 3 * time.Hour, ""},
			"acked by itself": {func(ctx context.Context, job *honker.Job[string]) error { return job.Ack(ctx) }, honker.OutcomeAcked, 0, ""},
			"cancelled": {func(ctx context.Context, job *honker.Job[string]) error {
				_, err := q.Cancel(ctx, job.ID)
				require.NoError(t, err)
				return ctx.Err()
			}, honker.OutcomeCancelled, 0, ""},
			"lost": {func(ctx context.Context, job *honker.Job[string]) error { honkertest.Lapse(t, db, job.ID); return nil },
				honker.OutcomeLost, 0, "claim lost"},
			"lost and failed": {func(ctx context.Context, job *honker.Job[string]) error {
				honkertest.Lapse(t, db, job.ID)
				return errCause
			},
				honker.OutcomeLost, 0, "no paper"},
			"another's claim is lost": {func(context.Context, *honker.Job[string]) error { return honker.ErrClaimLost },
				honker.OutcomeRetried, time.Hour, "claim lost"},
			"taken by another": {func(ctx context.Context, job *honker.Job[string]) error {
				honkertest.Lapse(t, db, job.ID)
				require.Len(t, testkit.Claim(t, q, 1), 1)
				return nil
			}, honker.OutcomeLost, 0, "claim lost"},
		} {
			began := time.Now()
			p := honkertest.Perform(t, q, name, func(ctx context.Context, job *honker.Job[string]) error {
				began = time.Now()
				err := c.fn(ctx, job)
				if name == "timeout" {
					began = time.Now()
				}
				return err
			})
			require.Equal(t, c.outcome, p.Outcome, name)
			if c.err == "" {
				require.NoError(t, p.Err, name)
			} else {
				require.ErrorContains(t, p.Err, c.err, name)
			}
			require.Equal(t, c.next == 0, p.NextAt.IsZero(), name)
			if c.next > 0 {
				require.Equal(t, began.Add(c.next), p.NextAt, name)
			}
		}
	})
}

// The handler gets the job as enqueued, decoded from JSON, immediately and ahead of all others.
// Performed reports its result and the jobs that it enqueued.
func TestPerform_Job(t *testing.T) {
	ctx, db, q := testkit.NewQueue[map[string]any](t, nil)
	mails := honker.NewQueue[string](db, "mails", nil)
	testkit.Enqueue(t, q, map[string]any{"n": 1}, honker.Priority(100))
	testkit.Enqueue(t, q, map[string]any{"n": 2}, honker.Priority(100), honker.Delay(time.Hour))
	due := time.Now().Add(48 * time.Hour)
	handler := func(ctx context.Context, job *honker.Job[map[string]any]) error {
		require.Equal(t, map[string]any{"n": 3.0}, job.Args)
		require.Equal(t, 5, job.Priority)
		require.WithinRange(t, job.RunAt, due, due.Add(time.Second))
		require.Equal(t, 1, job.Attempts)
		_, err := mails.Enqueue(ctx, "ada")
		require.NoError(t, err)
		require.NoError(t, job.SetResult("done"))
		return nil
	}
	p := honkertest.Perform(t, q, map[string]any{"n": 3}, handler, honker.RunAt(due), honker.Priority(5))
	require.Equal(t, honker.OutcomeAcked, p.Outcome)
	require.Equal(t, json.RawMessage(`"done"`), p.Result)
	require.Len(t, p.Enqueued, 1)
	require.Equal(t, "mails", p.Enqueued[0].Queue)
	require.Len(t, honkertest.Enqueued(t, q), 2, "the others wait")

	fail := func(context.Context, *honker.Job[map[string]any]) error { return errCause }
	p = honkertest.Perform(t, q, nil, fail, honker.Priority(-7))
	require.Nil(t, p.Result)
	job, err := db.Job(ctx, p.ID)
	require.NoError(t, err)
	require.Equal(t, -7, job.Priority, "as it was enqueued")
	p = honkertest.Perform(t, q, nil, fail, honker.MaxAttempts(1), honker.Priority(-7), honker.RunAt(due))
	require.Equal(t, honker.OutcomeDied, p.Outcome)
	job, err = db.Job(ctx, p.ID)
	require.NoError(t, err)
	require.Equal(t, -7, job.Priority)
	require.WithinRange(t, job.RunAt, due, due.Add(time.Second))
}

// Middleware wraps the handler in the same order as in WorkOptions.
func TestWrap(t *testing.T) {
	_, _, q := testkit.NewQueue[int](t, nil)
	var calls []string
	say := func(name string) honker.Middleware {
		return func(next honker.WorkFunc) honker.WorkFunc {
			return func(ctx context.Context, job *honker.JobInfo) error {
				calls = append(calls, fmt.Sprint(name, " ", job.ID))
				return errors.Join(next(ctx, job), errors.New(name))
			}
		}
	}
	p := honkertest.Perform(t, q, 1, honkertest.Wrap(testkit.Succeed[int], say("outer"), say("inner")))
	require.Equal(t, []string{"outer 1", "inner 1"}, calls)
	require.EqualError(t, p.Err, "inner\nouter")
}

// A job that cannot be run fails the test with the reason.
func TestPerform_NotRun(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	_, err := q.Pause(ctx, nil)
	require.NoError(t, err)
	requireFails(t, func(t testing.TB) { honkertest.Perform(t, q, 1, testkit.Succeed) }, "not performed", `job 1 of "jobs", ready: 1`)
	_, err = q.Resume(ctx)
	require.NoError(t, err)
	held := testkit.Enqueue(t, q, 2, honker.Unique("k", nil), honker.Priority(1))
	testkit.Claim(t, q, 1)
	requireFails(t, func(t testing.TB) { honkertest.Perform(t, q, 3, testkit.Succeed, honker.Unique("k", nil)) },
		fmt.Sprintf("job %d", held), "worker w has claimed it")
	requireFails(t, func(t testing.TB) { honkertest.Perform(t, honker.NewQueue[int](db, "", nil), 3, testkit.Succeed) }, "queue name")
	requireFails(t, func(t testing.TB) { honkertest.Perform(t, q, 3, nil) }, "nil handler")
	requireFails(t, func(t testing.TB) { honkertest.TwicePerform(t, q, 3, nil) }, "nil handler")
}

// The handler may end the test, as require does, without leaving its job claimed.
func TestPerform_FailNow(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		require.Empty(t, failureOf(t, func(t testing.TB) {
			honkertest.Perform(t, q, 1, func(context.Context, *honker.Job[int]) error { runtime.Goexit(); return nil })
			t.Errorf("Perform has returned")
		}))
		require.Equal(t, honker.StatePending, testkit.GetJob(t, q, 1).State)
	})
}

// Handlers that are not idempotent fail the test, and idempotent handlers pass.
func TestTwicePerform(t *testing.T) {
	ctx, db, q := testkit.NewQueue[string](t, nil)
	testkit.ExecAll(t, db.SQL(), `CREATE TABLE sent (job INTEGER PRIMARY KEY, item TEXT)`, `CREATE TABLE "lo""g" (job INTEGER, item TEXT, at TIMESTAMP)`)
	mails := honker.NewQueue[string](db, "mails", nil)
	events := honker.NewStream[string](db, "events", nil)
	exec := func(query string) honkertest.Handler[string] {
		return func(ctx context.Context, job *honker.Job[string]) error {
			_, err := db.SQL().ExecContext(ctx, query, job.ID, job.Args)
			return err
		}
	}
	for name, c := range map[string]struct {
		fn    honkertest.Handler[string]
		fault string // of the second run
	}{
		"nothing": {testkit.Succeed[string], ""},
		"upsert":  {exec(`INSERT INTO sent (job, item) VALUES ($1, $2) ON CONFLICT DO NOTHING`), ""},
		"insert":  {exec(`INSERT INTO "lo""g" (job, item, at) VALUES ($1, $2, '2026-01-02 03:04:05')`), `item="tea" at=2026-01-02T03:04:05Z`},
		"delete":  {exec(`DELETE FROM "lo""g" WHERE job = (SELECT min(job) FROM "lo""g" WHERE $1 > 0 AND item = $2)`), `-table lo"g: job=2 item="tea"`},
		"enqueue": {func(ctx context.Context, _ *honker.Job[string]) error {
			_, err := mails.Enqueue(ctx, "ada")
			return err
		}, "+table " + testkit.Either("_honker_live", "job") + ":"},
		"unique": {func(ctx context.Context, _ *honker.Job[string]) error {
			_, err := mails.Enqueue(ctx, "ada", honker.Unique("ada", nil))
			return err
		}, ""},
		"publish": {func(ctx context.Context, _ *honker.Job[string]) error { _, err := events.Publish(ctx, "e"); return err }, "+table " + testkit.Either("_honker_stream", "event") + ":"},
		"one transaction": {func(ctx context.Context, job *honker.Job[string]) error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `INSERT INTO "lo""g" (item) VALUES ('once')`)
				return errors.Join(err, job.AckTx(ctx, tx))
			})
		}, ""},
	} {
		runs := 0
		counted := func(ctx context.Context, job *honker.Job[string]) error {
			runs++
			return c.fn(ctx, job)
		}
		if name == "delete" {
			testkit.ExecAll(t, db.SQL(), `DELETE FROM "lo""g"`, `INSERT INTO "lo""g" VALUES (1, 'tea', NULL), (2, 'tea', NULL)`)
		}
		run := func(t testing.TB) {
			p := honkertest.TwicePerform(t, q, "tea", counted)
			require.Equal(t, honker.OutcomeAcked, p.Outcome, name)
		}
		if c.fault == "" {
			requirePasses(t, run)
		} else {
			requireFails(t, run, "made further changes", c.fault)
		}
		require.Equal(t, map[bool]int{true: 1, false: 2}[name == "one transaction"], runs, name)
	}
	honkertest.RequireNone(t, q)
	fail := func(context.Context, *honker.Job[string]) error { return errCause }
	requireFails(t, func(t testing.TB) { honkertest.TwicePerform(t, q, "tea", fail) }, "the first run", "no paper")
	failLater := func(_ context.Context, job *honker.Job[string]) error {
		if job.Attempts > 1 {
			return errCause
		}
		return nil
	}
	requireFails(t, func(t testing.TB) { honkertest.TwicePerform(t, q, "tea", failLater) }, "the second run", "no paper")
	requireFails(t, func(t testing.TB) { honkertest.TwicePerform(t, q, "tea", testkit.Succeed, honker.MaxAttempts(1)) }, "not performed")
	require.NoError(t, db.Check(ctx))
}

// A receipt is printed twice if the process dies after printing but before the ack. With the job ID
// as a primary key, the second attempt has no effect.
func ExampleTwicePerform() {
	_ = func(t *testing.T) { // func TestPrint_Twice(t *testing.T) {
		db := honkertest.Open(t, nil)
		if _, err := db.SQL().ExecContext(t.Context(), `CREATE TABLE printed (job INTEGER PRIMARY KEY, item TEXT)`); err != nil {
			t.Fatal(err)
		}
		receipts := honker.NewQueue[string](db, "receipts", nil)
		honkertest.TwicePerform(t, receipts, "tea", func(ctx context.Context, job *honker.Job[string]) error {
			_, err := db.SQL().ExecContext(ctx, `INSERT INTO printed (job, item) VALUES (?, ?) ON CONFLICT DO NOTHING`, job.ID, job.Args)
			return err
		})
	}
}

func ExamplePerform() {
	_ = func(t *testing.T) { // func TestSend_NoSuchAddress(t *testing.T) {
		db := honkertest.Open(t, nil)
		mails := honker.NewQueue[string](db, "mails", nil)
		send := func(_ context.Context, job *honker.Job[string]) error {
			return honker.Reject(fmt.Errorf("no such address: %s", job.Args))
		}
		if p := honkertest.Perform(t, mails, "nobody@example.com", send); p.Outcome != honker.OutcomeDied {
			t.Errorf("%s: %v", p.Outcome, p.Err)
		}
	}
}
