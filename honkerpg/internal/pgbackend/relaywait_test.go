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

// take takes a partition of the queues in a transaction of its own.
func (r *relayBench) take(queues ...string) (b row.RelayBatch, found bool) {
	r.t.Helper()
	w := row.RelayWanted{}
	for _, name := range queues {
		w.Queues = append(w.Queues, row.RelayQueue{Name: name, Lease: time.Hour, Batch: 8})
	}
	require.NoError(r.t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		b, found, err = r.store.Take(ctx, q, w, "w", now)
		return err
	}))
	return b, found
}

// lock locks the partitions of the queue in a transaction.
func (r *relayBench) lock() *sql.Tx {
	r.t.Helper()
	tx, err := r.app.BeginTx(r.t.Context(), nil)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(r.t.Context(), r.schema.SQL(`SELECT FROM honker.relay_partition WHERE queue = $1 FOR UPDATE`), relayQueue)
	require.NoError(r.t, err)
	return tx
}

func (r *relayBench) send(queue string, partition int64) {
	r.t.Helper()
	require.NoError(r.t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, err := r.store.Send(ctx, q, queue, []row.RelayMessage{{Partition: partition, Type: "t", Payload: []byte("x")}}, now)
		return err
	}))
}

// A taker does not wait for transactions that have locked partitions, because two that did could deadlock. It takes another
// partition, or says for which one it should wait, and not that there is nothing to do.
func TestRelayTakeSkipsLockedPartitions(t *testing.T) {
	r := newRelayBench(t, false)
	require.NoError(t, r.write(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, _, err := r.store.Register(ctx, q, "free", 1, now)
		return err
	}))
	r.send(relayQueue, 2)
	r.send("free", 0)
	other := r.lock()
	batch, found := r.take(relayQueue, "free")
	require.True(t, found)
	require.Equal(t, "free", batch.Queue)
	batch, found = r.take(relayQueue, "free")
	require.False(t, found)
	require.Equal(t, row.RelayPartition{Queue: relayQueue, Partition: 2}, batch.Busy)

	waits := r.waitsFor(other)
	waited := make(chan error, 1)
	go func() {
		waited <- r.write(func(ctx context.Context, q engine.Querier, _ time.Time) error {
			return r.store.Await(ctx, q, batch.Busy)
		})
	}()
	require.Eventually(t, func() bool { return waits() || len(waited) > 0 }, 30*time.Second, time.Millisecond)
	require.Empty(t, waited)
	require.NoError(t, other.Rollback())
	require.NoError(t, <-waited)
	batch, found = r.take(relayQueue, "free")
	require.True(t, found)
	require.EqualValues(t, 2, batch.Partition)
	batch, found = r.take(relayQueue, "free")
	require.False(t, found)
	require.Zero(t, batch.Busy)
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
