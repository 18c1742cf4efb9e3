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
)

// streamStore are the statements on the table of events.
type streamStore interface {
	Insert(ctx context.Context, q engine.Querier, topic string, key any, payload string, now int64) (int64, error)
	InsertMany(ctx context.Context, q engine.Querier, topic string, keys []any, payloads []string, now int64) (first, last int64, err error)
	Read(ctx context.Context, q engine.Querier, s row.Selection, after, through int64, limit int, into []row.Event) (events []row.Event, more bool, err error)
	Horizon(ctx context.Context, q engine.Querier, s row.Selection, after int64, n int) (last int64, more bool, err error)
	Head(ctx context.Context, q engine.Querier, s row.Selection) (int64, error)
	FirstSince(ctx context.Context, q engine.Querier, s row.Selection, since int64) (int64, error)
	Lag(ctx context.Context, q engine.Querier, s row.Selection, after int64) (int64, error)
	Last(ctx context.Context, q engine.Querier) (int64, error)
	Sequence(ctx context.Context, q engine.Querier) (int64, error)
	TopicsSince(ctx context.Context, q engine.Querier, after int64, limit int) (topics row.Added, n int, last int64, err error)
}

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

// Stream is a durable log of events. The data of an event are an E, stored as JSON. Events
// stay until [Stream.Compact] or [DB.Maintain] deletes them; any number of consumers read at
// their own pace. A Stream is a cheap handle, safe for concurrent use: make it where it is
// needed.
//
// Offsets rise in the order of commits, over all topics of the file: those of one topic
// have gaps. No event ever appears below one that was seen.
type Stream[E any] struct{ *stream }

// stream is a Stream without its type.
type stream struct {
	db   *DB
	name string // a topic, or a pattern
	opts StreamOptions
	err  error // a bad name, option or type, which every verb returns
}

// NewStream returns a handle on a topic, such as "orders" or "orders:created", or, for
// reading, on all topics that begin with what stands before a final *: "orders:*". It
// touches nothing; a bad name or option, or an E of []byte, is [ErrInvalid] from its
// first verb. nil opts means defaults.
func NewStream[E any](db *DB, topic string, opts *StreamOptions) *Stream[E] {
	db.mustExist("NewStream")
	o, err := opts.withDefaults()
	err = errors.Join(err, engine.CheckName("topic", topic), engine.CheckPayloadType(reflect.TypeFor[E]()))
	return &Stream[E]{&stream{db: db, name: topic, opts: o, err: err}}
}

// Name returns the topic or the pattern.
func (s *Stream[E]) Name() string { return s.name }

// Head returns the offset of the last event, 0 for none. It reads and never waits for the
// writer. Of a pattern it reads all events of other topics that came after.
func (s *Stream[E]) Head(ctx context.Context) (int64, error) {
	head, err := s.head(ctx)
	return head, fail("head", s.name, err)
}

func (s *stream) head(ctx context.Context) (head int64, err error) {
	if s.err != nil {
		return 0, s.err
	}
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		head, err = s.db.streams.Head(ctx, q, s.selection(nil))
		return err
	})
	return head, err
}

func (s *stream) selection(f *row.Filter) row.Selection {
	return row.Selection{Topic: s.name, Filter: f}
}

// checkTopic refuses a pattern where one topic is needed.
func (s *stream) checkTopic() error {
	if s.err != nil {
		return s.err
	}
	if s.selection(nil).Pattern() {
		return fmt.Errorf("%w: a pattern of topics is for reading", ErrInvalid)
	}
	return nil
}

// PublishOption configures a single Publish or PublishMany, or their Tx forms.
type PublishOption func(*publishOptions)

// publishOptions is what the options of one call add up to.
type publishOptions struct {
	key  *string  // of EventKey
	keys []string // of EventKeys
	each bool     // EventKeys was given
	err  error
}

// EventKey gives the event, or every event of a batch, one key: what it is about. Filters
// look at it. UTF-8 of at most 1024 bytes without NUL; anything else is [ErrInvalid], and
// so is EventKey together with [EventKeys]. Of several the last counts.
func EventKey(key string) PublishOption {
	return func(o *publishOptions) {
		o.key = &key
		o.err = errors.Join(o.err, checkEventKey(key))
	}
}

// EventKeys gives each event of a batch a key of its own: the first key to the first of
// [Stream.PublishMany]'s data, and so on. Another number of keys than of data is
// [ErrInvalid], and so is a key that [EventKey] would refuse. Of several the last counts.
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

// newPublishOptions adds up opts for n events.
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
		return o, fmt.Errorf("%w: EventKey together with EventKeys", ErrInvalid)
	case o.each && len(o.keys) != n:
		return o, fmt.Errorf("%w: %d keys for %d events", ErrInvalid, len(o.keys), n)
	}
	return o, nil
}

// stored returns the keys as the store takes them: none, one for all, or one for each.
func (o *publishOptions) stored() []any {
	if o.key != nil {
		return []any{*o.key}
	}
	if !o.each {
		return nil
	}
	keys := make([]any, len(o.keys))
	for i, key := range o.keys {
		keys[i] = key
	}
	return keys
}

// publication is one call of a publish verb. It is an engine.Op.
type publication struct {
	s           *stream
	keys        []any // none, one for all, or one for each
	payloads    []string
	first, last int64 // offsets, after Run
}

var _ engine.Op = (*publication)(nil)

// newPublication checks all that a publish verb was given, and encodes the data, so that
// nothing but the file can fail it later.
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
	p := &publication{s: s, keys: o.stored(), payloads: make([]string, len(data))}
	for i, d := range data {
		p.payloads[i], err = s.db.encode(d)
		if err != nil && len(data) > 1 {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(data), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Single implements engine.Op. One event is one statement.
func (p *publication) Single() bool { return len(p.payloads) == 1 }

// Run implements engine.Op.
func (p *publication) Run(ctx context.Context, q engine.Querier, now time.Time) (err error) {
	if len(p.payloads) > 1 {
		p.first, p.last, err = p.s.db.streams.InsertMany(ctx, q, p.s.name, p.keys, p.payloads, now.Unix())
		return err
	}
	var key any // stored as NULL
	if len(p.keys) == 1 {
		key = p.keys[0]
	}
	p.first, err = p.s.db.streams.Insert(ctx, q, p.s.name, key, p.payloads[0], now.Unix())
	p.last = p.first
	return err
}

// added is what the commit of events brings: a change for each of their keys. No keys, and a
// nil one, are those of events without a key.
func (s *stream) added(keys []any) []wake.Change {
	if len(keys) == 0 {
		keys = []any{nil}
	}
	changes, seen := make([]wake.Change, 0, 1), make(map[any]bool, 1)
	for _, key := range keys {
		if seen[key] {
			continue
		}
		seen[key] = true
		text, _ := key.(string)
		changes = append(changes, wake.Change{Kind: wake.TopicEvent, Name: s.name, EventKey: text})
	}
	return changes
}

// began tells the observer of a publish of n events.
func (s *stream) began(ctx context.Context, n int, inTx bool) (context.Context, func(OperationEnd)) {
	return s.db.opts.Observer.began(ctx, Operation{Verb: "publish", Name: s.name, N: n, Tx: inTx})
}

// published tells the observer.
func (s *stream) published(first, last int64, inTx bool) {
	s.db.opts.Observer.Published(Published{Topic: s.name, First: first, Last: last, Tx: inTx})
}

// Publish appends an event and returns its offset when it is committed. It waits for the
// writer until ctx ends, which withdraws the event, or BusyTimeout has passed ([ErrBusy]);
// concurrent calls share commits. A pattern, bad data or a bad option is [ErrInvalid]. The
// ctx of [DB.Tx] is [ErrInTx].
func (s *Stream[E]) Publish(ctx context.Context, data E, opts ...PublishOption) (int64, error) {
	_, offset, err := publish(ctx, s.stream, "PublishTx", []E{data}, opts)
	return offset, fail("publish", s.name, err)
}

// PublishTx is like [Stream.Publish], within tx: the event exists when tx commits, and
// never did when it rolls back.
func (s *Stream[E]) PublishTx(ctx context.Context, tx Tx, data E, opts ...PublishOption) (int64, error) {
	_, offset, err := publishTx(ctx, s.stream, tx, []E{data}, opts)
	return offset, fail("publish", s.name, err)
}

// PublishMany appends an event for each of data in one commit: all of them or none. Their
// offsets follow one another from first to last, unless a trigger of the application's adds
// events of its own in between. opts hold for all of them; [EventKeys] has a key for each. No
// data is [ErrInvalid]: there is no offset to return. It waits as [Stream.Publish] does.
func (s *Stream[E]) PublishMany(ctx context.Context, data []E, opts ...PublishOption) (first, last int64, err error) {
	first, last, err = publish(ctx, s.stream, "PublishManyTx", data, opts)
	return first, last, fail("publish", s.name, err)
}

// PublishManyTx is like [Stream.PublishMany], within tx, which has to be rolled back when
// it fails.
func (s *Stream[E]) PublishManyTx(ctx context.Context, tx Tx, data []E, opts ...PublishOption) (first, last int64, err error) {
	first, last, err = publishTx(ctx, s.stream, tx, data, opts)
	return first, last, fail("publish", s.name, err)
}

// publish commits an event for each of data. txForm is the Tx form of the verb.
func publish[E any](ctx context.Context, s *stream, txForm string, data []E, opts []PublishOption) (first, last int64, err error) {
	ctx, ended := s.began(ctx, len(data), false)
	defer func() { ended(OperationEnd{first, last, err}) }()
	p, err := newPublication(s, data, opts)
	if err != nil {
		return 0, 0, err
	}
	if err := s.db.engine.Write(ctx, txForm, p); err != nil {
		return 0, 0, err
	}
	s.db.engine.Notifier.Wake(s.added(p.keys)...)
	s.published(p.first, p.last, false)
	return p.first, p.last, nil
}

// publishTx adds an event for each of data to tx.
func publishTx[E any](ctx context.Context, s *stream, tx Tx, data []E, opts []PublishOption) (first, last int64, err error) {
	ctx, ended := s.began(ctx, len(data), true)
	defer func() { ended(OperationEnd{first, last, err}) }()
	p, err := newPublication(s, data, opts)
	if err != nil {
		return 0, 0, err
	}
	q, err := s.db.join(ctx, tx, s.added(p.keys)...)
	if err != nil {
		return 0, 0, err
	}
	if err := p.Run(ctx, q, time.Now()); err != nil {
		return 0, 0, err
	}
	s.published(p.first, p.last, true)
	return p.first, p.last, nil
}

// sequence is the last id that a table has given out, as a reader that waits has seen it. It
// goes back only when a backup is restored over the open file: ids that the reader has passed
// are given out again, and it would not see what gets them.
type sequence struct {
	of    func(ctx context.Context, q engine.Querier) (int64, error)
	given int64
}

// passed notes that the reader has seen id.
func (s *sequence) passed(id int64) { s.given = max(s.given, id) }

// check is for a look that has found nothing. It returns ErrDatabaseReplaced when the sequence
// has gone back. Before the first sleep it only learns where the sequence is, if that is not
// known: a loop that keeps up with its events is to cost no read more.
func (s *sequence) check(ctx context.Context, db *DB, slept bool) error {
	if !slept && s.given > 0 {
		return nil
	}
	return db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		given, err := s.of(ctx, q)
		if err != nil {
			return err
		}
		if given < s.given {
			return fmt.Errorf("%w: its ids went back from %d to %d, as when a backup is restored over the open file",
				ErrDatabaseReplaced, s.given, given)
		}
		s.given = given
		return nil
	})
}
