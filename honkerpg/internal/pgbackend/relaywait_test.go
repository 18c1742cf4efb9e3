//go:build unix

package pgbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

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
	var pid int
	require.NoError(t, other.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))

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
	require.Eventually(t, func() bool {
		var waits bool
		query := `SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY (pg_blocking_pids(a.pid)))`
		return r.app.QueryRowContext(t.Context(), query, pid).Scan(&waits) == nil && waits || len(took) > 0
	}, 30*time.Second, time.Millisecond)
	require.Empty(t, took, "the taker waits")
	require.NoError(t, other.Rollback())
	require.NoError(t, <-took)
	require.True(t, found)
	require.EqualValues(t, 2, batch.Partition)
}
