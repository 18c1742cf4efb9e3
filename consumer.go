package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// From is the position at which a consumer or a group begins: [Beginning], [End], [Offset] or [Since].
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
	// Beginning is the position before the first event in the stream. It is the zero From.
	Beginning = From{kind: fromBeginning}
	// End is the position after the last event in the stream.
	End = From{kind: fromEnd}
)

// Offset returns the position after the event with offset n, whether or not that event exists. If n is negative, any
// call that uses the position returns [ErrInvalid].
func Offset(n int64) From { return From{kind: fromOffset, offset: n} }

// Since returns the position before the first event created at or after t, to the second. If there is no such event,
// the position is the end of the stream. Finding this position reads all older events in the topic.
func Since(t time.Time) From { return From{kind: fromTime, since: t} }

func (f From) check() error {
	if f.kind == fromOffset && f.offset < 0 {
		return fmt.Errorf("%w: negative offset %d", ErrInvalid, f.offset)
	}
	return nil
}

// position converts f for the store.
func (f From) position() row.Position {
	switch f.kind {
	case fromOffset:
		return row.Position{After: f.offset}
	case fromEnd:
		return row.Position{End: true}
	case fromTime:
		if f.since.IsZero() {
			return row.Position{Since: f.since.Add(1)} // the zero time would mean that Since is unset
		}
		return row.Position{Since: f.since}
	}
	return row.Position{}
}

// start returns the offset at which a reader starting from f begins, and the offset up to which events have been
// deleted.
func (s *stream) start(ctx context.Context, q engine.Querier, f From) (row.Start, error) {
	return s.db.engine.Stores.Streams.Start(ctx, q, s.selection(nil), f.position())
}

// ConsumerInfo describes the progress of a consumer.
type ConsumerInfo struct {
	Name      string
	Topic     string    // or the pattern that the consumer reads
	Offset    int64     // all events up to this offset are handled
	Lag       int64     // number of events that the consumer has yet to see and that match its filter
	Gone      int64     // events between Offset and Gone were deleted by retention before the consumer saw them; 0 if it missed none
	CreatedAt time.Time // zero if another binding created the consumer
	LastAck   time.Time // when the offset was last saved; zero if never, or by another binding
}

func (s *stream) checkConsumer(name string) error {
	return errors.Join(s.err, engine.CheckName("consumer", name))
}

// Offset returns the offset up to which consumer has handled all events. It returns 0 if consumer hasn't handled any
// events or does not exist. Offset never waits for the writer.
func (s *Stream[E]) Offset(ctx context.Context, consumer string) (int64, error) {
	offset, err := s.savedOffset(ctx, consumer)
	return offset, fail("offset", s.name, err)
}

func (s *stream) savedOffset(ctx context.Context, consumer string) (offset int64, err error) {
	if err := s.checkConsumer(consumer); err != nil {
		return 0, err
	}
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		c, _, err := s.db.engine.Stores.Consumers.Get(ctx, q, consumer, s.name)
		offset = c.Offset
		return err
	})
	return offset, err
}

// SaveOffset records that consumer has handled all events up to offset, and creates the consumer if necessary. The
// offset never moves backward: SaveOffset returns false if consumer has already reached it. The offsets are shared
// with all other honker bindings. SaveOffset waits for the writer until ctx ends or BusyTimeout has passed. If offset
// is negative, it returns [ErrInvalid].
func (s *Stream[E]) SaveOffset(ctx context.Context, consumer string, offset int64) (bool, error) {
	saved, err := s.saveOffset(ctx, "SaveOffsetTx", consumer, offset)
	return saved, fail("save offset", s.name, err)
}

func (s *stream) saveOffset(ctx context.Context, txForm, consumer string, offset int64) (saved bool, err error) {
	if err := s.checkSave(consumer, offset); err != nil {
		return false, err
	}
	err = s.db.engine.Write(ctx, txForm, engine.OpFunc(func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		saved, err = s.db.engine.Stores.Consumers.SaveOffset(ctx, q, consumer, s.name, offset, now)
		return err
	}))
	return saved, err
}

func (s *stream) checkSave(consumer string, offset int64) error {
	return errors.Join(s.checkConsumer(consumer), Offset(offset).check())
}

// SaveOffsetTx is like [Stream.SaveOffset] but runs within tx.
func (s *Stream[E]) SaveOffsetTx(ctx context.Context, tx Tx, consumer string, offset int64) (bool, error) {
	saved, err := s.saveOffsetTx(ctx, tx, consumer, offset)
	return saved, fail("save offset", s.name, err)
}

func (s *stream) saveOffsetTx(ctx context.Context, tx Tx, consumer string, offset int64) (bool, error) {
	if err := s.checkSave(consumer, offset); err != nil {
		return false, err
	}
	q, err := s.db.join(ctx, tx)
	if err != nil {
		return false, err
	}
	return s.db.engine.Stores.Consumers.SaveOffset(ctx, q, consumer, s.name, offset, s.db.engine.Now())
}

// Seek moves consumer to any position, forward or backward. Events before the position are skipped, and events
// after it are read, possibly for a second time. Seek returns [ErrNotFound] if the consumer does not exist. It
// waits for the writer until ctx ends or BusyTimeout has passed.
//
// A running Subscribe or Consume keeps its own position and would overwrite the new one, so call Seek only while
// neither is running. A [Pipe] continues from the new position.
//
// Seeking to a position before events that retention has deleted is not an error: the consumer continues with
// the first remaining event. Seek logs the gap, and [ConsumerInfo.Gone] shows it until the consumer has passed
// it. Use [Stream.Compacted] to check beforehand.
func (s *Stream[E]) Seek(ctx context.Context, consumer string, to From) error {
	return fail("seek", s.name, s.seek(ctx, alone("SeekTx"), consumer, to))
}

// SeekTx is like [Stream.Seek] but runs within tx. To rebuild a read model, empty it and seek to the beginning in the
// same transaction.
func (s *Stream[E]) SeekTx(ctx context.Context, tx Tx, consumer string, to From) error {
	return fail("seek", s.name, s.seek(ctx, within(tx), consumer, to))
}

func (s *stream) seek(ctx context.Context, c carrier, consumer string, to From) error {
	if err := errors.Join(s.checkConsumer(consumer), to.check()); err != nil {
		return err
	}
	audit := s.db.engine.AuditActor(ctx, "seek", "topic", s.name, "consumer", consumer)
	var at row.Start
	return s.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		var found bool
		if at, found, err = s.db.engine.Stores.Consumers.Seek(ctx, q, consumer, s.name, to.position()); err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("consumer %q: %w", consumer, ErrNotFound)
		}
		return audit.NoteOne(ctx, q, now)
	}, func() { s.logIfGone("consumer", consumer, at) })
}

// Consumers lists the consumers of the topic or pattern, sorted by name, including those of other bindings. It never
// waits for the writer. To compute lag, it reads every event that a consumer has yet to see. It checks ctx between
// consumers.
func (s *Stream[E]) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	infos, err := s.listConsumers(ctx)
	return infos, fail("list consumers", s.name, err)
}

func (s *stream) listConsumers(ctx context.Context) ([]ConsumerInfo, error) {
	if s.err != nil {
		return nil, s.err
	}
	var rows []row.Consumer
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		rows, err = s.db.engine.Stores.Consumers.List(ctx, q, s.name)
		return err
	})
	if err != nil {
		return nil, err
	}
	infos := make([]ConsumerInfo, 0, len(rows))
	for _, c := range rows {
		if c.Unreadable != nil {
			s.db.opts.Logger.Warn("honker: unreadable consumer omitted from the list", "topic", c.Topic, "consumer", c.Name, "error", c.Unreadable)
			continue
		}
		info := ConsumerInfo{
			Name: c.Name, Topic: c.Topic, Offset: c.Offset,
			CreatedAt: c.CreatedAt, LastAck: c.LastAck,
		}
		err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			if info.Lag, err = s.db.lag(ctx, q, s.selection(c.Filter), c.Offset); err != nil {
				return err
			}
			start, err := s.start(ctx, q, Beginning)
			if start.Gone > c.Offset {
				info.Gone = start.Gone
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// lag counts the selected events after the given offset, by reading them all.
func (db *DB) lag(ctx context.Context, q engine.Querier, s row.Selection, after int64) (int64, error) {
	ahead, err := db.engine.Stores.Streams.Ahead(ctx, q, s, after, row.Unbounded)
	return ahead.N, err
}

// DeleteConsumer deletes a consumer and its offset. After that, [Stream.Compact] may delete events that the consumer has
// not seen. DeleteConsumer returns false if there is no such consumer. It waits for the writer until ctx ends or
// BusyTimeout has passed.
func (s *Stream[E]) DeleteConsumer(ctx context.Context, consumer string) (bool, error) {
	deleted, err := s.deleteConsumer(ctx, alone("DeleteConsumerTx"), consumer)
	return deleted, fail("delete consumer", s.name, err)
}

// DeleteConsumerTx is like [Stream.DeleteConsumer] but runs within tx.
func (s *Stream[E]) DeleteConsumerTx(ctx context.Context, tx Tx, consumer string) (bool, error) {
	deleted, err := s.deleteConsumer(ctx, within(tx), consumer)
	return deleted, fail("delete consumer", s.name, err)
}

func (s *stream) deleteConsumer(ctx context.Context, c carrier, consumer string) (deleted bool, err error) {
	if err := s.checkConsumer(consumer); err != nil {
		return false, err
	}
	audit := s.db.engine.AuditActor(ctx, "delete consumer", "topic", s.name, "consumer", consumer)
	err = s.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) (err error) {
		if deleted, err = s.db.engine.Stores.Consumers.Drop(ctx, q, consumer, s.name); err != nil || !deleted {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, noted)
	return deleted, err
}
