package honker

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/honker-go/honker/internal/store"
)

// StreamOptions of a handle. They live in this process, not in the file. The zero value
// of a field means its default.
type StreamOptions struct {
	Batch int // events per read from the file; default 1000
}

const defaultBatch = 1000

func (o *StreamOptions) withDefaults() (StreamOptions, error) {
	var out StreamOptions
	if o != nil {
		out = *o
	}
	if out.Batch < 0 {
		return out, fmt.Errorf("%w: Batch %d", ErrInvalid, out.Batch)
	}
	if out.Batch == 0 {
		out.Batch = defaultBatch
	}
	return out, nil
}

// Stream is a durable log of events whose data are an E, stored as JSON. Events stay
// until [Stream.Compact] takes them; any number of consumers follow at their own pace. It
// is a cheap handle: make it where you need it.
//
// Offsets rise in the order of commits, over all topics of the file: those of one topic
// have gaps. No event ever appears below one that was seen.
type Stream[E any] struct{ s *stream }

// stream is a Stream without its type.
type stream struct {
	db   *DB
	name string // a topic, or a pattern
	opts StreamOptions
	err  error // a bad name, option or type: said by the first verb
}

// NewStream returns a handle on a topic, such as "orders" or "orders:created", or, for
// reading, on all topics that begin with what stands before a final *: "orders:*". It
// touches nothing; a bad name or option, or an E of []byte, is [ErrInvalid] from its
// first verb. nil opts means defaults.
func NewStream[E any](db *DB, topic string, opts *StreamOptions) *Stream[E] {
	o, err := opts.withDefaults()
	err = errors.Join(err, checkName("topic", topic), checkPayloadType(reflect.TypeFor[E]()))
	return &Stream[E]{&stream{db: db, name: topic, opts: o, err: err}}
}

// Name returns the topic or the pattern.
func (s *Stream[E]) Name() string { return s.s.name }

// Head returns the offset of the last event, 0 for none.
func (s *Stream[E]) Head(ctx context.Context) (int64, error) {
	if err := s.s.usable(); err != nil {
		return 0, fail("head", s.s.name, err)
	}
	head, err := store.Streams{}.Head(ctx, s.s.db.own, s.s.selection(nil))
	return head, fail("head", s.s.name, s.s.db.because(err))
}

func (s *stream) selection(f *store.Filter) store.Selection {
	return store.Selection{Topic: s.name, Filter: f}
}

// usable checks what a read needs.
func (s *stream) usable() error {
	if s.err == nil && s.db.isClosed() {
		return ErrClosed
	}
	return s.err
}

// single refuses a pattern where one topic is needed.
func (s *stream) single() error {
	if s.err == nil && s.selection(nil).Pattern() {
		return fmt.Errorf("%w: a pattern of topics is for reading", ErrInvalid)
	}
	return s.err
}
