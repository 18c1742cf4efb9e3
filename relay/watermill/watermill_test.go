package watermill_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
	"github.com/honker-go/honker/relay/watermill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// publisher records its calls and fails if fail returns an error.
type publisher struct {
	calls []call
	fail  func(topic string, ms []*message.Message) error
}

type call struct {
	topic string
	ms    []*message.Message
}

func (p *publisher) Publish(topic string, ms ...*message.Message) error {
	if p.fail != nil {
		if err := p.fail(topic, ms); err != nil {
			return err
		}
	}
	p.calls = append(p.calls, call{topic, ms})
	return nil
}

func (p *publisher) Close() error { return nil }

func order(seq int64) *relay.Message {
	return &relay.Message{Queue: "orders", Partition: 3, Seq: seq, Type: "application/json", Payload: []byte(`{"total":19}`)}
}

// A subscriber receives the unchanged payload. The metadata says where it came from.
func TestPublish(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	defer pubsub.Close()
	got, err := pubsub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	published := make(chan error)
	go func() { published <- watermill.Publish(pubsub, "orders", nil)(t.Context(), order(7)) }()
	m := <-got
	m.Ack()
	require.NoError(t, <-published)
	require.Equal(t, `{"total":19}`, string(m.Payload))
	require.Equal(t, message.Metadata{
		"queue": "orders", "partition": "3", "seq": "7", "type": "application/json", "idempotency_key": "orders/3/7",
	}, m.Metadata)
}

// The UUID of a message is stable and unique.
func TestPublish_UUID(t *testing.T) {
	p := &publisher{}
	seen := map[string]bool{}
	for _, source := range []string{"", "shop2"} {
		publish := watermill.Publish(p, "orders", &watermill.Options{Source: source})
		for seq := range int64(3) {
			for range 2 {
				require.NoError(t, publish(t.Context(), order(seq)))
			}
			last := p.calls[len(p.calls)-2:]
			id := last[0].ms[0].UUID
			require.Equal(t, id, last[1].ms[0].UUID)
			require.NoError(t, uuid.Validate(id))
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	require.Equal(t, "shop2/orders/3/2", p.calls[len(p.calls)-1].ms[0].Metadata["idempotency_key"])
}

type contextKey struct{}

func TestPublish_TopicAndContext(t *testing.T) {
	p := &publisher{}
	opts := &watermill.Options{Topic: func(m *relay.Message) string { return m.Queue + ".eu" }}
	ctx := context.WithValue(t.Context(), contextKey{}, 1)
	require.NoError(t, watermill.Publish(p, "", opts)(ctx, order(1)))
	require.Equal(t, "orders.eu", p.calls[0].topic)
	require.Equal(t, 1, p.calls[0].ms[0].Context().Value(contextKey{}))
}

func TestPublish_BadOptions(t *testing.T) {
	require.ErrorIs(t, watermill.Publish(nil, "orders", nil)(t.Context(), order(1)), honker.ErrInvalid)
	require.ErrorIs(t, watermill.Publish(&publisher{}, "", nil)(t.Context(), order(1)), honker.ErrInvalid)
	require.ErrorIs(t, watermill.PublishBatch(nil, "orders", nil)(t.Context(), nil), honker.ErrInvalid)
	require.ErrorIs(t, watermill.PublishBatch(&publisher{}, "", nil)(t.Context(), nil), honker.ErrInvalid)
}
