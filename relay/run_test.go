package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/relay"
)

var errDown = errors.New("the receiver is down")

// seen are the messages that handlers were given, in the order of the calls.
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

// seqs are "partition/seq/attempt", in order.
func (s *seen) seqs() (all []string) {
	for _, m := range s.list() {
		all = append(all, fmt.Sprintf("%d/%d/%d", m.Partition, m.Seq, m.Attempt))
	}
	return all
}

// payloads are the payloads, in order.
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

// sendN sends n messages to one partition, "0", "1", ….
func sendN(t testing.TB, q *relay.Queue, partition, n int) {
	t.Helper()
	all := make([]relay.Outgoing, n)
	for i := range all {
		all[i] = relay.Outgoing{Partition: partition, Payload: fmt.Append(nil, i)}
	}
	send(t, q, all...)
}

// start runs r until stop or the end of the test.
func start(t testing.TB, r *relay.Relay) (stop func() error) {
	t.Helper()
	return testkit.Background(t, r.Run)
}

// drained waits until no message is left.
func drained(t testing.TB, db *honker.DB) {
	t.Helper()
	testkit.Eventually(t, testkit.Timeout, "all messages finished", func() bool {
		return testkit.QueryInt(t, db.SQL(), countMessages) == 0
	})
}

// Messages of a partition are handled in the order of their commits, numbered from 1 without a
// gap, also beside transactions that were rolled back.
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
	drained(t, db)
	for p := range 4 {
		sendN(t, q, p, 25)
	}
	drained(t, db)
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
	require.EqualValues(t, 200, testkit.QueryInt(t, db.SQL(), `SELECT sum(processed) FROM _honkerx_relay_partitions WHERE owner = ''`))
}
