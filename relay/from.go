package relay

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// From reads events from a stream on behalf of the given consumer. fn converts each event to any
// number of messages, and From sends them to a queue in the transaction that saves the consumer's
// offset. The messages of each event are therefore sent exactly once, in event order, even if the
// process crashes. From blocks and waits for new events without polling. It returns nil when ctx
// ends, and otherwise the first error; events that were already processed are not processed again.
// If several events are pending, From commits them together.
//
// fn is called outside the transaction, with a single event at a time. It may be called again for
// an event after a crash, or if another From runs for the same consumer. Its ctx ends with ctx and
// with [honker.DB.Close], which waits for From; From then returns [honker.ErrClosed]. fn skips an
// event by returning no messages or [honker.ErrSkip]. From fails if fn returns any other error, if
// [Queue.Send] would refuse a message, or if an event cannot be decoded into E. The next From
// starts again with that event. from may be a pattern. If fn is nil, or if the stream and the queue
// belong to different databases, From returns [honker.ErrInvalid].
//
// A new consumer begins at the earliest event. Use [honker.Stream.SaveOffset] to begin elsewhere.
func From[E any](ctx context.Context, from *honker.Stream[E], consumer string, to *Queue, fn func(context.Context, *honker.Event[E]) ([]Outgoing, error)) error {
	err := to.err
	if fn == nil {
		err = fmt.Errorf("%w: nil function", engine.ErrInvalid)
	}
	if err == nil {
		err = engine.Pipe(ctx, to.relay.engine, from, consumer, &pipeSink{
			to: to,
			transform: func(ctx context.Context, event any) ([]Outgoing, error) {
				return fn(ctx, event.(*honker.Event[E]))
			},
		})
	}
	return engine.Wrap("relay from", from.Name(), err)
}

// pipeSink sends the messages that transform returns for a stream's events.
type pipeSink struct {
	to        *Queue
	transform func(ctx context.Context, event any) ([]Outgoing, error)
	batch     *sendOp // messages in the current transaction; nil if there are none
}

// Add implements engine.Sink.
func (s *pipeSink) Add(ctx context.Context, event any) error {
	messages, err := s.transform(ctx, event)
	if err != nil || len(messages) == 0 {
		return err
	}
	op, err := s.to.newSendOp(messages)
	if err != nil {
		return err
	}
	for i := range op.messages { // several events share a transaction, and fn may reuse its buffer
		op.messages[i].Payload = bytes.Clone(op.messages[i].Payload)
	}
	if s.batch != nil {
		op.messages = append(s.batch.messages, op.messages...)
	}
	s.batch = op
	return nil
}

// Write implements engine.Sink.
func (s *pipeSink) Write(ctx context.Context, q engine.Querier, now time.Time) error {
	if s.batch == nil {
		return nil
	}
	return s.batch.Run(ctx, q, now)
}

// Committed implements engine.Sink.
func (s *pipeSink) Committed() {
	if s.batch == nil {
		return
	}
	r := s.to.relay
	r.learn(s.to.name, s.to.partitions)
	r.engine.Notifier.Wake(s.to.change())
	r.opts.Observer.Sent(Sent{Queue: s.to.name, IDs: s.batch.ids})
	s.Dropped()
}

// Dropped implements engine.Sink.
func (s *pipeSink) Dropped() { s.batch = nil }
