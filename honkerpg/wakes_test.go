//go:build unix

package honkerpg_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkerpg"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
)

// starts runs a worker of db that sends the time at which it starts each job.
func starts(t *testing.T, db *honker.DB) <-chan time.Time {
	t.Helper()
	started := make(chan time.Time, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	q := honker.NewQueue[int](db, "a", nil)
	go func() {
		done <- q.Work(ctx, func(context.Context, *honker.Job[int]) error {
			started <- time.Now()
			return nil
		}, nil)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return started
}

// Jobs that another process, this process, or a transaction of the application enqueues start at once, whether the
// process listens or polls.
func TestWakes(t *testing.T) {
	for name, o := range map[string]honkerpg.Options{
		"Listen":    {},
		"ListenDSN": {Pooler: true, ListenDSN: pgtest.DSN(t)},
		"NoListen":  {NoListen: true, Options: honker.Options{PollInterval: 10 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Schema = pgtest.Schema(t)
			dsn := pgtest.DSN(t)
			if o.Pooler {
				dsn = pgtest.Bouncer(t)
			}
			opened := func() *honker.DB {
				db, err := honkerpg.Open(t.Context(), dsn, &o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, db.Close()) })
				return db
			}
			db, other := opened(), opened()
			started := starts(t, db)
			pool := newPool(t)
			for from, enqueue := range map[string]func() error{
				"this process": func() error {
					_, err := honker.NewQueue[int](db, "a", nil).Enqueue(t.Context(), 1)
					return err
				},
				"another process": func() error {
					_, err := honker.NewQueue[int](other, "a", nil).Enqueue(t.Context(), 1)
					return err
				},
				"a transaction": func() error {
					tx, err := pool.Begin(t.Context())
					require.NoError(t, err)
					_, err = honker.NewQueue[int](other, "a", nil).EnqueueTx(t.Context(), honkerpg.WithTx(tx), 1)
					require.NoError(t, err)
					return tx.Commit(t.Context())
				},
			} {
				var trips []time.Duration
				for i := range 40 {
					require.NoError(t, enqueue())
					committed := time.Now()
					at := <-started
					if i >= 10 { // the worker waits, and the server knows
						trips = append(trips, at.Sub(committed))
					}
					time.Sleep(5 * time.Millisecond) // longer than notices are collected
				}
				slices.Sort(trips)
				t.Log(from, "median", trips[len(trips)/2])
				require.Less(t, trips[len(trips)/2], 2*time.Second, "looks of each few seconds would be slower")
			}
		})
	}
}
