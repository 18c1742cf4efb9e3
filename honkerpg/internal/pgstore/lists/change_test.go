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

// during runs a statement in a transaction, begins f, and commits the transaction when f waits for it.
func during[R any](t *testing.T, b base, query string, args []any, f func(ctx context.Context) (R, error)) R {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), b.SQL(query), args...)
	require.NoError(t, err)
	done := make(chan R, 1)
	go func() {
		defer close(done)
		out, err := f(context.Background())
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

// while requeues a dead job while a statement's transaction is open.
func (b base) while(t *testing.T, id int64, query string, args ...any) row.Requeued {
	t.Helper()
	return during(t, b, query, args, func(ctx context.Context) (row.Requeued, error) {
		return lists.Operators{Schema: b.Schema}.Requeue(ctx, b, row.Requeue{ID: id}, start)
	})
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

// A change of jobs that waits for a claim goes by its outcome. A statement that only selects the jobs before it deletes
// them goes by its snapshot instead: the naive form deletes a job that runs.
func TestChanges_BesideAClaim(t *testing.T) {
	b := open(t)
	all := lists.Operators{Schema: b.Schema}
	add := func(id int64, due time.Time) {
		b.exec(t, `INSERT INTO honker.job (id, queue, payload, run_at, created_at) VALUES ($1, 'mails', '{}', $2, $3)`, id, due, start)
	}
	const claim = `UPDATE honker.job SET state = 1, worker = 'w', attempts = attempts + 1, lease_until = $2 WHERE id = $1`
	left := func(id int64) bool {
		j, found, err := jobs.Jobs{Schema: b.Schema}.Find(t.Context(), b, id, "")
		require.NoError(t, err)
		return found && j.State == "processing"
	}
	later := start.Add(time.Minute)

	add(1, start)
	gone := during(t, b, claim, []any{1, later}, func(ctx context.Context) ([]int64, error) {
		return pgsql.IDs(ctx, b, b.SQL(`DELETE FROM honker.job WHERE id IN (SELECT id FROM honker.job WHERE id = 1 AND state <> 1) RETURNING id`))
	})
	require.Equal(t, []int64{1}, gone, "the naive form")

	add(2, start)
	out := during(t, b, claim, []any{2, later}, func(ctx context.Context) (row.Removed, error) {
		return all.CancelMany(ctx, b, row.CancelJobs{IDs: []int64{2}}, start)
	})
	require.Empty(t, out.Jobs)
	require.True(t, left(2))

	add(3, later)
	changed := during(t, b, claim, []any{3, later}, func(ctx context.Context) ([]row.Change, error) {
		return all.RunNow(ctx, b, []int64{3}, start)
	})
	require.Empty(t, changed)
	require.True(t, left(3))

	b.addDead(t, 4)
	discarded := during(t, b, `SELECT * FROM honker.requeue(4, NULL, $1, 0, NULL, $1)`, []any{start}, func(ctx context.Context) (row.Removed, error) {
		return all.Discard(ctx, b, []int64{4}, row.ReleaseWaiters)
	})
	require.Empty(t, discarded.Jobs)
}
