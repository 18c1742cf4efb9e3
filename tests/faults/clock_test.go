//go:build unix

package faults_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/tests/faultvfs"
)

// Times in the file come from Go's clock and not from SQLite's, which may differ.
func TestDB_Clock_IsGos(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
		_, db := onFaultyDisk(t)
		ctx := context.Background()
		faultvfs.Clock(wrong)
		t.Cleanup(func() { faultvfs.Clock(0) })
		require.EqualValues(t, wrong.Hours(), testkit.QueryInt(t, db.SQL(), `SELECT round((unixepoch() - ?) / 3600.0)`, time.Now().Unix()))
		q := honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: time.Minute})
		died := testkit.Enqueue(t, q, 1)
		require.NoError(t, testkit.ClaimOne(t, q).Reject(ctx, nil))
		held := testkit.Enqueue(t, q, 2)
		job := testkit.ClaimOne(t, q)
		require.Equal(t, held, job.ID)
		testkit.Enqueue(t, q, 3, honker.Delay(time.Minute))
		require.Empty(t, testkit.Claim(t, q, 1))
		require.NoError(t, q.SaveResult(ctx, died, 1, time.Minute))
		e, err := honker.NewStream[int](db, "s", nil).Publish(ctx, 1)
		require.NoError(t, err)
		_, err = db.Notify(ctx, "news", e)
		require.NoError(t, err)
		l, err := db.TryLock(ctx, "l", nil)
		require.NoError(t, err)
		_, err = db.TryLock(ctx, "l", nil)
		require.ErrorIs(t, err, honker.ErrLockHeld)
		for _, column := range []string{"_honker_live.created_at", "_honker_dead.created_at", "_honker_dead.died_at", "_honker_results.created_at",
			"_honker_results.expires_at", "_honker_stream.created_at", "_honker_notifications.created_at", "_honker_live.claim_expires_at",
			"_honker_live.run_at", "_honker_locks.expires_at"} {
			requireAboutNow(t, db, column)
		}
		require.NoError(t, job.Ack(ctx))
		require.NoError(t, l.Unlock(ctx))
	}
}

// requireAboutNow asserts that all times in a column, given as "table.column", are within five
// minutes of now.
func requireAboutNow(t *testing.T, db *honker.DB, column string) {
	t.Helper()
	table, name, _ := strings.Cut(column, ".")
	query := "SELECT count(*), count(*) FILTER (WHERE abs(" + name + " - ?) > 300) FROM " + table + " WHERE " + name + " IS NOT NULL"
	var all, wrong int
	require.NoError(t, db.SQL().QueryRow(query, time.Now().Unix()).Scan(&all, &wrong))
	require.Positive(t, all, column)
	require.Zero(t, wrong, column)
}
