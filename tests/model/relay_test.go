package model_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

// relayModel models the messages that handlers of a relay queue may receive:
//
//   - The messages of a partition are numbered 1, 2, 3, … in the order in which they were sent. The
//     numbers do not change between deliveries.
//   - A message starts when all messages before it are finished. No other handler of the partition
//     is running, except handlers whose lease has lapsed.
//   - Its attempt is the number of earlier starts, including those by processes that died.
//   - It does not start before the delay after a failure has passed, nor while a dead process still
//     has the lease.
//   - It is finished when its handler has returned nil in time or rejected it, or after MaxAttempts
//     starts.
type relayModel struct {
	sent  map[int][]string // payloads by partition
	begun map[int][]int    // number of starts of each message, by partition
	free  map[int]time.Time
	calls []*relayCall // running handlers
	wrong []string
}

// relayCall is a running handler.
type relayCall struct {
	relay.Message
	lapses time.Time // end of the lease
	stuck  bool      // the handler ignores its ctx
	reply  chan func() error
}

const (
	relayLease    = 30 * time.Second
	relayHeadroom = 2 * time.Second
)

// begin checks a message against the model.
func (m *relayModel) begin(c *relayCall, maxAttempts int) {
	p, now := c.Partition, time.Now()
	fault := func(format string, args ...any) {
		m.wrong = append(m.wrong, fmt.Sprintf("%s: ", c.IdempotencyKey())+fmt.Sprintf(format, args...))
	}
	if c.Seq < 1 || c.Seq > int64(len(m.sent[p])) || m.sent[p][c.Seq-1] != string(c.Payload) {
		fault("payload %q of %q", c.Payload, m.sent[p])
		return
	}
	if c.Attempt != m.begun[p][c.Seq-1] {
		fault("attempt %d, it was begun %d times", c.Attempt, m.begun[p][c.Seq-1])
	}
	if maxAttempts > 0 && c.Attempt >= maxAttempts {
		fault("begun for the time %d of %d", c.Attempt+1, maxAttempts)
	}
	if slices.ContainsFunc(m.begun[p][c.Seq:], func(n int) bool { return n > 0 }) {
		fault("a later one was begun before")
	}
	if slices.Contains(m.begun[p][:c.Seq-1], 0) {
		fault("an earlier one was never begun")
	}
	if now.Before(m.free[p]) {
		fault("begun at %v, the partition was to wait until %v", now, m.free[p])
	}
	for _, other := range m.calls {
		if other.Partition == p && other.lapses.After(now) {
			fault("%s is being handled", other.IdempotencyKey())
		}
	}
	m.begun[p][c.Seq-1]++
	m.calls = append(m.calls, c)
}

// relayMachine makes the handlers of two relays on the same file end in random ways.
type relayMachine struct {
	mu sync.Mutex
	relayModel
	ctx         context.Context
	db          *honker.DB
	q           *relay.Queue
	maxAttempts int
	over        chan struct{} // closed when all handlers should return nil
	once        sync.Once     // guards the closing of over
	met         map[string]int
}

func (m *relayMachine) count(what string) {
	m.mu.Lock()
	m.met[what]++
	m.mu.Unlock()
}

// handle blocks until the machine tells it how to end.
func (m *relayMachine) handle(ctx context.Context, msg *relay.Message) error {
	c := &relayCall{Message: *msg, lapses: time.Now().Add(relayLease), reply: make(chan func() error)}
	m.mu.Lock()
	m.begin(c, m.maxAttempts)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.calls = slices.DeleteFunc(m.calls, func(other *relayCall) bool { return other == c })
		m.mu.Unlock()
	}()
	for {
		select {
		case end := <-c.reply:
			if end != nil {
				return end()
			}
			ctx = context.WithoutCancel(ctx) // ignores its ctx from now on
		case <-ctx.Done():
			m.count("ctx ended")
			return ctx.Err()
		case <-m.over:
			return nil
		}
	}
}

// list returns the running handlers accepted by ok, by partition.
func (m *relayMachine) list(ok func(*relayCall) bool) []*relayCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*relayCall
	for _, c := range m.calls {
		if ok(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *relayCall) int { return strings.Compare(a.IdempotencyKey(), b.IdempotencyKey()) })
	return found
}

func (m *relayMachine) Send(t *rapid.T) {
	partition, n := rapid.IntRange(0, 3).Draw(t, "partition"), rapid.IntRange(1, 3).Draw(t, "n")
	all := make([]relay.Outgoing, n)
	m.mu.Lock()
	for i := range all {
		payload := fmt.Sprint(len(m.sent[partition]))
		all[i] = relay.Outgoing{Partition: partition, Payload: []byte(payload)}
		m.sent[partition] = append(m.sent[partition], payload)
		m.begun[partition] = append(m.begun[partition], 0)
	}
	m.mu.Unlock()
	_, err := m.q.Send(m.ctx, all...)
	require.NoError(t, err)
	synctest.Wait()
}

// end makes a handler return and reads the retry time of its partition.
func (m *relayMachine) end(t *rapid.T, how string, with func() error) {
	calls := m.list(func(c *relayCall) bool { return !c.stuck })
	if len(calls) == 0 {
		return // no handler is running
	}
	c := rapid.SampledFrom(calls).Draw(t, "handler")
	c.reply <- with
	synctest.Wait()
	info, err := m.q.Info(m.ctx)
	require.NoError(t, err)
	p := info.Partitions[c.Partition]
	m.mu.Lock()
	m.free[c.Partition] = p.RetryAt
	m.mu.Unlock()
	finished := how != "fail" || m.maxAttempts > 0 && c.Attempt+1 >= m.maxAttempts
	require.Equal(t, finished, p.Processed >= c.Seq, how)
	m.count(how)
}

func (m *relayMachine) Finish(t *rapid.T) { m.end(t, "finish", func() error { return nil }) }

func (m *relayMachine) Fail(t *rapid.T) { m.end(t, "fail", func() error { return testkit.ErrCause }) }

func (m *relayMachine) Panic(t *rapid.T) {
	m.end(t, "fail", func() error { panic("a handler of the test") })
}

func (m *relayMachine) Reject(t *rapid.T) {
	m.end(t, "reject", func() error { return relay.Reject(errors.New("poison")) })
}

// Stick makes a handler ignore its ctx.
func (m *relayMachine) Stick(t *rapid.T) {
	calls := m.list(func(c *relayCall) bool { return !c.stuck })
	if len(calls) == 0 || len(m.list(func(c *relayCall) bool { return c.stuck })) > 2 {
		return // no handler is running, or too many are stuck
	}
	c := rapid.SampledFrom(calls).Draw(t, "handler")
	c.stuck = true
	c.reply <- nil
	m.count("stuck")
}

// Unstick makes a stuck handler return nil. That is too late unless its lease still holds.
func (m *relayMachine) Unstick(t *rapid.T) {
	calls := m.list(func(c *relayCall) bool { return c.stuck })
	if len(calls) == 0 {
		return // no handler is stuck
	}
	c := rapid.SampledFrom(calls).Draw(t, "handler")
	c.reply <- func() error { return nil }
	synctest.Wait()
	if !time.Now().Before(c.lapses) {
		m.count("lapsed")
	}
}

// Crash takes a partition as a process would that dies immediately afterwards.
func (m *relayMachine) Crash(t *rapid.T) {
	partition := rapid.IntRange(0, 3).Draw(t, "partition")
	now := time.Now().UnixMilli()
	processed := column[int](t, m.db, on(`UPDATE _honkerx_relay_partitions AS p
SET owner = 'dead', epoch = epoch + 1, attempts = attempts + 1, lease_until_ms = $3
WHERE queue = $1 AND partition = $2 AND lease_until_ms <= $4 AND retry_at_ms <= $4
  AND EXISTS (SELECT 1 FROM _honkerx_relay_messages AS m WHERE m.queue = p.queue AND m.partition = p.partition)
RETURNING processed`, `UPDATE relay_partition AS p
SET owner = 'dead', epoch = epoch + 1, attempts = attempts + 1, lease_until = to_timestamp($3::bigint / 1000.0)
WHERE queue = $1 AND partition = $2 AND coalesce(lease_until <= to_timestamp($4::bigint / 1000.0), true)
  AND coalesce(retry_at <= to_timestamp($4::bigint / 1000.0), true)
  AND EXISTS (SELECT FROM relay_message m WHERE m.queue = p.queue AND m.partition = p.partition)
RETURNING processed`), m.q.Name(), partition, now+relayLease.Milliseconds(), now)
	if len(processed) == 0 {
		return // the partition is held or empty
	}
	m.mu.Lock()
	m.begun[partition][processed[0]]++
	m.free[partition] = time.UnixMilli(now).Add(relayLease)
	m.mu.Unlock()
	m.count("crash")
}

func (m *relayMachine) Advance(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 10 * time.Second, 40 * time.Second}).Draw(t, "for"))
	synctest.Wait()
}

func (m *relayMachine) Check(t *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Empty(t, m.wrong)
}

// release makes all handlers return nil from now on.
func (m *relayMachine) release() {
	m.once.Do(func() { close(m.over) })
}

// drain lets all handlers return nil until no message is waiting, and compares the final state.
func (m *relayMachine) drain(t *rapid.T) {
	m.release()
	var info relay.QueueInfo
	for range 100 {
		time.Sleep(time.Minute)
		synctest.Wait()
		var err error
		info, err = m.q.Info(m.ctx)
		require.NoError(t, err)
		if !slices.ContainsFunc(info.Partitions, func(p relay.PartitionInfo) bool { return p.Waiting > 0 }) {
			break
		}
	}
	m.Check(t)
	for i, p := range info.Partitions {
		require.EqualValues(t, len(m.sent[i]), p.Processed, "finished of partition %d", i)
		require.Zero(t, p.Waiting)
		require.Empty(t, p.Owner)
		require.NotContains(t, m.begun[i], 0, "all were begun")
	}
	for d, err := range m.q.Dead(m.ctx, nil) {
		require.NoError(t, err)
		require.Equal(t, m.sent[d.Partition][d.Seq-1], string(d.Payload))
		require.Equal(t, m.begun[d.Partition][d.Seq-1], d.Attempt)
		if d.LastError != "poison" {
			require.Positive(t, m.maxAttempts)
			require.GreaterOrEqual(t, d.Attempt, m.maxAttempts)
			m.count("exhausted")
		}
	}
}

// TestRelay_Model compares the messages received by two relays on the same file with the model.
func TestRelay_Model(t *testing.T) {
	met := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		db := honkertest.Open(t, &honker.Options{NoFileNotices: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		checks := 0
		rapid.Check(undated{t}, func(t *rapid.T) {
			checks++
			ctx, stop := context.WithCancel(context.Background())
			m := &relayMachine{ctx: context.Background(), db: db, over: make(chan struct{}), met: met,
				relayModel:  relayModel{sent: map[int][]string{}, begun: map[int][]int{}, free: map[int]time.Time{}},
				maxAttempts: rapid.SampledFrom([]int{0, 3}).Draw(t, "max attempts")}
			var running sync.WaitGroup
			for range 2 {
				r := relay.New(db, &relay.Options{Processors: 3, Batch: 1, RetryBase: time.Second, RetryMax: 10 * time.Second})
				m.q = r.Queue(fmt.Sprint("queue", checks), 4)
				m.q.Handle(m.handle, relay.Lease(relayLease, relayHeadroom), relay.MaxAttempts(m.maxAttempts))
				running.Go(func() { _ = r.Run(ctx) })
			}
			defer running.Wait()
			defer stop()
			defer m.release()
			synctest.Wait() // both relays are running
			actions := rapid.StateMachineActions(m)
			actions["Send more"], actions["Finish more"], actions["Fail more"] = m.Send, m.Finish, m.Fail
			actions["Fail again"], actions["Crash more"], actions["Wait"] = m.Fail, m.Crash, m.Advance
			for range 4 { // rapid runs few steps per Repeat
				t.Repeat(actions)
			}
			m.drain(t)
		})
	})
	requireMet(t, met, strings.Split("finish,fail,reject,stuck,lapsed,crash,ctx ended,exhausted", ",")...)
}
