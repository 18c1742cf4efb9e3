//go:build unix

package lists_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/lists"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// addDead adds a dead job that holds the unique key "k" until its first claim, and had none.
func (b base) addDead(t *testing.T, id int64) {
	t.Helper()
	b.exec(t, `INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, queue, payload, unique_key, unique_kind)
VALUES ($1, $2, $2, $2, 0, 0, 3, 'mails', '{}', 'k', 1)`, id, start)
}

// while runs a statement in a transaction, begins to requeue the job id, commits the transaction when the requeue waits
// for it, and returns the outcome.
func (b base) while(t *testing.T, id int64, query string, args ...any) row.Requeued {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), b.SQL(query), args...)
	require.NoError(t, err)
	done := make(chan row.Requeued, 1)
	go func() {
		defer close(done)
		out, err := lists.Operators{Schema: b.Schema}.Requeue(context.Background(), b, row.Requeue{ID: id}, start)
		if err != nil {
			t.Error(err)
			return
		}
		done <- out
	}()
	require.Eventually(t, func() bool {
		waits, err := pgsql.IDs(t.Context(), b, `SELECT pid FROM pg_locks WHERE NOT granted`)
		require.NoError(t, err)
		return len(waits) > 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, tx.Commit())
	return <-done
}

// keys returns the holders of unique keys.
func (b base) keys(t *testing.T) []int64 {
	t.Helper()
	ids, err := pgsql.IDs(t.Context(), b, b.SQL(`SELECT job_id FROM honker.uniq`))
	require.NoError(t, err)
	return ids
}

// A requeue that waits for a transaction goes by its outcome: of two requeues one has an effect, a discarded job leaves no
// holder of its unique key, and a job that has died once more in between does not take a key that it has released.
func TestRequeue_AtOnce(t *testing.T) {
	b := open(t)
	all := lists.Operators{Schema: b.Schema}
	b.addDead(t, 1)
	require.Equal(t, row.Requeued{}, b.while(t, 1, `SELECT * FROM honker.requeue(1, NULL, $1, 0, NULL, $1)`, start))
	require.Equal(t, []int64{1}, b.keys(t))
	b.addDead(t, 2)
	out, err := all.Requeue(t.Context(), b, row.Requeue{ID: 2}, start)
	require.NoError(t, err)
	require.Equal(t, row.Requeued{Queue: "mails", Key: "k", TakenBy: 1}, out)

	b.exec(t, `DELETE FROM honker.job`)
	b.exec(t, `DELETE FROM honker.uniq`)
	require.Equal(t, row.Requeued{}, b.while(t, 2, `SELECT * FROM honker.discard('{2}', 0, $1)`, start))
	require.Empty(t, b.keys(t))

	b.addDead(t, 3)
	require.Equal(t, row.Requeued{Queue: "mails", Done: true}, b.while(t, 3, `UPDATE honker.dead SET attempts = 1 WHERE id = 3`))
	require.Empty(t, b.keys(t))
	j, found, err := jobs.Jobs{Schema: b.Schema}.Find(t.Context(), b, 3, "")
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 1, j.Attempts)
}
