//go:build unix

package honkerpg_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	ops "github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/ui"
)

// order is a payload.
type order struct {
	ID int `json:"id"`
}

// worked opens a DB with jobs in several phases, events and locks. dead and waiter are jobs of which the second waits for
// the first.
func worked(t *testing.T) (db *honker.DB, dead, waiter int64) {
	t.Helper()
	db = open(t, honkerpg.Options{})
	mails := honker.NewQueue[order](db, "mails", &honker.QueueOptions{MaxAttempts: 1})
	enqueue := func(id int, opts ...honker.EnqueueOption) int64 {
		job, err := mails.Enqueue(t.Context(), order{id}, opts...)
		require.NoError(t, err)
		return job
	}
	dead = enqueue(1, honker.Unique("first", nil))
	waiter = enqueue(2, honker.After(dead))
	claimed, err := mails.Claim(t.Context(), "worker-1", 1)
	require.NoError(t, err)
	require.NoError(t, claimed[0].Retry(t.Context(), 0, errors.New("no luck")))
	enqueue(3)
	enqueue(4, honker.Delay(time.Hour))
	_, err = mails.Claim(t.Context(), "worker-1", 1)
	require.NoError(t, err)
	enqueue(5, honker.Headers(map[string]string{"tenant": "acme"}))
	_, err = honker.NewStream[int](db, "orders", nil).Publish(t.Context(), 1)
	require.NoError(t, err)
	return db, dead, waiter
}

// Operators list, count, explain and change jobs as on a file.
func TestOperators_Jobs(t *testing.T) {
	db, dead, waiter := worked(t)
	listed := func(f ops.JobFilter) (ids []int64) {
		for j, err := range ops.EachJob(t.Context(), db, f, nil) {
			require.NoError(t, err)
			ids = append(ids, j.ID)
		}
		return ids
	}
	require.Len(t, listed(ops.JobFilter{}), 5)
	require.Equal(t, []int64{dead}, listed(ops.JobFilter{Phases: []honker.Phase{honker.PhaseDead}, Error: "luck"}))
	require.Equal(t, []int64{dead}, listed(ops.JobFilter{Unique: "first"}))
	require.Equal(t, []int64{waiter}, listed(ops.JobFilter{Where: map[string]string{"id": "2"}}))
	require.Len(t, listed(ops.JobFilter{Header: map[string]string{"tenant": "acme"}}), 1)
	n, err := ops.CountJobs(t.Context(), db, ops.JobFilter{Queues: []string{"mails"}}, 100)
	require.NoError(t, err)
	require.Equal(t, honker.Count{N: 5}, n)
	queues, err := ops.Queues(t.Context(), db)
	require.NoError(t, err)
	one := honker.Count{N: 1}
	s := queues[0]
	require.Equal(t, []honker.Count{one, one, one, one, one}, []honker.Count{s.Ready, s.Scheduled, s.Running, s.Held, s.Dead})

	ex, err := ops.Explain(t.Context(), db, waiter)
	require.NoError(t, err)
	require.Equal(t, []int64{dead}, ex.Reasons[0].Jobs, "%+v", ex)
	_, err = ops.ExplainQueue(t.Context(), db, "mails")
	require.NoError(t, err)
	groups, err := ops.DeadGroups(t.Context(), db, ops.JobFilter{})
	require.NoError(t, err)
	require.Len(t, groups.Groups, 1)
	attempts, err := ops.Attempts(t.Context(), db, dead)
	require.NoError(t, err)
	require.Len(t, attempts, 1)
	problems, err := ops.Problems(t.Context(), db)
	require.NoError(t, err)
	var codes []ops.ProblemCode
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	require.Contains(t, codes, ops.ProblemWaitsForDead)

	done, err := ops.RunNow(t.Context(), db, ops.JobFilter{Phases: []honker.Phase{honker.PhaseScheduled}}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Changed)
	done, err = ops.Requeue(t.Context(), db, ops.JobFilter{IDs: []int64{dead}}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, done.Changed)
	done, err = ops.Cancel(t.Context(), db, ops.JobFilter{All: true}, &ops.CancelOptions{Waiters: ops.DropWaiters})
	require.NoError(t, err)
	require.Empty(t, listed(ops.JobFilter{Phases: []honker.Phase{honker.PhaseReady, honker.PhaseHeld}}))
	require.NotZero(t, done.Changed)
}

// Jobs that were exported from a database can be imported into another.
func TestOperators_ExportAndImport(t *testing.T) {
	db, _, _ := worked(t)
	var out bytes.Buffer
	n, err := ops.ExportJobs(t.Context(), db, ops.JobFilter{}, &out)
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	other := open(t, honkerpg.Options{})
	done, err := ops.ImportJobs(t.Context(), other, &out, nil)
	require.NoError(t, err)
	require.NotZero(t, done.Changed)
}

// Everything that an operator can look at has an answer. The verbs about files are refused with a sentence.
func TestOperators_Look(t *testing.T) {
	db, dead, _ := worked(t)
	ctx := t.Context()
	for name, look := range map[string]func() error{
		"audit":      func() error { _, err := ops.Audit(ctx, db, nil); return err },
		"batches":    func() error { _, err := ops.Batches(ctx, db, nil); return err },
		"consumers":  func() error { _, err := ops.Consumers(ctx, db); return err },
		"groups":     func() error { _, err := ops.Groups(ctx, db); return err },
		"locks":      func() error { _, err := ops.Locks(ctx, db); return err },
		"leaders":    func() error { _, err := ops.Leaders(ctx, db); return err },
		"presences":  func() error { _, err := ops.Presences(ctx, db); return err },
		"report":     func() error { _, err := ops.QueueReport(ctx, db, "mails", nil); return err },
		"limited":    func() error { _, err := ops.LimitedQueues(ctx, db); return err },
		"rates":      func() error { _, err := ops.RateLimits(ctx, db); return err },
		"partitions": func() error { _, err := ops.RelayPartitions(ctx, db); return err },
		"topics":     func() error { _, err := ops.Topics(ctx, db); return err },
		"traffic":    func() error { _, err := ops.TrafficAll(ctx, db, time.Now().Add(-time.Hour)); return err },
		"workers":    func() error { _, err := ops.Workers(ctx, db); return err },
		"explain":    func() error { _, err := ops.Explain(ctx, db, dead); return err },
	} {
		require.NoError(t, look(), name)
	}
	for name, look := range map[string]func() error{
		"file":   func() error { _, err := ops.File(ctx, db); return err },
		"backup": func() error { return ops.Backup(ctx, db, t.TempDir()+"/copy.db") },
		"vacuum": func() error { return ops.Vacuum(ctx, db) },
	} {
		require.ErrorIs(t, look(), honker.ErrUnsupported, name)
	}
}

// Each page of package ui works.
func TestOperators_Pages(t *testing.T) {
	db, dead, waiter := worked(t)
	h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
	defer h.Close()
	get := func(path string) *httptest.ResponseRecorder {
		got := httptest.NewRecorder()
		h.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
		return got
	}
	for _, path := range []string{"/", "/queue?name=mails", "/jobs", "/jobs?phase=dead", fmt.Sprint("/job?id=", dead), fmt.Sprint("/job?id=", waiter), "/dead",
		"/streams", "/stream?topic=orders", "/schedules", "/batches", "/locks", "/workers", "/audit", "/export", "/file"} {
		got := get(path)
		require.Equal(t, http.StatusOK, got.Code, "%s: %s", path, got.Body)
	}
}
