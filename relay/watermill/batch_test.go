package watermill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/watermill"
)

// deliver sends n messages of the given types to a partition and runs a relay until all are
// delivered.
func deliver(t *testing.T, n int, typeOf func(int) string, handle func(*relay.Queue)) {
	t.Helper()
	done := make(chan struct{})
	finished := 0
	r := relay.New(honkertest.Open(t, nil), &relay.Options{
		Batch: 1000, RetryBase: time.Millisecond, RetryMax: 10 * time.Millisecond,
		Observer: &relay.Observer{Finished: func(f relay.Finished) {
			if finished += f.Processed; finished == n {
				close(done)
			}
		}},
	})
	q := r.Queue("orders", 4)
	handle(q)
	out := make([]relay.Outgoing, n)
	for i := range out {
		out[i] = relay.Outgoing{Partition: 3, Type: typeOf(i), Payload: fmt.Append(nil, i)}
	}
	_, err := q.Send(t.Context(), out...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(t, "not delivered", "%d of %d", finished, n)
	}
	stop()
	require.NoError(t, <-ended)
}

func json(int) string { return "application/json" }

func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// payloads returns the payloads published by p, in order.
func (p *publisher) payloads() (all []string) {
	for _, c := range p.calls {
		for _, m := range c.ms {
			all = append(all, string(m.Payload))
		}
	}
	return all
}

// A subscriber receives a partition's messages in order.
func TestPublish_Order(t *testing.T) {
	const n = 200
	for name, handle := range map[string]func(*relay.Queue, message.Publisher){
		"single": func(q *relay.Queue, pub message.Publisher) { q.Handle(watermill.Publish(pub, "orders", nil)) },
		"batch":  func(q *relay.Queue, pub message.Publisher) { q.HandleBatch(watermill.PublishBatch(pub, "orders", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
			got, err := pubsub.Subscribe(t.Context(), "orders")
			require.NoError(t, err)
			var all []string
			read := make(chan struct{})
			go func() {
				defer close(read)
				for m := range got {
					all = append(all, string(m.Payload)+" "+m.Metadata[watermill.KeySeq])
					m.Ack()
				}
			}()
			deliver(t, n, json, func(q *relay.Queue) { handle(q, pubsub) })
			require.NoError(t, pubsub.Close())
			<-read
			require.Len(t, all, n)
			for i, text := range all {
				require.Equal(t, fmt.Sprintf("%d %d", i, i+1), text)
			}
		})
	}
}

// Each call publishes up to 256 messages with the same topic, in order.
func TestPublishBatch_Calls(t *testing.T) {
	p := &publisher{}
	opts := &watermill.Options{Topic: func(m *relay.Message) string { return m.Type }}
	typeOf := func(i int) string {
		if i >= 600 {
			return "refunds"
		}
		return "orders"
	}
	deliver(t, 602, typeOf, func(q *relay.Queue) { q.HandleBatch(watermill.PublishBatch(p, "", opts)) })
	require.Equal(t, numbers(602), p.payloads())
	var calls []string
	for _, c := range p.calls {
		calls = append(calls, fmt.Sprintf("%d %s", len(c.ms), c.topic))
	}
	require.Equal(t, []string{"256 orders", "256 orders", "88 orders", "2 refunds"}, calls)
}

// A message that the publisher fails to publish is retried before any later message.
func TestPublish_Error(t *testing.T) {
	for name, handle := range map[string]func(*relay.Queue, message.Publisher){
		"single": func(q *relay.Queue, pub message.Publisher) { q.Handle(watermill.Publish(pub, "orders", nil)) },
		"batch":  func(q *relay.Queue, pub message.Publisher) { q.HandleBatch(watermill.PublishBatch(pub, "orders", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			p := &publisher{fail: func(_ string, ms []*message.Message) error {
				for _, m := range ms {
					if string(m.Payload) == "7" && failed < 5 {
						failed++
						return errors.New("down")
					}
				}
				return nil
			}}
			deliver(t, 20, json, func(q *relay.Queue) { handle(q, p) })
			require.Equal(t, 5, failed)
			require.Equal(t, numbers(20), p.payloads())
		})
	}
}
