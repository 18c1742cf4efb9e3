//go:build unix

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// naivePlace inserts a job unless it finds a live job with the key.
func (b base) naivePlace(q row.Querier, key string) (int, error) {
	return b.exec(q, `INSERT INTO honker.job (queue, unique_key, payload, run_at, created_at)
SELECT 'q', $1, '{}', $2, $2 WHERE NOT EXISTS (SELECT FROM honker.job WHERE queue = 'q' AND unique_key = $1)`, key, start)
}

// twins returns the unique keys that several live jobs have.
func (b base) twins() ([]int64, error) {
	return pgsql.IDs(context.Background(), b, b.schema.SQL(`SELECT max(id) FROM honker.job WHERE unique_key IS NOT NULL GROUP BY unique_key HAVING count(*) > 1`))
}

// The second of two transactions that enqueue a job with the same key waits for the first. It finds the first one's job
// if that has committed, and adds a job if it has rolled back. Without the lock both would add a job.
func TestUnique_TransactionsAtOnce(t *testing.T) {
	b := open(t)
	one, two := b.begin(t), b.begin(t)
	for _, tx := range []row.Querier{one, two} {
		n, err := b.naivePlace(tx, "naive")
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.NoError(t, one.Commit())
	require.NoError(t, two.Commit())
	twins, err := b.twins()
	require.NoError(t, err)
	require.Len(t, twins, 1)
	for _, before := range []bool{false, true} { // another job of the key has ended
		for _, commits := range []bool{false, true} {
			key := &row.Unique{Keys: []string{fmt.Sprint("ours", before, commits)}}
			if before {
				require.NoError(t, b.end(b, b.mustInsert(t, b, key, nil)))
			}
			one, two = b.begin(t), b.begin(t)
			id := b.mustInsert(t, one, key, nil)
			placed := make(chan row.Placed, 1)
			go func() {
				defer close(placed)
				out, err := b.insert(two, key, nil)
				if err != nil {
					t.Error(err)
					return
				}
				placed <- out.Places[0]
			}()
			b.awaitLock(t)
			if commits {
				require.NoError(t, one.Commit())
			} else {
				require.NoError(t, one.Rollback())
			}
			p := <-placed
			require.NoError(t, two.Commit())
			require.Equal(t, commits, p.Result == row.PlacedExisting, "%+v", p)
			require.Equal(t, commits, p.ID == id)
		}
	}
	twins, err = b.twins()
	require.NoError(t, err)
	require.Len(t, twins, 1, "only of the naive form")
}

// awaitLock waits until a session waits for a lock.
func (b base) awaitLock(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		waits, err := pgsql.IDs(t.Context(), b, `SELECT pid FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`)
		return err == nil && len(waits) > 0
	}, time.Minute, time.Millisecond)
}

// A sweep of keys leaves a key alone that a transaction is taking over from a job that has ended.
func TestUnique_SweepBesideAnEnqueue(t *testing.T) {
	b := open(t)
	key := &row.Unique{Keys: []string{"k"}}
	require.NoError(t, b.end(b, b.mustInsert(t, b, key, nil)))
	sweep := b.jobs.SweepKeys()
	found, err := sweep.Find(t.Context(), b, row.Part{}, start, 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	taking := b.begin(t)
	id := b.mustInsert(t, taking, key, nil)
	for _, commit := range []bool{false, true} {
		if commit {
			require.NoError(t, taking.Commit())
		}
		swept, err := sweep.Take(t.Context(), b, row.Part{}, found, start, 10)
		require.NoError(t, err)
		require.Zero(t, swept.N)
	}
	require.Equal(t, id, b.mustInsert(t, b, key, nil))
	require.NoError(t, b.end(b, id))
	found, err = sweep.Find(t.Context(), b, row.Part{}, start, 10)
	require.NoError(t, err)
	swept, err := sweep.Take(t.Context(), b, row.Part{}, found, start, 10)
	require.NoError(t, err)
	require.Equal(t, 1, swept.N)
}

// A job that runs after another with the same key starts when that job has died, too. If it is cancelled, the key is
// still the running job's.
func TestUnique_Successors(t *testing.T) {
	b := open(t)
	key := &row.Unique{Keys: []string{"k"}, Conflict: row.RunAgain}
	first := b.mustInsert(t, b, key, nil)
	_, err := b.claim(b, 1)
	require.NoError(t, err)
	next := b.mustInsert(t, b, key, nil)
	require.Equal(t, row.Held, b.state(t, next))
	after, err := b.jobs.AfterOf(t.Context(), b, next)
	require.NoError(t, err)
	require.Empty(t, after, "it was not told to wait for the job")
	done, err := b.jobs.Cancel(t.Context(), b, "q", next, start)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, first, b.mustInsert(t, b, &row.Unique{Keys: key.Keys}, nil))
	next = b.mustInsert(t, b, key, nil)
	require.Equal(t, row.Held, b.state(t, next))
	require.NoError(t, b.die(b, first))
	require.Equal(t, "pending", b.state(t, next))
	require.Equal(t, next, b.mustInsert(t, b, key, nil), "the key has passed on")
	_, err = b.claim(b, 1)
	require.NoError(t, err)
	last := b.mustInsert(t, b, key, nil)
	held, err := b.jobs.ReleaseUnique(t.Context(), b, "q", "k", start)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, "pending", b.state(t, last))
}

// A replaced job cannot wait for a job that waits for it. The error leaves the transaction usable.
func TestUnique_ReplacedInACircle(t *testing.T) {
	b := open(t)
	key := &row.Unique{Keys: []string{"k"}, Conflict: row.ReplaceWaiting}
	first := b.mustInsert(t, b, key, nil)
	waiter := b.mustInsert(t, b, nil, &row.Links{Jobs: []int64{first}})
	tx := b.begin(t)
	_, err := b.insert(tx, key, &row.Links{Jobs: []int64{waiter}})
	require.ErrorIs(t, err, engine.ErrInvalid)
	b.mustInsert(t, tx, nil, nil)
	require.NoError(t, tx.Commit())
	require.Equal(t, "pending", b.state(t, first))
	require.Equal(t, row.Held, b.state(t, waiter))
}

// Several enqueuers and workers use the same keys, in transactions of which some roll back. Two live jobs never have the
// same key, and enqueues of several keys in different orders do not wait for each other.
func TestUnique_AtOnce(t *testing.T) {
	b := open(t)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			for i := range 100 {
				var keys, payloads []string
				for range 1 + r.IntN(3) {
					keys, payloads = append(keys, fmt.Sprint(r.IntN(8))), append(payloads, "{}")
				}
				err := b.inTx(r, func(q row.Querier) error {
					_, err := b.jobs.Insert(context.Background(), q, &row.Insert{Queue: "q", Payloads: payloads, MaxAttempts: 3,
						Unique: &row.Unique{Keys: keys, Conflict: row.Conflict(r.IntN(2))}}, start)
					return err
				})
				if err == nil && i%2 == 0 {
					var ids []int64
					if ids, err = b.claim(b, 1+r.IntN(8)); err == nil {
						err = b.end(b, ids...)
					}
				}
				if err == nil && i%10 == 0 {
					sweep := b.jobs.SweepKeys()
					if ids, err := sweep.Find(context.Background(), b, row.Part{}, start, 10); err == nil {
						_, err = sweep.Take(context.Background(), b, row.Part{}, ids, start, 10)
						if err != nil {
							t.Error(err)
						}
					}
				}
				twins, err2 := b.twins()
				if len(twins) > 0 || err2 != nil || err != nil && !errors.Is(err, errRollBack) {
					t.Error(twins, err2, err)
					return
				}
			}
		})
	}
	all.Wait()
}
