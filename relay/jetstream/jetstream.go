// Package jetstream publishes the messages of a relay to NATS JetStream: in the order of
// their partition, and each with a Nats-Msg-Id, by which the server drops what it gets a
// second time.
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

// Options of [Publish] and [PublishBatch]. The zero value of a field means its default.
type Options struct {
	// Subject returns the subject of a message; default: the one that was given.
	Subject func(*relay.Message) string
	// Source stands before each Nats-Msg-Id, and a slash between them. Queues of the same name
	// in several databases or families count alike: without a Source for each, a stream that
	// they share would drop the messages of one as repetitions of the other's.
	Source string
}

// Publish returns a handler for relay's Queue.Handle that publishes each message to subject
// and waits until a stream has stored it. The payload is sent as it is, with Content-Type
// from Type and Nats-Msg-Id from IdempotencyKey: a message that is sent again, because the
// answer was lost, is dropped by the stream for as long as its duplicate window remembers
// it, two minutes by default. An id that is not visible ASCII is escaped as in a URL's path.
//
// A message that is too large for the server or the stream goes to the dead letters;
// everything else that goes wrong is tried again. ctx bounds the wait. nil opts means
// defaults. A nil js, or no subject, is [honker.ErrInvalid] from the handler, which the relay
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

// PublishBatch is like [Publish], for Queue.HandleBatch: it publishes up to 256 messages in
// two round trips, by JetStream's atomic batches, which need a server 2.12 and a stream with
// AllowAtomicPublish. Where there is none of these, or where a stream has some of the
// messages already, they are published one by one. Both keep the order of the partition
// whatever fails; publishing without waiting would not, where a stream has lost a message
// and then taken the next.
func PublishBatch(js natsjs.JetStream, subject string, opts *Options) func(context.Context, *relay.Batch) error {
	p, err := newPublisher(js, subject, opts)
	if err != nil {
		return func(context.Context, *relay.Batch) error { return err }
	}
	return p.handleBatch
}

// maxChunk is far below the 1000 messages that a server takes in one atomic batch.
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
		// Only the message that was handed out last can be rejected. Batches shrink after
		// a failure, until the one at fault is it.
		if !tooLarge(err) || stored < len(chunk)-1 {
			return err
		}
		b.Reject(err)
	}
}

// publishChunk returns how many of chunk were stored, which are the first ones.
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

// publish stores one message, or finds that it is stored.
func (p *publisher) publish(ctx context.Context, m *relay.Message) error {
	msg := p.message(m)
	if _, err := p.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("publish to %s: %w", msg.Subject, err)
	}
	return nil
}

// message is what is sent for m.
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

// The headers of an atomic batch, and what a stream says of it.
const (
	batchID     = "Nats-Batch-Id"
	batchSeq    = "Nats-Batch-Sequence"
	batchCommit = "Nats-Batch-Commit"
)

type batchAck struct {
	Count int `json:"count"`
}

// publishAtomically stores all of chunk or nothing of it. false without an error: the stream
// does not take it like this. The first message is answered when the stream has begun the
// batch, and the last when it has stored all; the others are not.
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
			return false, nil // it is found and told when they are published one by one
		}
		if err != nil {
			return false, fmt.Errorf("publish batch to %s: %w", msg.Subject, err)
		}
		if i == last {
			var ack batchAck
			return json.Unmarshal(answer, &ack) == nil && ack.Count == len(chunk), nil
		}
		// An answer here is an error, or from a server that knows no batches: it has stored
		// the message by itself.
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

// exceedsMaximum is the code of a stream that has a maximum size of messages.
const exceedsMaximum natsjs.ErrorCode = 10054

// tooLarge reports that no retry will help a message.
func tooLarge(err error) bool {
	var api *natsjs.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == exceedsMaximum
}
