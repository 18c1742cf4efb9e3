package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
	"github.com/honker-go/honker/internal/wake"
)

// SubscribeOptions of one Subscribe or Consume. The zero value of a field means its
// default.
type SubscribeOptions struct {
	From         From          // where a consumer begins that is new; default Beginning
	Filter       Filter        // nil: all events
	Batch        int           // events per read from the file; default the stream's
	SaveEvery    int           // save the offset after so many events; default 1000; negative: never by count
	SaveInterval time.Duration // and after that time; default 1s; negative: never by time
}

const (
	defaultSaveEvery    = 1000
	defaultSaveInterval = time.Second
)

func (o *SubscribeOptions) withDefaults(s *stream) (SubscribeOptions, *row.Filter, error) {
	var out SubscribeOptions
	if o != nil {
		out = *o
	}
	if out.Batch < 0 {
		return out, nil, fmt.Errorf("%w: Batch %d", ErrInvalid, out.Batch)
	}
	if out.Batch == 0 {
		out.Batch = s.opts.Batch
	}
	if out.SaveEvery == 0 {
		out.SaveEvery = defaultSaveEvery
	}
	if out.SaveInterval == 0 {
		out.SaveInterval = defaultSaveInterval
	}
	filter, err := s.filterOf(out.Filter)
	return out, filter, errors.Join(out.From.check(), err)
}

// Read yields the events above offset after that are stored when it begins, in order,
// and ends. It saves nothing and never waits for the writer. No read transaction is held
// while the body runs; what is deleted meanwhile may be missing.
//
// An event with a payload that does not decode into E is yielded with an error, and the loop
// goes on. Any other error, also the end of ctx, comes without an event and is the last. A
// negative offset is [ErrInvalid].
func (s *Stream[E]) Read(ctx context.Context, after int64) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		c, err := s.history(ctx, after)
		if err != nil {
			yield(nil, fail("read", s.name, err))
			return
		}
		for {
			row, err := c.next(ctx)
			if err != nil {
				yield(nil, fail("read", s.name, err))
				return
			}
			if row == nil {
				return
			}
			e, err := newEvent[E](row)
			if !yield(e, readError(row.Offset, err)) {
				return
			}
		}
	}
}

// Subscribe yields events to consumer, in order: those after the offset that was saved
// for it, and then each new one, by any process, as it is committed. It waits without
// polling and ends silently when ctx ends. nil opts means defaults.
//
// An event counts as handled when the body has returned, also by break; not when it
// panics. What is handled is saved every SaveEvery events or SaveInterval, and when the
// loop ends. After a crash the consumer sees again what was not saved: at-least-once.
// With SaveEvery and SaveInterval both negative nothing is saved but by [Event.Ack],
// [Event.AckTx] and [Stream.SaveOffset].
//
// One loop at a time should run for a consumer: two would both see every event. To share
// the work use [Stream.Group].
//
// When a backup is restored over the open file, offsets that the loop has passed are given out
// again: it ends with [ErrDatabaseReplaced] rather than miss events, and saves nothing more.
//
// An event with a payload that does not decode into E is yielded with an error, and the loop
// goes on. Any other error, such as [ErrClosed] or [ErrInvalid], comes without an event and
// is the last.
func (s *Stream[E]) Subscribe(ctx context.Context, consumer string, opts *SubscribeOptions) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		sub, err := s.subscribe(ctx, consumer, opts)
		if err == nil {
			err = follow(ctx, sub, yield)
		}
		if err != nil && !engine.Ended(ctx) {
			yield(nil, fail("subscribe", s.name, err))
		}
	}
}

// Tail is like [Stream.Subscribe] without a consumer: it yields the events from a place on,
// and each new one, and saves nothing. A nil filter is none. It waits without polling and
// ends silently when ctx ends.
func (s *Stream[E]) Tail(ctx context.Context, from From, filter Filter) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		sub, err := s.tail(ctx, from, filter)
		if err == nil {
			err = follow(ctx, sub, yield)
		}
		if err != nil && !engine.Ended(ctx) {
			yield(nil, fail("tail", s.name, err))
		}
	}
}

// follow yields events until something fails or the body breaks off.
func follow[E any](ctx context.Context, sub *subscription, yield func(*Event[E], error) bool) error {
	defer sub.close()
	for {
		row, err := sub.await(ctx)
		if err != nil {
			return err
		}
		offset := row.Offset
		e, err := newEvent[E](row)
		if sub.consumer != "" {
			e.sub = sub
		}
		more := yield(e, readError(offset, err))
		sub.handle(offset)
		if !more {
			return nil
		}
		if err := sub.saveIfDue(ctx); err != nil {
			return err
		}
	}
}

// Consume calls fn for consumer's events, one after another in their order: those after the
// offset that was saved for it, and then each new one, by any process, as it is committed.
// It blocks, waiting without polling, and returns nil when ctx ends, which fn's ctx does
// too. nil opts means defaults.
//
// An error of fn, or an event that does not decode into E, ends Consume with that error:
// the event is not handled, and comes again the next time. What was handled before is
// saved: every SaveEvery events or SaveInterval, and when Consume returns. With both
// negative nothing is saved but by [Event.Ack], [Event.AckTx] and [Stream.SaveOffset].
// After a crash the consumer sees again what was not saved: at-least-once.
//
// One Consume at a time should run for a consumer: two would both see every event. To share
// the work use [Group.Work]. [DB.Close] ends fn's ctx, waits for Consume and lets it return
// [ErrClosed]. A nil fn, or a bad name or option, is [ErrInvalid].
func (s *Stream[E]) Consume(ctx context.Context, consumer string, fn func(context.Context, *Event[E]) error, opts *SubscribeOptions) error {
	if fn == nil {
		return fail("consume", s.name, errNilFunction)
	}
	return fail("consume", s.name, s.db.runLoop(ctx, func(ctx context.Context) error {
		sub, err := s.subscribe(ctx, consumer, opts)
		if err != nil {
			return err
		}
		return consume(ctx, sub, fn)
	}))
}

var errNilFunction = fmt.Errorf("%w: nil function", ErrInvalid)

// consume handles events until something fails.
func consume[E any](ctx context.Context, sub *subscription, fn func(context.Context, *Event[E]) error) error {
	defer sub.close()
	for {
		row, err := sub.await(ctx)
		if err != nil {
			return err
		}
		offset := row.Offset
		e, err := newEvent[E](row)
		if err != nil {
			return fmt.Errorf("event %d: %w", offset, err)
		}
		e.sub = sub
		if err := fn(ctx, e); err != nil {
			return fmt.Errorf("event %d: %w", offset, err)
		}
		sub.handle(offset)
		if err := sub.saveIfDue(ctx); err != nil {
			return err
		}
	}
}

// runLoop runs loop, which the end of ctx and Close end by the ctx that it is given. It
// returns nil when ctx has ended. An error of the loop's own is returned even then.
func (db *DB) runLoop(ctx context.Context, loop func(context.Context) error) error {
	run, leave, err := db.engine.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = loop(run)
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, ErrClosed)) {
		return nil
	}
	if run.Err() != nil && errors.Is(err, run.Err()) {
		return engine.Cause(run) // by Close, which a function in the loop sees as the end of its ctx
	}
	return err
}

// cursor reads selected events page by page.
type cursor struct {
	s       *stream
	sel     row.Selection
	limit   int
	until   int64       // events above are not read
	at      int64       // what is selected up to here was read
	horizon int64       // of a sparse selection: the last row that may be looked at
	page    []row.Event // read, and not yet handed out
	memory  []row.Event // the page as a whole, to be used again
}

// scanRows bounds one look at a sparse selection: some milliseconds.
const scanRows = 20_000

func (s *stream) cursor(f *row.Filter, after int64) *cursor {
	return &cursor{s: s, sel: s.selection(f), limit: s.opts.Batch, until: store.Unbounded, at: after}
}

// history is a cursor that ends at the last event that there is now.
func (s *stream) history(ctx context.Context, after int64) (*cursor, error) {
	if s.err != nil {
		return nil, s.err
	}
	if err := Offset(after).check(); err != nil {
		return nil, err
	}
	c := s.cursor(nil, after)
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		c.until, err = s.db.streams.Last(ctx, q)
		return err
	})
	return c, err
}

// next returns the next event that is stored, valid until the call after; nil when there
// is none. It looks at ctx for each event: handling a page may take long.
func (c *cursor) next(ctx context.Context) (*row.Event, error) {
	if ctx.Err() != nil {
		return nil, engine.Cause(ctx)
	}
	for len(c.page) == 0 {
		moved, err := c.read(ctx)
		if err != nil || !moved {
			return nil, err
		}
	}
	row := &c.page[0]
	c.page = c.page[1:]
	return row, nil
}

// read fills the empty page, or gets past rows that are not selected; false at the end.
func (c *cursor) read(ctx context.Context) (moved bool, err error) {
	err = c.s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		through, err := c.through(ctx, q)
		if err != nil || through <= c.at {
			return err
		}
		rows, more, err := c.s.db.streams.Read(ctx, q, c.sel, c.at, through, c.limit, c.memory[:0])
		if err != nil {
			return err
		}
		c.page, c.memory = rows, rows
		switch {
		case len(rows) > 0 && (more || !c.sel.Sparse()):
			c.at = rows[len(rows)-1].Offset
		case c.sel.Sparse():
			c.at = through // nothing else below it is selected
		default:
			return nil
		}
		moved = true
		return nil
	})
	return moved, err
}

// through is how far the next read may look.
func (c *cursor) through(ctx context.Context, q engine.Querier) (int64, error) {
	if !c.sel.Sparse() {
		return c.until, nil
	}
	if c.horizon <= c.at {
		horizon, _, err := c.s.db.streams.Horizon(ctx, q, c.sel, c.at, scanRows)
		if err != nil {
			return 0, err
		}
		c.horizon = horizon
	}
	return min(c.horizon, c.until), nil
}

// subscription is a Subscribe, Tail, Consume or Pipe that is running: a cursor that waits,
// and how far the events have been handled.
type subscription struct {
	*cursor
	consumer string // "" for Tail, which saves nothing
	opts     SubscribeOptions
	offsets  sequence
	handled  int64 // everything up to here
	saved    int64
	events   int // handled since the last save
	savedAt  time.Time
}

func (s *stream) subscribe(ctx context.Context, consumer string, opts *SubscribeOptions) (*subscription, error) {
	o, filter, err := opts.withDefaults(s)
	if err := errors.Join(s.checkConsumer(consumer), err); err != nil {
		return nil, err
	}
	if err := errors.Join(s.db.engine.Writable(), s.db.engine.RefuseInTx(ctx, "")); err != nil {
		return nil, err
	}
	at, err := s.ensureConsumer(ctx, consumer, o.From, filter)
	if err != nil {
		return nil, err
	}
	sub := s.subscription(filter, at)
	sub.consumer, sub.opts, sub.limit = consumer, o, o.Batch
	return sub, nil
}

func (s *stream) tail(ctx context.Context, from From, filter Filter) (*subscription, error) {
	only, err := s.filterOf(filter)
	if err := errors.Join(s.err, from.check(), err, s.db.engine.RefuseInTx(ctx, "Read")); err != nil {
		return nil, err
	}
	var at int64
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		at, err = s.resolve(ctx, q, from)
		return err
	})
	return s.subscription(only, at), err
}

func (s *stream) subscription(f *row.Filter, at int64) *subscription {
	return &subscription{cursor: s.cursor(f, at), offsets: sequence{of: s.db.streams.Sequence}, handled: at, saved: at, savedAt: time.Now()}
}

// ensureConsumer returns the offset of consumer. A new one gets its row now, before it has
// handled anything: what it has yet to see must not be compacted away.
func (s *stream) ensureConsumer(ctx context.Context, consumer string, from From, f *row.Filter) (at int64, err error) {
	same := false
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		at, same, err = s.db.consumers.AsDescribed(ctx, q, consumer, s.name, f)
		return err
	})
	if err != nil || same {
		return at, err
	}
	added, gone := false, int64(0)
	err = s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		_, found, err := s.db.consumers.Offset(ctx, q, consumer, s.name)
		if err != nil {
			return err
		}
		var begin int64
		if begin, gone, err = s.begin(ctx, q, from); err != nil {
			return err
		}
		added = !found
		at, err = s.db.consumers.Add(ctx, q, consumer, s.name, begin, f, now.UnixMilli())
		return err
	}))
	if err == nil && added {
		s.logIfGone("consumer", consumer, at, gone)
	}
	return at, err
}

// await returns the next event. While it waits, time may come to save.
func (sub *subscription) await(ctx context.Context) (*row.Event, error) {
	for {
		row, err := sub.next(ctx)
		if row != nil || err != nil {
			return row, err
		}
		// What was read and not selected counts as handled.
		sub.handled = sub.at
		if err := sub.waitForEvents(ctx); err != nil {
			return nil, err
		}
	}
}

// waitForEvents returns when there may be something to read. Close waits for a loop that
// sleeps here, so that it can save; it does not wait for a body that runs.
func (sub *subscription) waitForEvents(ctx context.Context) error {
	ctx, leave, err := sub.s.db.engine.EnterReading(ctx)
	if err != nil {
		return err
	}
	defer leave()
	slept := false
	look := func() (time.Duration, error) {
		moved, err := sub.read(ctx)
		if err != nil || moved {
			return wake.Done, err
		}
		err = sub.offsets.check(ctx, sub.s.db, slept)
		if errors.Is(err, ErrDatabaseReplaced) {
			sub.saved = sub.handled // an offset of before must not be saved among those of now
		}
		if err != nil {
			return wake.Done, err
		}
		slept = true
		return sub.saveOrWait(ctx)
	}
	err = sub.s.db.engine.Notifier.Until(ctx, look, wake.Key{Kind: wake.TopicEvent, Name: sub.s.name, Filter: sub.sel.Filter})
	if err != nil {
		sub.close()
	}
	return err
}

// saveOrWait saves if it is time to, and returns when it will be.
func (sub *subscription) saveOrWait(ctx context.Context) (time.Duration, error) {
	if err := sub.saveIfDue(ctx); err != nil {
		return wake.Done, err
	}
	if !sub.worthSaving() || sub.opts.SaveInterval < 0 {
		return wake.Forever, nil
	}
	return max(time.Until(sub.savedAt.Add(sub.opts.SaveInterval)), 1), nil
}

// handle notes that the event at offset was handled.
func (sub *subscription) handle(offset int64) {
	sub.handled = offset
	sub.offsets.passed(offset)
	sub.events++
}

// skipped is how far a consumer gets past events that it does not see before that alone
// is worth a commit.
const skipped = 1000

func (sub *subscription) worthSaving() bool {
	return sub.consumer != "" && sub.handled > sub.saved && (sub.events > 0 || sub.handled-sub.saved >= skipped)
}

func (sub *subscription) saveIfDue(ctx context.Context) error {
	byCount := sub.opts.SaveEvery > 0 && sub.events >= sub.opts.SaveEvery
	byTime := sub.opts.SaveInterval > 0 && time.Since(sub.savedAt) >= sub.opts.SaveInterval
	if !sub.worthSaving() || !byCount && !byTime {
		return nil
	}
	return sub.save(ctx)
}

func (sub *subscription) save(ctx context.Context) error {
	if _, err := sub.s.saveOffset(ctx, "AckTx", sub.consumer, sub.handled); err != nil {
		return err
	}
	sub.saved, sub.savedAt, sub.events = sub.handled, time.Now(), 0
	return nil
}

// close saves the rest, also when the body has panicked: its event is not handled.
func (sub *subscription) close() {
	manual := sub.opts.SaveEvery < 0 && sub.opts.SaveInterval < 0
	if sub.consumer == "" || manual || sub.handled <= sub.saved {
		return
	}
	// The loop's ctx has ended in most cases.
	if err := sub.save(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
		sub.s.db.opts.Logger.Warn("honker: the last offset was not saved, its events will come again",
			"stream", sub.s.name, "consumer", sub.consumer, "error", err)
	}
}
