package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ErrSkip is what the function of [Pipe] returns for an event that has no successor.
var ErrSkip = errors.New("skip this event")

// Pipe reads from for consumer, turns each event into one of to, and publishes it, with
// the same key, in the transaction that saves the consumer's offset: whatever dies in
// between, each event of from has exactly one successor, in the same order. It blocks,
// waiting for new events without polling, and returns when ctx ends, with nil, or with the
// first error; what was finished before is kept.
//
// fn runs outside of the transaction, one event at a time, and may run again for an event
// after a crash, or when another Pipe runs for the same consumer. Its ctx ends with ctx and
// with [DB.Close], which waits for Pipe and lets it return [ErrClosed]. An error of fn, or
// an event that does not decode into A, ends Pipe; [ErrSkip] passes the event over. from
// may be a pattern, to must not be, nor be read by from: that is [ErrInvalid], and so is a
// nil fn.
func Pipe[A, B any](ctx context.Context, from *Stream[A], consumer string, to *Stream[B], fn func(context.Context, *Event[A]) (B, error)) error {
	if fn == nil {
		return fail("pipe", from.name, errNilFunction)
	}
	if err := checkPipe(from.stream, to.stream); err != nil {
		return fail("pipe", from.name, err)
	}
	transform := func(ctx context.Context, event any) (successor, error) {
		e := event.(*Event[A])
		key := storedKey(e.Key)
		out, err := fn(ctx, e)
		if err != nil {
			return successor{}, err
		}
		payload, err := to.db.encode(out)
		return successor{key, payload}, err
	}
	return fail("pipe", from.name, from.pipe(ctx, to.db.engine, consumer, &streamSink{to: to.stream, transform: transform}))
}

// pipeable is a *Stream of any type of events.
type pipeable interface {
	pipe(ctx context.Context, e *engine.Engine, consumer string, to engine.Sink) error
}

// pipe is [Pipe] into to, which writes by e.
func (s *Stream[E]) pipe(ctx context.Context, e *engine.Engine, consumer string, to engine.Sink) error {
	if s.err != nil {
		return s.err
	}
	if s.db.engine != e {
		return fmt.Errorf("%w: they are of different databases", ErrInvalid)
	}
	decode := func(row *row.Event) (any, error) { return newEvent[E](row) }
	return s.db.runLoop(ctx, func(ctx context.Context) error {
		sub, err := s.subscribe(ctx, consumer, &SubscribeOptions{SaveEvery: -1, SaveInterval: -1})
		if err != nil {
			return err
		}
		p := &pipeRun{subscription: sub, decode: decode, to: to}
		err = p.run(ctx)
		// What was finished is kept, also when ctx has ended.
		if last := p.commit(context.WithoutCancel(ctx)); last != nil {
			return errors.Join(last, err)
		}
		return err
	})
}

// pipeRun is a pipe that is running.
type pipeRun struct {
	*subscription
	decode func(*row.Event) (any, error)
	to     engine.Sink
	batch  int       // events that were added and are not committed
	began  time.Time // of the batch
}

// A batch is what was read and not committed yet, up to this many events and this time:
// what is published late is seen late.
const (
	pipeBatch = 256
	pipeTime  = 10 * time.Millisecond
)

func checkPipe(from, to *stream) error {
	if err := errors.Join(from.err, to.checkTopic()); err != nil {
		return err
	}
	if from.selection(nil).Matches(to.name) {
		return fmt.Errorf("%w: %q would read what it writes", ErrInvalid, from.name)
	}
	return nil
}

// run transforms events until something fails.
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

// add puts the successor of an event into the batch.
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

// commit writes the batch and saves the offset, or does neither: when the offset is no
// longer where this pipe left it, a Seek or another pipe has moved it, and this one goes on
// from there.
func (p *pipeRun) commit(ctx context.Context) error {
	if p.handled == p.saved {
		return nil
	}
	consumers := p.s.db.consumers
	var found int64
	err := p.s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		found, _, err = consumers.Offset(ctx, q, p.consumer, p.s.name)
		if err != nil || found != p.saved {
			return err
		}
		if _, err = consumers.SaveOffset(ctx, q, p.consumer, p.s.name, p.handled, now.UnixMilli()); err != nil {
			return err
		}
		return p.to.Write(ctx, q, now)
	}))
	if err != nil {
		return err
	}
	p.batch = 0
	if found != p.saved {
		p.to.Dropped()
		p.page, p.at, p.handled, p.saved = nil, found, found, found
		return nil
	}
	p.saved = p.handled
	p.to.Committed()
	return nil
}

// streamSink publishes the successors of events as events of a stream.
type streamSink struct {
	to          *stream
	transform   func(ctx context.Context, event any) (successor, error)
	batch       []successor
	first, last int64 // offsets of what was written
}

// successor is what becomes of one event.
type successor struct {
	key     any
	payload string
}

// storedKey keeps an event without a key without one.
func storedKey(key string) any {
	if key == "" {
		return nil
	}
	return key
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
	for i, s := range k.batch {
		k.last, err = k.to.db.streams.Insert(ctx, q, k.to.name, s.key, s.payload, now.Unix())
		if err != nil {
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
	keys := make([]any, len(k.batch))
	for i, s := range k.batch {
		keys[i] = s.key
	}
	k.to.db.engine.Notifier.Wake(k.to.added(keys)...)
	k.to.published(k.first, k.last, false)
	k.Dropped()
}

// Dropped implements engine.Sink.
func (k *streamSink) Dropped() { k.batch = k.batch[:0] }
