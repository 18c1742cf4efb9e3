//go:build unix

package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/jobs"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// limit sets the limits of queue "q".
func (b base) limit(t *testing.T, q row.Querier, l row.QueueLimits) {
	t.Helper()
	_, err := jobs.Limits{Schema: b.schema}.Set(t.Context(), q, "q", l)
	require.NoError(t, err)
}

// keyed adds n jobs with a key to queue "q", and returns their ids.
func (b base) keyed(q row.Querier, key string, n int) ([]int64, error) {
	out, err := b.jobs.Insert(context.Background(), q, &row.Insert{Queue: "q", Payloads: make([]string, n), MaxAttempts: 30, Key: key}, start)
	return out.IDs, err
}

func (b base) mustKeyed(t *testing.T, key string, n int) []int64 {
	t.Helper()
	ids, err := b.keyed(b, key, n)
	require.NoError(t, err)
	return ids
}

// claimed claims up to n jobs of queue "q".
func (b base) claimed(ctx context.Context, q row.Querier, worker string, n int, now time.Time) ([]*row.Job, error) {
	c, err := b.jobs.Step(ctx, q, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("q"), Worker: worker, N: n, Lease: time.Minute}}, now)
	return c.Jobs, err
}

// claimIDs claims jobs of queue "q" and returns their ids.
func (b base) claimIDs(t *testing.T, now time.Time) (ids []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	all, err := b.claimed(ctx, b, "w", 9, now)
	require.NoError(t, err)
	for _, j := range all {
		ids = append(ids, j.ID)
	}
	return ids
}

// ack acks a job's first attempt.
func (b base) ack(t *testing.T, q row.Querier, id int64) {
	t.Helper()
	s := &row.Settlement{Claim: row.Claim{ID: id, Worker: "w", Attempt: 1}, Queue: "q", Outcome: row.Acked}
	_, err := b.jobs.Step(t.Context(), q, row.Step{Settle: []*row.Settlement{s}}, start)
	require.NoError(t, err)
	require.Equal(t, row.Acked, s.Became)
}

// stateOfQueue returns the state of queue "q".
func (b base) stateOfQueue(t *testing.T, now time.Time) row.QueueState {
	t.Helper()
	all, err := b.jobs.States(t.Context(), b, []string{"q"}, true, now)
	require.NoError(t, err)
	return all[0]
}

func (b base) count(t *testing.T, query string) (n int) {
	t.Helper()
	_, err := pgsql.One(t.Context(), b, b.schema.SQL(query), nil, &n)
	require.NoError(t, err)
	return n
}

// A settlement in a transaction that is older than the limits of its queue lets the next job of its key go: it has left
// a token although the queue had no limits. Its own tokens stay if it settles another job.
func TestLimits_SetWhileATransactionSettles(t *testing.T) {
	b := open(t)
	ids := b.mustKeyed(t, "k", 3)
	other := b.mustKeyed(t, "other", 1)
	require.Len(t, b.claimIDs(t, start), 4)
	next := b.mustKeyed(t, "k", 1)
	tx := b.begin(t)
	for _, id := range append(ids, other...) {
		b.ack(t, tx, id)
	}
	b.limit(t, b, row.QueueLimits{PerKey: 1})
	require.Empty(t, b.claimIDs(t, start), "the transaction may roll back")
	require.False(t, b.stateOfQueue(t, start).Ready)
	require.NoError(t, tx.Commit())
	require.True(t, b.stateOfQueue(t, start).Ready)
	require.Equal(t, next, b.claimIDs(t, start))
}

// Jobs with keys in a queue without limits leave no more tokens behind than their last settlement.
func TestLimits_TokensWithoutLimits(t *testing.T) {
	b := open(t)
	ids := b.mustKeyed(t, "k", 9)
	require.Len(t, b.claimIDs(t, start), 9)
	for _, id := range ids {
		b.ack(t, b, id)
	}
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM honker.token`))
}

// A transaction of the application that changes pauses or limits keeps no claim waiting. Its changes hold from its
// commit.
func TestLimits_ClaimsDoNotWaitForSettings(t *testing.T) {
	b := open(t)
	limits := row.QueueLimits{PerKey: 1, Rate: row.StartRate{N: 1, Per: time.Second, Burst: 9}, KeyRate: row.StartRate{N: 1, Per: time.Second, Burst: 9}}
	b.limit(t, b, limits)
	a, c := b.mustKeyed(t, "a", 1), b.mustKeyed(t, "c", 1)
	tx := b.begin(t)
	for _, key := range []string{"", "a", "new"} {
		_, err := jobs.Pauses{Schema: b.schema}.Set(t.Context(), tx, "q", key, row.Pause{Since: start}, start)
		require.NoError(t, err)
	}
	b.limit(t, tx, row.QueueLimits{Running: 1})
	require.Equal(t, append(a, c...), b.claimIDs(t, start))
	later := b.mustKeyed(t, "later", 1)
	require.NoError(t, tx.Commit())
	require.Empty(t, b.claimIDs(t, start))
	_, err := jobs.Pauses{Schema: b.schema}.End(t.Context(), b, "q", "", start)
	require.NoError(t, err)
	require.Empty(t, b.claimIDs(t, start), "two jobs run")
	b.ack(t, b, a[0])
	b.ack(t, b, c[0])
	require.Equal(t, later, b.claimIDs(t, start))
}

// A held job that a transaction has locked is let go a little later, even if that transaction rolls back and leaves no
// token. Until then, the queue has nothing to claim.
func TestLimits_LockedHeldJob(t *testing.T) {
	b := open(t)
	b.limit(t, b, row.QueueLimits{PerKey: 1})
	ids := b.mustKeyed(t, "k", 2)
	require.Equal(t, ids[:1], b.claimIDs(t, start))
	tx := b.begin(t)
	gone, err := b.jobs.Cancel(t.Context(), tx, "q", ids[1], start)
	require.NoError(t, err)
	require.True(t, gone)
	b.ack(t, b, ids[0])
	require.Empty(t, b.claimIDs(t, start))
	require.NoError(t, tx.Rollback())
	state := b.stateOfQueue(t, start)
	require.False(t, state.Ready)
	require.False(t, state.Next.IsZero())
	require.Equal(t, ids[1:], b.claimIDs(t, state.Next))
}

// A claim holds as many jobs as keep another claim waiting for a moment, and leaves the rest to the next.
func TestLimits_ManyJobsOfAFullKey(t *testing.T) {
	b := open(t)
	b.limit(t, b, row.QueueLimits{PerKey: 1})
	first := b.mustKeyed(t, "k", 5000)[:1]
	other := b.mustKeyed(t, "other", 1)
	require.Equal(t, first, b.claimIDs(t, start))
	held := b.count(t, `SELECT count(*) FROM honker.job WHERE state = 2`)
	require.Less(t, held, 4999)
	for range 5000 {
		c, err := b.jobs.Step(t.Context(), b, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("q"), Worker: "w", N: 1, Lease: time.Minute}}, start)
		require.NoError(t, err)
		if len(c.Jobs) > 0 {
			require.Equal(t, other[0], c.Jobs[0].ID)
			return
		}
		require.True(t, c.More)
	}
	require.Fail(t, "the job of the other key does not start")
}

// A claim that another is in the way of returns nothing and says that there may be more.
func TestLimits_ClaimsAtOnce(t *testing.T) {
	b := open(t)
	b.limit(t, b, row.QueueLimits{Running: 9})
	b.mustKeyed(t, "k", 2)
	tx := b.begin(t)
	all, err := b.claimed(t.Context(), tx, "v", 1, start)
	require.NoError(t, err)
	require.Len(t, all, 1)
	c, err := b.jobs.Step(t.Context(), b, row.Step{Claim: &row.ClaimRequest{Lanes: row.InOrder("q"), Worker: "w", N: 1, Lease: time.Minute}}, start)
	require.NoError(t, err)
	require.Empty(t, c.Jobs)
	require.True(t, c.More)
	require.NoError(t, tx.Commit())
	require.Len(t, b.claimIDs(t, start), 1)
}
