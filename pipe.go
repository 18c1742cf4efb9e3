package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ErrSkip is returned by a [Pipe]'s function to publish nothing for an event.
var ErrSkip = errors.New("skip this event")

// Pipe reads the events of from as consumer, transforms each event with fn, and publishes the result to to under the
// same key. It publishes in the transaction that saves the consumer's offset, so each event of from has exactly one
// successor, in the same order, even after a crash. Pipe blocks, waiting for new events without polling. It returns
// nil when ctx ends, or the first error. Successors finished before the error are kept.
//
// fn runs outside the transaction, for a single event at a time. It may run again for the same event after a
// crash, or if another Pipe runs with the same consumer. The ctx of fn ends with ctx and with [DB.Close], which
// waits for Pipe; Pipe then returns [ErrClosed]. If fn returns an error, or an event does not decode into A,
// Pipe returns the error. If fn returns [ErrSkip], the event has no successor. from may be a pattern. Pipe
// returns [ErrInvalid] if to is a pattern, if from also reads to, or if fn is nil.
func Pipe[A, B any](ctx context.Context, from *Stream[A], consumer string, to *Stream[B], fn func(context.Context, *Event[A]) (B, error)) error {
	if fn == nil {
		return fail("pipe", from.name, errNilFunction)
	}
	if err := checkPipe(from.stream, to.stream); err != nil {
		return fail("pipe", from.name, err)
	}
	transform := func(ctx context.Context, event any) (successor, error) {
		e := event.(*Event[A])
		key := e.Key
		out, err := fn(ctx, e)
		if err != nil {
			return successor{}, err
		}
		payload, err := to.db.encode(out)
		return successor{key, payload}, err
	}
	return fail("pipe", from.name, from.pipe(ctx, to.db.engine, consumer, &streamSink{to: to.stream, transform: transform}))
}

// pipeable is implemented by *Stream for all event types.
type pipeable interface {
	pipe(ctx context.Context, e *engine.Engine, consumer string, to engine.Sink) error
}

// pipe runs a [Pipe] that writes to to through e.
func (s *Stream[E]) pipe(ctx context.Context, e *engine.Engine, consumer string, to engine.Sink) error {
	if s.err != nil {
		return s.err
	}
	if s.db.engine != e {
		return fmt.Errorf("%w: the source and the target belong to different databases", ErrInvalid)
	}
	decode := func(row *row.Event) (any, error) { return newEvent[E](row) }
	return s.db.runLoop(ctx, func(ctx context.Context) error {
		sub, err := s.subscribe(ctx, consumer, &SubscribeOptions{SaveEvery: -1, SaveInterval: -1})
		if err != nil {
			return err
		}
		defer sub.stop()
		p := &pipeRun{subscription: sub, decode: decode, to: to}
		err = p.run(ctx)
		// Keep the finished events even if ctx has ended.
		if last := p.commit(context.WithoutCancel(ctx)); last != nil {
			return errors.Join(last, err)
		}
		return err
	})
}

// pipeRun is a running Pipe.
type pipeRun struct {
	*subscription
	decode func(*row.Event) (any, error)
	to     engine.Sink
	batch  int       // number of uncommitted events in the batch
	began  time.Time // start of the batch
}

// Limits of a batch, which holds the events that were read but not yet committed. They are low because the
// results become visible only when the batch is committed.
const (
	pipeBatch = 256
	pipeTime  = 10 * time.Millisecond
)

func checkPipe(from, to *stream) error {
	if err := errors.Join(from.err, to.checkTopic()); err != nil {
		return err
	}
	if from.selection(nil).Matches(to.name) {
		return fmt.Errorf("%w: %q includes the target, so the pipe would read its own events", ErrInvalid, from.name)
	}
	return nil
}

// run transforms events until an error occurs or ctx ends.
func (p *pipeRun) run(ctx context.Context) error {
	for {
		row, err := p.await(ctx)
		if err != nil {
			return err
		}
		if err := p.add(ctx, row); err != nil {
			return fmt.Errorf("event %d: %w", row.Offset, err)
		}
		if len(p.page) > 0 && p.batch < pipeBatch && time.Since(p.began) < pipeTime {
			continue
		}
		if err := p.commit(ctx); err != nil {
			return err
		}
	}
}

// add adds the successor of an event to the batch.
func (p *pipeRun) add(ctx context.Context, row *row.Event) error {
	if p.handled == p.saved {
		p.began = time.Now()
	}
	e, err := p.decode(row)
	if err != nil {
		return err
	}
	if err := p.to.Add(ctx, e); err != nil && !errors.Is(err, ErrSkip) {
		return err
	}
	p.batch++
	p.handle(row.Offset)
	return nil
}

// commit writes the batch and saves the offset atomically. If the stored offset has changed because of a Seek or
// another pipe, this pipe drops its batch and continues from the stored offset.
func (p *pipeRun) commit(ctx context.Context) error {
	if p.handled == p.saved {
		return nil
	}
	consumers := p.s.db.engine.Stores.Consumers
	var found int64
	moved := false
	err := p.s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if found, moved, err = consumers.Advance(ctx, q, p.consumer, p.s.name, p.saved, p.handled, now); err != nil || !moved {
			return err
		}
		return p.to.Write(ctx, q, now)
	}))
	if err != nil {
		return err
	}
	p.batch = 0
	if !moved {
		p.to.Dropped()
		p.page, p.end, p.scanned, p.at, p.handled, p.saved = nil, false, 0, found, found, found
		return nil
	}
	p.saved = p.handled
	p.to.Committed()
	return nil
}

// streamSink publishes the successors to a stream.
type streamSink struct {
	to          *stream
	transform   func(ctx context.Context, event any) (successor, error)
	batch       []successor
	first, last int64 // offsets of the written events
}

// successor is the result of transforming an event.
type successor struct {
	key     string // "" for none
	payload string
}

// Add implements engine.Sink.
func (k *streamSink) Add(ctx context.Context, event any) error {
	next, err := k.transform(ctx, event)
	if err != nil {
		return err
	}
	k.batch = append(k.batch, next)
	return nil
}

// Write implements engine.Sink.
func (k *streamSink) Write(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	var key, payload [1]string
	p := row.Publication{Topic: k.to.name, Payloads: payload[:]}
	for i, s := range k.batch {
		key[0], payload[0], p.Keys = s.key, s.payload, nil
		if s.key != "" {
			p.Keys = key[:]
		}
		if _, k.last, err = k.to.db.engine.Stores.Streams.Publish(ctx, q, p, now); err != nil {
			return err
		}
		if i == 0 {
			k.first = k.last
		}
	}
	return nil
}

// Committed implements engine.Sink.
func (k *streamSink) Committed() {
	if len(k.batch) == 0 {
		return
	}
	keys := make([]string, len(k.batch))
	for i, s := range k.batch {
		keys[i] = s.key
	}
	k.to.db.engine.Notifier.Wake(k.to.added(keys)...)
	k.to.published(k.first, k.last, false)
	k.Dropped()
}

// Dropped implements engine.Sink.
func (k *streamSink) Dropped() { k.batch = k.batch[:0] }
