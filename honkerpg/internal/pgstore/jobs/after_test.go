//go:build unix

package jobs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// naiveEnd ends a job without a token: it closes the edges of its waiters, and lets the waiters go that it finds free.
func (b base) naiveEnd(q row.Querier, id int64) error {
	for _, query := range []string{
		`DELETE FROM honker.job WHERE id = $1`,
		`UPDATE honker.edge SET state = 1 WHERE parent = $1`,
		`UPDATE honker.job j SET state = 0 WHERE j.state = 3 AND j.id IN (SELECT waiter FROM honker.edge WHERE parent = $1)
AND NOT EXISTS (SELECT FROM honker.edge e WHERE e.waiter = j.id AND e.state = 0)`,
	} {
		if _, err := b.exec(q, query, id); err != nil {
			return err
		}
	}
	return nil
}

// Two parents that end in transactions at the same time do not see each other's end. Their waiter goes nevertheless. It
// would be stuck if each of them looked for waiters that nothing holds any more.
func TestAfter_ParentsThatEndAtOnce(t *testing.T) {
	b := open(t)
	for _, naive := range []bool{true, false} {
		end, want := func(q row.Querier, id int64) error { return b.end(q, id) }, "pending"
		if naive {
			end, want = b.naiveEnd, row.Held
		}
		first, second := b.mustInsert(t, b, nil, nil), b.mustInsert(t, b, nil, nil)
		waiter := b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{first, second}})
		require.Equal(t, row.Held, b.state(t, waiter))
		one, two := b.begin(t), b.begin(t)
		require.NoError(t, end(one, first))
		require.NoError(t, end(two, second))
		require.NoError(t, one.Commit())
		require.NoError(t, two.Commit())
		require.Equal(t, want, b.state(t, waiter), "naive: %v", naive)
	}
}

// A parent that is ending in a transaction when a job begins to wait for it leaves no token, because it does not see
// that it is awaited. The job waits until that transaction is over, and goes only if it has committed.
func TestAfter_AnEndThatIsOlderThanTheEdge(t *testing.T) {
	b := open(t)
	for _, commits := range []bool{true, false} {
		parent := b.mustInsert(t, b, nil, nil)
		ending := b.begin(t)
		require.NoError(t, b.end(ending, parent))
		waiter := b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{parent}})
		require.Equal(t, row.Held, b.state(t, waiter), "the end may be rolled back")
		if commits {
			require.NoError(t, ending.Commit())
		} else {
			require.NoError(t, ending.Rollback())
			require.Equal(t, row.Held, b.state(t, waiter))
			require.NoError(t, b.end(b, parent))
		}
		require.Equal(t, "pending", b.state(t, waiter))
	}
}

// A member that a transaction adds to a sealed batch keeps it from ending, even if the last other member ends before the
// transaction commits: the token of that end is put back for as long as the batch is locked.
func TestAfter_ALateMember(t *testing.T) {
	b := open(t)
	for _, commits := range []bool{true, false} {
		batch, err := b.batches.Insert(t.Context(), b, "", "", start)
		require.NoError(t, err)
		member := b.mustInsert(t, b, nil, &row.Links{In: batch})
		waiter := b.mustInsert(t, b, nil, &row.Links{Batches: []int64{batch}})
		_, err = b.batches.Seal(t.Context(), b, batch)
		require.NoError(t, err)
		joining := b.begin(t)
		late := b.mustInsert(t, joining, nil, &row.Links{In: batch})
		require.NoError(t, b.end(b, member))
		require.Equal(t, row.Held, b.state(t, waiter), "the batch may get a member")
		if commits {
			require.NoError(t, joining.Commit())
			require.Equal(t, row.Held, b.state(t, waiter))
			require.NoError(t, b.end(b, late))
		} else {
			require.NoError(t, joining.Rollback())
		}
		require.Equal(t, "pending", b.state(t, waiter))
	}
}

// A waiter that a transaction of the application has locked holds up neither the resolver nor itself: the next look
// after that transaction lets it go.
func TestAfter_ALockedWaiter(t *testing.T) {
	b := open(t)
	parent := b.mustInsert(t, b, nil, nil)
	waiter, other := b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{parent}}), b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{parent}})
	require.Equal(t, row.Held, b.state(t, waiter))
	cancelling := b.begin(t)
	found, err := b.jobs.Cancel(t.Context(), cancelling, "q", waiter, start)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, b.end(b, parent))
	require.Equal(t, "pending", b.state(t, other))
	require.Equal(t, row.Held, b.state(t, waiter))
	require.NoError(t, cancelling.Rollback())
	require.Equal(t, "pending", b.state(t, waiter))
}

// The edges of a job go when it has ended: it has to be told apart from the jobs that still wait.
func TestAfter_EdgesGoWithTheirWaiter(t *testing.T) {
	b := open(t)
	parent := b.mustInsert(t, b, nil, nil)
	waiter := b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{parent}})
	require.NoError(t, b.end(b, parent))
	require.Equal(t, "pending", b.state(t, waiter))
	after, err := b.jobs.AfterOf(t.Context(), b, waiter)
	require.NoError(t, err)
	require.Equal(t, []int64{parent}, after, "its handler may read the results of the jobs before it")
	require.NoError(t, b.end(b, waiter))
	require.Empty(t, b.state(t, waiter))
	left, err := pgsql.IDs(t.Context(), b, b.schema.SQL(`SELECT waiter FROM honker.edge UNION ALL SELECT id FROM honker.token`))
	require.NoError(t, err)
	require.Empty(t, left)
}

var errRollBack = errors.New("rolled back")

// inTx runs f in a transaction that may roll back.
func (b base) inTx(r *rand.Rand, f func(q row.Querier) error) error {
	tx, err := b.Begin()
	if err != nil {
		return err
	}
	if err = f(tx); err == nil && r.IntN(6) == 0 {
		err = errRollBack
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// workflow adds a job, members of a batch, and a job that waits for both and for recent jobs.
func (b base) workflow(r *rand.Rand, recent []int64) (ids []int64, batch int64, err error) {
	err = b.inTx(r, func(q row.Querier) error {
		first, err := b.insert(q, nil, nil)
		if err != nil {
			return err
		}
		l := &row.Links{Jobs: append(slices.Clone(recent), first.IDs[0]), IfDead: true}
		if r.IntN(3) == 0 {
			if batch, err = b.batches.Insert(context.Background(), q, "", "", start); err != nil {
				return err
			}
			l.Batches = []int64{batch}
			for range 1 + r.IntN(4) {
				if _, err := b.insert(q, nil, &row.Links{In: batch}); err != nil {
					return err
				}
			}
		}
		last, err := b.insert(q, nil, l)
		ids = append(first.IDs, last.IDs...)
		return err
	})
	return ids, batch, err
}

// Workflows are added while their parents end, die and roll back. No waiter starts before its parents and batches have
// ended, and none is stuck.
func TestAfter_AtOnce(t *testing.T) {
	b := open(t)
	var mu sync.Mutex
	var recent []int64
	var adding atomic.Int32
	var all sync.WaitGroup
	check := func(err error) {
		if err != nil && !errors.Is(err, errRollBack) {
			t.Error(err)
		}
	}
	for n := range 4 {
		adding.Add(1)
		all.Go(func() {
			defer adding.Add(-1)
			r := rand.New(rand.NewPCG(uint64(n), 3))
			for range 80 {
				mu.Lock()
				some := slices.Clone(recent[max(0, len(recent)-1-r.IntN(4)):])
				mu.Unlock()
				ids, batch, err := b.workflow(r, some)
				check(err)
				if err != nil {
					continue
				}
				mu.Lock()
				recent = append(recent, ids...)
				mu.Unlock()
				if batch != 0 {
					_, err := b.batches.Seal(t.Context(), b, batch)
					check(err)
				}
				check(b.resolve())
			}
		})
	}
	started := make([]int, 4)
	for n := range started {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 5))
			for last := false; ; {
				check(b.resolve())
				ids, err := b.claim(b, 1+r.IntN(6))
				check(err)
				if err != nil || len(ids) == 0 {
					if last || t.Failed() {
						return
					}
					last = adding.Load() == 0
					continue
				}
				last = false
				started[n] += len(ids)
				early, err := pgsql.IDs(t.Context(), b, b.schema.SQL(`SELECT e.waiter FROM honker.edge e JOIN honker.job j ON j.id = e.parent WHERE e.waiter = ANY ($1)
UNION ALL SELECT e.waiter FROM honker.edge e JOIN honker.job j ON j.batch = e.batch WHERE e.waiter = ANY ($1)`), ids)
				check(err)
				if len(early) > 0 {
					t.Errorf("%v started too early", early)
				}
				end := b.end
				if r.IntN(12) == 0 {
					end = b.die
				}
				for err := errRollBack; errors.Is(err, errRollBack); check(err) {
					err = b.inTx(r, func(q row.Querier) error { return end(q, ids...) })
				}
			}
		})
	}
	all.Wait()
	for { // a worker may have stopped while another one was ending the last jobs
		require.NoError(t, b.resolve())
		ids, err := b.claim(b, 100)
		require.NoError(t, err)
		if len(ids) == 0 {
			break
		}
		require.NoError(t, b.end(b, ids...))
	}
	stuck, err := pgsql.IDs(t.Context(), b, b.schema.SQL(`SELECT id FROM honker.job`))
	require.NoError(t, err)
	require.Empty(t, stuck)
	sum := 0
	for _, n := range started {
		sum += n
	}
	t.Logf("%d jobs started", sum)
	require.Greater(t, sum, 400)
}
