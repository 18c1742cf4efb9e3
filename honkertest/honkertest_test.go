package honkertest_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// The bubble lets two days pass instantly.
func ExampleBubble() {
	_ = func(t *testing.T) { // func TestReminder(t *testing.T) {
		honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
			reminders := honker.NewQueue[string](db, "reminders", nil)
			if _, err := reminders.Enqueue(t.Context(), "ada", honker.Delay(48*time.Hour)); err != nil {
				t.Fatal(err)
			}
			remind := func(context.Context, *honker.Job[string]) error { return nil }
			if ran := honkertest.Drain(t, reminders, remind); ran != 0 {
				t.Error("reminded too early")
			}
			time.Sleep(48*time.Hour + time.Second)
			if ran := honkertest.Drain(t, reminders, remind); ran != 1 {
				t.Error("not reminded")
			}
		})
	}
}

// In a bubble, time passes and workers are woken without any options.
func TestOpen_InBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, nil)
		q := honker.NewQueue[int](db, "jobs", nil)
		done := make(chan time.Time, 1)
		stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error { done <- time.Now(); return nil }, nil)
		began := time.Now()
		testkit.Enqueue(t, q, 1, honker.Delay(48*time.Hour))
		require.Equal(t, began.Add(48*time.Hour), <-done)
		require.NoError(t, stop())
	})
}

// An attached pool may be limited to a single connection.
func TestEnqueued_Attached(t *testing.T) {
	testkit.FileOnly(t)
	path, db := testkit.OpenShared(t)
	pool := testkit.OpenPool(t, path)
	pool.SetMaxOpenConns(1)
	attached, err := honker.Attach(t.Context(), pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, attached.Close()) }()
	q := honker.NewQueue[int](attached, "jobs", nil)
	changes := honkertest.During(t, attached, func() { testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1) })
	require.Len(t, changes.Jobs, 1)
	honkertest.RequireEnqueued(t, q, 1)
	require.Equal(t, honker.OutcomeAcked, honkertest.Perform(t, q, 2, testkit.Succeed).Outcome)
	require.Equal(t, 1, honkertest.Drain(t, q, testkit.Succeed))
	honkertest.Quiet(t, attached)
}

// The DB logs to the test's output unless the options have a Logger.
func TestOpen_Log(t *testing.T) {
	r, own := &recorder{TB: t}, new(testkit.Log)
	for _, opts := range []*honker.Options{nil, {}, {Logger: slog.New(slog.NewTextHandler(own, nil))}} {
		q := honker.NewQueue[int](honkertest.Open(r, opts), "jobs", nil)
		honkertest.Perform(t, q, 1, func(context.Context, *honker.Job[int]) error { return errCause })
	}
	require.Equal(t, 2, r.log.Times("attempt failed"))
	require.Equal(t, 1, own.Times("attempt failed"))
}

// A test may close its DB.
func TestOpen_Closed(t *testing.T) {
	require.NoError(t, honkertest.Open(t, nil).Close())
}

// Quiet fails for ready, running and dead jobs but not for scheduled jobs.
func TestQuiet(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		testkit.Enqueue(t, q, 1, honker.Delay(time.Minute))
		requirePasses(t, func(t testing.TB) { honkertest.Quiet(t, db) })
		time.Sleep(time.Minute)
		quiet := func(t testing.TB) { honkertest.Quiet(t, db) }
		requireFails(t, quiet, "not quiet", `job 1 of "jobs", ready: 1`)
		job := testkit.ClaimOne(t, q)
		requireFails(t, quiet, `job 1 of "jobs", running: 1`)
		require.NoError(t, job.Reject(t.Context(), errCause))
		requireFails(t, quiet, `job 1 of "jobs", dead: 1, last error "no paper"`)
	})
}

// WaitFor is woken when the result is committed. Its failure message describes the job's state.
func TestWaitFor(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		id := testkit.Enqueue(t, q, 1)
		requireFails(t, func(t testing.TB) { honkertest.WaitFor[int](t, db, id, time.Hour) }, "no result of job 1 within 1h0m0s", "deadline", "ready: 1")
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error {
			time.Sleep(time.Minute)
			return job.SetResult(job.Args + 1)
		}, nil)
		began := time.Now()
		require.Equal(t, 2, honkertest.WaitFor[int](t, db, id, time.Hour))
		require.Equal(t, began.Add(time.Minute), time.Now())
		require.NoError(t, stop())
		requireFails(t, func(t testing.TB) { honkertest.WaitFor[int](t, db, 99, time.Hour) }, "not found", "it is gone")
	})
}

// Check fails the test for a database that violates an invariant.
func TestCheck(t *testing.T) {
	testkit.FileOnly(t)
	db := honkertest.Open(t, nil)
	requirePasses(t, func(t testing.TB) { honkertest.Check(t, db) })
	testkit.Exec(t, db, `INSERT INTO _honker_live (id, queue, payload, state) VALUES (1, 'jobs', '1', 'lost')`)
	requireFails(t, func(t testing.TB) { honkertest.Check(t, db) }, "a live job is pending, processing or held")
	testkit.Exec(t, db, `DELETE FROM _honker_live`)
}

// A helper that needs a file says so on a server.
func TestHelpers_NeedAFile(t *testing.T) {
	setUpdate(t, true)
	t.Chdir(t.TempDir())
	for name, call := range map[string]func(testing.TB, *honker.DB){
		"Golden":      func(t testing.TB, db *honker.DB) { honkertest.Golden(t, db, "empty") },
		"Crash":       func(t testing.TB, db *honker.DB) { honkertest.Crash(t, db) },
		"Busy":        func(t testing.TB, db *honker.DB) { honkertest.Busy(t, db, 0) },
		"Foreign":     func(t testing.TB, db *honker.DB) { honkertest.Foreign(t, db, "jobs") },
		"FailCommits": func(t testing.TB, db *honker.DB) { honkertest.FailCommits(t, db, 0, errCause) },
		"DiskFull":    func(t testing.TB, db *honker.DB) { honkertest.DiskFull(t, db)() },
	} {
		db := honkertest.Open(t, nil)
		run := func(t testing.TB) { call(t, db) }
		if testkit.OnFile() {
			requirePasses(t, run)
			continue
		}
		requireFails(t, run, name+" needs a database file")
	}
}

// The tables of a new database are known as honker's, so that all others are the application's.
func TestTables_AreHonkers(t *testing.T) {
	db := honkertest.Open(t, nil)
	names, err := testkit.Rows(db.SQL(), testkit.Either(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence'`,
		`SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	ours, err := honkertest.Ours(t.Context(), db, names)
	require.NoError(t, err)
	require.Equal(t, names, ours, "add the others to the list in rows.go")
}
