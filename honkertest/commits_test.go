package honkertest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
)

var errDisk = errors.New("the disk is gone")

// commitFaults lists the two faults, each with a check for its error.
var commitFaults = map[string]struct {
	begin func(t testing.TB, db *honker.DB) (end func())
	is    func(error) bool
}{
	"FailCommits": {
		func(t testing.TB, db *honker.DB) func() { return honkertest.FailCommits(t, db, -1, errDisk) },
		func(err error) bool { return errors.Is(err, errDisk) },
	},
	"DiskFull": {
		honkertest.DiskFull,
		func(err error) bool {
			var coded interface{ Code() int }
			return errors.As(err, &coded) && coded.Code() == 13
		},
	},
}

// While commits fail, every write method returns the error and has no effect. After that, they all
// succeed.
func TestFailCommits_Verbs(t *testing.T) {
	testkit.FileOnly(t)
	for name, fault := range commitFaults {
		t.Run(name, func(t *testing.T) {
			ctx, db, q := testkit.NewQueue[int](t, nil)
			testkit.ExecAll(t, db.SQL(), `CREATE TABLE orders (item TEXT)`)
			testkit.Enqueue(t, q, 1)
			testkit.Enqueue(t, q, 2)
			held := testkit.Claim(t, q, 1)[0]
			verbs := []struct {
				name string
				call func() error
			}{
				{"Enqueue", func() error { _, err := q.Enqueue(ctx, 3); return err }},
				{"Enqueue, unique", func() error { _, err := q.Enqueue(ctx, 3, honker.Unique("k", nil)); return err }},
				{"EnqueueMany", func() error { _, err := q.EnqueueMany(ctx, []int{4, 5}); return err }},
				{"Publish", func() error { _, err := honker.NewStream[int](db, "audit", nil).Publish(ctx, 1); return err }},
				{"Claim", func() error { _, err := q.Claim(ctx, "w", 1); return err }},
				{"Ack", func() error { return held.Ack(ctx) }},
				{"DB.Tx", func() error {
					return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return order(ctx, tx, q) })
				}},
				{"DB.SQL", func() error {
					tx, err := db.SQL().BeginTx(ctx, nil)
					require.NoError(t, err)
					require.NoError(t, order(ctx, tx, q))
					return tx.Commit()
				}},
				{"a statement", func() error {
					_, err := db.SQL().ExecContext(ctx, `INSERT INTO orders VALUES ('tea')`)
					return err
				}},
			}
			before := testkit.Dump(t, db.SQL())
			end := fault.begin(t, db)
			for _, v := range verbs {
				err := v.call()
				require.True(t, fault.is(err), "%s: %v", v.name, err)
			}
			require.Equal(t, before, testkit.Dump(t, db.SQL()), "nothing has changed, and reads go on")
			end()
			for _, v := range verbs {
				require.NoError(t, v.call(), v.name)
			}
			require.EqualValues(t, 3, testkit.QueryInt(t, db.SQL(), `SELECT count(*) FROM orders`))
		})
	}
}

// order inserts a row and enqueues a job in tx.
func order(ctx context.Context, tx *sql.Tx, q *honker.Queue[int]) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('tea')`); err != nil {
		return err
	}
	_, err := q.EnqueueTx(ctx, tx, 17)
	return err
}

// A fault ends after n commits or at the end of its test, and a later fault replaces it.
func TestFailCommits_Ends(t *testing.T) {
	testkit.FileOnly(t)
	ctx, db, q := testkit.NewQueue[int](t, nil)
	enqueue := func() error { _, err := q.Enqueue(ctx, 1); return err }
	end := honkertest.FailCommits(t, db, 2, errDisk)
	require.ErrorIs(t, enqueue(), errDisk)
	_, err := q.Get(ctx, 1)
	require.ErrorIs(t, err, honker.ErrNotFound)
	require.ErrorIs(t, enqueue(), errDisk)
	require.NoError(t, enqueue())
	t.Run("a test", func(t *testing.T) {
		honkertest.DiskFull(t, db)
		require.ErrorContains(t, enqueue(), "database or disk is full")
		honkertest.FailCommits(t, db, -1, errCause)
		end() // has no effect, because that fault was replaced
		require.ErrorIs(t, enqueue(), errCause)
	})
	require.NoError(t, enqueue())
	requireFails(t, func(t testing.TB) { honkertest.FailCommits(t, db, 1, nil) }, "err must not be nil")
	require.NoError(t, enqueue())
}

// If a worker's acks fail for a short time, the worker acks later and the job runs once. If they
// fail for longer than the lease, which can't be renewed either, the job runs again.
func TestFailCommits_Work(t *testing.T) {
	testkit.FileOnly(t)
	for name, fault := range commitFaults {
		for fails, runs := range map[time.Duration]int{time.Second: 1, 5 * time.Minute: 2} {
			t.Run(fmt.Sprint(name, " for ", fails), func(t *testing.T) {
				honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
					q := honker.NewQueue[int](db, "jobs", nil)
					id := testkit.Enqueue(t, q, 1)
					var ran int
					var end func()
					stop := testkit.Work(t, q, func(context.Context, *honker.Job[int]) error {
						if ran++; ran == 1 {
							end = fault.begin(t, db)
						}
						return nil
					}, nil)
					time.Sleep(fails)
					synctest.Wait()
					require.Equal(t, 1, ran)
					require.Equal(t, 1, testkit.GetJob(t, q, id).Attempts, "it is not acked")
					end()
					time.Sleep(time.Hour)
					synctest.Wait()
					require.Equal(t, runs, ran)
					testkit.RequireGone(t, q, id)
					require.NoError(t, stop())
				})
			})
		}
	}
}

// A job whose enqueue fails is not handed to an idle worker, which then gets the next job.
func TestFailCommits_Handoff(t *testing.T) {
	testkit.FileOnly(t)
	honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
		q := honker.NewQueue[int](db, "jobs", nil)
		ran := make(chan int, 2)
		stop := testkit.Work(t, q, func(_ context.Context, job *honker.Job[int]) error { ran <- job.Args; return nil }, nil)
		time.Sleep(time.Minute)
		honkertest.FailCommits(t, db, 1, errDisk)
		_, err := q.Enqueue(t.Context(), 1)
		require.ErrorIs(t, err, errDisk)
		testkit.Enqueue(t, q, 2)
		require.Equal(t, 2, <-ran)
		require.NoError(t, stop())
		require.Empty(t, ran)
	})
}

// An outbox delivers a message again if its ack could not be committed.
func TestFailCommits_Outbox(t *testing.T) {
	testkit.FileOnly(t)
	for name, fault := range commitFaults {
		t.Run(name, func(t *testing.T) {
			honkertest.Bubble(t, func(t *testing.T, db *honker.DB) {
				var delivered int
				var end func()
				o := honker.NewOutbox(db, "mail", func(context.Context, string) error {
					if delivered++; delivered == 1 {
						end = fault.begin(t, db)
					}
					return nil
				}, nil)
				id, err := o.Send(t.Context(), "hello")
				require.NoError(t, err)
				stop := testkit.Background(t, func(ctx context.Context) error { return o.Run(ctx, nil) })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.Equal(t, 1, delivered, "nothing can be claimed meanwhile")
				end()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				require.Equal(t, 2, delivered)
				testkit.RequireGone(t, o.Queue(), id)
				require.NoError(t, stop())
			})
		})
	}
}

// The faults work for an attached pool that uses a honker.Connector. For other pools, the failure
// message names the alternatives.
func TestFailCommits_Attached(t *testing.T) {
	testkit.FileOnly(t)
	path, _ := testkit.OpenShared(t)
	for _, fault := range commitFaults {
		requireFails(t, func(t testing.TB) { fault.begin(t, testkit.Attach(t, path, nil)) }, "*sqlite.Driver", "honker.Connector", "honkertest.Open")
	}
	connector, err := honker.Connector(filepath.Join(t.TempDir(), "app.db"), nil)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	defer func() { require.NoError(t, pool.Close()) }()
	pool.SetMaxOpenConns(1)
	db, err := honker.Attach(t.Context(), pool, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for _, fault := range commitFaults {
		q := honker.NewQueue[int](db, "jobs", nil)
		end := fault.begin(t, db)
		_, err := q.Enqueue(t.Context(), 1)
		require.True(t, fault.is(err), err)
		err = db.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error { _, err := q.EnqueueTx(ctx, tx, 1); return err })
		require.True(t, fault.is(err), err)
		end()
		honkertest.RequireNone(t, q)
	}
}

// A fault can be started inside a transaction, because it needs neither a connection nor the write
// lock.
func TestFailCommits_InTx(t *testing.T) {
	testkit.FileOnly(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, db, q := testkit.NewQueue[int](t, nil)
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.EnqueueTx(ctx, tx, 1)
			honkertest.DiskFull(t, db)
			return err
		})
		require.ErrorContains(t, err, "full")
		honkertest.RequireNone(t, q)
	})
}

// An order whose commit fails is not placed, and the customer gets an error.
func ExampleFailCommits() {
	_ = func(t *testing.T) { // func TestPlaceOrder_CommitFails(t *testing.T) {
		db := honkertest.Open(t, nil)
		orders := honker.NewQueue[string](db, "orders", nil)
		placeOrder := func(ctx context.Context, item string) error { // the code under test
			_, err := orders.Enqueue(ctx, item)
			return err
		}

		errDisk := errors.New("the disk is gone")
		honkertest.FailCommits(t, db, 1, errDisk)
		if err := placeOrder(t.Context(), "tea"); !errors.Is(err, errDisk) {
			t.Errorf("the customer is told that all is well: %v", err)
		}
		honkertest.RequireNone(t, orders)
		if err := placeOrder(t.Context(), "tea"); err != nil { // the customer tries again
			t.Error(err)
		}
	}
}

// Enqueue fails while the disk is full and works again when there is space.
func ExampleDiskFull() {
	_ = func(t *testing.T) { // func TestPlaceOrder_DiskFull(t *testing.T) {
		db := honkertest.Open(t, nil)
		orders := honker.NewQueue[string](db, "orders", nil)

		room := honkertest.DiskFull(t, db)
		if _, err := orders.Enqueue(t.Context(), "tea"); err == nil {
			t.Error("an order is lost")
		}
		room()
		if _, err := orders.Enqueue(t.Context(), "tea"); err != nil {
			t.Error(err)
		}
	}
}
