//go:build unix

package pgbackend_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// waitsFor returns a function that reports whether another transaction waits for tx.
func (r *relayBench) waitsFor(tx *sql.Tx) func() bool {
	r.t.Helper()
	var pid int
	require.NoError(r.t, tx.QueryRowContext(r.t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	return func() (waits bool) {
		query := `SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY (pg_blocking_pids(a.pid)))`
		return r.app.QueryRowContext(r.t.Context(), query, pid).Scan(&waits) == nil && waits
	}
}

// A taker waits for the transaction that has locked the only partition with a message, and takes it if that transaction
// has left it free. So it does not report that there is nothing to do.
func TestRelayTakeWaitsForLastPartition(t *testing.T) {
	r := newRelayBench(t, false)
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := r.store.Send(ctx, q, relayQueue, []row.RelayMessage{{Partition: 2, Type: "t", Payload: []byte("x")}}, now)
		return err
	}))
	other, err := r.app.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(t.Context(), r.schema.SQL(`SELECT FROM honker.relay_partition WHERE queue = $1 FOR UPDATE`), relayQueue)
	require.NoError(t, err)
	waits := r.waitsFor(other)
	took := make(chan error, 1)
	var batch row.RelayBatch
	var found bool
	go func() {
		took <- r.write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
			w := row.RelayWanted{Queues: []row.RelayQueue{{Name: relayQueue, Lease: time.Hour, Batch: 8}}}
			batch, found, err = r.store.Take(ctx, q, w, "w", now)
			return err
		})
	}()
	require.Eventually(t, func() bool { return waits() || len(took) > 0 }, 30*time.Second, time.Millisecond)
	require.Empty(t, took, "the taker waits")
	require.NoError(t, other.Rollback())
	require.NoError(t, <-took)
	require.True(t, found)
	require.EqualValues(t, 2, batch.Partition)
}

// Transactions that send the first messages of two queues in opposite orders wait for each other's commits and do not deadlock.
func TestRelayRegisterInOppositeOrders(t *testing.T) {
	r := newRelayBench(t, false)
	begin := func() *sql.Tx {
		tx, err := r.app.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return tx
	}
	register := func(tx *sql.Tx, queue string) error {
		_, _, err := r.store.Register(context.Background(), tx, queue, 1, r.b.Now())
		return err
	}
	one, other := begin(), begin()
	defer func() { _ = one.Rollback() }()
	waits := r.waitsFor(one)
	require.NoError(t, register(one, "first"))
	began, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		defer func() { _ = other.Rollback() }()
		err := register(other, "second")
		began <- err
		if err == nil {
			err = register(other, "first")
		}
		if err == nil {
			err = other.Commit()
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return waits() || len(began) > 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, register(one, "second"))
	require.NoError(t, one.Commit())
	require.NoError(t, <-ended)
}
