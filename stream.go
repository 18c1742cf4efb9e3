package honker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
	"github.com/honker-go/honker/observe"
)

// StreamOptions configures a [Stream] handle. The options apply to the handle in this process and are not stored
// in the file. Zero fields select the defaults.
type StreamOptions struct {
	Batch int // number of events per read from the file; default 1000
}

const defaultBatch = 1000

func (o *StreamOptions) withDefaults() (StreamOptions, error) {
	var out StreamOptions
	if o != nil {
		out = *o
	}
	if out.Batch < 0 {
		return out, fmt.Errorf("%w: negative Batch %d", ErrInvalid, out.Batch)
	}
	if out.Batch == 0 {
		out.Batch = defaultBatch
	}
	return out, nil
}

// Stream is a handle for a durable log of events with data of type E, which is stored as JSON. Events are kept
// until [Stream.Compact] or [DB.Maintain] deletes them. Any number of consumers can read them, each at its own
// pace. Handles are cheap, may be created where they are needed, and are safe for concurrent use.
//
// Offsets increase in commit order across all topics of the file, so the offsets of a single topic have gaps.
// Once an event is visible, no event ever appears at a lower offset.
type Stream[E any] struct{ *stream }

// stream is the untyped part of a Stream.
type stream struct {
	db   *DB
	name string // a topic or a pattern
	opts StreamOptions
	err  error // invalid name, option or type, returned by every verb
}

// NewStream returns a handle for a topic such as "orders" or "orders:created". For reading, topic may also be a
// pattern with a final *, such as "orders:*", which selects all topics that begin with the text before it.
// NewStream does not access the file. The first verb returns [ErrInvalid] for an invalid name or option or an E
// of []byte. A nil opts means defaults.
func NewStream[E any](db *DB, topic string, opts *StreamOptions) *Stream[E] {
	db.mustExist("NewStream")
	o, err := opts.withDefaults()
	err = errors.Join(err, engine.CheckName("topic", topic), engine.CheckPayloadType(reflect.TypeFor[E]()))
	return &Stream[E]{&stream{db: db, name: topic, opts: o, err: err}}
}

// Name returns the topic or pattern of the stream.
func (s *Stream[E]) Name() string { return s.name }

// Head returns the offset of the last event, or 0 if there is none. It only reads, and never waits for the writer.
// For a pattern, it also reads all later events of other topics.
func (s *Stream[E]) Head(ctx context.Context) (int64, error) {
	head, err := s.head(ctx)
	return head, fail("read head", s.name, err)
}

func (s *stream) head(ctx context.Context) (head int64, err error) {
	if s.err != nil {
		return 0, s.err
	}
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = s.db.engine.Stores.Streams.Last(ctx, q, s.selection(nil))
		return err
	})
	return head, err
}

func (s *stream) selection(f *row.Filter) row.Selection {
	return row.Selection{Topic: s.name, Filter: f}
}

// checkTopic returns an error if s is a pattern.
func (s *stream) checkTopic() error {
	if s.err != nil {
		return s.err
	}
	if s.selection(nil).Pattern() {
		return fmt.Errorf("%w: a pattern of topics can only be read", ErrInvalid)
	}
	return nil
}

// PublishOption configures a single call of Publish or PublishMany, or of their Tx forms.
type PublishOption func(*publishOptions)

// publishOptions holds the combined options of a single call.
type publishOptions struct {
	key  *string  // from EventKey
	keys []string // from EventKeys
	each bool     // whether EventKeys was given
	err  error
}

// EventKey sets the key of an event, or of every event in a batch. The key identifies the subject of the event, and
// filters select events by it. The verb returns [ErrInvalid] unless the key is valid UTF-8 of at most 1024 bytes
// without NUL, and if EventKey is used together with [EventKeys]. If EventKey is given more than once, the last value
// applies.
func EventKey(key string) PublishOption {
	return func(o *publishOptions) {
		o.key = &key
		o.err = errors.Join(o.err, checkEventKey(key))
	}
}

// EventKeys sets a separate key for each event of a batch, in the order of the data passed to
// [Stream.PublishMany]. The number of keys must equal the number of events, and each key must be valid for
// [EventKey]; otherwise the verb returns [ErrInvalid]. If EventKeys is given more than once, the last value
// applies.
func EventKeys(keys ...string) PublishOption {
	return func(o *publishOptions) {
		o.keys, o.each = keys, true
		for _, key := range keys {
			o.err = errors.Join(o.err, checkEventKey(key))
		}
	}
}

func checkEventKey(key string) error {
	if key == "" {
		return nil
	}
	return engine.CheckName("event key", key)
}

// newPublishOptions combines opts for a publish of n events.
func newPublishOptions(opts []PublishOption, n int) (publishOptions, error) {
	var o publishOptions
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: nil option", ErrInvalid)
		}
		opt(&o)
	}
	switch {
	case o.err != nil:
		return o, o.err
	case o.key != nil && o.each:
		return o, fmt.Errorf("%w: EventKey cannot be combined with EventKeys", ErrInvalid)
	case o.each && len(o.keys) != n:
		return o, fmt.Errorf("%w: got %d keys for %d events", ErrInvalid, len(o.keys), n)
	}
	return o, nil
}

// stored returns the keys for a row.Publication.
func (o *publishOptions) stored() []string {
	if o.key != nil {
		return []string{*o.key}
	}
	return o.keys
}

// publication is a call of a publish verb. It implements engine.Op.
type publication struct {
	row.Publication
	s           *stream
	first, last int64 // offsets, set by Run
}

var _ engine.Op = (*publication)(nil)

// newPublication checks the arguments of a publish verb and encodes the data, so that after this the publication can
// fail only because of the file.
func newPublication[E any](s *stream, data []E, opts []PublishOption) (*publication, error) {
	if err := s.checkTopic(); err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no events", ErrInvalid)
	}
	o, err := newPublishOptions(opts, len(data))
	if err != nil {
		return nil, err
	}
	p := &publication{s: s, Publication: row.Publication{Topic: s.name, Keys: o.stored(), Payloads: make([]string, len(data))}}
	for i, d := range data {
		p.Payloads[i], err = s.db.encode(d)
		if err != nil && len(data) > 1 {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(data), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Single implements engine.Op.
func (p *publication) Single() bool {
	return len(p.Payloads) == 1 || p.s.db.engine.Stores.Single
}

// MergeKey implements engine.Merges. Publications to all topics can be written together.
func (p *publication) MergeKey() any {
	if _, ok := p.s.db.engine.Stores.Streams.(engine.Publisher); ok {
		return publishKey{}
	}
	return nil
}

type publishKey struct{}

// RunMerged implements engine.Merges.
func (p *publication) RunMerged(ctx context.Context, q engine.Querier, ops []engine.Op, now time.Time) error {
	all := make([]row.Publication, len(ops))
	for i, o := range ops {
		all[i] = o.(*publication).Publication
	}
	offsets, err := p.s.db.engine.Stores.Streams.(engine.Publisher).PublishAll(ctx, q, all, now)
	for i, at := range offsets {
		o := ops[i].(*publication)
		o.first, o.last = at[0], at[1]
	}
	return err
}

// Run implements engine.Op.
func (p *publication) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	p.first, p.last, err = p.s.db.engine.Stores.Streams.Publish(ctx, q, p.Publication, now)
	return err
}

// added returns the changes to announce when events with the given keys are committed, with a change for each key. No
// keys, or an empty key, stands for events without a key.
func (s *stream) added(keys []string) []wake.Change {
	if len(keys) == 0 {
		return []wake.Change{{Kind: wake.TopicEvent, Name: s.name}}
	}
	changes, seen := make([]wake.Change, 0, 1), make(map[string]bool, 1)
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			changes = append(changes, wake.Event(s.name, key))
		}
	}
	return changes
}

// startPublish reports the start of a publish of n events to the observer.
func (s *stream) startPublish(ctx context.Context, n int, inTx bool) (context.Context, func(observe.OperationEnd)) {
	return s.db.opts.Observer.Begin(ctx, observe.Operation{Verb: "publish", Name: s.name, N: n, Tx: inTx})
}

// published reports published events to the observer.
func (s *stream) published(first, last int64, inTx bool) {
	s.db.opts.Observer.Published(observe.Published{Topic: s.name, First: first, Last: last, Tx: inTx})
}

// Publish appends an event and returns its offset after the commit. It waits for the writer until BusyTimeout has
// passed ([ErrBusy]) or ctx ends; in either case the event is not published. Concurrent calls share commits. Publish
// returns [ErrInvalid] for a pattern, invalid data or an invalid option. Under the ctx of [DB.Tx], it returns
// [ErrInTx].
func (s *Stream[E]) Publish(ctx context.Context, data E, opts ...PublishOption) (int64, error) {
	_, offset, err := publish(ctx, s.stream, "PublishTx", []E{data}, opts)
	return offset, fail("publish", s.name, err)
}

// PublishTx is like [Stream.Publish] but runs within tx. The event exists once tx commits; if tx rolls back, it never
// existed.
func (s *Stream[E]) PublishTx(ctx context.Context, tx Tx, data E, opts ...PublishOption) (int64, error) {
	_, offset, err := publishTx(ctx, s.stream, tx, []E{data}, opts)
	return offset, fail("publish", s.name, err)
}

// PublishMany appends an event for each element of data in a single commit, so either all of them are added or none
// are. The offsets run consecutively from first to last, unless an application's trigger adds events in between. opts
// apply to all events; [EventKeys] provides a key for each. If data is empty, PublishMany returns [ErrInvalid],
// because there is no offset to return. Like [Stream.Publish], it waits for the writer.
func (s *Stream[E]) PublishMany(ctx context.Context, data []E, opts ...PublishOption) (first, last int64, err error) {
	first, last, err = publish(ctx, s.stream, "PublishManyTx", data, opts)
	return first, last, fail("publish", s.name, err)
}

// PublishManyTx is like [Stream.PublishMany] but runs within tx. If it fails, tx must be rolled back.
func (s *Stream[E]) PublishManyTx(ctx context.Context, tx Tx, data []E, opts ...PublishOption) (first, last int64, err error) {
	first, last, err = publishTx(ctx, s.stream, tx, data, opts)
	return first, last, fail("publish", s.name, err)
}

// publish commits an event for each element of data. txForm names the Tx form of the verb.
func publish[E any](ctx context.Context, s *stream, txForm string, data []E, opts []PublishOption) (first, last int64, err error) {
	ctx, ended := s.startPublish(ctx, len(data), false)
	defer func() { ended(observe.OperationEnd{First: first, Last: last, Err: err}) }()
	p, err := newPublication(s, data, opts)
	if err != nil {
		return 0, 0, err
	}
	if err := s.db.engine.Write(ctx, txForm, p); err != nil {
		return 0, 0, err
	}
	s.db.engine.Notifier.Wake(s.added(p.Keys)...)
	s.published(p.first, p.last, false)
	return p.first, p.last, nil
}

// publishTx adds an event for each element of data to tx.
func publishTx[E any](ctx context.Context, s *stream, tx Tx, data []E, opts []PublishOption) (first, last int64, err error) {
	ctx, ended := s.startPublish(ctx, len(data), true)
	defer func() { ended(observe.OperationEnd{First: first, Last: last, Err: err}) }()
	p, err := newPublication(s, data, opts)
	if err != nil {
		return 0, 0, err
	}
	q, err := s.db.join(ctx, tx, s.added(p.Keys)...)
	if err != nil {
		return 0, 0, err
	}
	if err := p.Run(ctx, q, s.db.engine.Now()); err != nil {
		return 0, 0, err
	}
	s.published(p.first, p.last, true)
	return p.first, p.last, nil
}

// logHead tracks the head of a log for a waiting reader. The head goes backward only when a backup is restored over
// the open database. IDs that the reader has already passed are then assigned again, and the reader would miss those
// rows.
type logHead struct {
	of   func(ctx context.Context, q engine.Querier) (int64, error)
	seen int64
}

// passed records that the reader has seen id.
func (h *logHead) passed(id int64) { h.seen = max(h.seen, id) }

// check is called when a read has returned no rows. It returns ErrDatabaseReplaced if the head has gone backward.
// Before the first sleep it only records the head, and only if the head is still unknown, so that a loop that keeps
// up with its events doesn't need another read.
func (h *logHead) check(ctx context.Context, db *DB, slept bool) error {
	if !slept && h.seen > 0 {
		return nil
	}
	return db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		head, err := h.of(ctx, q)
		if err != nil {
			return err
		}
		if head < h.seen {
			return fmt.Errorf("%w: its ids went back from %d to %d, as after a backup was restored over the open file",
				ErrDatabaseReplaced, h.seen, head)
		}
		h.seen = head
		return nil
	})
}
