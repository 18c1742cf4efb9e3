// Package watermill publishes the messages of a relay by any publisher of Watermill: Kafka,
// AMQP, SQL, cloud services and others.
package watermill

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// The keys of a message's metadata.
const (
	KeyQueue          = "queue"
	KeyPartition      = "partition"
	KeySeq            = "seq"
	KeyType           = "type"
	KeyIdempotencyKey = "idempotency_key"
)

// Options of [Publish] and [PublishBatch]. The zero value of a field means its default.
type Options struct {
	// Topic returns the topic of a message; default: the one that was given.
	Topic func(*relay.Message) string
	// Source stands before each idempotency key, and a slash between them. Queues of the same
	// name in several databases or families count alike: give each a Source where they feed the
	// same topic.
	Source string
}

// Publish returns a handler for relay's Queue.Handle that publishes each message to topic.
// The payload is as it is. The metadata has the queue, the partition, the number in it, the
// type and the idempotency key, see [KeyQueue] and the others; the UUID is made of that key,
// so it is the same when the message is published again.
//
// An error of pub is tried again. The message has the handler's ctx as its context, but
// Publish of pub takes none: one that blocks beyond the lease keeps its partition waiting.
// Configure pub to be synchronous, where there is a choice; what it has only accepted is
// done for the relay. nil opts means defaults. A nil pub, or no topic, is
// [honker.ErrInvalid] from the handler, which the relay retries.
func Publish(pub message.Publisher, topic string, opts *Options) func(context.Context, *relay.Message) error {
	p, err := newPublisher(pub, topic, opts)
	if err != nil {
		return func(context.Context, *relay.Message) error { return err }
	}
	return func(ctx context.Context, m *relay.Message) error { return p.publish(ctx, m) }
}

// PublishBatch is like [Publish], for Queue.HandleBatch: it publishes up to 256 messages by
// one call of pub, as long as they have the same topic, which is faster where pub makes one
// write of them. After an error all of a call are published again, since a publisher does not
// say which of them were.
func PublishBatch(pub message.Publisher, topic string, opts *Options) func(context.Context, *relay.Batch) error {
	p, err := newPublisher(pub, topic, opts)
	if err != nil {
		return func(context.Context, *relay.Batch) error { return err }
	}
	return p.handleBatch
}

const maxChunk = 256

type publisher struct {
	pub  message.Publisher
	opts Options
}

func newPublisher(pub message.Publisher, topic string, opts *Options) (*publisher, error) {
	p := &publisher{pub: pub}
	if opts != nil {
		p.opts = *opts
	}
	switch {
	case pub == nil:
		return nil, fmt.Errorf("relay to Watermill: %w: nil publisher", honker.ErrInvalid)
	case p.opts.Topic != nil:
	case topic == "":
		return nil, fmt.Errorf("relay to Watermill: %w: no topic", honker.ErrInvalid)
	default:
		p.opts.Topic = func(*relay.Message) string { return topic }
	}
	return p, nil
}

func (p *publisher) handleBatch(ctx context.Context, b *relay.Batch) error {
	for {
		chunk := b.NextChunk(maxChunk)
		if len(chunk) == 0 {
			return nil
		}
		for len(chunk) > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := p.sameTopic(chunk)
			if err := p.publish(ctx, chunk[:n]...); err != nil {
				return err
			}
			b.AckChunk(n)
			chunk = chunk[n:]
		}
	}
}

// sameTopic is how many of chunk, which is not empty, can go by one call.
func (p *publisher) sameTopic(chunk []*relay.Message) int {
	topic := p.opts.Topic(chunk[0])
	for i, m := range chunk {
		if p.opts.Topic(m) != topic {
			return i
		}
	}
	return len(chunk)
}

// publish publishes messages of one topic.
func (p *publisher) publish(ctx context.Context, ms ...*relay.Message) error {
	topic := p.opts.Topic(ms[0])
	out := make([]*message.Message, len(ms))
	for i, m := range ms {
		out[i] = p.message(ctx, m)
	}
	if err := p.pub.Publish(topic, out...); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// message is what is published for m.
func (p *publisher) message(ctx context.Context, m *relay.Message) *message.Message {
	key := m.IdempotencyKey()
	if p.opts.Source != "" {
		key = p.opts.Source + "/" + key
	}
	// Some publishers keep the UUID in a column that has room for no other text.
	out := message.NewMessageWithContext(ctx, uuid.NewSHA1(uuid.NameSpaceOID, []byte(key)).String(), m.Payload)
	out.Metadata.Set(KeyQueue, m.Queue)
	out.Metadata.Set(KeyPartition, strconv.Itoa(m.Partition))
	out.Metadata.Set(KeySeq, strconv.FormatInt(m.Seq, 10))
	out.Metadata.Set(KeyType, m.Type)
	out.Metadata.Set(KeyIdempotencyKey, key)
	return out
}
