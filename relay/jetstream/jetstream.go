// Package jetstream publishes a relay's messages to NATS JetStream, in partition order. Each
// message has a Nats-Msg-Id, so that the server can drop duplicates.
package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/relay"
)

// Options configures [Publish] and [PublishBatch]. The zero value of each field selects its
// default.
type Options struct {
	// Subject returns the subject of a message. If nil, every message is published to the subject
	// passed to Publish.
	Subject func(*relay.Message) string
	// Source is a prefix of each Nats-Msg-Id, separated by a slash. Queues with the same name in
	// different databases or families use the same sequence numbers. If they share a stream, each
	// must have a Source, or the stream drops messages as duplicates.
	Source string
}

// Publish returns a handler for relay's Queue.Handle that publishes each message to subject and
// waits until a stream has stored it. The payload is sent unchanged. Content-Type is the message's
// Type, and Nats-Msg-Id its IdempotencyKey, escaped like a URL path unless it is visible ASCII. If
// an acknowledgment is lost, the message is sent again. The stream drops it as a duplicate within
// its duplicate window, two minutes by default.
//
// A message that is too large for the server or the stream becomes a dead letter. Any other error
// is retried. ctx limits the wait for the acknowledgment. If opts is nil, the defaults are used. If
// js is nil or there is no subject, the handler returns [honker.ErrInvalid], which the relay
// retries.
func Publish(js natsjs.JetStream, subject string, opts *Options) func(context.Context, *relay.Message) error {
	p, err := newPublisher(js, subject, opts)
	if err != nil {
		return func(context.Context, *relay.Message) error { return err }
	}
	return func(ctx context.Context, m *relay.Message) error {
		err := p.publish(ctx, m)
		if tooLarge(err) {
			return relay.Reject(err)
		}
		return err
	}
}

// PublishBatch is like [Publish] but returns a handler for Queue.HandleBatch. It publishes up to
// 256 messages in two round trips, as a JetStream atomic batch. That requires server 2.12 and a
// stream with AllowAtomicPublish. Otherwise, or if the stream already has some of the messages, it
// publishes them individually.
//
// Either way, the partition's order is preserved after any failure. Asynchronous publishing would
// not preserve it, because a stream could lose a message but store the next one.
func PublishBatch(js natsjs.JetStream, subject string, opts *Options) func(context.Context, *relay.Batch) error {
	p, err := newPublisher(js, subject, opts)
	if err != nil {
		return func(context.Context, *relay.Batch) error { return err }
	}
	return p.handleBatch
}

// maxChunk is well below the 1000 messages that a server allows in an atomic batch.
const maxChunk = 256

type publisher struct {
	js   natsjs.JetStream
	opts Options
}

func newPublisher(js natsjs.JetStream, subject string, opts *Options) (*publisher, error) {
	p := &publisher{js: js}
	if opts != nil {
		p.opts = *opts
	}
	switch {
	case js == nil:
		return nil, fmt.Errorf("relay to JetStream: %w: nil JetStream", honker.ErrInvalid)
	case p.opts.Subject != nil:
	case subject == "":
		return nil, fmt.Errorf("relay to JetStream: %w: no subject", honker.ErrInvalid)
	default:
		p.opts.Subject = func(*relay.Message) string { return subject }
	}
	return p, nil
}

func (p *publisher) handleBatch(ctx context.Context, b *relay.Batch) error {
	for {
		chunk := b.NextChunk(maxChunk)
		if len(chunk) == 0 {
			return nil
		}
		stored, err := p.publishChunk(ctx, chunk)
		b.AckChunk(stored)
		if err == nil {
			continue
		}
		// Only the last message of the chunk can be rejected. After a failure the relay retries
		// with smaller batches, until the oversized message is the last.
		if !tooLarge(err) || stored < len(chunk)-1 {
			return err
		}
		b.Reject(err)
	}
}

// publishChunk publishes chunk in order and returns the number of messages stored.
func (p *publisher) publishChunk(ctx context.Context, chunk []*relay.Message) (stored int, err error) {
	if len(chunk) > 1 {
		done, err := p.publishAtomically(ctx, chunk)
		if err != nil {
			return 0, err
		}
		if done {
			return len(chunk), nil
		}
	}
	for i, m := range chunk {
		if err := p.publish(ctx, m); err != nil {
			return i, err
		}
	}
	return len(chunk), nil
}

// publish stores a message unless it is already stored.
func (p *publisher) publish(ctx context.Context, m *relay.Message) error {
	msg := p.message(m)
	if _, err := p.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("publish to %s: %w", msg.Subject, err)
	}
	return nil
}

// message returns the NATS message for m.
func (p *publisher) message(m *relay.Message) *nats.Msg {
	msg := nats.NewMsg(p.opts.Subject(m))
	msg.Data = m.Payload
	msg.Header.Set("Content-Type", m.Type)
	msg.Header.Set(nats.MsgIdHdr, p.id(m))
	return msg
}

func (p *publisher) id(m *relay.Message) string {
	id := m.IdempotencyKey()
	if p.opts.Source != "" {
		id = p.opts.Source + "/" + id
	}
	unfit := func(r rune) bool { return r <= ' ' || r == '%' || r > '~' }
	if strings.ContainsFunc(id, unfit) {
		return url.PathEscape(id)
	}
	return id
}

// The headers of an atomic batch. The message with batchCommit completes the batch.
const (
	batchID     = "Nats-Batch-Id"
	batchSeq    = "Nats-Batch-Sequence"
	batchCommit = "Nats-Batch-Commit"
)

type batchAck struct {
	Count int `json:"count"`
}

// publishAtomically stores all of chunk or none of it. It returns false without an error if the
// stream does not accept it as a batch. The stream replies to the first message when it has begun
// the batch and to the last when it has stored all. It does not reply to the others.
func (p *publisher) publishAtomically(ctx context.Context, chunk []*relay.Message) (done bool, err error) {
	id, last := rand.Text(), len(chunk)-1
	for i, m := range chunk {
		msg := p.message(m)
		msg.Header.Set(batchID, id)
		msg.Header.Set(batchSeq, strconv.Itoa(i+1))
		if i == last {
			msg.Header.Set(batchCommit, "1")
		}
		answer, err := p.send(ctx, msg, i == 0 || i == last)
		if errors.Is(err, nats.ErrMaxPayload) {
			return false, nil // publishing individually will find the oversized message
		}
		if err != nil {
			return false, fmt.Errorf("publish batch to %s: %w", msg.Subject, err)
		}
		if i == last {
			var ack batchAck
			return json.Unmarshal(answer, &ack) == nil && ack.Count == len(chunk), nil
		}
		// The reply is an error, or it comes from a server without support for batches, which has
		// stored the message on its own.
		if len(answer) > 0 {
			return false, nil
		}
	}
	return false, nil
}

func (p *publisher) send(ctx context.Context, msg *nats.Msg, wait bool) (answer []byte, err error) {
	conn := p.js.Conn()
	if !wait {
		return nil, conn.PublishMsg(msg)
	}
	reply, err := conn.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, err
	}
	return reply.Data, nil
}

// exceedsMaximum is a stream's error code for a message that exceeds its maximum size.
const exceedsMaximum natsjs.ErrorCode = 10054

// tooLarge reports whether err means that the message is too large, which makes retries futile.
func tooLarge(err error) bool {
	var api *natsjs.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsMaximum
}
