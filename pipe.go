package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/store"
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
	transform := func(ctx context.Context, row *store.Event) (string, error) {
		e, err := newEvent[A](row)
		if err != nil {
			return "", err
		}
		out, err := fn(ctx, e)
		if err != nil {
			return "", err
		}
		return to.db.encode(out)
	}
	return fail("pipe", from.name, from.pipe(ctx, consumer, to.stream, transform))
}

// transform makes the payload of an event's successor.
type transform func(context.Context, *store.Event) (payload string, err error)

// pipeRun is a Pipe that is running.
type pipeRun struct {
	*subscription
	to        *stream
	transform transform
	batch     []successor
	began     time.Time // of the batch
}

// successor is what becomes of one event.
type successor struct {
	key     any
	payload string
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
	if from.db != to.db {
		return fmt.Errorf("%w: the streams are of different databases", ErrInvalid)
	}
	if from.selection(nil).Matches(to.name) {
		return fmt.Errorf("%w: %q would read what it writes", ErrInvalid, from.name)
	}
	return nil
}

func (s *stream) pipe(ctx context.Context, consumer string, to *stream, fn transform) error {
	if err := checkPipe(s, to); err != nil {
		return err
	}
	return s.db.runLoop(ctx, func(ctx context.Context) error {
		sub, err := s.subscribe(ctx, consumer, &SubscribeOptions{SaveEvery: -1, SaveInterval: -1})
		if err != nil {
			return err
		}
		p := &pipeRun{subscription: sub, to: to, transform: fn}
		err = p.run(ctx)
		// What was finished is kept, also when ctx has ended.
		if last := p.commit(context.WithoutCancel(ctx)); last != nil {
			return errors.Join(last, err)
		}
		return err
	})
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
		if len(p.page) > 0 && len(p.batch) < pipeBatch && time.Since(p.began) < pipeTime {
			continue
		}
		if err := p.commit(ctx); err != nil {
			return err
		}
	}
}

// add puts the successor of an event into the batch.
func (p *pipeRun) add(ctx context.Context, row *store.Event) error {
	if p.handled == p.saved {
		p.began = time.Now()
	}
	payload, err := p.transform(ctx, row)
	if err != nil && !errors.Is(err, ErrSkip) {
		return err
	}
	if err == nil {
		p.batch = append(p.batch, successor{storedKey(row), payload})
	}
	p.handle(row.Offset)
	return nil
}

// storedKey keeps an event without a key without one.
func storedKey(row *store.Event) any {
	if row.Key == "" {
		return nil
	}
	return row.Key
}

// commit publishes the batch and saves the offset, or does neither: when the offset is no
// longer where this pipe left it, a Seek or another pipe has moved it, and this one goes on
// from there.
func (p *pipeRun) commit(ctx context.Context) error {
	if p.handled == p.saved {
		return nil
	}
	consumers := p.s.db.consumers
	var first, last, found int64
	err := p.s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		first, last = 0, 0
		found, _, err = consumers.Offset(ctx, q, p.consumer, p.s.name)
		if err != nil || found != p.saved {
			return err
		}
		if _, err = consumers.SaveOffset(ctx, q, p.consumer, p.s.name, p.handled, now.UnixMilli()); err != nil {
			return err
		}
		first, last, err = p.publish(ctx, q, now)
		return err
	}))
	if err != nil {
		return err
	}
	keys := make([]any, len(p.batch))
	for i, s := range p.batch {
		keys[i] = s.key
	}
	p.batch = p.batch[:0]
	if found != p.saved {
		p.page, p.at, p.handled, p.saved = nil, found, found, found
		return nil
	}
	p.saved = p.handled
	if last > 0 {
		p.s.db.engine.Notifier.Wake(p.to.added(keys)...)
		p.to.published(first, last, false)
	}
	return nil
}

// publish appends the batch, and returns 0 and 0 for an empty one.
func (p *pipeRun) publish(ctx context.Context, q engine.Querier, now time.Time) (first, last int64, err error) {
	for i, s := range p.batch {
		last, err = p.s.db.streams.Insert(ctx, q, p.to.name, s.key, s.payload, now.Unix())
		if err != nil {
			return 0, 0, err
		}
		if i == 0 {
			first = last
		}
	}
	return first, last, nil
}
