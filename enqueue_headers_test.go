package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

type headers = map[string]string

type tenantKey struct{}

// tenantOf implements Options.Headers with the tenant of ctx.
func tenantOf(ctx context.Context) headers {
	tenant, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return nil
	}
	return headers{"tenant": tenant, "by": "options"}
}

// A job keeps its headers through every state.
func TestHeaders_StayWithTheJob(t *testing.T) {
	ctx, db, q := testkit.NewQueue[int](t, nil)
	require.NoError(t, q.SetRetention(ctx, honker.QueueRetention{Done: honker.Retention{MaxCount: 10}}))
	want := headers{"tenant": "acme", "trace.id": `"\` + "\n☃<&>"}
	id := testkit.Enqueue(t, q, 1, honker.Headers(want))
	testkit.Enqueue(t, q, 2)
	has := func(when string, phase honker.Phase) {
		t.Helper()
		job, err := db.Job(ctx, id)
		require.NoError(t, err, when)
		require.Equal(t, phase, job.Phase, when)
		require.Equal(t, want, job.Headers, when)
	}
	claimed := func() *honker.Job[int] {
		t.Helper()
		for _, job := range testkit.Claim(t, q, 2) {
			if job.ID == id {
				require.Equal(t, want, job.Headers, "in the claim")
				return job
			}
			require.Nil(t, job.Headers, "of a plain job")
			require.NoError(t, job.Snooze(ctx, time.Hour))
		}
		t.Fatal("not claimed")
		return nil
	}
	has("it waits", honker.PhaseReady)
	job := claimed()
	has("it runs", honker.PhaseRunning)
	require.NoError(t, job.Retry(ctx, 0, fmt.Errorf("again")))
	has("it waits again", honker.PhaseReady)
	job = claimed()
	require.Equal(t, "again", job.LastError)
	require.NoError(t, job.Reject(ctx, fmt.Errorf("no")))
	has("it is dead", honker.PhaseDead)
	id = testkit.Enqueue(t, q, 1, honker.Headers(want))
	require.NoError(t, claimed().Ack(ctx))
	has("it is done", honker.PhaseDone)
	requireSound(t, db)
}

// Another binding can claim, fail and ack jobs with headers. It sees only the arguments, and jobs that it
// dead-letters keep their headers.
func TestHeaders_Binding(t *testing.T) {
	db, other := testkit.OpenWithBinding(t)
	q := honker.NewQueue[int](db, "jobs", nil)
	ids, err := q.EnqueueMany(t.Context(), []int{1, 2}, honker.Headers(headers{"a": "b"}))
	require.NoError(t, err)
	jobs := other.Claim("jobs", "them", 2, 60)
	require.Len(t, jobs, 2)
	require.Equal(t, "1", fmt.Sprint(jobs[0].Payload))
	other.Fail(ids[0], "them", "no")
	require.EqualValues(t, 1, other.Ack(ids[1], "them"))
	job, err := db.Job(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, honker.PhaseDead, job.Phase)
	require.Equal(t, headers{"a": "b"}, job.Headers)
	require.Equal(t, int64(0), testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honkerx_job`))
	requireSound(t, db)
}

// Options.Headers adds headers from the ctx of each enqueue. Headers of the enqueue itself take precedence.
func TestHeaders_Options(t *testing.T) {
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: tenantOf})
	q := honker.NewQueue[int](db, "jobs", nil)
	ctx := context.WithValue(testkit.Context(t, testkit.Timeout), tenantKey{}, "acme")
	all := headers{"tenant": "acme", "by": "options"}
	own := headers{"by": "hand", "x": "y"}
	mixed := headers{"tenant": "acme", "by": "hand", "x": "y"}
	check := func(what string, id int64, err error, want headers) {
		t.Helper()
		require.NoError(t, err, what)
		job, err := db.Job(ctx, id)
		require.NoError(t, err, what)
		require.Equal(t, want, job.Headers, what)
	}
	id, err := q.Enqueue(ctx, 1)
	check("one", id, err, all)
	id, err = q.Enqueue(ctx, 1, honker.Headers(own))
	check("with its own", id, err, mixed)
	require.Equal(t, headers{"by": "hand", "x": "y"}, own, "they are the caller's")
	id, err = q.Enqueue(ctx, 1, honker.Headers(headers{"x": "1", "z": "2"}), honker.Headers(headers{"x": "3"}))
	check("twice", id, err, headers{"tenant": "acme", "by": "options", "x": "3", "z": "2"})
	id, err = q.Enqueue(testkit.Context(t, testkit.Timeout), 1)
	check("another ctx", id, err, nil)
	ids, err := q.EnqueueMany(ctx, make([]int, 300), honker.Headers(own))
	check("the first of many", ids[0], err, mixed)
	check("the last of many", ids[299], err, mixed)
	id, err = q.Enqueue(ctx, 1, honker.Key("k"))
	check("with a key", id, err, all)
	id, err = q.Enqueue(ctx, 1, honker.Unique("u", nil), honker.Key("k"))
	check("with a unique key", id, err, all)
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		id, err = q.EnqueueTx(ctx, tx, 1)
		return err
	}))
	check("in a transaction", id, err, all)
	id, err = honker.NewOutbox(db, "mail", func(context.Context, int) error { return nil }, nil).Send(ctx, 1)
	check("outbox", id, err, all)

	s := db.Scheduler()
	require.NoError(t, s.Register(ctx, honker.Schedule{Name: "a", Queue: "cron", Spec: "@every 1s"}))
	id, err = s.Trigger(ctx, "a")
	check("trigger", id, err, all)
	fires, err := s.Tick(ctx, time.Now().Add(3*time.Second))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(fires), 2)
	check("tick", fires[1].JobID, nil, all)
	requireSound(t, db)
}

// A job that is handed to a waiting worker of the same process has its headers too.
func TestHeaders_Handoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db, q := testkit.NewQueue[int](t, nil)
		got := make(chan headers, 2)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { got <- job.Headers; return nil }, nil)
		synctest.Wait()
		_, err := q.EnqueueMany(ctx, []int{1}, honker.Headers(headers{"a": "b"}))
		require.NoError(t, err)
		require.Equal(t, headers{"a": "b"}, <-got)
		stop()
		requireSound(t, db)
	})
}

// An enqueue that replaces the arguments of the job with its unique key replaces the headers too. An
// enqueue that only finds the job changes neither.
func TestHeaders_Unique(t *testing.T) {
	for conflict, want := range map[honker.Conflict]headers{
		honker.KeepExisting: {"n": "1"}, honker.ReplaceWaiting: {"n": "2"}, honker.RunAgain: {"n": "2"},
	} {
		_, db, q := testkit.NewQueue[int](t, nil)
		u := honker.Unique("k", &honker.Uniqueness{Conflict: conflict})
		p := place(t, q, 1, u, honker.Headers(headers{"n": "1"}))
		require.Equal(t, headers{"n": "1"}, place(t, q, 2, u, honker.Headers(headers{"n": "2"})).Of.Headers)
		require.Equal(t, want, testkit.GetJob(t, q, p.ID).Headers, conflict)
		if conflict == honker.RunAgain {
			testkit.ClaimOne(t, q)
			again := place(t, q, 3, u, honker.Headers(headers{"n": "3"}))
			require.Equal(t, headers{"n": "3"}, testkit.GetJob(t, q, again.ID).Headers)
			require.Equal(t, want, testkit.GetJob(t, q, p.ID).Headers, "of the job that runs")
			place(t, q, 4, u)
			require.Nil(t, testkit.GetJob(t, q, again.ID).Headers, "no headers is a change too")
		}
		requireSound(t, db)
	}
}

// Options.Headers is not called for an enqueue that adds nothing, and never with a nil ctx.
func TestHeaders_Options_NothingToAdd(t *testing.T) {
	calls := 0
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: func(ctx context.Context) map[string]string {
		calls++
		return tenantOf(ctx) // panics if ctx is nil
	}})
	ctx, q, s := testkit.Context(t, testkit.Timeout), honker.NewQueue[int](db, "jobs", nil), db.Scheduler()
	require.NoError(t, s.Register(ctx, honker.Schedule{Name: "a", Queue: "jobs", Spec: "@every 1h"}))
	for what, verb := range map[string]func(context.Context) error{
		"Enqueue":     func(ctx context.Context) error { _, err := q.Enqueue(ctx, 1); return err },
		"EnqueueMany": func(ctx context.Context) error { _, err := q.EnqueueMany(ctx, []int{1}); return err },
		"Trigger":     func(ctx context.Context) error { _, err := s.Trigger(ctx, "a"); return err },
		"Tick":        func(ctx context.Context) error { _, err := s.Tick(ctx, time.Now()); return err },
	} {
		require.NotPanics(t, func() { require.ErrorIs(t, verb(nil), honker.ErrInvalid, what) }, what)
	}
	ids, err := q.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, ids)
	require.Zero(t, calls)
	_, err = q.EnqueueMany(ctx, nil, honker.Headers(headers{"": "x"}))
	require.ErrorIs(t, err, honker.ErrInvalid, "what is wrong with the call is an error all the same")
}

// Invalid headers are refused, and no job is added.
func TestHeaders_Invalid(t *testing.T) {
	most, many := headers{}, headers{"64": ""}
	for i := range 64 {
		most[fmt.Sprint(i)], many[fmt.Sprint(i)] = "", ""
	}
	ctx, db, q := testkit.NewQueue[int](t, nil)
	for what, h := range map[string]headers{
		"too many": many, "too large": {"a": strings.Repeat("x", 8<<10)}, "no name": {"": "x"}, "NUL": {"a": "\x00"}, "no text": {"a\xff": "x"},
	} {
		_, err := q.Enqueue(ctx, 1, honker.Headers(h))
		require.ErrorIs(t, err, honker.ErrInvalid, what)
		require.ErrorContains(t, err, "header", what)
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM _honker_live`))
	for _, h := range []headers{most, {"a": strings.Repeat("x", 8<<10-1)}} {
		require.Equal(t, h, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1, honker.Headers(h))).Headers)
	}
	require.Nil(t, testkit.GetJob(t, q, testkit.Enqueue(t, q, 1, honker.Headers(nil), honker.Headers(headers{}))).Headers)

	db = honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: func(context.Context) map[string]string { return many }})
	_, err := honker.NewQueue[int](db, "jobs", nil).Enqueue(ctx, 1)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A plain job has no side row, with or without Options.Headers.
func TestHeaders_PlainJob(t *testing.T) {
	db := honkertest.OpenFile(t, filepath.Join(t.TempDir(), "file.db"), &honker.Options{Headers: tenantOf})
	testkit.Enqueue(t, honker.NewQueue[int](db, "jobs", nil), 1)
	require.Zero(t, testkit.QueryInt(t, db.SQL(), `SELECT (SELECT count(*) FROM _honkerx_job) + (SELECT count(*) FROM sqlite_schema WHERE name = '_honkerx_unique_gone')`))
}
