package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/jetstream"
)

// deliveries records a relay's events.
type deliveries struct {
	finished, retried atomic.Int64
	dead              chan relay.Died
}

// deliver sends payloads to a partition and runs a relay until each is delivered or has become a
// dead letter.
func deliver(t *testing.T, handle func(*relay.Queue), payloads ...string) *deliveries {
	t.Helper()
	d := &deliveries{dead: make(chan relay.Died, len(payloads))}
	all := make(chan struct{})
	r := relay.New(honkertest.Open(t, nil), &relay.Options{
		Batch: 1000, RetryBase: time.Millisecond, RetryMax: 20 * time.Millisecond,
		Observer: &relay.Observer{
			Finished: func(f relay.Finished) {
				if d.finished.Add(int64(f.Processed)) == int64(len(payloads)) {
					close(all)
				}
			},
			Retried: func(relay.Retried) { d.retried.Add(1) },
			Dead:    func(died relay.Died) { d.dead <- died },
		},
	})
	q := r.Queue("orders", 4)
	handle(q)
	out := make([]relay.Outgoing, len(payloads))
	for i, text := range payloads {
		out[i] = relay.Outgoing{Partition: 3, Payload: []byte(text)}
	}
	_, err := q.Send(t.Context(), out...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	select {
	case <-all:
	case <-time.After(time.Minute):
		require.Fail(t, "not delivered", "%d of %d", d.finished.Load(), len(payloads))
	}
	return d
}

func texts(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("order %d", i))
	}
	return all
}

// ids returns the Nats-Msg-Ids of messages 1 to n.
func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("orders/3/%d", i+1))
	}
	return all
}

func storedIDs(all []*natsjs.RawStreamMsg) (out []string) {
	for _, m := range all {
		out = append(out, m.Header.Get(nats.MsgIdHdr))
	}
	return out
}

// If the stream allows atomic batches, chunks of 256 messages are published atomically.
func TestPublishBatch_Atomic(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, atomically)
	d := deliver(t, func(q *relay.Queue) { q.HandleBatch(jetstream.PublishBatch(js, "orders.eu", nil)) }, texts(600)...)
	require.Zero(t, d.retried.Load())
	all := stored(t, s)
	require.Equal(t, texts(600), payloads(all))
	require.Equal(t, ids(600), storedIDs(all))
	commits := 0
	for _, m := range all {
		require.NotEmpty(t, m.Header.Get("Nats-Batch-Id"))
		require.Equal(t, "application/json", m.Header.Get("Content-Type"))
		if m.Header.Get("Nats-Batch-Commit") != "" {
			commits++
		}
	}
	require.Equal(t, 3, commits)
}

// Otherwise the messages are published individually.
func TestPublishBatch_OneByOne(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, nil)
	d := deliver(t, func(q *relay.Queue) { q.HandleBatch(jetstream.PublishBatch(js, "orders.eu", nil)) }, texts(600)...)
	require.Zero(t, d.retried.Load())
	all := stored(t, s)
	require.Equal(t, texts(600), payloads(all))
	require.Equal(t, ids(600), storedIDs(all))
}

// A single message is not published as a batch.
func TestPublishBatch_One(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, atomically)
	deliver(t, func(q *relay.Queue) { q.HandleBatch(jetstream.PublishBatch(js, "orders.eu", nil)) }, "a")
	require.Empty(t, stored(t, s)[0].Header.Get("Nats-Batch-Id"))
}

// Messages that are already stored, because an acknowledgment was lost, are not stored again.
func TestPublishBatch_SomeAreStored(t *testing.T) {
	for _, change := range []func(*natsjs.StreamConfig){nil, atomically} {
		js := startBroker(t).connect()
		s := orders(t, js, change)
		for i, text := range texts(7) {
			require.NoError(t, jetstream.Publish(js, "orders.eu", nil)(t.Context(), message(int64(i+1), text)))
		}
		d := deliver(t, func(q *relay.Queue) { q.HandleBatch(jetstream.PublishBatch(js, "orders.eu", nil)) }, texts(20)...)
		require.Zero(t, d.retried.Load())
		require.Equal(t, texts(20), payloads(stored(t, s)))
	}
}

// Messages for several streams cannot form an atomic batch but are still published.
func TestPublishBatch_SeveralStreams(t *testing.T) {
	js := startBroker(t).connect()
	s := orders(t, js, atomically)
	other, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "BIG", Subjects: []string{"big"}, AllowAtomicPublish: true})
	require.NoError(t, err)
	subject := func(m *relay.Message) string {
		if m.Seq%3 == 0 {
			return "big"
		}
		return "orders.eu"
	}
	deliver(t, func(q *relay.Queue) {
		q.HandleBatch(jetstream.PublishBatch(js, "", &jetstream.Options{Subject: subject}))
	}, texts(9)...)
	require.Equal(t, []string{"order 2", "order 5", "order 8"}, payloads(stored(t, other)))
	require.Equal(t, []string{"order 0", "order 1", "order 3", "order 4", "order 6", "order 7"}, payloads(stored(t, s)))
}

// A message that is too large for the stream or the server becomes a dead letter. All others are
// stored in order.
func TestPublish_TooLarge(t *testing.T) {
	broker := startBroker(t)
	broker.stop()
	broker.opts.MaxPayload = 8 << 10
	broker.start()
	js := broker.connect()
	for name, handle := range map[string]func(*relay.Queue){
		"single": func(q *relay.Queue) { q.Handle(jetstream.Publish(js, "orders.eu", nil)) },
		"batch":  func(q *relay.Queue) { q.HandleBatch(jetstream.PublishBatch(js, "orders.eu", nil)) },
	} {
		for _, change := range []func(*natsjs.StreamConfig){nil, atomically} {
			for limit, size := range map[string]int{"stream": 2000, "server": 10000} {
				t.Run(fmt.Sprintf("%s %t %s", name, change != nil, limit), func(t *testing.T) {
					s := orders(t, js, func(c *natsjs.StreamConfig) {
						c.MaxMsgSize = 1000
						if change != nil {
							change(c)
						}
					})
					defer func() { require.NoError(t, js.DeleteStream(t.Context(), "ORDERS")) }()
					all := texts(12)
					all[5] = strings.Repeat("x", size)
					d := deliver(t, handle, all...)
					died := <-d.dead
					require.EqualValues(t, 6, died.Seq)
					require.Empty(t, d.dead)
					require.Contains(t, died.Reason, "max")
					require.Equal(t, append(texts(5), texts(12)[6:]...), payloads(stored(t, s)))
				})
			}
		}
	}
}

// If the broker restarts during delivery, each message is still stored once and in order.
func TestPublish_BrokerRestarts(t *testing.T) {
	const n = 400
	for name, publish := range map[string]func(natsjs.JetStream, func()) func(*relay.Queue){
		"single": func(js natsjs.JetStream, tick func()) func(*relay.Queue) {
			publish := jetstream.Publish(js, "orders.eu", nil)
			return func(q *relay.Queue) {
				q.Handle(func(ctx context.Context, m *relay.Message) error { tick(); return publish(ctx, m) }, relay.Lease(2*time.Second, 1500*time.Millisecond))
			}
		},
		"batch": func(js natsjs.JetStream, tick func()) func(*relay.Queue) {
			publish := jetstream.PublishBatch(js, "", &jetstream.Options{Subject: func(*relay.Message) string { tick(); return "orders.eu" }})
			return func(q *relay.Queue) { q.HandleBatch(publish, relay.Lease(2*time.Second, 1500*time.Millisecond)) }
		},
	} {
		for _, change := range []func(*natsjs.StreamConfig){nil, atomically} {
			t.Run(fmt.Sprintf("%s %t", name, change != nil), func(t *testing.T) {
				broker := startBroker(t)
				js := broker.connect()
				orders(t, js, change)
				ticks := 0
				deliver(t, publish(js, func() {
					if ticks++; ticks%150 == 0 && ticks < 700 {
						broker.stop()
						broker.start()
					}
				}), texts(n)...)
				s, err := js.Stream(t.Context(), "ORDERS")
				require.NoError(t, err)
				all := stored(t, s)
				require.Equal(t, ids(n), storedIDs(all))
				require.Equal(t, texts(n), payloads(all))
			})
		}
	}
}
