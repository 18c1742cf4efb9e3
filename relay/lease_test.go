package relay_test

import (
	"context"
	"database/sql"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// A handler's ctx ends one headroom before its lease, and unfinished messages are retried.
func TestRelay_Lease_Deadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		var took time.Duration
		q.Handle(func(ctx context.Context, m *relay.Message) error {
			got.add(m)
			if m.Seq == 2 && m.Attempt == 0 {
				began := time.Now()
				<-ctx.Done()
				took = time.Since(began)
				return ctx.Err()
			}
			return nil
		}, relay.Lease(10*time.Second, 3*time.Second))
		sendN(t, q, 0, 3)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, 7*time.Second, took)
		require.Equal(t, []string{"0/1/0", "0/2/0", "0/2/1", "0/3/0"}, got.seqs())
	})
}

// When a batch's time is up, no more messages are started. Finished messages are saved, and no attempt is counted
// for the others.
func TestRelay_Lease_NoTimeLeft(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(_ context.Context, m *relay.Message) error {
			got.add(m)
			time.Sleep(2500 * time.Millisecond)
			return nil
		}, relay.Lease(6*time.Second, time.Second))
		sendN(t, q, 0, 5)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0", "0/2/0", "0/3/0", "0/4/0", "0/5/0"}, got.seqs())
	})
}

// A handler with a long lease may run for minutes.
func TestRelay_Lease_Long(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("reports", 1)
		var got seen
		q.Handle(func(ctx context.Context, m *relay.Message) error {
			got.add(m)
			work := 290 * time.Second
			if m.Seq == 2 && m.Attempt == 0 {
				work = 300 * time.Second
			}
			select {
			case <-time.After(work):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, relay.Lease(300*time.Second, 5*time.Second))
		stop := start(t, r)
		send(t, q, text("in time"))
		time.Sleep(294 * time.Second)
		require.Zero(t, waiting(t, q))
		send(t, q, text("too long at first"))
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"0/1/0", "0/2/0", "0/2/1"}, got.seqs())
	})
}

// A relay's queues can have different leases.
func TestRelay_Lease_EachQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Batch: 500, VacuumEvery: 5 * time.Minute})
		orders, notes := r.Queue("orders", 16), r.Queue("notifications", 4)
		left := map[string]time.Duration{}
		var mu sync.Mutex
		handle := func(ctx context.Context, m *relay.Message) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			mu.Lock()
			defer mu.Unlock()
			left[m.Queue] = time.Until(deadline)
			return nil
		}
		orders.Handle(handle, relay.Lease(time.Minute, 5*time.Second))
		notes.Handle(handle)
		sendN(t, orders, 15, 3)
		sendN(t, notes, 3, 3)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, map[string]time.Duration{"orders": 55 * time.Second, "notifications": 28 * time.Second}, left)
		require.Zero(t, waiting(t, orders, notes))
	})
}

// A handler that ignores its ctx is abandoned, and none of its messages are acked. Other partitions continue. Its own
// partition is not taken again in this process until the handler has returned.
func TestRelay_Stuck(t *testing.T) {
	for name, handle := range map[string]func(q *relay.Queue, h func(context.Context, *relay.Message) error){
		"handle": func(q *relay.Queue, h func(context.Context, *relay.Message) error) { q.Handle(h) },
		"batch": func(q *relay.Queue, h func(context.Context, *relay.Message) error) {
			q.HandleBatch(func(ctx context.Context, b *relay.Batch) error {
				for {
					m, ok := b.Next()
					if !ok {
						return nil
					}
					if err := h(ctx, m); err != nil {
						return err
					}
					b.Ack()
				}
			})
		},
		"tx": func(q *relay.Queue, h func(context.Context, *relay.Message) error) {
			q.HandleTx(func(ctx context.Context, _ *sql.Tx, m *relay.Message) error { return h(ctx, m) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
				r := relay.New(db, &relay.Options{Processors: 1})
				q := r.Queue("orders", 2)
				var got seen
				release := make(chan struct{})
				handle(q, func(_ context.Context, m *relay.Message) error {
					got.add(m)
					if m.Partition == 0 && m.Attempt == 0 && m.Seq == 1 {
						<-release
					}
					return nil
				})
				stop := start(t, r)
				sendN(t, q, 0, 2)
				time.Sleep(10 * time.Minute)
				sendN(t, q, 1, 2)
				time.Sleep(10 * time.Minute)
				require.Equal(t, []string{"0/1/0", "1/1/0", "1/2/0"}, got.seqs())
				require.Zero(t, processed(t, q))
				close(release)
				time.Sleep(time.Minute)
				require.NoError(t, stop())
				require.Equal(t, []string{"0/1/0", "1/1/0", "1/2/0", "0/1/1", "0/2/0"}, got.seqs())
			})
		})
	}
}

// Run returns ErrStuck for a handler that ignores its ctx. A later Run of the relay waits for it.
func TestRelay_Stuck_End(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 4)
		release := make(chan struct{})
		var calls atomic.Int32
		q.Handle(func(context.Context, *relay.Message) error { calls.Add(1); <-release; return nil },
			relay.Lease(10*time.Second, 2*time.Second))
		stop := start(t, r)
		send(t, q, relay.Outgoing{Partition: 3})
		synctest.Wait()
		began := time.Now()
		err := stop()
		require.ErrorIs(t, err, relay.ErrStuck)
		require.ErrorContains(t, err, `queue "orders", partition 3`)
		require.Equal(t, 9*time.Second, time.Since(began))
		stop = start(t, r)
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, calls.Load(), "begun beside the first by another Run")
		require.NoError(t, stop(), "of the Run before")
		close(release)
		synctest.Wait()
		require.EqualValues(t, 1, waiting(t, q), "acked by no late return")
		stop = start(t, r)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		require.EqualValues(t, 2, calls.Load())
	})
}

// Progress is not saved if the lease belongs to another owner or another epoch.
func TestRelay_Lease_Lost(t *testing.T) {
	testkit.FileOnly(t)
	for name, steal := range map[string]string{
		"owner": `UPDATE _honkerx_relay_partitions SET owner = 'other', lease_until_ms = 0`,
		"epoch": `UPDATE _honkerx_relay_partitions SET epoch = epoch + 1, lease_until_ms = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
				var lost events[relay.LeaseLost]
				r := relay.New(db, &relay.Options{Observer: &relay.Observer{LeaseLost: lost.add}})
				q := r.Queue("orders", 1)
				var got seen
				q.Handle(func(_ context.Context, m *relay.Message) error {
					if got.add(m); got.len() == 1 {
						testkit.Exec(t, db, steal)
					}
					return nil
				})
				sendN(t, q, 0, 2)
				stop := start(t, r)
				time.Sleep(time.Minute)
				require.NoError(t, stop())
				require.Len(t, lost.list(), 1)
				require.Equal(t, 1, log.Times("lease lost"))
				require.Equal(t, "0/1/0", got.seqs()[0])
				require.Contains(t, got.seqs(), "0/1/1", "delivered again, with the attempt of the lost batch")
				require.Zero(t, testkit.QueryInt(t, db.SQL(), countMessages))
			})
		})
	}
}

// The epoch increases with each batch, and two runs have different owners.
func TestRelay_Lease_Epoch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		owners := map[string]bool{}
		for i := range int64(3) {
			r := relay.New(db, nil)
			q := r.Queue("orders", 1)
			var got seen
			q.Handle(func(_ context.Context, m *relay.Message) error {
				got.add(m)
				owner := partition(t, q, 0).Owner
				require.Regexp(t, "^[0-9a-f]{32}$", owner)
				owners[owner] = true
				return nil
			})
			send(t, q, text("a"))
			stop := start(t, r)
			time.Sleep(time.Minute)
			require.NoError(t, stop())
			require.Equal(t, i+1, got.list()[0].Epoch)
		}
		require.Len(t, owners, 3)
	})
}

// When ctx ends, no more batches are taken. The current batch is completed and saved, and its lease is released.
func TestRelay_Run_Drain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var got seen
		q.Handle(func(ctx context.Context, m *relay.Message) error {
			time.Sleep(time.Second)
			got.add(m)
			return ctx.Err()
		})
		sendN(t, q, 0, 25)
		stop := start(t, r)
		time.Sleep(2500 * time.Millisecond)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 7500*time.Millisecond, time.Since(began))
		require.Equal(t, 10, got.len())
		time.Sleep(time.Hour)
		require.Equal(t, 10, got.len())
		left := partition(t, q, 0)
		require.EqualValues(t, 10, left.Processed)
		require.Empty(t, left.Owner)
		require.Zero(t, left.LeaseUntil)
		require.Zero(t, left.Attempt)
		require.NoError(t, stop())
	})
}

// DB.Close waits for the current batch, just as Run does when ctx ends.
func TestRelay_Run_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := honker.Open(context.Background(), filepath.Join(t.TempDir(), "closed.db"),
			&honker.Options{NoFileNotices: true, PollInterval: time.Hour})
		require.NoError(t, err)
		r := relay.New(db, nil)
		q := r.Queue("orders", 1)
		var handled int
		q.Handle(func(context.Context, *relay.Message) error { time.Sleep(time.Second); handled++; return nil })
		sendN(t, q, 0, 25)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(context.Background()) }()
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-ended, honker.ErrClosed)
		require.Equal(t, 10, handled)
		_, err = q.Send(context.Background(), text("a"))
		require.ErrorIs(t, err, honker.ErrClosed)
		require.ErrorIs(t, r.Run(context.Background()), honker.ErrClosed)
	})
}

// The longest possible lease does not expire, so no other process takes the partition.
func TestRelay_Lease_Longest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		var got seen
		release := make(chan struct{})
		var stops []func() error
		for range 2 {
			r := relay.New(db, nil)
			q := r.Queue("orders", 1)
			q.Handle(func(_ context.Context, m *relay.Message) error {
				got.add(m)
				<-release
				return nil
			}, relay.Lease(math.MaxInt64, time.Second))
			stops = append(stops, start(t, r))
		}
		send(t, relay.New(db, nil).Queue("orders", 1), text("a"))
		time.Sleep(time.Hour)
		close(release)
		for _, stop := range stops {
			require.NoError(t, stop())
		}
		require.Equal(t, []string{"0/1/0"}, got.seqs())
	})
}

// Messages handled while commits fail are handled only once if their progress can be saved before the
// lease ends. Otherwise they are handled again, in order.
func TestRelay_CommitsFail(t *testing.T) {
	for fails, want := range map[time.Duration][]string{
		time.Second:     {"0", "1", "2"},
		5 * time.Minute: {"0", "1", "2", "0", "1", "2"},
	} {
		t.Run(fails.String(), func(t *testing.T) {
			honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
				r := relay.New(db, nil)
				q := r.Queue("orders", 1)
				var got seen
				var end func()
				q.Handle(func(_ context.Context, m *relay.Message) error {
					if got.add(m); got.len() == 1 {
						end = honkertest.FailCommits(t, db, -1, errDown)
					}
					return nil
				})
				sendN(t, q, 0, 3)
				stop := start(t, r)
				time.Sleep(fails)
				synctest.Wait()
				require.Equal(t, []string{"0", "1", "2"}, got.payloads())
				require.EqualValues(t, 3, waiting(t, q), "none is noted as handled")
				end()
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, want, got.payloads())
				require.Zero(t, waiting(t, q))
				require.NoError(t, stop())
			})
		})
	}
}
