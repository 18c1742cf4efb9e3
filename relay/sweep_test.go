package relay_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// Finished messages that are still in the database are deleted at startup and every VacuumEvery,
// even by two relays at once. Unfinished messages are never deleted.
func TestRelay_Vacuum(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 2)
		for range 10 {
			sendN(t, q, 0, 1000)
		}
		sendN(t, q, 1, 5)
		finish := func(through int) {
			testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET processed = ?1, cursor = ?1, retry_at_ms = 9e15 WHERE partition = 0`, through)
		}
		testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET retry_at_ms = 9e15`)
		finish(4321)
		var stops []func() error
		for range 2 {
			r := relay.New(db, &relay.Options{VacuumEvery: time.Hour})
			r.Queue("orders", 2).Handle(func(context.Context, *relay.Message) error { return nil })
			stops = append(stops, start(t, r))
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 10_005-4321, testkit.QueryInt(t, db.SQL(), countMessages))
		require.EqualValues(t, 4322, testkit.QueryInt(t, db.SQL(), `SELECT min(id) FROM _honkerx_relay_messages`))
		finish(9999)
		time.Sleep(time.Hour)
		for _, stop := range stops {
			require.NoError(t, stop())
		}
		require.EqualValues(t, 6, testkit.QueryInt(t, db.SQL(), countMessages))
	})
}

// A sweep uses many small transactions, so other writers don't have to wait long.
func TestRelay_Vacuum_Chunks(t *testing.T) {
	testkit.FileOnly(t)
	var chunks []int // deleted messages per transaction
	var open int
	var mu sync.Mutex
	onConnect := func(_ context.Context, c driver.Conn) error {
		hooks := c.(sqlite.HookRegisterer)
		hooks.RegisterPreUpdateHook(func(d sqlite.SQLitePreUpdateData) {
			mu.Lock()
			defer mu.Unlock()
			if d.Op == sqlite3.SQLITE_DELETE && d.TableName == "_honkerx_relay_messages" {
				open++
			}
		})
		hooks.RegisterCommitHook(func() int32 {
			mu.Lock()
			defer mu.Unlock()
			if open > 0 {
				chunks = append(chunks, open)
			}
			open = 0
			return 0
		})
		return nil
	}
	db := honkertest.Open(t, &honker.Options{OnConnect: onConnect})
	r := relay.New(db, nil)
	q := r.Queue("orders", 1)
	const n = 15_000
	for range n / 1000 {
		sendN(t, q, 0, 1000)
	}
	testkit.Exec(t, db, `UPDATE _honkerx_relay_partitions SET processed = ?1, cursor = ?1`, n-1)
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	stop := start(t, r)
	testkit.Eventually(t, testkit.Timeout, "all messages deleted", func() bool {
		return testkit.QueryInt(t, db.SQL(), countMessages) == 0
	})
	require.NoError(t, stop())
	require.Equal(t, []string{fmt.Sprint("0/", n, "/0")}, got.seqs())
	mu.Lock()
	defer mu.Unlock()
	require.LessOrEqual(t, slices.Max(chunks), 10_000+1)
	require.Greater(t, len(chunks), 2)
}

// Messages that another program inserted into missing partitions stay in the database and are
// logged. If their queue is registered later, its messages are delivered.
func TestRelay_Strays(t *testing.T) {
	testkit.FileOnly(t)
	testkit.LoggedBubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder, log *testkit.Log) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 2)
		send(t, q, text("a"))
		testkit.Exec(t, db, `INSERT INTO _honkerx_relay_messages (queue, partition, payload) VALUES ('orders', 2, 'x'), ('orders', 2, 'x'), ('orders', -1, 'y'), ('later', 1, 'z')`)
		var got seen
		handle := func(_ context.Context, m *relay.Message) error { got.add(m); return nil }
		q.Handle(handle)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"a"}, got.payloads())
		require.EqualValues(t, 4, testkit.QueryInt(t, db.SQL(), countMessages))
		require.Equal(t, 3, log.Times("partition that does not exist"))
		require.Equal(t, 1, log.Times("queue=orders partition=2"))

		r.Queue("later", 2).Handle(handle)
		stop = start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"a", "z"}, got.payloads())
		require.ErrorContains(t, db.Check(t.Context()), "never delivered: 2 in orders/2")
		testkit.Exec(t, db, `DELETE FROM _honkerx_relay_messages`)
	})
}

// An idle relay writes nothing.
func TestRelay_Idle(t *testing.T) {
	testkit.FileOnly(t)
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, nil)
		q := r.Queue("orders", 16)
		q.Handle(func(context.Context, *relay.Message) error { return nil })
		send(t, q, text("a"))
		stop := start(t, r)
		time.Sleep(time.Minute)
		conn, err := db.SQL().Conn(context.Background())
		require.NoError(t, err)
		defer conn.Close()
		version := func() (n int64) {
			require.NoError(t, conn.QueryRowContext(context.Background(), `PRAGMA data_version`).Scan(&n))
			return n
		}
		before := version()
		time.Sleep(48 * time.Hour)
		require.Equal(t, before, version())
		require.NoError(t, stop())
	})
}
