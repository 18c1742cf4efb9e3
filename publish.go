package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// PublishOption says more of one publish.
type PublishOption func(*publish)

// publish is what the options of one call add up to.
type publish struct {
	key any // nil: none
	err error
}

// EventKey gives the event, or each event of a batch, a key: what it is about. Filters
// look at it. UTF-8 of at most 1024 bytes without NUL; anything else is ErrInvalid.
func EventKey(key string) PublishOption {
	return func(p *publish) {
		p.key = key
		if key != "" {
			p.err = errors.Join(p.err, checkName("event key", key))
		}
	}
}

func (s *stream) prepare(opts []PublishOption) (publish, error) {
	var p publish
	for _, o := range opts {
		o(&p)
	}
	return p, errors.Join(s.single(), p.err)
}

// prepareOne checks all that a publish of one event is given, and encodes it.
func (s *stream) prepareOne(data any, opts []PublishOption) (p publish, text string, err error) {
	if p, err = s.prepare(opts); err == nil {
		text, err = encode(data, s.db.opts.MaxPayload)
	}
	return p, text, err
}

// Publish appends an event and returns its offset when it is committed. It waits for its
// turn to write until ctx ends, which withdraws it, or BusyTimeout has passed; concurrent
// calls share commits. A pattern is [ErrInvalid].
func (s *Stream[E]) Publish(ctx context.Context, data E, opts ...PublishOption) (int64, error) {
	offset, err := s.s.publish(ctx, data, opts)
	return offset, fail("publish", s.s.name, err)
}

func (s *stream) publish(ctx context.Context, data any, opts []PublishOption) (int64, error) {
	p, text, err := s.prepareOne(data, opts)
	if err != nil {
		return 0, err
	}
	var offset int64
	err = s.db.do(ctx, "PublishTx", writeOne(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		offset, err = store.Streams{}.Insert(ctx, q, s.name, p.key, text, now.Unix())
		return err
	}))
	if err != nil {
		return 0, err
	}
	s.published(offset, offset, false)
	return offset, nil
}

// PublishTx is like [Stream.Publish], within tx: the event exists when tx commits, and
// never did when it rolls back.
func (s *Stream[E]) PublishTx(ctx context.Context, tx Tx, data E, opts ...PublishOption) (int64, error) {
	offset, err := s.s.publishTx(ctx, tx, data, opts)
	return offset, fail("publish", s.s.name, err)
}

func (s *stream) publishTx(ctx context.Context, tx Tx, data any, opts []PublishOption) (int64, error) {
	p, text, err := s.prepareOne(data, opts)
	if err != nil {
		return 0, err
	}
	if tx, err = s.db.in(ctx, tx); err != nil {
		return 0, err
	}
	offset, err := store.Streams{}.Insert(ctx, tx, s.name, p.key, text, time.Now().Unix())
	if err != nil {
		return 0, err
	}
	s.published(offset, offset, true)
	return offset, nil
}

// PublishMany appends an event for each of data, alike in their options, in one commit:
// all of them or none. Their offsets follow one another from first to last. No data is
// [ErrInvalid]: there is no offset to return.
func (s *Stream[E]) PublishMany(ctx context.Context, data []E, opts ...PublishOption) (first, last int64, err error) {
	b, err := newEvents(s.s, data, opts)
	if err == nil {
		err = s.s.db.do(ctx, "PublishManyTx", write(b.insert))
	}
	if err != nil {
		return 0, 0, fail("publish", s.s.name, err)
	}
	s.s.published(b.first, b.last, false)
	return b.first, b.last, nil
}

// PublishManyTx is like [Stream.PublishMany], within tx, which has to be rolled back when
// it fails.
func (s *Stream[E]) PublishManyTx(ctx context.Context, tx Tx, data []E, opts ...PublishOption) (first, last int64, err error) {
	b, err := newEvents(s.s, data, opts)
	if err == nil {
		tx, err = s.s.db.in(ctx, tx)
	}
	if err == nil {
		err = b.insert(ctx, tx, time.Now())
	}
	if err != nil {
		return 0, 0, fail("publish", s.s.name, err)
	}
	s.s.published(b.first, b.last, true)
	return b.first, b.last, nil
}

// events is what PublishMany writes.
type events struct {
	publish
	s           *stream
	texts       []string
	first, last int64
}

func newEvents[E any](s *stream, data []E, opts []PublishOption) (*events, error) {
	p, err := s.prepare(opts)
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("%w: no events", ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	b := &events{publish: p, s: s, texts: make([]string, len(data))}
	for i, d := range data {
		if b.texts[i], err = encode(d, s.db.opts.MaxPayload); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(data), err)
		}
	}
	return b, nil
}

func (b *events) insert(ctx context.Context, q store.Querier, now time.Time) (err error) {
	b.first, b.last, err = store.Streams{}.InsertMany(ctx, q, b.s.name, []any{b.key}, b.texts, now.Unix())
	return err
}

// published wakes who waits in this process, and tells the observer.
func (s *stream) published(first, last int64, inTx bool) {
	if !inTx {
		s.db.hub.hintTopic(s.name)
	}
	s.db.opts.Observer.published(Published{Topic: s.name, First: first, Last: last, Tx: inTx})
}
