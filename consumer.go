package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// From is where a consumer or a group begins: [Beginning], [End], [Offset] or [Since].
type From struct {
	kind   fromKind
	offset int64
	since  time.Time
}

type fromKind int

const (
	fromBeginning fromKind = iota
	fromEnd
	fromOffset
	fromTime
)

var (
	// Beginning is before the first event that there is. It is the zero From.
	Beginning = From{kind: fromBeginning}
	// End is after the last event that there is.
	End = From{kind: fromEnd}
)

// Offset is after the event with that offset, whether or not there is one. Negative is
// ErrInvalid.
func Offset(n int64) From { return From{kind: fromOffset, offset: n} }

// Since is before the first event that was created at t or later, to the second; where
// there is none, it is the end. Finding it reads all older events of the topic.
func Since(t time.Time) From { return From{kind: fromTime, since: t} }

func (f From) check() error {
	if f.kind == fromOffset && f.offset < 0 {
		return fmt.Errorf("%w: negative offset %d", ErrInvalid, f.offset)
	}
	return nil
}

// resolve returns the offset after which f lies.
func (f From) resolve(ctx context.Context, q store.Querier, s store.Selection) (int64, error) {
	switch f.kind {
	case fromOffset:
		return f.offset, nil
	case fromEnd:
		return store.Streams{}.Head(ctx, q, s)
	case fromTime:
		first, err := store.Streams{}.FirstSince(ctx, q, s, f.since.Unix())
		if err == nil && first == 0 {
			return store.Streams{}.Head(ctx, q, s)
		}
		return first - 1, err
	}
	return 0, nil
}

// ConsumerInfo is how far a consumer has come.
type ConsumerInfo struct {
	Name      string
	Topic     string    // or the pattern that it follows
	Offset    int64     // everything up to here is handled
	Lag       int64     // events that it has still to see; what its filter leaves out does not count
	CreatedAt time.Time // zero: another binding has made it
	LastAck   time.Time // when the offset was last saved; zero: never, or by another binding
}

// Offset returns how far consumer has come: it has handled everything up to there. 0:
// nothing yet, or there is no such consumer.
func (s *Stream[E]) Offset(ctx context.Context, consumer string) (int64, error) {
	if err := s.s.usableBy(consumer); err != nil {
		return 0, fail("offset", s.s.name, err)
	}
	offset, _, err := store.Consumers{}.Offset(ctx, s.s.db.own, consumer, s.s.name)
	return offset, fail("offset", s.s.name, s.s.db.because(err))
}

func (s *stream) usableBy(consumer string) error {
	return errors.Join(s.usable(), checkName("consumer", consumer))
}

// SaveOffset notes that consumer has handled everything up to offset, and makes the
// consumer if there is none. It never goes back: false when the consumer was that far
// already. Offsets are honker's: all bindings share them.
func (s *Stream[E]) SaveOffset(ctx context.Context, consumer string, offset int64) (bool, error) {
	saved, err := s.s.saveOffset(ctx, "SaveOffsetTx", consumer, offset)
	return saved, fail("save offset", s.s.name, err)
}

func (s *stream) saveOffset(ctx context.Context, twin, consumer string, offset int64) (saved bool, err error) {
	if err := s.checkSave(consumer, offset); err != nil {
		return false, err
	}
	err = s.db.do(ctx, twin, write(func(ctx context.Context, q store.Querier, now time.Time) (err error) {
		saved, err = store.Consumers{}.SaveOffset(ctx, q, consumer, s.name, offset, now.UnixMilli())
		return err
	}))
	return saved, err
}

func (s *stream) checkSave(consumer string, offset int64) error {
	return errors.Join(s.err, checkName("consumer", consumer), Offset(offset).check())
}

// SaveOffsetTx is like [Stream.SaveOffset], within tx.
func (s *Stream[E]) SaveOffsetTx(ctx context.Context, tx Tx, consumer string, offset int64) (bool, error) {
	saved, err := s.s.saveOffsetTx(ctx, tx, consumer, offset)
	return saved, fail("save offset", s.s.name, err)
}

func (s *stream) saveOffsetTx(ctx context.Context, tx Tx, consumer string, offset int64) (bool, error) {
	err := s.checkSave(consumer, offset)
	if err == nil {
		tx, err = s.db.in(ctx, tx)
	}
	if err != nil {
		return false, err
	}
	return store.Consumers{}.SaveOffset(ctx, tx, consumer, s.name, offset, time.Now().UnixMilli())
}

// Seek moves consumer to a place of its own choice, also back; events before it are not
// read, events after it are read again. [ErrNotFound]: there is no such consumer.
//
// A Subscribe that is running keeps its own place and saves over it: seek while none
// runs.
func (s *Stream[E]) Seek(ctx context.Context, consumer string, to From) error {
	if err := errors.Join(s.s.usableBy(consumer), to.check()); err != nil {
		return fail("seek", s.s.name, err)
	}
	found := false
	err := s.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, _ time.Time) error {
		offset, err := to.resolve(ctx, q, s.s.selection(nil))
		if err == nil {
			found, err = store.Consumers{}.SetOffset(ctx, q, consumer, s.s.name, offset)
		}
		return err
	}))
	if err == nil && !found {
		err = fmt.Errorf("consumer %q: %w", consumer, ErrNotFound)
	}
	return fail("seek", s.s.name, err)
}

// Consumers lists the consumers of the topic, or of the pattern, by name, those of other
// bindings included. Counting what they have still to see reads that much.
func (s *Stream[E]) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	infos, err := s.s.consumers(ctx)
	return infos, fail("consumers", s.s.name, err)
}

func (s *stream) consumers(ctx context.Context) ([]ConsumerInfo, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	rows, err := store.Consumers{}.List(ctx, s.db.own, s.name)
	if err != nil {
		return nil, s.db.because(err)
	}
	infos := make([]ConsumerInfo, len(rows))
	for i, c := range rows {
		lag, err := store.Streams{}.Lag(ctx, s.db.own, s.selection(c.Filter), c.Offset)
		if err != nil {
			return nil, s.db.because(err)
		}
		infos[i] = ConsumerInfo{
			Name: c.Name, Topic: c.Topic, Offset: c.Offset, Lag: lag,
			CreatedAt: instantMS(c.CreatedMS), LastAck: instantMS(c.LastAckMS),
		}
	}
	return infos, nil
}

// DeleteConsumer forgets a consumer and how far it has come, so that it no longer keeps
// events from [Stream.Compact]. false: there was none.
func (s *Stream[E]) DeleteConsumer(ctx context.Context, consumer string) (deleted bool, err error) {
	if err := errors.Join(s.s.err, checkName("consumer", consumer)); err != nil {
		return false, fail("delete consumer", s.s.name, err)
	}
	err = s.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, _ time.Time) (err error) {
		deleted, err = store.Consumers{}.Drop(ctx, q, consumer, s.s.name)
		return err
	}))
	return deleted, fail("delete consumer", s.s.name, err)
}
