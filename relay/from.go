package relay

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// From reads from for consumer, lets fn turn each event into any number of messages, and sends
// them to a queue in the transaction that saves the consumer's offset: whatever dies in between,
// the messages of each event are sent exactly once, in the order of the events. It blocks, waiting
// for new events without polling, and returns when ctx ends, with nil, or with the first error;
// what was finished before is kept. Events that wait are committed several at a time.
//
// fn runs outside of the transaction, one event at a time, and may run again for an event
// after a crash, or when another From runs for the same consumer. Its ctx ends with ctx and
// with [honker.DB.Close], which waits for From and lets it return [honker.ErrClosed]. No
// messages, or [honker.ErrSkip], pass the event over. Any other error of fn, a message that
// [Queue.Send] would refuse, and an event that does not decode into E end From, and the event
// comes again the next time. from may be a pattern. A nil fn, and a stream of another database than
// the queue's, is [honker.ErrInvalid].
//
// A new consumer begins at the first event that there is; [honker.Stream.SaveOffset] makes one
// that begins elsewhere.
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

// pipeSink sends what becomes of the events of a stream.
type pipeSink struct {
	to        *Queue
	transform func(ctx context.Context, event any) ([]Outgoing, error)
	batch     *sendOp // nil: empty
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
	for i := range op.messages { // they wait for others, and the payload is the function's
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
