// Package watermill publishes a relay's messages through Watermill, which supports Kafka, AMQP, SQL
// databases, cloud services and others.
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

// Metadata keys of published messages.
const (
	KeyQueue          = "queue"
	KeyPartition      = "partition"
	KeySeq            = "seq"
	KeyType           = "type"
	KeyIdempotencyKey = "idempotency_key"
)

// Options configures [Publish] and [PublishBatch]. The zero value of each field selects its
// default.
type Options struct {
	// Topic returns the topic of a message. If nil, every message is published to the topic passed
	// to Publish.
	Topic func(*relay.Message) string
	// Source is a prefix of each idempotency key, separated by a slash. Queues with the same name
	// in different databases or families use the same sequence numbers. If they publish to the same
	// topic, each must have a Source.
	Source string
}

// Publish returns a handler for relay's Queue.Handle that publishes each message to topic. The
// payload is unchanged. The metadata contains the queue, the partition, the sequence number, the
// type and the idempotency key (see [KeyQueue] and the other keys). The UUID is derived from the
// idempotency key, so it is the same if the message is published again.
//
// If pub returns an error, the message is retried. The message carries the handler's ctx, but pub's
// Publish method takes no context: if it blocks beyond the lease, the partition waits. If pub can
// be asynchronous, configure it to be synchronous, because the relay considers a message delivered
// when Publish returns. If opts is nil, the defaults are used. If pub is nil or there is no topic,
// the handler returns [honker.ErrInvalid], which the relay retries.
func Publish(pub message.Publisher, topic string, opts *Options) func(context.Context, *relay.Message) error {
	p, err := newPublisher(pub, topic, opts)
	if err != nil {
		return func(context.Context, *relay.Message) error { return err }
	}
	return func(ctx context.Context, m *relay.Message) error { return p.publish(ctx, m) }
}

// PublishBatch is like [Publish] but returns a handler for Queue.HandleBatch. Each call to pub
// publishes up to 256 consecutive messages with the same topic, which is faster if pub writes them
// together. After an error, all of the call's messages are published again, because a publisher
// does not report which of them were published.
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

// sameTopic returns the length of the prefix of chunk that has the same topic. chunk must not be
// empty.
func (p *publisher) sameTopic(chunk []*relay.Message) int {
	topic := p.opts.Topic(chunk[0])
	for i, m := range chunk {
		if p.opts.Topic(m) != topic {
			return i
		}
	}
	return len(chunk)
}

// publish publishes messages with the same topic.
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

// message returns the Watermill message for m.
func (p *publisher) message(ctx context.Context, m *relay.Message) *message.Message {
	key := m.IdempotencyKey()
	if p.opts.Source != "" {
		key = p.opts.Source + "/" + key
	}
	// Some publishers store the UUID in a column that is too short for the key itself.
	out := message.NewMessageWithContext(ctx, uuid.NewSHA1(uuid.NameSpaceOID, []byte(key)).String(), m.Payload)
	out.Metadata.Set(KeyQueue, m.Queue)
	out.Metadata.Set(KeyPartition, strconv.Itoa(m.Partition))
	out.Metadata.Set(KeySeq, strconv.FormatInt(m.Seq, 10))
	out.Metadata.Set(KeyType, m.Type)
	out.Metadata.Set(KeyIdempotencyKey, key)
	return out
}
