package honker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/observe"
)

// A message from another connection wakes each sleeping listener. A closed listener no longer sleeps: its Next
// returned immediately.
func TestListen_Close_WakesNext(t *testing.T) {
	testkit.FileOnly(t)
	const leaving = 20
	var woken atomic.Int64 // number of listeners woken by the last message
	path, _ := testkit.OpenShared(t)
	db := honkertest.OpenFile(t, path, &honker.Options{Observer: &observe.Observer{
		Woke: func(w observe.Woke) { woken.Store(int64(w.Waiters)) },
	}})
	other := testkit.OpenPool(t, path)
	wakes := func(n int64) func() bool {
		return func() bool {
			testkit.ExecAll(t, other, `INSERT INTO _honker_notifications (channel, payload) VALUES ('news', '1')`)
			return woken.Load() == n
		}
	}
	ctx := testkit.Context(t, testkit.Timeout)
	ended := make(chan error, leaving)
	var all []*honker.Listener
	for i := range leaving + 1 {
		l := testkit.Listen(t, db, "news")
		all = append(all, l)
		loop := func(ctx context.Context) error { return testkit.LastError(l.All(ctx)) }
		if i == leaving {
			testkit.Background(t, loop) // keeps listening
		} else {
			go func() { ended <- loop(ctx) }()
		}
	}
	testkit.Eventually(t, testkit.Timeout, "all of them sleep", wakes(leaving+1))
	for _, l := range all[:leaving] {
		require.NoError(t, l.Close())
	}
	for range leaving {
		require.ErrorIs(t, testkit.Within(ctx, ended, testkit.Timeout), honker.ErrClosed)
	}
	testkit.Eventually(t, testkit.Timeout, "one sleeps", wakes(1))
	for range 20 {
		wakes(1)()
		require.LessOrEqual(t, woken.Load(), int64(1))
	}
}

// A listener takes memory only until it is closed.
func TestListen_Close_NoMemory(t *testing.T) {
	const cycles = 5000 // the runtime keeps about a thousand objects for reuse, which is less than half
	_, db := testkit.OpenShared(t)
	ctx := testkit.Context(t, testkit.Timeout)
	for name, cycle := range map[string]func(){
		"listener": func() {
			l, err := db.Listen(ctx, "news")
			require.NoError(t, err)
			require.NoError(t, l.Close())
		},
		"lock":        func() { testkit.Unlock(t, testkit.TakeLock(t, db, "l", nil)) },
		"transaction": func() { require.NoError(t, db.Tx(ctx, func(context.Context, *sql.Tx) error { return nil })) },
	} {
		cycle() // makes all the allocations that happen only once
		before := objects()
		for range cycles {
			cycle()
		}
		testkit.Eventually(t, testkit.Timeout, name+"s leave nothing behind", func() bool { return objects() < before+cycles/2 })
	}
}

// objects returns the number of objects on the heap.
func objects() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapObjects
}

// A listener receives the messages sent after it was created, in order.
func TestListen_InOrder(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	began := time.Now()
	testkit.Notify(t, db, "news", "history")
	l := testkit.Listen(t, db, "news")
	var ids []int64
	for i := range 600 { // more than two pages of messages
		if i%3 == 0 {
			testkit.Notify(t, db, "elsewhere", i)
		}
		ids = append(ids, testkit.Notify(t, db, "news", i))
	}
	require.IsIncreasing(t, ids)
	n, err := l.Next(testkit.Context(t, testkit.Timeout))
	require.NoError(t, err)
	require.Equal(t, honker.Notification{ID: ids[0], Channel: "news", Payload: json.RawMessage(`0`), CreatedAt: n.CreatedAt}, *n)
	after(t, began, 0, n.CreatedAt)
	testkit.Receive(t, l, ids[1:]...)
}

// A listener on several channels receives their messages in a single order.
func TestListen_SeveralChannels(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := testkit.Listen(t, db, "a", "b", "a")
	a := testkit.Notify(t, db, "a", 1)
	testkit.Notify(t, db, "c", 2)
	b := testkit.Notify(t, db, "b", 3)
	testkit.Receive(t, l, a, b, testkit.Notify(t, db, "a", 4))
}

// Each listener receives all messages.
func TestListen_EachHearsAll(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	first, second := testkit.Listen(t, db, "news"), testkit.Listen(t, db, "news")
	ids := []int64{testkit.Notify(t, db, "news", 1), testkit.Notify(t, db, "news", 2)}
	testkit.Receive(t, first, ids...)
	testkit.Receive(t, second, ids...)
}

// A message sent in a transaction is received after the commit, and never after a rollback.
func TestNotify_Tx_HeardAtCommit(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	l := testkit.Listen(t, db, "news")
	notify := func(end error) (id int64) {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			var err error
			id, err = db.NotifyTx(ctx, tx, "news", "tx")
			require.NoError(t, err)
			short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, err = l.Next(short)
			require.ErrorIs(t, err, context.DeadlineExceeded, "not committed yet")
			return end
		})
		require.Equal(t, end, err)
		return id
	}
	notify(testkit.ErrCause)
	id := notify(nil)
	after := testkit.Notify(t, db, "news", "after")
	if !testkit.AsFile("PublishTx, NotifyTx and a relay's SendTx return") {
		require.Zero(t, id)
		id = after - 1
	}
	testkit.Receive(t, l, id, after)
}

// No message is lost between Listen and Next.
func TestListen_BeforeNext(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	const goroutines, pairs = 4, 250
	ended := make(chan error, goroutines)
	pair := func(channel string) error {
		if _, err := db.Notify(ctx, channel, "before"); err != nil {
			return err
		}
		l, err := db.Listen(ctx, channel)
		if err != nil {
			return err
		}
		defer l.Close()
		sent := make(chan error, 1)
		go func() { _, err := db.Notify(ctx, channel, "after"); sent <- err }()
		n, err := l.Next(ctx)
		if err == nil && string(n.Payload) != `"after"` {
			err = fmt.Errorf("heard %s", n.Payload)
		}
		return errors.Join(err, <-sent)
	}
	for g := range goroutines {
		go func() {
			var err error
			for i := 0; i < pairs && err == nil; i++ {
				err = pair(fmt.Sprint("channel ", g, i%7))
			}
			ended <- err
		}()
	}
	for range goroutines {
		require.NoError(t, <-ended)
	}
}

// Creating and closing listeners doesn't disturb the others.
func TestListen_ComeAndGo(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	for i := range 100 {
		l, err := db.Listen(context.Background(), "news")
		require.NoError(t, err)
		if i%2 == 0 {
			testkit.Receive(t, l, testkit.Notify(t, db, "news", i))
		}
		require.NoError(t, l.Close())
	}
}

// Close ends its listener's Next and All.
func TestListen_Close_EndsNextAndAll(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	for name, wait := range map[string]func(*honker.Listener) error{
		"Next": func(l *honker.Listener) error { _, err := l.Next(ctx); return err },
		"All":  func(l *honker.Listener) error { return testkit.LastError(l.All(ctx)) },
	} {
		l := testkit.Listen(t, db, "news")
		ended := make(chan error, 1)
		go func() { ended <- wait(l) }()
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ended, honker.ErrClosed, name)
		testkit.Notify(t, db, "news", 1)
		require.ErrorIs(t, wait(l), honker.ErrClosed, name)
	}
	hearing := testkit.Listen(t, db, "news")
	testkit.Receive(t, hearing, testkit.Notify(t, db, "news", 2))
}

// All yields until its context ends.
func TestListen_All_EndsWithContext(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	for name, end := range map[string]func(context.Context) (context.Context, func()){
		"cancel": func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) },
		"cancel with a cause": func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(testkit.ErrCause) }
		},
		"deadline with a cause": func(ctx context.Context) (context.Context, func()) {
			return context.WithTimeoutCause(ctx, 50*time.Millisecond, testkit.ErrCause)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := testkit.Listen(t, db, "news")
			testkit.Notify(t, db, "news", 1)
			testkit.Notify(t, db, "news", 2)
			for n, err := range l.All(testkit.Context(t, testkit.Timeout)) {
				require.NoError(t, err)
				require.Equal(t, `1`, string(n.Payload))
				break
			}
			ctx, stop := end(testkit.Context(t, testkit.Timeout))
			defer stop()
			steps := 0
			for n, err := range l.All(ctx) {
				steps++
				require.NoError(t, err, "the end of ctx is no error")
				require.Equal(t, `2`, string(n.Payload), "goes on after a break")
				if name != "deadline with a cause" {
					time.AfterFunc(time.Millisecond, stop)
				}
			}
			require.Equal(t, 1, steps)
		})
	}
}

// Next ends with its context and loses no message.
func TestListen_Next_EndsWithContext(t *testing.T) {
	t.Parallel()
	db := honkertest.Open(t, nil)
	l := testkit.Listen(t, db, "news")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err := l.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	id := testkit.Notify(t, db, "news", 1)
	_, err = l.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	testkit.Receive(t, l, id)
}

// A message's payload is received as it was sent.
func TestNotify_Payload_RoundTrip(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	l := testkit.Listen(t, db, "news")
	for _, v := range []any{
		map[string]any{"a": []any{1.5, "x"}}, []any{}, "", "ü \x00 \u2028 <>", -1.0, 0.1, true, nil,
	} {
		testkit.Notify(t, db, "news", v)
		n, err := l.Next(ctx)
		require.NoError(t, err)
		var got any
		require.NoError(t, n.Decode(&got))
		require.Equal(t, v, got)
	}
	testkit.Notify(t, db, "news", json.RawMessage(` {"b" : 1.0} `))
	n, err := l.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, ` {"b" : 1.0} `, string(n.Payload))
	var wrong int
	require.ErrorContains(t, n.Decode(&wrong), fmt.Sprintf("honker: decode notification %d: ", n.ID))
}

// Prune deletes messages that are too old or exceed the count.
func TestNotify_Prune_Union(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for name, c := range map[string]struct {
		olderThan time.Duration
		keep      int
		left      []int64
	}{
		"no bound":              {0, -1, []int64{10, 20, 30, 90, 100}},
		"as many as there are":  {0, 5, []int64{10, 20, 30, 90, 100}},
		"more than there are":   {0, math.MaxInt, []int64{10, 20, 30, 90, 100}},
		"by rank, not by id":    {0, 2, []int64{90, 100}},
		"none":                  {0, 0, nil},
		"by age":                {30 * time.Minute, -1, []int64{10, 30, 100}},
		"by age, rounded up":    {time.Hour - time.Nanosecond, -1, []int64{10, 20, 30, 90, 100}},
		"by age and by number":  {30 * time.Minute, 3, []int64{30, 100}},
		"age of any length":     {1<<63 - 1, -1, []int64{10, 20, 30, 90, 100}},
		"age 0 bounds by count": {0, 4, []int64{20, 30, 90, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, db := testkit.Context(t, testkit.Timeout), honkertest.Open(t, nil)
			// Some messages are nearly an hour old. Their IDs have gaps and aren't in order of age.
			testkit.Exec(t, db, `INSERT INTO _honker_notifications (id, channel, payload, created_at)
				VALUES (10, 'a', '1', unixepoch()), (20, 'b', '1', unixepoch() - 3500), (30, 'a', '1', unixepoch()),
				(90, 'b', '1', unixepoch() - 3500), (100, 'a', '1', unixepoch())`)
			pruned, err := db.PruneNotifications(ctx, c.olderThan, c.keep)
			require.NoError(t, err)
			var left []int64
			rows, err := db.SQL().QueryContext(ctx, `SELECT id FROM _honker_notifications ORDER BY id`)
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				var id int64
				require.NoError(t, rows.Scan(&id))
				left = append(left, id)
			}
			require.NoError(t, rows.Err())
			require.Equal(t, c.left, left)
			require.Equal(t, 5-len(left), pruned)
		})
	}
}

// A listener continues after pruned messages.
func TestListen_AfterPrune(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	l := testkit.Listen(t, db, "news")
	testkit.Notify(t, db, "news", "unread")
	pruned, err := db.PruneNotifications(ctx, 0, 0)
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	fromNothing := testkit.Listen(t, db, "news") // created on an empty table
	id := testkit.Notify(t, db, "news", "next")
	testkit.Receive(t, l, id)
	testkit.Receive(t, fromNothing, id)
}

// A listener receives a message whose time, stored by another program, is not an integer, as well as the
// messages after it.
func TestListener_ForeignTimes(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	ctx, db := testkit.Context(t, testkit.Timeout), honkertest.Open(t, nil)
	l, err := db.Listen(ctx, "news")
	require.NoError(t, err)
	defer l.Close()
	values := []string{`1700000000`, `1700000000.5`, `'2024-01-01 00:00:00'`, `x'00ff'`, `1e300`, `''`, `-9223372036854775808`}
	for _, at := range values {
		testkit.Exec(t, db, `INSERT INTO _honker_notifications (channel, payload, created_at) VALUES ('news', '1', `+at+`)`)
	}
	_, err = db.Notify(ctx, "news", 2)
	require.NoError(t, err)
	for i := range values {
		n, err := l.Next(ctx)
		require.NoError(t, err, values[i])
		require.Equal(t, i < 2, n.CreatedAt.Equal(time.Unix(1700000000, 0)), "%s: %v", values[i], n.CreatedAt)
		_, err = json.Marshal(n)
		require.NoError(t, err)
	}
	n, err := l.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "2", string(n.Payload))
}

// Notify rejects channel names that honker reserves for job states, in both forms. Listen accepts them,
// because another binding may send there in a future version.
func TestNotify_Reserved(t *testing.T) {
	t.Parallel()
	path, db := testkit.OpenShared(t)
	const channel = "_honker:job:mails:completed"
	testkit.RequireRefused(t, path, map[string]testkit.Refusal{
		"Notify":   func(c context.Context) error { _, err := db.Notify(c, channel, 1); return err },
		"NotifyTx": inOwnTx(db, func(c context.Context, tx *sql.Tx) error { _, err := db.NotifyTx(c, tx, channel, 1); return err }),
	})
	_, err := db.Notify(t.Context(), channel, 1)
	require.ErrorContains(t, err, "Observer")
	l := testkit.Listen(t, db, channel)
	if !testkit.AsFile("bindings in other languages, SQL functions") {
		return
	}
	var id int64
	require.NoError(t, db.SQL().QueryRow(`SELECT notify(?, '1')`, channel).Scan(&id))
	testkit.Receive(t, l, id)
}

// legacyMessages returns the messages sent since the last call.
func legacyMessages(t testing.TB, db *honker.DB) []string {
	t.Helper()
	rows, err := testkit.Rows(db.SQL(), `SELECT channel, payload FROM _honker_notifications ORDER BY id`)
	require.NoError(t, err)
	testkit.Exec(t, db, `DELETE FROM _honker_notifications`)
	return rows
}

// useForMessages performs operations on jobs and events, including those for which honker up to 0.2.4 sends
// messages. It returns each operation's messages.
func useForMessages(t *testing.T, db *honker.DB) map[string][]string {
	ctx, got := testkit.Context(t, testkit.Timeout), map[string][]string{}
	q, s := honker.NewQueue[int](db, "jobs", nil), honker.NewStream[int](db, "orders", nil)
	testkit.Register(t, db, honker.Schedule{Name: "tea", Queue: "jobs", Spec: "@every 1h"})
	step := func(what string, err error) {
		t.Helper()
		require.NoError(t, err, what)
		got[what] = legacyMessages(t, db)
	}
	inTx := func(end error, f func(ctx context.Context, tx *sql.Tx) error) error {
		return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := f(ctx, tx); err != nil {
				return err
			}
			return end
		})
	}
	enqueue := func(ctx context.Context, tx *sql.Tx) error { _, err := q.EnqueueTx(ctx, tx, 2); return err }
	_, err := q.Enqueue(ctx, 1)
	step("enqueue", err)
	step("enqueue in a transaction", inTx(nil, enqueue))
	require.ErrorIs(t, inTx(testkit.ErrCause, enqueue), testkit.ErrCause)
	step("enqueue rolled back", nil)
	_, err = q.EnqueueMany(ctx, []int{3, 4})
	step("enqueue two", err)
	_, err = db.SQL().ExecContext(ctx, `SELECT honker_enqueue('other', '1', NULL, NULL, 0, 3, NULL)`)
	step("enqueue by SQL", err)
	_, err = db.Scheduler().Trigger(ctx, "tea")
	step("trigger", err)
	jobs := testkit.Claim(t, q, 4)
	step("claim", nil)
	step("retry", jobs[0].Retry(ctx, time.Hour, testkit.ErrCause))
	step("extend", jobs[1].Extend(ctx, time.Hour))
	step("ack", jobs[1].Ack(ctx))
	step("reject", jobs[2].Reject(ctx, testkit.ErrCause))
	_, err = q.Cancel(ctx, jobs[3].ID)
	step("cancel", err)
	slow := honker.NewQueue[int](db, "slow", nil)
	testkit.Enqueue(t, slow, 5)
	lapsing := testkit.ClaimOne(t, slow)
	testkit.ExpireClaim(t, db, lapsing.ID)
	legacyMessages(t, db)
	require.Equal(t, lapsing.ID, testkit.ClaimOne(t, slow).ID)
	step("claim of a lapsed job", nil)
	_, err = s.Publish(ctx, 1)
	step("publish", err)
	_, _, err = s.PublishMany(ctx, []int{2, 3})
	step("publish two", err)
	step("publish in a transaction", inTx(nil, func(ctx context.Context, tx *sql.Tx) error { _, err := s.PublishTx(ctx, tx, 4); return err }))
	return got
}

// With LegacyMessages, each event, and each job that is enqueued or retried, sends the message that honker up to
// 0.2.4 sent. The message belongs to the same transaction, no matter which verb or SQL function is used. Without the
// option no message is sent.
func TestNotify_Legacy(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	for what, rows := range useForMessages(t, honkertest.Open(t, nil)) {
		require.Empty(t, rows, what)
	}
	job, event := "honker:jobs|new", "honker:stream:orders|new"
	require.Equal(t, map[string][]string{
		"enqueue": {job}, "enqueue in a transaction": {job}, "enqueue rolled back": nil, "enqueue two": {job, job},
		"enqueue by SQL": {"honker:other|new"}, "trigger": {job},
		"claim": nil, "claim of a lapsed job": nil, "retry": {job}, "extend": nil, "ack": nil, "reject": nil, "cancel": nil,
		"publish": {event}, "publish two": {event, event}, "publish in a transaction": {event},
	}, useForMessages(t, honkertest.Open(t, &honker.Options{LegacyMessages: true})))
}

// A listener in another process receives the messages as they are sent.
func TestNotify_Legacy_Heard(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	ctx := testkit.Context(t, testkit.Timeout)
	sender, err := honker.Open(ctx, path, &honker.Options{LegacyMessages: true})
	require.NoError(t, err)
	defer sender.Close()
	for _, reader := range []*honker.DB{sender, testkit.Attach(t, path, nil)} {
		l := testkit.Listen(t, reader, "honker:jobs", "honker:stream:orders")
		testkit.Enqueue(t, honker.NewQueue[int](sender, "jobs", nil), 1)
		n, err := l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "honker:jobs new", n.Channel+" "+string(n.Payload))
		testkit.Publish(t, honker.NewStream[int](sender, "orders", nil), 1)
		n, err = l.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, "honker:stream:orders new", n.Channel+" "+string(n.Payload))
	}
}

// A Connector's connections also send the messages. An attached pool's connections belong to the
// application, so Attach rejects the option.
func TestNotify_Legacy_Pools(t *testing.T) {
	testkit.FileOnly(t)
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file.db")
	o := &honker.Options{LegacyMessages: true}
	c, err := honker.Connector(path, o)
	require.NoError(t, err)
	pool := sql.OpenDB(c)
	defer pool.Close()
	for range 2 {
		_, err = pool.Exec(`SELECT honker_enqueue('jobs', '1', NULL, NULL, 0, 3, NULL)`)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, testkit.QueryInt(t, pool, `SELECT count(*) FROM _honker_notifications WHERE channel = 'honker:jobs'`))

	_, err = honker.Attach(t.Context(), testkit.OpenPool(t, path), o)
	require.ErrorIs(t, err, honker.ErrUnsupported)
	require.ErrorContains(t, err, "LegacyMessages")
}
