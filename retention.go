package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Retention limits which events a topic keeps or, in a [QueueRetention], which jobs a queue keeps. A zero field means
// no limit, and the zero Retention keeps every event. An event that exceeds either limit is deleted once all
// consumers and groups have seen it.
type Retention struct {
	MaxCount int64         // maximum number of events; the newest are kept
	MaxAge   time.Duration // rounded up to seconds
}

func (r Retention) check() error {
	if r.MaxCount < 0 {
		return fmt.Errorf("%w: negative MaxCount %d", ErrInvalid, r.MaxCount)
	}
	return engine.NotNegative("MaxAge", r.MaxAge)
}

// SetRetention stores r in the file, where it applies to all processes and handles. The events are deleted when
// [Stream.Compact] or [DB.Maintain] runs. SetRetention waits for the writer until ctx ends or BusyTimeout has passed.
// It returns [ErrInvalid] for a pattern or a negative limit.
func (s *Stream[E]) SetRetention(ctx context.Context, r Retention) error {
	return fail("set retention", s.name, s.setRetention(ctx, alone("SetRetentionTx"), r))
}

// SetRetentionTx is like [Stream.SetRetention] but runs within tx.
func (s *Stream[E]) SetRetentionTx(ctx context.Context, tx Tx, r Retention) error {
	return fail("set retention", s.name, s.setRetention(ctx, within(tx), r))
}

func (s *stream) setRetention(ctx context.Context, c carrier, r Retention) error {
	if err := errors.Join(s.checkTopic(), r.check()); err != nil {
		return err
	}
	row := r.row()
	row.Topic = s.name
	audit := s.db.engine.AuditActor(ctx, "set retention", "topic", s.name)
	return s.db.write(ctx, c, func(ctx context.Context, q engine.Querier, now time.Time) error {
		if err := s.db.engine.Stores.Retentions.Set(ctx, q, row); err != nil {
			return err
		}
		return audit.NoteOne(ctx, q, now)
	}, noted)
}

// Retention returns the retention of the topic. It only reads, and never waits for the writer. For a pattern it
// returns [ErrInvalid].
func (s *Stream[E]) Retention(ctx context.Context) (Retention, error) {
	r, err := s.retention(ctx)
	return r, fail("read retention", s.name, err)
}

func (s *stream) retention(ctx context.Context) (Retention, error) {
	if err := s.checkTopic(); err != nil {
		return Retention{}, err
	}
	var r Retention
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		rows, err := s.db.engine.Stores.Retentions.List(ctx, q, s.name)
		if len(rows) > 0 {
			r = retentionOf(rows[0])
		}
		return err
	})
	return r, err
}

// Compacted returns the offset of the last event that [Stream.Compact] or [DB.Maintain] has deleted from the
// topic, or from any topic of the pattern. It returns 0 if no event has been deleted. A reader that begins below
// this offset does not see every published event. Before rebuilding a projection from the beginning, use
// Compacted to check that the beginning still exists. Below the offset, a topic has no events other than the
// dead events of groups; a pattern may have events of topics with a longer retention.
//
// Compacted only reads, and never waits for the writer. Under the ctx of [DB.Tx] it reads within the transaction. It
// does not know about events deleted by other programs.
func (s *Stream[E]) Compacted(ctx context.Context) (int64, error) {
	through, err := s.compacted(ctx)
	return through, fail("read compacted offset", s.name, err)
}

func (s *stream) compacted(ctx context.Context) (through int64, err error) {
	if s.err != nil {
		return 0, s.err
	}
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		start, err := s.start(ctx, q, Beginning)
		through = start.Gone
		return err
	})
	return through, err
}

// logIfGone logs that a consumer or group begins before events that retention has deleted. It does not log at
// Warn, because this is normal for a new reader of a topic with a short retention.
func (s *stream) logIfGone(kind, name string, start row.Start) {
	if start.Offset < start.Gone {
		s.db.opts.Logger.Info("honker: a reader starts before events that retention has deleted, and will not see them",
			"topic", s.name, kind, name, "offset", start.Offset, "gone", start.Gone)
	}
}

// CompactStats is the result of a Compact.
type CompactStats struct {
	Deleted  int64
	Policy   int64  // events up to this offset exceed the topic's Retention
	Cutoff   int64  // events up to this offset could be deleted, because every consumer and group has seen them
	PinnedBy string // the reader that has yet to see the next event to be deleted, such as `consumer "mail"`; empty if there is none
}

// Compact deletes the events that exceed the topic's [Retention]. It blocks until all are deleted. It works in
// transactions of a few milliseconds, with pauses in which other writers can proceed. If ctx ends, it returns
// ctx's error together with the statistics so far.
//
// Compact never deletes events that a group, or a consumer of any binding, has yet to see. It also keeps the dead
// events of groups. A consumer that is no longer used prevents deletion until [Stream.DeleteConsumer] is called. For
// a pattern, Compact returns [ErrInvalid].
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
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		c.stats.Policy, err = s.db.engine.Stores.Retentions.Cutoff(ctx, q, s.name, s.db.engine.Now())
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

// compaction is a running Compact.
type compaction struct {
	*engine.Pace
	s     *stream
	stats CompactStats
	after int64 // all events up to this offset are deleted
	done  bool
}

// deleteChunk deletes some of the events. Each transaction rereads the positions of all readers, because a consumer
// may have been added since the last.
func (c *compaction) deleteChunk(ctx context.Context) error {
	var done row.Compacted
	err := c.Write(ctx, func(ctx context.Context, q engine.Querier, _ time.Time) (err error) {
		done, err = c.s.db.engine.Stores.Retentions.Compact(ctx, q, row.Compaction{
			Topic: c.s.name, Policy: c.stats.Policy, After: c.after, Limit: c.Size,
		})
		return err
	})
	if err != nil {
		return err
	}
	c.stats.Cutoff, c.stats.PinnedBy = done.Cutoff, ""
	if done.Pinned {
		c.stats.PinnedBy = fmt.Sprintf("%s %q", done.Pin.Kind, done.Pin.Name)
	}
	c.stats.Deleted += int64(done.Deleted)
	c.after = done.Last
	c.done = done.Deleted < c.Size
	if c.done {
		return nil
	}
	return c.Rest(ctx)
}

// QueueRetention limits the done and dead jobs that a queue keeps.
type QueueRetention struct {
	// Done applies to acked jobs, which [DB.Job] and package admin can then show. Unlike elsewhere, the zero
	// Retention keeps none. This is the default because an ack that only has to delete the job is fast. To keep all
	// jobs, set a limit that is never reached.
	Done Retention
	// Dead applies to dead letters. The zero Retention keeps all.
	Dead Retention
}

// SetRetention stores r in the file, where it applies to all processes and handles, starting with the next ack. The
// ack of a retained job writes the done job in the same transaction. This applies to every verb and SQL function of
// this package; jobs acked by another binding are not retained. Jobs that exceed either limit are deleted when
// [DB.Maintain] runs. Without Maintain, a queue keeps at most twice Done.MaxCount done jobs, because from then on
// each ack deletes the oldest. A dead job that other jobs wait for is kept.
//
// Setting the same r again writes nothing. SetRetention waits for the writer until ctx ends or BusyTimeout has
// passed. Inside [DB.Tx] it returns [ErrInTx]. A negative limit returns [ErrInvalid].
func (q *Queue[T]) SetRetention(ctx context.Context, r QueueRetention) error {
	return fail("set retention", q.name, q.setRetention(ctx, alone("SetRetentionTx"), r))
}

// SetRetentionTx is like [Queue.SetRetention] but runs within tx.
func (q *Queue[T]) SetRetentionTx(ctx context.Context, tx Tx, r QueueRetention) error {
	return fail("set retention", q.name, q.setRetention(ctx, within(tx), r))
}

func (q *queue) setRetention(ctx context.Context, c carrier, r QueueRetention) error {
	if err := errors.Join(q.err, r.Done.check(), r.Dead.check()); err != nil {
		return err
	}
	row := row.QueueRetention{Queue: q.name, Done: r.Done.row(), Dead: r.Dead.row()}
	audit := q.db.engine.AuditActor(ctx, "set retention", "queue", q.name)
	return q.db.write(ctx, c, func(ctx context.Context, tx engine.Querier, now time.Time) error {
		changed, err := q.db.engine.Stores.Retentions.SetQueue(ctx, tx, row)
		if err != nil || !changed {
			return err
		}
		return audit.NoteOne(ctx, tx, now)
	}, noted)
}

// row converts r to its stored form.
func (r Retention) row() row.Retention {
	return row.Retention{MaxCount: r.MaxCount, MaxAge: r.MaxAge}
}

func retentionOf(row row.Retention) Retention {
	return Retention{MaxCount: row.MaxCount, MaxAge: row.MaxAge}
}

// Retention returns the retention of the queue. It only reads, and never waits for the writer.
func (q *Queue[T]) Retention(ctx context.Context) (QueueRetention, error) {
	r, err := q.retention(ctx)
	return r, fail("read retention", q.name, err)
}

func (q *queue) retention(ctx context.Context) (r QueueRetention, err error) {
	if q.err != nil {
		return r, q.err
	}
	err = q.db.engine.Read(ctx, func(ctx context.Context, tx engine.Querier) error {
		rows, err := q.db.engine.Stores.Retentions.Queues(ctx, tx, q.name)
		if len(rows) > 0 {
			r = QueueRetention{Done: retentionOf(rows[0].Done), Dead: retentionOf(rows[0].Dead)}
		}
		return err
	})
	return r, err
}

// trimQueues deletes done and dead jobs that exceed the retention of their queues.
func (db *DB) trimQueues(ctx context.Context) (total int, err error) {
	s := &db.engine.Stores.Sweeps
	total, err = db.sweep(s.Done, 0)(ctx)
	return total, errors.Join(err, db.eachPart(ctx, s.Dead, func(part row.Part) error {
		n, err := db.sweepPart(ctx, s.Dead, part, 0)
		if total += n; n > 0 {
			db.opts.Logger.Info("honker: dead letters deleted by the retention of their queue", "queue", part.Name, "jobs", n)
		}
		return err
	}))
}
