package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// ErrSkip is what the function of [Pipe] returns for an event that has no successor.
var ErrSkip = errors.New("skip this event")

// Pipe reads from for consumer, turns each event into one of to, and publishes it, with
// the same key, in the transaction that saves the consumer's offset: whatever dies in
// between, each event of from has exactly one successor, in the same order. It follows
// new events and returns when ctx ends, with nil, or with the first error; what was
// finished before is kept.
//
// fn runs outside of the transaction and may run again for an event after a crash, or
// when somebody else pipes for the same consumer. An error of fn, or an event that does
// not decode into A, ends Pipe; [ErrSkip] passes the event over. from may be a pattern, to
// must not be, nor be read by from.
func Pipe[A, B any](ctx context.Context, from *Stream[A], consumer string, to *Stream[B], fn func(context.Context, *Event[A]) (B, error)) error {
	if fn == nil {
		return fail("pipe", from.s.name, fmt.Errorf("%w: nil function", ErrInvalid))
	}
	err := pipe(ctx, from.s, consumer, to.s, func(ctx context.Context, row *store.Event) (string, error) {
		e, err := newEvent[A](row)
		if err != nil {
			return "", err
		}
		out, err := fn(ctx, e)
		if err != nil {
			return "", err
		}
		return encode(out, to.s.db.opts.MaxPayload)
	})
	return fail("pipe", from.s.name, err)
}

// piping is a Pipe that is running.
type piping struct {
	*follower
	to    *stream
	turn  func(context.Context, *store.Event) (text string, err error)
	batch []successor
	began time.Time // of the batch
}

// successor is what becomes of one event.
type successor struct {
	key  any
	text string
}

// A batch is what is at hand, or took as long as others may wait for it.
const (
	pipeBatch = 256
	pipeTime  = 10 * time.Millisecond
)

func pipe(ctx context.Context, from *stream, consumer string, to *stream, turn func(context.Context, *store.Event) (string, error)) error {
	if err := checkPipe(from, to); err != nil {
		return err
	}
	run, leave, err := from.db.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = from.pipe(run, consumer, to, turn)
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil
	case run.Err() != nil && errors.Is(err, run.Err()):
		return ended(run) // by Close: fn knows it as the end of its ctx
	}
	return err
}

func (s *stream) pipe(ctx context.Context, consumer string, to *stream, turn func(context.Context, *store.Event) (string, error)) error {
	f, err := s.subscribe(ctx, consumer, &SubscribeOptions{SaveEvery: -1, SaveInterval: -1})
	if err != nil {
		return err
	}
	p := &piping{follower: f, to: to, turn: turn}
	err = p.run(ctx)
	if last := p.commit(context.WithoutCancel(ctx)); last != nil {
		return errors.Join(last, err)
	}
	return err
}

func checkPipe(from, to *stream) error {
	switch err := errors.Join(from.err, to.single()); {
	case err != nil:
		return err
	case from.db != to.db:
		return fmt.Errorf("%w: the streams are of different databases", ErrInvalid)
	case from.selection(nil).Matches(to.name):
		return fmt.Errorf("%w: %q would read what it writes", ErrInvalid, from.name)
	}
	return nil
}

func (p *piping) run(ctx context.Context) error {
	for {
		row, err := p.await(ctx)
		if err != nil {
			return err
		}
		if err := p.add(ctx, row); err != nil {
			return fmt.Errorf("event %d: %w", row.Offset, err)
		}
		if len(p.page) == 0 || len(p.batch) >= pipeBatch || time.Since(p.began) >= pipeTime {
			if err := p.commit(ctx); err != nil {
				return err
			}
		}
	}
}

func (p *piping) add(ctx context.Context, row *store.Event) error {
	if p.handled == p.saved {
		p.began = time.Now()
	}
	text, err := p.turn(ctx, row)
	switch {
	case err == nil:
		p.batch = append(p.batch, successor{keyOf(row), text})
	case !errors.Is(err, ErrSkip):
		return err
	}
	p.done(row.Offset)
	return nil
}

// keyOf keeps "no key".
func keyOf(row *store.Event) any {
	if row.Key == "" {
		return nil
	}
	return row.Key
}

// commit publishes the batch and saves the offset, or does neither: when the offset is
// no longer where this pipe left it, somebody else has moved it, and the pipe goes on
// from there.
func (p *piping) commit(ctx context.Context) error {
	if p.handled == p.saved {
		return nil
	}
	var first, last, stands int64
	err := p.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		if stands, _, err = (store.Consumers{}).Offset(ctx, q, p.consumer, p.s.name); err != nil || stands != p.saved {
			return err
		}
		if _, err = (store.Consumers{}).SaveOffset(ctx, q, p.consumer, p.s.name, p.handled, now.UnixMilli()); err == nil {
			first, last, err = p.publish(ctx, q, now)
		}
		return err
	}))
	if err != nil {
		return err
	}
	p.goOn(stands)
	if last > 0 {
		p.to.published(first, last, false)
	}
	return nil
}

// goOn is after a commit that found the offset at stands.
func (p *piping) goOn(stands int64) {
	if stands == p.saved {
		p.saved = p.handled
	} else {
		p.page, p.at, p.handled, p.saved = nil, stands, stands, stands
	}
	p.batch = p.batch[:0]
}

func (p *piping) publish(ctx context.Context, q store.Querier, now time.Time) (first, last int64, err error) {
	for _, s := range p.batch {
		if last, err = (store.Streams{}).Insert(ctx, q, p.to.name, s.key, s.text, now.Unix()); err != nil {
			return 0, 0, err
		}
	}
	return last - int64(len(p.batch)) + 1, last, nil
}
