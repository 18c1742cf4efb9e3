package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// retentionStore are the statements about what is kept, and those that delete what is not.
type retentionStore interface {
	Set(ctx context.Context, q engine.Querier, r row.Retention) error
	Get(ctx context.Context, q engine.Querier, topic string) (row.Retention, error)
	Topics(ctx context.Context, q engine.Querier) ([]string, error)
	Cutoff(ctx context.Context, q engine.Querier, r row.Retention, now int64) (int64, error)
	LowestPin(ctx context.Context, q engine.Querier, topic string) (lowest row.Pin, found bool, err error)
	Compacted(ctx context.Context, q engine.Querier, s row.Selection) (through int64, err error)
	Compact(ctx context.Context, q engine.Querier, topic string, after, cutoff int64, limit int) (n int, last int64, err error)

	SetQueue(ctx context.Context, q engine.Querier, r row.QueueRetention) (changed bool, err error)
	GetQueue(ctx context.Context, q engine.Querier, queue string) (row.QueueRetention, error)
	Queues(ctx context.Context, q engine.Querier) ([]row.QueueRetention, error)
}

// Retention says how much of a topic is kept, or, in a [QueueRetention], of the jobs of a queue.
// Zero is no bound; the zero Retention keeps every event. An event that falls under either bound
// is deleted once every consumer and every group has seen it.
type Retention struct {
	MaxCount int64         // the newest so many
	MaxAge   time.Duration // rounded up to seconds
}

func (r Retention) check() error {
	if r.MaxCount < 0 {
		return fmt.Errorf("%w: negative MaxCount %d", ErrInvalid, r.MaxCount)
	}
	return engine.NotNegative("MaxAge", r.MaxAge)
}

// SetRetention keeps r in the file: it holds for all processes and handles. Events are
// deleted when [Stream.Compact] or [DB.Maintain] runs. It waits for the writer until ctx
// ends or BusyTimeout has passed. A pattern, or a negative bound, is [ErrInvalid].
func (s *Stream[E]) SetRetention(ctx context.Context, r Retention) error {
	return fail("set retention", s.name, s.setRetention(ctx, alone("SetRetentionTx"), r))
}

// SetRetentionTx is like [Stream.SetRetention], within tx.
func (s *Stream[E]) SetRetentionTx(ctx context.Context, tx Tx, r Retention) error {
	return fail("set retention", s.name, s.setRetention(ctx, within(tx), r))
}

func (s *stream) setRetention(ctx context.Context, c carrier, r Retention) error {
	if err := errors.Join(s.checkTopic(), r.check()); err != nil {
		return err
	}
	row := r.row()
	row.Topic = s.name
	audit := engine.AuditActor(ctx, "set retention", "topic", s.name)
	return s.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) error {
		if err := s.db.retentions.Set(ctx, q, row); err != nil {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, noted)
}

// Retention returns how much of the topic is kept. It reads and never waits for the
// writer. A pattern is [ErrInvalid].
func (s *Stream[E]) Retention(ctx context.Context) (Retention, error) {
	r, err := s.retention(ctx)
	return r, fail("retention", s.name, err)
}

func (s *stream) retention(ctx context.Context) (Retention, error) {
	if err := s.checkTopic(); err != nil {
		return Retention{}, err
	}
	var r Retention
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		row, err := s.db.retentions.Get(ctx, q, s.name)
		r = retentionOf(row)
		return err
	})
	return r, err
}

// Compacted returns the offset of the last event of the topic, or of the topics of the pattern, that
// [Stream.Compact] or [DB.Maintain] has deleted; 0: none. A reader that begins below it does not see all
// that was published: before a projection is rebuilt from the beginning, Compacted tells whether the
// stream still has that. Below it a topic has no events but the dead ones of a group; a pattern has those
// of topics that keep more.
//
// It reads and never waits for the writer, and under the ctx of [DB.Tx] it reads in the transaction. Events
// that another program has deleted are not known.
func (s *Stream[E]) Compacted(ctx context.Context) (int64, error) {
	through, err := s.compacted(ctx)
	return through, fail("compacted", s.name, err)
}

func (s *stream) compacted(ctx context.Context) (through int64, err error) {
	if s.err != nil {
		return 0, s.err
	}
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		through, err = s.db.retentions.Compacted(ctx, q, s.selection(nil))
		return err
	})
	return through, err
}

// logIfGone logs that a consumer or a group begins at offset and does not see all that was published, if
// retention has deleted events above it, up to gone. A new reader of a topic that keeps little is no failure, so it
// is no warning.
func (s *stream) logIfGone(kind, name string, offset, gone int64) {
	if offset < gone {
		s.db.opts.Logger.Info("honker: a reader begins before events that retention has deleted, and does not see them",
			"topic", s.name, kind, name, "offset", offset, "gone", gone)
	}
}

// CompactStats says what a Compact did.
type CompactStats struct {
	Deleted  int64
	Policy   int64  // the topic's Retention drops events up to here
	Cutoff   int64  // events up to here could be deleted: every consumer and group has seen them
	PinnedBy string // the reader that has yet to see the next event to be dropped, such as `consumer "mail"`; "": none
}

// Compact deletes the events that the topic's [Retention] drops. It blocks until that is
// done, in transactions of some milliseconds with pauses between them, in which other
// writers get the file. When ctx ends it returns the error of ctx, and what was deleted
// until then.
//
// It never deletes what a consumer of any binding, or a group, has yet to see; dead events
// of a group stay too. A consumer that was permanently removed keeps events for ever, until
// [Stream.DeleteConsumer]. A pattern is [ErrInvalid].
func (s *Stream[E]) Compact(ctx context.Context) (CompactStats, error) {
	stats, err := s.compact(ctx)
	return stats, fail("compact", s.name, err)
}

func (s *stream) compact(ctx context.Context) (CompactStats, error) {
	c := compaction{s: s, Pace: s.db.engine.NewPace()}
	if err := s.checkTopic(); err != nil {
		return c.stats, err
	}
	if err := errors.Join(s.db.engine.Writable(), s.db.engine.RefuseInTx(ctx, "")); err != nil {
		return c.stats, err
	}
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		r, err := s.db.retentions.Get(ctx, q, s.name)
		if err != nil {
			return err
		}
		c.stats.Policy, err = s.db.retentions.Cutoff(ctx, q, r, time.Now().Unix())
		return err
	})
	if err != nil || c.stats.Policy == 0 {
		return c.stats, err
	}
	for !c.done {
		if err := c.deleteChunk(ctx); err != nil {
			return c.stats, err
		}
	}
	return c.stats, nil
}

// compaction is a Compact that is running.
type compaction struct {
	*engine.Pace
	s     *stream
	stats CompactStats
	after int64 // up to here is deleted
	done  bool
}

// deleteChunk deletes some events. What pins them is read anew each time, in the
// transaction: a consumer may have been added since.
func (c *compaction) deleteChunk(ctx context.Context) error {
	retentions, topic := c.s.db.retentions, c.s.name
	n, last := 0, int64(0)
	err := c.Write(ctx, func(ctx context.Context, q engine.Querier, _ time.Time) error {
		pin, pinned, err := retentions.LowestPin(ctx, q, topic)
		if err != nil {
			return err
		}
		c.limit(pin, pinned)
		n, last, err = retentions.Compact(ctx, q, topic, c.after, c.stats.Cutoff, c.Size)
		return err
	})
	if err != nil {
		return err
	}
	c.stats.Deleted += int64(n)
	c.after = last
	c.done = n < c.Size
	if c.done {
		return nil
	}
	return c.Rest(ctx)
}

// limit says how far events may be deleted, given the reader that has seen least.
func (c *compaction) limit(pin row.Pin, pinned bool) {
	c.stats.Cutoff, c.stats.PinnedBy = c.stats.Policy, ""
	if pinned && pin.Offset < c.stats.Policy {
		c.stats.Cutoff = pin.Offset
		c.stats.PinnedBy = fmt.Sprintf("%s %q", pin.Kind, pin.Name)
	}
}

// QueueRetention says how much is kept of the jobs of a queue that have ended.
type QueueRetention struct {
	// Done are the jobs that were acked, for [DB.Job] and package admin. The zero Retention keeps
	// none, which is the default: an ack is fast because it only deletes. So a history without an
	// end has a bound that is out of reach.
	Done Retention
	// Dead are the dead letters. The zero Retention keeps all.
	Dead Retention
}

// SetRetention keeps r in the file: it holds for all processes and handles, from the next ack on. A job
// that is kept is written by its ack, in the same transaction, by whatever verb and SQL function of
// this package; those that another binding acks are not kept. What falls under either bound is deleted
// when [DB.Maintain] runs. Without it there are at most twice Done.MaxCount jobs that are done, since each ack
// beyond that deletes the oldest. A dead job that others wait for stays.
//
// The same r again writes nothing. It waits for the writer until ctx ends or BusyTimeout has passed.
// Inside [DB.Tx] it is [ErrInTx]. A negative bound is [ErrInvalid].
func (q *Queue[T]) SetRetention(ctx context.Context, r QueueRetention) error {
	return fail("set retention", q.name, q.setRetention(ctx, alone("SetRetentionTx"), r))
}

// SetRetentionTx is like [Queue.SetRetention], within tx.
func (q *Queue[T]) SetRetentionTx(ctx context.Context, tx Tx, r QueueRetention) error {
	return fail("set retention", q.name, q.setRetention(ctx, within(tx), r))
}

func (q *queue) setRetention(ctx context.Context, c carrier, r QueueRetention) error {
	if err := errors.Join(q.err, r.Done.check(), r.Dead.check()); err != nil {
		return err
	}
	row := row.QueueRetention{Queue: q.name, Done: r.Done.row(), Dead: r.Dead.row()}
	audit := engine.AuditActor(ctx, "set retention", "queue", q.name)
	return q.db.write(ctx, c, func(ctx context.Context, tx engine.Querier, now time.Time) error {
		changed, err := q.db.retentions.SetQueue(ctx, tx, row)
		if err != nil || !changed {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}, noted)
}

// row is what is stored of a bound.
func (r Retention) row() row.Retention {
	return row.Retention{MaxCount: r.MaxCount, MaxAgeMS: engine.Seconds(r.MaxAge) * 1000}
}

func retentionOf(row row.Retention) Retention {
	return Retention{MaxCount: row.MaxCount, MaxAge: engine.Milliseconds(row.MaxAgeMS)}
}

// Retention returns how much is kept of the jobs of the queue that have ended. It reads and never waits for
// the writer.
func (q *Queue[T]) Retention(ctx context.Context) (QueueRetention, error) {
	r, err := q.retention(ctx)
	return r, fail("retention", q.name, err)
}

func (q *queue) retention(ctx context.Context) (r QueueRetention, err error) {
	if q.err != nil {
		return r, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, tx engine.Querier) error {
		row, err := q.db.retentions.GetQueue(ctx, tx, q.name)
		r = QueueRetention{Done: retentionOf(row.Done), Dead: retentionOf(row.Dead)}
		return err
	})
	return r, err
}

// trimQueues deletes the jobs that have ended and are not kept.
func (db *DB) trimQueues(ctx context.Context) error {
	var queues []row.QueueRetention
	err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		queues, err = db.retentions.Queues(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range queues {
		_, err := db.trim(ctx, store.KeptDone, r.Queue, r.Done, r.Done == row.Retention{})
		dead, deadErr := db.trim(ctx, store.KeptDead, r.Queue, r.Dead, false)
		if dead > 0 {
			db.opts.Logger.Info("honker: dead letters deleted, by the retention of their queue", "queue", r.Queue, "jobs", dead)
		}
		if err := errors.Join(err, deadErr); err != nil {
			errs = append(errs, fmt.Errorf("queue %q: %w", r.Queue, err))
		}
	}
	return errors.Join(errs...)
}

// trim deletes those of the jobs of a queue that r gives up, or all.
func (db *DB) trim(ctx context.Context, kept store.Kept, queue string, r row.Retention, all bool) (int, error) {
	cutoff := store.Everything
	if !all {
		err := db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
			cutoff, err = kept.Cutoff(ctx, q, queue, r, time.Now().Unix())
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	find := func(ctx context.Context, q engine.Querier, _ time.Time, limit int) ([]int64, error) {
		return kept.Over(ctx, q, queue, cutoff, limit)
	}
	return db.engine.InChunks(ctx, find, func(ctx context.Context, q engine.Querier, ids []int64, _ time.Time) (int, error) {
		return kept.Drop(ctx, q, queue, cutoff, ids)
	}, nil)
}
