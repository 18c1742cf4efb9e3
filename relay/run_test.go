package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

var errDown = errors.New("the receiver is down")

// seen collects the messages passed to handlers, in call order.
type seen struct {
	mu  sync.Mutex
	all []relay.Message
}

func (s *seen) add(m *relay.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, *m)
}

func (s *seen) list() []relay.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]relay.Message(nil), s.all...)
}

func (s *seen) len() int { return len(s.list()) }

// seqs returns "partition/seq/attempt" for each message, in order.
func (s *seen) seqs() (all []string) {
	for _, m := range s.list() {
		all = append(all, fmt.Sprintf("%d/%d/%d", m.Partition, m.Seq, m.Attempt))
	}
	return all
}

// payloads returns the payloads, in order.
func (s *seen) payloads() (all []string) {
	for _, m := range s.list() {
		all = append(all, string(m.Payload))
	}
	return all
}

func send(t testing.TB, q *relay.Queue, m ...relay.Outgoing) []int64 {
	t.Helper()
	ids, err := q.Send(context.Background(), m...)
	require.NoError(t, err)
	return ids
}

// sendN sends n messages "0", "1", … to a partition.
func sendN(t testing.TB, q *relay.Queue, partition, n int) {
	t.Helper()
	all := make([]relay.Outgoing, n)
	for i := range all {
		all[i] = relay.Outgoing{Partition: partition, Payload: fmt.Append(nil, i)}
	}
	send(t, q, all...)
}

// start runs r until stop is called or the test ends.
func start(t testing.TB, r *relay.Relay) (stop func() error) {
	t.Helper()
	return testkit.Background(t, r.Run)
}

// drained waits until the given queues have no messages left.
func drained(t testing.TB, queues ...*relay.Queue) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "all messages finished", func() bool {
		return waiting(t, queues...) == 0
	})
}

// Messages of a partition are handled in commit order and numbered from 1 without gaps, even with
// concurrent rollbacks.
func TestRelay_Handle_Order(t *testing.T) {
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 4)
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	for p := range 4 {
		sendN(t, q, p, 25)
	}
	stop := start(t, r)
	drained(t, q)
	for p := range 4 {
		sendN(t, q, p, 25)
	}
	drained(t, q)
	require.NoError(t, stop())
	next := map[int]int64{}
	for _, m := range got.list() {
		next[m.Partition]++
		require.Equal(t, next[m.Partition], m.Seq)
		require.Equal(t, fmt.Sprint((m.Seq-1)%25), string(m.Payload))
		require.Equal(t, fmt.Sprintf("orders/%d/%d", m.Partition, m.Seq), m.IdempotencyKey())
		require.Zero(t, m.Attempt)
	}
	require.Equal(t, map[int]int64{0: 50, 1: 50, 2: 50, 3: 50}, next)
	for p := range 4 {
		progress := partition(t, q, p)
		require.EqualValues(t, 50, progress.Processed)
		require.Empty(t, progress.Owner)
	}
}

// A rollback between two commits leaves no gap in the sequence numbers.
func TestRelay_Seq_Rollback(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 1)
	for i := range 9 {
		err := db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.SendTx(ctx, tx, text(fmt.Sprint(i)))
			require.NoError(t, err)
			if i%3 == 1 {
				return errDown
			}
			return nil
		})
		require.Equal(t, i%3 == 1, err != nil)
	}
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	stop := start(t, r)
	drained(t, q)
	require.NoError(t, stop())
	require.Equal(t, []string{"0/1/0", "0/2/0", "0/3/0", "0/4/0", "0/5/0", "0/6/0"}, got.seqs())
	require.Equal(t, []string{"0", "2", "3", "5", "6", "8"}, got.payloads())
}

// A relay can have several queues with different handlers and partitions. A second Run finds them
// registered.
func TestRelay_Run_Queues(t *testing.T) {
	db := honkertest.Open(t, nil)
	for range 2 {
		r := relay.New(db, nil)
		var got [3]seen
		var queues [3]*relay.Queue
		for i := range got {
			queues[i] = r.Queue(fmt.Sprint("queue ", i), 1<<i)
			queues[i].Handle(func(_ context.Context, m *relay.Message) error { got[i].add(m); return nil })
			sendN(t, queues[i], 0, 10)
		}
		stop := start(t, r)
		drained(t, queues[:]...)
		require.NoError(t, stop())
		for i := range got {
			require.Equal(t, 10, got[i].len())
		}
	}
}

// Families with the same queue names can run side by side. Their messages, sequence numbers,
// partitions and dead letters are separate.
func TestRelay_Family_Run(t *testing.T) {
	db := honkertest.Open(t, nil)
	families := []string{"", "billing", "audit"}
	got := make([]seen, len(families))
	queues := make([]*relay.Queue, len(families))
	for i, family := range families {
		r := relay.New(db, &relay.Options{Family: family})
		queues[i] = r.Queue("orders", 1<<i)
		queues[i].Handle(func(_ context.Context, m *relay.Message) error {
			got[i].add(m)
			if family == "billing" && m.Seq == 2 {
				return relay.Reject(errDown)
			}
			return nil
		})
		start(t, r)
	}
	for n := range 3 {
		for i, q := range queues {
			send(t, q, text(fmt.Sprint(families[i], n)))
		}
	}
	for i, family := range families {
		testkit.Eventually(t, testkit.Timeout, family, func() bool { return infoOf(t, queues[i]).Partitions[0].Processed == 3 })
		require.Equal(t, []string{"0/1/0", "0/2/0", "0/3/0"}, got[i].seqs())
		require.Equal(t, []string{family + "0", family + "1", family + "2"}, got[i].payloads())
		dead, err := queues[i].CountDead(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, family == "billing", dead == 1, family)
	}
}

// Run returns an error and writes nothing if a handler is invalid or a queue has two handlers.
func TestRelay_Run_Invalid(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	db := honkertest.Open(t, nil)
	handle := func(context.Context, *relay.Message) error { return nil }
	for name, c := range map[string]struct {
		set  func(q *relay.Queue)
		text string
	}{
		"none":              {func(*relay.Queue) {}, "no queue has a handler"},
		"nil":               {func(q *relay.Queue) { q.Handle(nil) }, "nil function"},
		"nil batch":         {func(q *relay.Queue) { q.HandleBatch(nil) }, "nil function"},
		"nil tx":            {func(q *relay.Queue) { q.HandleTx(nil) }, "nil function"},
		"two":               {func(q *relay.Queue) { q.Handle(handle); q.Handle(handle) }, "the queue already has a handler"},
		"headroom as lease": {func(q *relay.Queue) { q.Handle(handle, relay.Lease(time.Second, time.Second)) }, "headroom 1s must be shorter"},
		"headroom above":    {func(q *relay.Queue) { q.Handle(handle, relay.Lease(time.Second, time.Minute)) }, "headroom 1m0s must be shorter"},
		"no headroom":       {func(q *relay.Queue) { q.Handle(handle, relay.Lease(time.Second, 0)) }, "headroom 0s is not positive"},
		"no lease":          {func(q *relay.Queue) { q.Handle(handle, relay.Lease(0, -1)) }, "lease 0s is not positive"},
		"attempts":          {func(q *relay.Queue) { q.Handle(handle, relay.MaxAttempts(-1)) }, "negative MaxAttempts"},
		"timeout":           {func(q *relay.Queue) { q.Handle(handle, relay.TxTimeout(0)) }, "TxTimeout 0s is not positive"},
	} {
		t.Run(name, func(t *testing.T) {
			r := relay.New(db, nil)
			c.set(r.Queue("orders", 2))
			err := r.Run(ctx)
			require.ErrorIs(t, err, honker.ErrInvalid)
			require.ErrorContains(t, err, c.text)
		})
	}
	require.Zero(t, testkit.QueryInt(t, db.SQL(), testkit.CountRelays))
	send(t, relay.New(db, nil).Queue("orders", 4), text("a"))
	r := relay.New(db, nil)
	r.Queue("orders", 2).Handle(handle)
	err := r.Run(ctx)
	require.ErrorIs(t, err, relay.ErrPartitions)
	require.ErrorContains(t, err, `"orders": the number of partitions differs: the handle has 2, the file has 4`)
	require.ErrorIs(t, db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error { return r.Run(ctx) }), honker.ErrInTx)
}

// Two runs share the partitions. No message is handled twice, and each partition is handled in
// order by one handler at a time.
func TestRelay_Run_Two(t *testing.T) {
	path, db := testkit.OpenShared(t)
	other := honkertest.OpenFile(t, path, nil)
	const partitions, each = 16, 200
	var handlers [2]seen
	var busy [partitions]atomic.Int32
	var stops []func() error
	q := relay.New(db, nil).Queue("orders", partitions)
	for p := range partitions {
		sendN(t, q, p, each/2)
	}
	for i, d := range []*honker.DB{db, other} {
		r := relay.New(d, nil)
		r.Queue("orders", partitions).Handle(func(_ context.Context, m *relay.Message) error {
			if n := busy[m.Partition].Add(1); n != 1 {
				t.Errorf("%d handlers of partition %d", n, m.Partition)
			}
			handlers[i].add(m)
			runtime.Gosched()
			busy[m.Partition].Add(-1)
			return nil
		})
		stops = append(stops, start(t, r))
	}
	for range each / 2 {
		var all [partitions]relay.Outgoing
		for p := range all {
			all[p].Partition = p
		}
		send(t, q, all[:]...)
	}
	drained(t, q)
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	count := map[string]int{}
	for i := range handlers {
		last := map[int]int64{}
		for _, m := range handlers[i].list() {
			require.Greater(t, m.Seq, last[m.Partition])
			last[m.Partition] = m.Seq
			count[m.IdempotencyKey()]++
		}
	}
	require.Len(t, count, partitions*each)
	for key, n := range count {
		require.Equal(t, 1, n, key)
	}
}

// At most Processors batches are handled at once, and a partition with a backlog does not starve
// the others.
func TestRelay_Processors_Fair(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Processors: 4})
		q := r.Queue("orders", 64)
		var got seen
		var running, most atomic.Int32
		q.Handle(func(_ context.Context, m *relay.Message) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Millisecond)
			running.Add(-1)
			got.add(m)
			return nil
		})
		sendN(t, q, 0, 1000)
		for p := range 64 {
			sendN(t, q, p, 1)
		}
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.EqualValues(t, 4, most.Load())
		require.Equal(t, 1064, got.len())
		// Every other partition gets its turn before the first partition gets its third.
		hot, others := 0, 0
		for _, m := range got.list() {
			if m.Partition == 0 {
				hot++
			} else if others++; others == 63 {
				require.LessOrEqual(t, hot, 30, "messages of the busy partition before the last of the others")
			}
		}
	})
}

// With one processor, partitions and queues with backlogs take turns, oldest message first.
func TestRelay_Processors_Turns(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		r := relay.New(db, &relay.Options{Processors: 1, Batch: 1})
		var got seen
		for _, name := range []string{"a", "b"} {
			r.Queue(name, 4).Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
		}
		sendN(t, r.Queue("b", 4), 3, 3)
		sendN(t, r.Queue("a", 4), 2, 3)
		sendN(t, r.Queue("a", 4), 1, 3)
		stop := start(t, r)
		time.Sleep(time.Minute)
		require.NoError(t, stop())
		require.Equal(t, []string{"3/1/0", "2/1/0", "1/1/0", "3/2/0", "2/2/0", "1/2/0", "3/3/0", "2/3/0", "1/3/0"}, got.seqs())
	})
}

// Each way of sending a message wakes a waiting relay.
func TestRelay_Run_Wakes(t *testing.T) {
	ctx := testkit.Context(t, testkit.Timeout)
	path, db := testkit.OpenShared(t)
	other := testkit.Attach(t, path, nil)
	r := relay.New(db, nil)
	q := r.Queue("orders", 2)
	var got seen
	q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
	stop := start(t, r)
	sends := []func() error{
		func() error { _, err := q.Send(ctx, text("1")); return err },
		func() error {
			return db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := q.SendTx(ctx, tx, text("2"))
				return err
			})
		},
		func() error { _, err := relay.New(other, nil).Queue("orders", 2).Send(ctx, text("3")); return err },
		func() error {
			if !testkit.OnFile() { // no other program may insert messages
				_, err := q.Send(ctx, text("4"))
				return err
			}
			_, err := other.SQL().ExecContext(ctx, testkit.InsertMessage)
			return err
		},
	}
	for i, send := range sends {
		require.NoError(t, send())
		testkit.Eventually(t, testkit.Timeout, fmt.Sprint("message ", i+1), func() bool { return got.len() == i+1 })
	}
	require.NoError(t, stop())
	require.Equal(t, []string{"1", "2", "3", "4"}, got.payloads())
	last := got.list()[3]
	require.Equal(t, "application/json", last.Type)
	require.WithinDuration(t, time.Now(), last.CreatedAt, time.Minute)
}

// Queue names may contain any permitted byte, including bytes with syntactic meaning, without
// collisions.
func TestRelay_Queue_Names(t *testing.T) {
	db := honkertest.Open(t, nil)
	r := relay.New(db, nil)
	names := []string{`a/b`, `a/0`, `"`, `'`, `[`, `\`, `\u0041`, "A", "a", "ä", "%", "*", "<&>", "\x01\x7f", "\u2028", strings.Repeat("n", 1024)}
	for c := byte(1); c < 128; c++ {
		names = append(names, "byte "+string(rune(c)))
	}
	var got seen
	queues := make([]*relay.Queue, len(names))
	for i, name := range names {
		q := r.Queue(name, 1)
		queues[i] = q
		q.Handle(func(_ context.Context, m *relay.Message) error { got.add(m); return nil })
		send(t, q, text(name))
	}
	stop := start(t, r)
	drained(t, queues...)
	require.NoError(t, stop())
	require.Equal(t, len(names), got.len())
	for _, m := range got.list() {
		require.Equal(t, m.Queue, string(m.Payload))
	}
}
