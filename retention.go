package honker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker/internal/store"
)

// Retention says how much of a topic is kept. Zero is no bound; the zero Retention keeps
// everything. An event that falls under either bound goes, once everybody has seen it.
type Retention struct {
	MaxCount int64         // the newest so many events of the topic
	MaxAge   time.Duration // rounded up to seconds
}

func (r Retention) check() error {
	if r.MaxCount < 0 {
		return fmt.Errorf("%w: negative MaxCount %d", ErrInvalid, r.MaxCount)
	}
	return notNegative("MaxAge", r.MaxAge)
}

// SetRetention keeps r in the file: it holds for all processes and handles. Events go
// when [Stream.Compact] or [DB.Maintain] runs. A pattern is [ErrInvalid].
func (s *Stream[E]) SetRetention(ctx context.Context, r Retention) error {
	if err := errors.Join(s.s.single(), r.check()); err != nil {
		return fail("set retention", s.s.name, err)
	}
	err := s.s.db.do(ctx, "", writeOne(func(ctx context.Context, q store.Querier, _ time.Time) error {
		return store.Retentions{}.Set(ctx, q, store.Retention{
			Topic: s.s.name, MaxCount: r.MaxCount, MaxAgeMS: seconds(r.MaxAge) * 1000,
		})
	}))
	return fail("set retention", s.s.name, err)
}

// Retention returns how much of the topic is kept.
func (s *Stream[E]) Retention(ctx context.Context) (Retention, error) {
	if err := errors.Join(s.s.single(), s.s.usable()); err != nil {
		return Retention{}, fail("retention", s.s.name, err)
	}
	r, err := store.Retentions{}.Get(ctx, s.s.db.own, s.s.name)
	return Retention{MaxCount: r.MaxCount, MaxAge: milliseconds(r.MaxAgeMS)},
		fail("retention", s.s.name, s.s.db.because(err))
}

// CompactStats says what a Compact did.
type CompactStats struct {
	Deleted  int64
	Policy   int64  // the topic's Retention gives up events to here
	Cutoff   int64  // events up to here could go: everybody has seen them
	PinnedBy string // who has still to see the next that Policy gives up, such as `consumer "mail"`; "": nobody
}

// Compact deletes the events that the topic's [Retention] gives up, in transactions of
// some milliseconds, so that other writers get their turns. It never deletes what a
// consumer has still to see, of whatever binding, nor a group; dead events of a group stay
// too. A consumer that is gone for good keeps events for ever, until
// [Stream.DeleteConsumer]. When ctx ends it returns its error and what it had done. A
// pattern is [ErrInvalid].
func (s *Stream[E]) Compact(ctx context.Context) (CompactStats, error) {
	stats, err := s.s.compact(ctx)
	return stats, fail("compact", s.s.name, err)
}

func (s *stream) compact(ctx context.Context) (stats CompactStats, err error) {
	if err := errors.Join(s.single(), s.usable(), inTx(ctx, s.db, "")); err != nil {
		return stats, err
	}
	r, err := store.Retentions{}.Get(ctx, s.db.own, s.name)
	if err == nil {
		stats.Policy, err = store.Retentions{}.Cutoff(ctx, s.db.own, r, time.Now().Unix())
	}
	if err != nil || stats.Policy == 0 {
		return stats, s.db.because(err)
	}
	c := compaction{s: s, stats: stats, size: firstChunk}
	for err == nil && !c.over {
		err = c.chunk(ctx)
	}
	return c.stats, err
}

// compaction is a Compact that is running.
type compaction struct {
	s     *stream
	stats CompactStats
	after int64 // up to here is gone
	size  int   // events per transaction
	over  bool
}

// A transaction is to take some milliseconds, however large the events are.
const (
	firstChunk = 256
	mostChunk  = 4096
	chunkTime  = 10 * time.Millisecond
)

// chunk deletes some events. Who pins them is asked anew each time, in the transaction.
func (c *compaction) chunk(ctx context.Context) error {
	n, last := 0, int64(0)
	var took time.Duration
	err := c.s.db.do(ctx, "", write(func(ctx context.Context, q store.Querier, now time.Time) error {
		began := time.Now()
		defer func() { took = time.Since(began) }()
		pin, pinned, err := store.Retentions{}.LowestPin(ctx, q, c.s.name)
		if err != nil {
			return err
		}
		c.limit(pin, pinned)
		n, last, err = store.Retentions{}.Compact(ctx, q, c.s.name, c.after, c.stats.Cutoff, c.size)
		return err
	}))
	if err != nil {
		return err
	}
	c.stats.Deleted += int64(n)
	c.over = n < c.size
	c.after = last
	c.pace(took)
	if c.over {
		return nil
	}
	return breathe(ctx, took)
}

// breathe leaves the write lock alone for as long as it was held: who waits for it by
// SQLite's own means looks only now and then.
func breathe(ctx context.Context, took time.Duration) error {
	return pause(ctx, max(took, time.Millisecond))
}

func (c *compaction) limit(pin store.Pin, pinned bool) {
	c.stats.Cutoff, c.stats.PinnedBy = c.stats.Policy, ""
	if pinned && pin.Offset < c.stats.Policy {
		c.stats.Cutoff = pin.Offset
		c.stats.PinnedBy = fmt.Sprintf("%s %q", pin.Kind, pin.Name)
	}
}

func (c *compaction) pace(took time.Duration) {
	switch {
	case took > chunkTime:
		c.size = max(1, c.size/2)
	case took < chunkTime/4:
		c.size = min(2*c.size, mostChunk)
	}
}
