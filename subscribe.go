package honker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// SubscribeOptions of one Subscribe. The zero value of a field means its default.
type SubscribeOptions struct {
	From         From          // where a consumer begins that is new; default Beginning
	Filter       Filter        // nil: all events
	Batch        int           // events per read from the file; default the stream's
	SaveEvery    int           // save the offset after so many events; default 1000; negative: never by count
	SaveInterval time.Duration // and after that time; default 1s; negative: never by time
}

const saveInterval = time.Second

func (o *SubscribeOptions) withDefaults(s *stream) (SubscribeOptions, *store.Filter, error) {
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
		out.SaveEvery = defaultBatch
	}
	if out.SaveInterval == 0 {
		out.SaveInterval = saveInterval
	}
	filter, err := filterOf(out.Filter)
	return out, filter, errors.Join(out.From.check(), err)
}

// Subscribe yields events to consumer, in order: those after the offset that was saved
// for it, and then each new one, by any process, as it is committed. It waits without
// polling until ctx ends.
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
// An event whose payload does not decode into E is yielded with an error, and the loop
// may go on. Any other error, also the end of ctx, comes without an event and is the
// last: if ctx.Err() is not nil then, the loop has ended as it was told to.
func (s *Stream[E]) Subscribe(ctx context.Context, consumer string, opts *SubscribeOptions) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		f, err := s.s.subscribe(ctx, consumer, opts)
		if err == nil {
			err = follow(ctx, f, yield)
		}
		if err != nil {
			yield(nil, fail("subscribe", s.s.name, err))
		}
	}
}

// Tail is like [Stream.Subscribe] for nobody: it yields the events from a place on, and
// each new one, and saves nothing. nil is no filter.
func (s *Stream[E]) Tail(ctx context.Context, from From, filter Filter) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		f, err := s.s.tail(ctx, from, filter)
		if err == nil {
			err = follow(ctx, f, yield)
		}
		if err != nil {
			yield(nil, fail("tail", s.s.name, err))
		}
	}
}

// follow yields events until something fails, or the body breaks off.
func follow[E any](ctx context.Context, f *follower, yield func(*Event[E], error) bool) error {
	defer f.close()
	for {
		row, err := f.await(ctx)
		if err != nil {
			return err
		}
		e, err := newEvent[E](row)
		if f.consumer != "" {
			e.by = f
		}
		offset := e.Offset // the body has e
		goOn := yield(e, err)
		f.done(offset)
		if !goOn {
			return nil
		}
		if err := f.saveIfDue(ctx); err != nil {
			return err
		}
	}
}

// follower is a Subscribe that is running: a cursor that waits, and how far it has been
// handled.
type follower struct {
	*cursor
	consumer string // "": nobody
	opts     SubscribeOptions
	handled  int64 // everything up to here
	saved    int64
	events   int // handled since the last save
	savedAt  time.Time
}

func (s *stream) subscribe(ctx context.Context, consumer string, opts *SubscribeOptions) (*follower, error) {
	o, filter, err := opts.withDefaults(s)
	if err := errors.Join(s.usableBy(consumer), err, inTx(ctx, s.db, "")); err != nil {
		return nil, err
	}
	at, err := s.attend(ctx, consumer, o.From, filter)
	if err != nil {
		return nil, err
	}
	f := s.follower(filter, at)
	f.consumer, f.opts, f.limit = consumer, o, o.Batch
	return f, nil
}

func (s *stream) tail(ctx context.Context, from From, filter Filter) (*follower, error) {
	only, err := filterOf(filter)
	if err := errors.Join(s.usable(), from.check(), err); err != nil {
		return nil, err
	}
	at, err := from.resolve(context.WithoutCancel(ctx), s.db.own, s.selection(nil))
	return s.follower(only, at), s.db.because(err)
}

func (s *stream) follower(f *store.Filter, at int64) *follower {
	return &follower{cursor: s.cursor(f, at), handled: at, saved: at, savedAt: time.Now()}
}

// attend returns where consumer stands. A new one gets its row now: what it has still to
// see must not be compacted away.
func (s *stream) attend(ctx context.Context, consumer string, from From, f *store.Filter) (at int64, err error) {
	if ctx.Err() != nil {
		return 0, ended(ctx)
	}
	at, same, err := store.Consumers{}.AsDescribed(context.WithoutCancel(ctx), s.db.own, consumer, s.name, f)
	if err != nil || same {
		return at, s.db.because(err)
	}
	err = s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
		begin, err := from.resolve(ctx, q, s.selection(nil))
		if err == nil {
			at, err = store.Consumers{}.Add(ctx, q, consumer, s.name, begin, f, now.UnixMilli())
		}
		return err
	}))
	return at, err
}

// await returns the next event. While it waits, time may come to save.
func (f *follower) await(ctx context.Context) (*store.Event, error) {
	for {
		if row, err := f.next(ctx); row != nil || err != nil {
			return row, err
		}
		f.handled = f.at
		if err := f.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// sleep returns when there may be something to read. Close waits for a loop that sleeps,
// so that it can save; a body that runs it does not wait for.
func (f *follower) sleep(ctx context.Context) error {
	ctx, leave, err := f.s.db.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err = f.doze(ctx); err != nil {
		f.close()
	}
	return err
}

func (f *follower) doze(ctx context.Context) error {
	s := f.s.db.hub.subscribe(topic{streamTopic, f.s.name})
	defer s.leave()
	moved, err := f.read(ctx) // after subscribing: a commit between is not missed
	if err != nil || moved {
		return err
	}
	if !f.worthSaving() || f.opts.SaveInterval < 0 {
		return s.wait(ctx)
	}
	if err := s.waitFor(ctx, time.Until(f.savedAt.Add(f.opts.SaveInterval))); err != nil {
		return err
	}
	return f.saveIfDue(ctx)
}

func (f *follower) done(offset int64) {
	f.handled = offset
	f.events++
}

// skipped is how far a consumer gets past events that it does not see before that alone
// is worth a commit.
const skipped = 1000

func (f *follower) worthSaving() bool {
	return f.consumer != "" && f.handled > f.saved && (f.events > 0 || f.handled-f.saved >= skipped)
}

func (f *follower) saveIfDue(ctx context.Context) error {
	byCount := f.opts.SaveEvery > 0 && f.events >= f.opts.SaveEvery
	byTime := f.opts.SaveInterval > 0 && time.Since(f.savedAt) >= f.opts.SaveInterval
	if !f.worthSaving() || !byCount && !byTime {
		return nil
	}
	return f.save(ctx)
}

func (f *follower) save(ctx context.Context) error {
	_, err := f.s.saveOffset(ctx, "AckTx", f.consumer, f.handled)
	if err == nil {
		f.saved, f.savedAt, f.events = f.handled, time.Now(), 0
	}
	return err
}

// close saves the rest, also when the body has panicked: its event is not handled.
func (f *follower) close() {
	manual := f.opts.SaveEvery < 0 && f.opts.SaveInterval < 0
	if f.consumer == "" || manual || f.handled <= f.saved {
		return
	}
	if err := f.save(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
		f.s.db.opts.Logger.Warn("honker: the last offset was not saved, its events will come again",
			"stream", f.s.name, "consumer", f.consumer, "error", err)
	}
}
