//go:build unix

package pgbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// add adds a job at noon.
func (o operated) add(t *testing.T, in row.Insert) (id int64) {
	t.Helper()
	in.Queue, in.Payloads, in.MaxAttempts = "mails", []string{`{"n":1}`}, 3
	o.write(t, func(ctx context.Context, q engine.Querier) error {
		out, err := jobs.Jobs{Schema: o.Schema}.Insert(ctx, q, &in, noon)
		if err == nil {
			id = out.IDs[0]
		}
		return err
	})
	return id
}

// dieDDL dead-letters all waiting jobs with the error no.
const dieDDL = `WITH d AS (DELETE FROM honker.job WHERE state = 0 RETURNING *),
t AS (INSERT INTO honker.token (parent) SELECT id FROM d),
i AS (INSERT INTO honker.dead (id, run_at, created_at, died_at, priority, attempts, max_attempts, base, batch, queue, unique_key, unique_kind, payload, last_error, progress)
  SELECT d.id, d.run_at, d.created_at, $1, d.priority, 3, 3, d.base, d.batch, d.queue, d.unique_key,
    (SELECT u.kind FROM honker.uniq u WHERE u.job_id = d.id), d.payload, 'no', '[1]' FROM d RETURNING id)
SELECT honker.resolve($1) FROM i`

func (o operated) find(t *testing.T, id int64) (j row.Job) {
	t.Helper()
	o.read(t, func(ctx context.Context, q engine.Querier) (err error) {
		j, _, err = jobs.Jobs{Schema: o.Schema}.Find(ctx, q, id, "")
		return err
	})
	return j
}

func (o operated) requeue(t *testing.T, r row.Requeue) (out row.Requeued) {
	t.Helper()
	o.write(t, func(ctx context.Context, q engine.Querier) (err error) {
		out, err = o.Requeue(ctx, q, r, noon)
		return err
	})
	return out
}

// A requeued job takes its unique key again, unless another job has taken it since. Its attempts continue.
func TestOperatorsRequeueUnique(t *testing.T) {
	o := operate(t)
	unique := func() row.Insert { return row.Insert{Unique: &row.Unique{Keys: []string{"u"}}} }
	first := o.add(t, unique())
	o.exec(t, dieDDL)
	second := o.add(t, unique())
	require.NotEqual(t, first, second)
	require.Equal(t, row.Requeued{Queue: "mails", Key: "u", TakenBy: second}, o.requeue(t, row.Requeue{ID: first}))
	require.Equal(t, "dead", o.find(t, first).State)
	o.exec(t, dieDDL)
	require.Equal(t, row.Requeued{Queue: "mails", Done: true}, o.requeue(t, row.Requeue{ID: first, RunAt: noon.Add(time.Nanosecond)}))
	j := o.find(t, first)
	require.Equal(t, "pending", j.State)
	require.Equal(t, "u", j.Unique)
	require.Equal(t, "no", j.LastError)
	require.Equal(t, "[1]", j.Progress)
	require.EqualValues(t, 3, j.Attempts)
	require.EqualValues(t, 6, j.MaxAttempts)
	require.True(t, j.RunAt.Equal(noon.Add(time.Microsecond)), "rounded up")
	require.Equal(t, first, o.add(t, unique()), "the job holds its key")
	require.Equal(t, row.Requeued{Queue: "mails", Key: "u", TakenBy: first}, o.requeue(t, row.Requeue{ID: second}))
	require.Zero(t, o.requeue(t, row.Requeue{ID: first}), "it is not dead any more")
	payload := `2`
	require.Equal(t, row.Requeued{Queue: "other", Done: true}, o.requeue(t, row.Requeue{ID: second, Queue: "other", Attempts: 1, Payload: &payload}))
	j = o.find(t, second)
	require.Equal(t, "2", j.Payload)
	require.EqualValues(t, 4, j.MaxAttempts)
	o.read(t, func(ctx context.Context, q engine.Querier) error {
		where, err := o.Same(ctx, q, second, "other", noon, "2")
		require.Equal(t, "live", where)
		return err
	})
}

// A job that waits for a dead job waits on while the dead job lives again, and is let go, deleted or protects that job
// when an operator discards or cancels it.
func TestOperatorsRemoveAwaited(t *testing.T) {
	for _, live := range []bool{false, true} {
		for _, w := range []row.Waiters{row.ReleaseWaiters, row.DropWaiters, row.KeepWaiters} {
			o := operate(t)
			parent := o.add(t, row.Insert{})
			waiter := o.add(t, row.Insert{Links: &row.Links{Jobs: []int64{parent}}})
			last := o.add(t, row.Insert{Links: &row.Links{Jobs: []int64{waiter}}})
			o.exec(t, dieDDL)
			require.Equal(t, "dead", o.find(t, parent).State)
			o.read(t, func(ctx context.Context, q engine.Querier) error {
				all, err := o.Waiters(ctx, q, []int64{parent})
				require.ElementsMatch(t, []int64{waiter, last}, all)
				return err
			})
			if live {
				require.True(t, o.requeue(t, row.Requeue{ID: parent}).Done)
				require.Equal(t, row.Held, o.find(t, waiter).State)
			}
			var out row.Removed
			o.write(t, func(ctx context.Context, q engine.Querier) (err error) {
				if live {
					out, err = o.CancelMany(ctx, q, row.CancelJobs{IDs: []int64{parent, 999}, Waiters: w}, noon)
				} else {
					out, err = o.Discard(ctx, q, []int64{parent, 999, waiter}, w)
				}
				return err
			})
			removed := []row.Change{{ID: parent, Queue: "mails"}}
			switch w {
			case row.ReleaseWaiters:
				require.Equal(t, row.Removed{Jobs: removed}, out)
				require.Equal(t, "pending", o.find(t, waiter).State, "the removed job counts as done")
				require.Equal(t, row.Held, o.find(t, last).State)
			case row.DropWaiters:
				require.Equal(t, removed, out.Jobs)
				require.ElementsMatch(t, []row.Change{{ID: waiter, Queue: "mails"}, {ID: last, Queue: "mails"}}, out.Waiters)
				require.Zero(t, o.find(t, last))
			case row.KeepWaiters:
				require.Zero(t, out)
				require.NotZero(t, o.find(t, parent))
				require.Equal(t, row.Held, o.find(t, waiter).State)
			}
		}
	}
}

// CancelMany leaves jobs with a valid claim alone unless it is told to remove them. RunNow changes scheduled jobs only.
func TestOperatorsLeaveOthersAlone(t *testing.T) {
	o := operate(t)
	o.exec(t, phasesDDL)
	o.write(t, func(ctx context.Context, q engine.Querier) error {
		changed, err := o.RunNow(ctx, q, []int64{1, 2, 3, 4, 5, 6, 999}, noon)
		require.Equal(t, []row.Change{{ID: 2, Queue: "a"}}, changed)
		return err
	})
	cancel := func(running bool) (ids []int64) {
		o.write(t, func(ctx context.Context, q engine.Querier) error {
			out, err := o.CancelMany(ctx, q, row.CancelJobs{IDs: []int64{3, 4, 12, 13}, Running: running}, noon)
			for _, c := range out.Jobs {
				ids = append(ids, c.ID)
			}
			return err
		})
		return ids
	}
	require.ElementsMatch(t, []int64{4, 12}, cancel(false))
	require.ElementsMatch(t, []int64{3, 13}, cancel(true))
}
