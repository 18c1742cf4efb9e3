package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// Bury undoes a requeue for the jobs that nobody has claimed since. Other jobs of the queue stay, also those of another
// requeue. The observer receives each death.
func TestBury_UndoesRequeue(t *testing.T) {
	var deaths []string
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, &honker.Options{Observer: &observe.Observer{Settled: func(s observe.Settled) {
		deaths = append(deaths, fmt.Sprint(s.Queue, " ", s.ID, " ", s.Attempt, " ", s.Outcome, " ", s.Err))
	}}})
	q := honker.NewQueue[int](db, "jobs", nil)
	for n := range 4 {
		bury(t, q, n, "no route")
	}
	r, err := admin.Requeue(ctx, db, admin.JobFilter{IDs: []int64{1, 2, 3}}, nil)
	require.NoError(t, err)
	other, err := admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	require.NotEqual(t, r.Audit, other.Audit)
	fresh := testkit.Enqueue(t, q, 9, honker.Delay(time.Hour))
	claimed, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, claimed[0].ID)
	deaths = nil
	granted := testkit.GetJob(t, q, 2).MaxAttempts

	undo := admin.JobFilter{Requeue: r.Audit}
	listed, err := admin.ListJobs(ctx, db, undo, nil)
	require.NoError(t, err)
	require.Len(t, listed.Jobs, 2)
	dry, err := admin.Bury(ctx, db, undo, &admin.BuryOptions{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2}, dry)
	buried, err := admin.Bury(honker.WithActor(ctx, "anna"), db, undo, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 2, Audit: 3}, buried)
	require.Equal(t, []string{"jobs 2 1 died buried by an operator", "jobs 3 1 died buried by an operator"}, deaths)
	for id, state := range map[int64]honker.State{1: honker.StateProcessing, 2: honker.StateDead, 3: honker.StateDead, 4: honker.StatePending, fresh: honker.StatePending} {
		require.Equal(t, state, testkit.GetJob(t, q, id).State, id)
	}
	require.Equal(t, "no route", testkit.GetJob(t, q, 2).LastError)
	entries, err := admin.Audit(ctx, db, &admin.AuditOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("buried 2 jobs of requeue %d", r.Audit), entries[0].String())
	require.Equal(t, "anna", entries[0].Actor)
	again, err := admin.Bury(ctx, db, undo, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{}, again)

	_, err = admin.Requeue(ctx, db, all, &admin.RequeueOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, granted, testkit.GetJob(t, q, 2).MaxAttempts, "as many attempts as before")
}

// RequeueTx marks its jobs too. A requeue that is rolled back marks none.
func TestBury_UndoesRequeueTx(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := bury(t, q, 1, "no")
	requeue := func(ctx context.Context, tx *sql.Tx) *admin.Report {
		r, err := admin.RequeueTx(ctx, db, tx, all, nil)
		require.NoError(t, err)
		require.NotZero(t, r.Audit)
		return r
	}
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		requeue(ctx, tx)
		return testkit.ErrCause
	}), testkit.ErrCause)
	var r *admin.Report
	require.NoError(t, db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r = requeue(ctx, tx)
		return nil
	}))
	buried, err := admin.Bury(ctx, db, admin.JobFilter{Requeue: r.Audit}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, buried.Changed)
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
}

// A requeued job whose arguments were replaced is a new job, which an undo must not bury.
func TestBury_LeavesReplacedJobs(t *testing.T) {
	ctx, db, q, _ := open(t)
	unique := honker.Unique("k", &honker.Uniqueness{Conflict: honker.ReplaceWaiting})
	id := bury(t, q, 1, "no", unique)
	r, err := admin.Requeue(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, id, testkit.Enqueue(t, q, 2, unique))
	buried, err := admin.Bury(ctx, db, admin.JobFilter{Requeue: r.Audit}, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{}, buried)
	require.Equal(t, honker.StatePending, testkit.GetJob(t, q, id).State)
}

// Bury skips a job that a worker holds, and wakes those who wait for the result of a job.
func TestBury_Others(t *testing.T) {
	ctx, db, q, _ := open(t)
	held := testkit.Enqueue(t, q, 1)
	require.Equal(t, held, testkit.ClaimOne(t, q).ID)
	waits := testkit.Enqueue(t, q, 2)
	ended := make(chan error, 1)
	go func() {
		_, err := honker.WaitResult[int](ctx, db, waits)
		ended <- err
	}()
	r, err := admin.Bury(ctx, db, all, nil)
	require.NoError(t, err)
	require.Equal(t, &admin.Report{Matched: 2, Changed: 1, Audit: 1, SkippedTotal: 1, Skipped: []admin.Skip{{ID: held, Why: "a worker holds it"}}}, r)
	require.ErrorContains(t, <-ended, "buried by an operator")
	require.Equal(t, "buried by an operator", testkit.GetJob(t, q, waits).LastError)
}

// A filter by a requeue selects live jobs only. Bad filters change nothing.
func TestBury_Invalid(t *testing.T) {
	ctx, db, q, _ := open(t)
	id := bury(t, q, 1, "no")
	for name, err := range map[string]error{
		"empty":    second(admin.Bury(ctx, db, admin.JobFilter{}, nil)),
		"dead":     second(admin.Bury(ctx, db, admin.JobFilter{Phases: []honker.Phase{honker.PhaseDead}}, nil)),
		"died":     second(admin.Bury(ctx, db, admin.JobFilter{DiedSince: time.Now()}, nil)),
		"negative": second(admin.Bury(ctx, db, admin.JobFilter{Requeue: -1}, nil)),
		"discard":  second(admin.Discard(ctx, db, admin.JobFilter{Requeue: 1}, nil)),
		"requeue":  second(admin.Requeue(ctx, db, admin.JobFilter{Requeue: 1}, nil)),
		"no DB":    second(admin.Bury(ctx, nil, all, nil)),
	} {
		require.ErrorIs(t, err, honker.ErrInvalid, name)
	}
	require.Equal(t, honker.StateDead, testkit.GetJob(t, q, id).State)
}

func second(_ *admin.Report, err error) error { return err }
