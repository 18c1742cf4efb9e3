package honkertest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

// insertItem returns a WorkTx handler that inserts a row and returns the given error.
func insertItem(returns error) honkertest.HandlerTx[string] {
	return func(ctx context.Context, tx *sql.Tx, job *honker.Job[string]) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO items (item) VALUES ($1)`, job.Args); err != nil {
			return err
		}
		return returns
	}
}

// No matter how a handler ends, the outcome is the same as in WorkTx. Its rows and the ack are
// committed or rolled back together.
func TestPerformTx_Outcomes(t *testing.T) {
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		testkit.Exec(t, db, `CREATE TABLE items (item TEXT)`)
		q := honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(time.Hour)})
		panics := func(ctx context.Context, tx *sql.Tx, job *honker.Job[string]) error {
			_ = insertItem(nil)(ctx, tx, job)
			panic("on fire")
		}
		cancels := func(ctx context.Context, tx *sql.Tx, job *honker.Job[string]) error {
			_ = insertItem(nil)(ctx, tx, job)
			_, err := q.CancelTx(ctx, tx, job.ID)
			return err
		}
		settles := func(ctx context.Context, tx *sql.Tx, job *honker.Job[string]) error {
			_ = insertItem(nil)(ctx, tx, job)
			return job.RetryTx(ctx, tx, 2*time.Hour, nil)
		}
		for name, c := range map[string]struct {
			fn      honkertest.HandlerTx[string]
			outcome honker.Outcome
			rows    int64
			err     string
		}{
			"ack":        {insertItem(nil), honker.OutcomeAcked, 1, ""},
			"fail":       {insertItem(errCause), honker.OutcomeRetried, 0, "no paper"},
			"reject":     {insertItem(honker.Reject(errCause)), honker.OutcomeDied, 0, "no paper"},
			"snooze":     {insertItem(honker.Snooze(time.Hour)), honker.OutcomeSnoozed, 0, ""},
			"panic":      {panics, honker.OutcomeRetried, 0, "panic: on fire"},
			"cancels it": {cancels, honker.OutcomeRetried, 0, "claim lost"},
			"settles it": {settles, honker.OutcomeRetried, 1, ""},
			"plain verbs": {func(ctx context.Context, _ *sql.Tx, _ *honker.Job[string]) error {
				_, err := q.Enqueue(ctx, "x")
				return err
			}, honker.OutcomeRetried, 0, "use the Tx form"},
			"enqueues too": {func(ctx context.Context, tx *sql.Tx, _ *honker.Job[string]) error {
				_, err := q.EnqueueTx(ctx, tx, "x")
				return err
			}, honker.OutcomeAcked, 0, ""},
		} {
			p := honkertest.PerformTx(t, q, name, c.fn)
			require.Equal(t, c.outcome, p.Outcome, name)
			require.Equal(t, c.rows, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM items WHERE item = $1`, name), name)
			if c.err == "" {
				require.NoError(t, p.Err, name)
			} else {
				require.ErrorContains(t, p.Err, c.err, name)
			}
			require.Equal(t, name == "enqueues too", len(p.Enqueued) == 1, name)
		}
		requireFails(t, func(t testing.TB) { honkertest.PerformTx(t, q, "nil", nil) }, "nil handler")
	})
}

// DrainTx and HandleTx run WorkTx handlers.
func TestDrainTx(t *testing.T) {
	ctx, db, q := testkit.NewQueue[string](t, nil)
	testkit.Exec(t, db, `CREATE TABLE items (item TEXT)`)
	_, err := q.EnqueueMany(ctx, []string{"tea", "milk"})
	require.NoError(t, err)
	require.Equal(t, 2, honkertest.DrainTx(t, q, insertItem(nil)))
	require.EqualValues(t, 2, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM items`))
	testkit.Enqueue(t, q, "tea")
	plain := honker.NewQueue[string](db, "plain", nil)
	testkit.Enqueue(t, plain, "milk")
	got := honkertest.DrainAll(t, db, honkertest.Handlers{honkertest.HandleTx(q, insertItem(nil)), honkertest.Handle(plain, testkit.Succeed[string])}, nil)
	require.Equal(t, honkertest.DrainResult{Acked: 2}, got)
	require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM items`))
	requireFails(t, func(t testing.TB) { honkertest.DrainTx(t, q, nil) }, "nil handler")
	_, err = q.WorkDueTx(ctx, nil, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
}

// A payment is booked in the transaction that acks its job. A failed booking is rolled back.
func ExamplePerformTx() {
	_ = func(t *testing.T) { // func TestBook(t *testing.T) {
		db := honkertest.Open(t, nil)
		if _, err := db.SQL().ExecContext(t.Context(), `CREATE TABLE bookings (payment INTEGER PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		payments := honker.NewQueue[int64](db, "payments", nil)
		book := func(ctx context.Context, tx *sql.Tx, job *honker.Job[int64]) error { // same signature as for payments.WorkTx
			_, err := tx.ExecContext(ctx, `INSERT INTO bookings (payment) VALUES (?)`, job.Args)
			return err
		}
		if p := honkertest.PerformTx(t, payments, 17, book); p.Outcome != honker.OutcomeAcked {
			t.Errorf("%s: %v", p.Outcome, p.Err)
		}
		if p := honkertest.PerformTx(t, payments, 17, book); p.Outcome != honker.OutcomeRetried { // already booked
			t.Errorf("%s: %v", p.Outcome, p.Err)
		}
	}
}
