package honker_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
)

// ways are the ways in which this library can cancel a running job.
var ways = map[string]func(ctx context.Context, db *honker.DB, q *honker.Queue[int], batch *honker.Batch, id int64) error{
	"Cancel": func(ctx context.Context, _ *honker.DB, q *honker.Queue[int], _ *honker.Batch, id int64) error {
		_, err := q.Cancel(ctx, id)
		return err
	},
	"CancelTx": func(ctx context.Context, db *honker.DB, q *honker.Queue[int], _ *honker.Batch, id int64) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.CancelTx(ctx, tx, id)
			return err
		})
	},
	"Batch.Cancel": func(ctx context.Context, _ *honker.DB, _ *honker.Queue[int], batch *honker.Batch, _ int64) error {
		_, err := batch.Cancel(ctx)
		return err
	},
	"honker_cancel": func(ctx context.Context, db *honker.DB, _ *honker.Queue[int], _ *honker.Batch, id int64) error {
		_, err := db.SQL().ExecContext(ctx, `SELECT honker_cancel(?)`, id)
		return err
	},
}

// A cancelled job occupies its place until its handler has returned, however it is cancelled and whichever
// limit counts it. Then the next job starts at once. Until then the verbs that describe a queue report the
// place.
func TestQueue_Cancel_KeepsThePlace(t *testing.T) {
	for name, limits := range map[string]honker.Limits{"Running": {Running: 1}, "PerKey": {PerKey: 1}, "InOrder": {InOrder: true}} {
		for way, cancel := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				ctx, db, q := testkit.NewQueue[int](t, nil)
				setLimits(t, q, limits)
				batch, err := db.NewBatch(ctx, nil)
				require.NoError(t, err)
				first, err := q.Enqueue(ctx, 1, honker.Key("a"), honker.In(batch.ID))
				require.NoError(t, err)
				second, err := q.Enqueue(ctx, 2, honker.Key("a"))
				require.NoError(t, err)
				started, heard, leave := make(chan int64, 2), make(chan struct{}), make(chan struct{})
				end := sync.OnceFunc(func() { close(leave) })
				defer end()
				stop := testkit.Background(t, func(ctx context.Context) error {
					return q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
						started <- job.ID
						if job.ID == first {
							<-ctx.Done()
							close(heard)
							<-leave
						}
						return nil
					}, &honker.WorkOptions{Workers: 2})
				})
				require.Equal(t, first, <-started)
				require.NoError(t, cancel(ctx, db, q, batch, first))
				<-heard

				require.Empty(t, claimedIDs(t, q, 2))
				require.Empty(t, rows(t, db, honkersClaim, "jobs"), "nor does another binding get one")
				require.NoError(t, db.Check(ctx))
				stats, err := q.Stats(ctx)
				require.NoError(t, err)
				require.EqualValues(t, 1, stats.Cancelled)
				keys, err := q.Keys(ctx)
				require.NoError(t, err)
				require.Len(t, keys, 1)
				require.EqualValues(t, 1, keys[0].Cancelled)
				require.Zero(t, keys[0].Running)

				end()
				require.Equal(t, second, <-started)
				require.NoError(t, stop())
				require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_cancelled`))
				require.NoError(t, db.Check(ctx))
			})
		}
	}
}

// While the handler of a cancelled job runs, its worker renews the place. The place of a dead worker ends
// with its lease, and a sleeping worker wakes at that time.
func TestQueue_Cancel_PlaceEndsWithTheLease(t *testing.T) {
	for name, limits := range map[string]honker.Limits{"Running": {Running: 1}, "PerKey": {PerKey: 1}, "InOrder": {InOrder: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, db, q := testkit.NewQueue[int](t, nil)
				ctx := context.Background() // longer than a test
				setLimits(t, q, limits)
				ids := enqueueKeys(t, q, "a", "a", "a")
				gone := testkit.ClaimOne(t, honker.NewQueue[int](db, "jobs", &honker.QueueOptions{Lease: 10 * time.Second}))
				ends := gone.ClaimExpiresAt.Add(time.Second)
				_, err := q.Cancel(ctx, gone.ID)
				require.NoError(t, err)

				var mu sync.Mutex // guards times
				times := make(map[int64]time.Time)
				began := func() map[int64]time.Time {
					mu.Lock()
					defer mu.Unlock()
					all := make(map[int64]time.Time, len(times))
					for id, at := range times {
						all[id] = at
					}
					return all
				}
				leave := make(chan struct{})
				end := sync.OnceFunc(func() { close(leave) })
				defer end()
				stop := testkit.Background(t, func(ctx context.Context) error {
					return q.Work(ctx, func(ctx context.Context, job *honker.Job[int]) error {
						mu.Lock()
						times[job.ID] = time.Now()
						mu.Unlock()
						if job.ID == ids[1] {
							<-leave
						}
						return nil
					}, &honker.WorkOptions{Workers: 2, Lease: 6 * time.Second})
				})
				time.Sleep(time.Minute)
				require.Equal(t, map[int64]time.Time{ids[1]: ends}, began())
				_, err = q.Cancel(ctx, ids[1])
				require.NoError(t, err)
				require.Len(t, began(), 1)
				end()
				synctest.Wait()
				require.Len(t, began(), 2)
				require.NoError(t, stop())
				require.NoError(t, db.Check(ctx))
			})
		})
	}
}

// Maintain removes the places of expired leases, for workers of other bindings. A queue without limits has
// no places.
func TestQueue_Cancel_PlacesAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, q := testkit.NewQueue[int](t, nil)
		ctx := context.Background()
		plain := honker.NewQueue[int](db, "plain", nil)
		_, err := plain.Enqueue(ctx, 1, honker.Key("a"))
		require.NoError(t, err)
		setLimits(t, q, honker.Limits{PerKey: 1})
		ids := enqueueKeys(t, q, "a", "a")
		for _, job := range []*honker.Job[int]{testkit.ClaimOne(t, q), testkit.ClaimOne(t, plain)} {
			_, err = honker.NewQueue[int](db, job.Queue, nil).Cancel(ctx, job.ID)
			require.NoError(t, err)
		}
		require.Equal(t, fmt.Sprint(ids[0]), oneRow(t, db, `SELECT job_id FROM _honkerx_cancelled`))
		require.Empty(t, testkit.Claim(t, q, 1))
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Equal(t, "held", oneRow(t, db, `SELECT state FROM _honker_live`))
		time.Sleep(time.Hour)
		require.NoError(t, db.Maintain(ctx, &honker.MaintainOptions{Once: true}))
		require.Equal(t, "pending", oneRow(t, db, `SELECT state FROM _honker_live`))
		require.Equal(t, "0", oneRow(t, db, `SELECT count(*) FROM _honkerx_cancelled`))
		require.NoError(t, db.Check(ctx))
	})
}
