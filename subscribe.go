package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/wake"
)

// SubscribeOptions configures a call to Subscribe or Consume. Zero fields select the defaults.
type SubscribeOptions struct {
	From         From          // start position of a new consumer; default Beginning
	Filter       Filter        // nil means all events
	Batch        int           // number of events per read from the file; default is the stream's Batch
	SaveEvery    int           // number of handled events after which the offset is saved; default 1000; negative disables saving by count
	SaveInterval time.Duration // time after which the offset is saved; default 1s; negative disables saving by time
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
		return out, nil, fmt.Errorf("%w: negative Batch %d", ErrInvalid, out.Batch)
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

// Subscribe returns an iterator over the events for consumer, in order. It begins after the offset saved for consumer
// and then yields each new event, published by any process, as it is committed. It waits without polling and ends
// silently when ctx ends. A nil opts means defaults.
//
// An event counts as handled when the body returns, including by break, but not when it panics. The offset of
// the last handled event is saved every SaveEvery events or SaveInterval, and when the loop ends. After a crash
// the consumer receives the events after the saved offset again, so delivery is at least once. If both SaveEvery
// and SaveInterval are negative, only [Event.Ack], [Event.AckTx] and [Stream.SaveOffset] save the offset.
//
// A consumer should have only a single loop at a time, since each loop receives every event. To share the work,
// use [Stream.Group].
//
// If a backup is restored over the open file, offsets that the loop has passed are assigned again. The loop then
// ends with [ErrDatabaseReplaced] so as not to miss events, and saves no further offset.
//
// An event whose payload does not decode into E is yielded with an error, and the loop continues. Any other
// error, such as [ErrClosed] or [ErrInvalid], is yielded without an event and ends the loop.
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

// Tail is like [Stream.Subscribe] without a consumer. It begins at from, continues with each new event, and
// saves no offset. A nil filter selects all events. Tail waits without polling and ends silently when ctx ends.
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

// follow yields events until an error occurs or the body breaks out of the loop.
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

// Consume calls fn for each event of consumer, sequentially and in order. It begins after the offset saved for
// consumer and continues with each new event, published by any process, as it is committed. It blocks, waiting
// without polling, until ctx ends, and then returns nil. The ctx passed to fn ends with ctx. A nil opts means
// defaults.
//
// If fn returns an error, or an event does not decode into E, Consume returns that error. That event is not
// handled and is delivered again by the next Consume. The offset of the last handled event is saved every
// SaveEvery events or SaveInterval, and when Consume returns. If both are negative, only [Event.Ack],
// [Event.AckTx] and [Stream.SaveOffset] save the offset. After a crash the consumer receives the events after
// the saved offset again, so delivery is at least once.
//
// A consumer should have only a single Consume at a time, since each receives every event. To share the work, use
// [Group.Work]. [DB.Close] cancels the ctx of fn and waits for Consume, which returns [ErrClosed]. Consume returns
// [ErrInvalid] if fn is nil or if a name or option is invalid.
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

// consume handles events until an error occurs.
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

// runLoop runs loop with a context that ends with ctx and when the DB is closed. It returns nil if ctx has
// ended, unless loop failed with an unrelated error.
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
		return engine.Cause(run) // ended by Close; functions in the loop only see that their ctx has ended
	}
	return err
}

// subscription is a running Subscribe, Tail, Consume or Pipe. It extends a cursor with waiting and with the
// offset of the last handled event.
type subscription struct {
	*cursor
	consumer string // empty for Tail, which saves no offset
	opts     SubscribeOptions
	offsets  logHead
	handled  int64 // all events up to this offset are handled
	saved    int64
	events   int          // number of events handled since the last save
	ahead    readAhead    // reads the pages until the first wait
	waiter   *wake.Waiter // for new events; nil until the first wait
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
	var start row.Start
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		start, err = s.start(ctx, q, from)
		return err
	})
	return s.subscription(only, start.Offset), err
}

func (s *stream) subscription(f *row.Filter, at int64) *subscription {
	sub := &subscription{cursor: s.cursor(f, at), offsets: logHead{of: s.db.engine.Stores.Streams.Head}, handled: at, saved: at, savedAt: time.Now()}
	sub.ahead.read = sub.readPage
	sub.readPage = sub.ahead.next
	return sub
}

// ensureConsumer returns the offset of consumer. A new consumer gets its row before it has handled any event, so
// that events it has yet to see are not compacted away. If the consumer exists unchanged, nothing is written.
func (s *stream) ensureConsumer(ctx context.Context, consumer string, from From, f *row.Filter) (at int64, err error) {
	same := false
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		c, found, err := s.db.engine.Stores.Consumers.Get(ctx, q, consumer, s.name)
		described := !c.CreatedAt.IsZero() && c.Unreadable == nil
		at, same = c.Offset, found && described && c.Filter.Text() == f.Text()
		return err
	})
	if err != nil || same {
		return at, err
	}
	var added row.AddedConsumer
	err = s.db.engine.Write(ctx, "", engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) error {
		added, err = s.db.engine.Stores.Consumers.Add(ctx, q, row.NewConsumer{
			Topic: s.name, Name: consumer, Filter: f, From: from.position(),
		}, now)
		return err
	}))
	if err == nil && !added.Found {
		s.logIfGone("consumer", consumer, added.Start)
	}
	return added.Offset, err
}

// await returns the next event. While waiting, it saves the offset when a save is due.
func (sub *subscription) await(ctx context.Context) (*row.Event, error) {
	for {
		if len(sub.page) > 0 || !sub.upToDate() {
			row, err := sub.next(ctx)
			if row != nil || err != nil {
				return row, err
			}
		}
		// Events that were read but not selected count as handled.
		sub.handled = sub.at
		if err := sub.waitForEvents(ctx); err != nil {
			return nil, err
		}
	}
}

// upToDate reports whether the last read has reached the end and a later commit wakes the subscription.
func (sub *subscription) upToDate() bool { return sub.end && sub.waiter != nil }

// waitForEvents blocks until there may be events to read. Close waits for a loop that is sleeping here, so that the
// loop can save its offset. Close doesn't wait for a body that is running.
//
// The first call subscribes to the events and then reads, so that no commit in between is missed. The subscription
// lasts until the loop ends, so that later calls may sleep first. From then on reads may be shared. Before, while the loop
// catches up, others rarely need the same page.
func (sub *subscription) waitForEvents(ctx context.Context) error {
	ctx, leave, err := sub.s.db.engine.EnterReading(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err = sub.sleepUntilMoved(ctx); err != nil {
		sub.close()
	}
	return err
}

// sleepUntilMoved reads and sleeps in turn until a read has moved the cursor.
func (sub *subscription) sleepUntilMoved(ctx context.Context) error {
	slept, known := false, sub.upToDate()
	if sub.waiter == nil {
		sub.waiter = sub.s.db.engine.Notifier.Subscribe(wake.Key{Kind: wake.TopicEvent, Name: sub.s.name, Filter: sub.sel.Filter})
		sub.readPage = sub.s.sharer(sub.sel.Filter)
	}
	return sub.waiter.Until(ctx, func() (time.Duration, error) {
		if !known {
			moved, err := sub.look(ctx, slept)
			if err != nil || moved {
				return wake.Done, err
			}
		}
		slept, known = true, false
		return sub.saveOrWait(ctx)
	})
}

// look reads the next page. If there is none, it checks that the offsets have not gone back.
func (sub *subscription) look(ctx context.Context, slept bool) (moved bool, err error) {
	moved, err = sub.read(ctx)
	if err != nil || moved {
		return moved, err
	}
	err = sub.offsets.check(ctx, sub.s.db, slept)
	if errors.Is(err, ErrDatabaseReplaced) {
		sub.saved = sub.handled // an offset from before the restore must not be saved to the restored file
	}
	return false, err
}

// saveOrWait saves the offset if a save is due, and returns the time until the next save.
func (sub *subscription) saveOrWait(ctx context.Context) (time.Duration, error) {
	if err := sub.saveIfDue(ctx); err != nil {
		return wake.Done, err
	}
	if !sub.worthSaving() || sub.opts.SaveInterval < 0 {
		return wake.Forever, nil
	}
	return max(time.Until(sub.savedAt.Add(sub.opts.SaveInterval)), 1), nil
}

// handle records that the event at offset was handled.
func (sub *subscription) handle(offset int64) {
	sub.handled = offset
	sub.offsets.passed(offset)
	sub.events++
}

// skipped is the number of unselected offsets after which a consumer saves its progress even if it has handled
// no event.
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

// close stops sub and saves the remaining progress. If the body panicked, its event does not count as
// handled.
func (sub *subscription) close() {
	sub.stop()
	manual := sub.opts.SaveEvery < 0 && sub.opts.SaveInterval < 0
	if sub.consumer == "" || manual || sub.handled <= sub.saved {
		return
	}
	// Usually the loop's ctx has already ended.
	if err := sub.save(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
		sub.s.db.opts.Logger.Warn("honker: the last offset was not saved, its events will be delivered again",
			"stream", sub.s.name, "consumer", sub.consumer, "error", err)
	}
}

// stop ends the read of the next page and the wait for events.
func (sub *subscription) stop() {
	sub.ahead.stop()
	if sub.waiter != nil {
		sub.waiter.Close()
		sub.waiter = nil
	}
}
