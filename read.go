package honker

import (
	"context"
	"iter"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Read returns an iterator over the events that exist when the iteration begins and have offsets greater than after.
// It yields them in order and then ends. Read saves no offset and never waits for the writer. It holds no read
// transaction while the loop body runs, so events deleted during the loop may be skipped.
//
// An event whose payload does not decode into E is yielded with an error, and the loop continues. Any other error,
// such as ctx's error when ctx ends, is yielded without an event and ends the loop. If after is negative, the error
// is [ErrInvalid].
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

// cursor reads the selected events a page at a time.
type cursor struct {
	s       *stream
	sel     row.Selection
	limit   int
	until   int64       // events at higher offsets are not read
	at      int64       // all selected events up to this offset have been read
	scanned int64       // EventPage.Scanned of the last page
	page    []row.Event // events that were read but not yet returned
	memory  []row.Event // backing array of page, kept for reuse; nil if other cursors have page too
	end     bool        // the last read has reached the end

	readPage pageReader
}

// pageReader reads a page of events. It may append the events to memory. If shared is true, other cursors have the page
// too.
type pageReader func(ctx context.Context, r row.EventRead, memory []row.Event) (page row.EventPage, shared bool, err error)

func (s *stream) cursor(f *row.Filter, after int64) *cursor {
	return &cursor{s: s, sel: s.selection(f), limit: s.opts.Batch, until: row.Unbounded, at: after, readPage: s.readAlone}
}

// readAlone reads a page for a single cursor. It appends the events to memory.
func (s *stream) readAlone(ctx context.Context, r row.EventRead, memory []row.Event) (page row.EventPage, shared bool, err error) {
	err = s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		page, err = s.db.engine.Stores.Streams.Read(ctx, q, r, memory)
		return err
	})
	return page, false, err
}

// pageKey identifies a page of events that subscriptions read. Subscriptions that wait for events of the same selection
// and have received the same events need the same page.
type pageKey struct {
	topic, filter  string
	after, scanned int64
	limit          int
}

// sharer returns a function that reads a page for all subscriptions of the DB that need the same page now.
func (s *stream) sharer(f *row.Filter) pageReader {
	filter := f.Text()
	return func(ctx context.Context, r row.EventRead, memory []row.Event) (row.EventPage, bool, error) {
		key := pageKey{topic: s.name, filter: filter, after: r.After, scanned: r.Scanned, limit: r.Limit}
		return s.db.pages.Read(ctx, key, func(ctx context.Context) (row.EventPage, error) {
			page, _, err := s.readAlone(ctx, r, memory)
			return page, err
		})
	}
}

// readAhead reads pages of events for a single cursor. From the second page on, it reads the next page while the cursor
// hands out the current one.
type readAhead struct {
	read    pageReader
	pages   int            // number of pages after which there may be more
	pending chan aheadPage // receives the next page; nil if it is not being read
	after   int64          // where the next page begins
	cancel  context.CancelFunc
}

type aheadPage struct {
	page row.EventPage
	err  error
}

// next is a pageReader. The cursor has handed out the events in memory, so the read after this one may overwrite them. A
// cursor that has been moved does not get the page after its old position.
func (a *readAhead) next(ctx context.Context, r row.EventRead, memory []row.Event) (page row.EventPage, shared bool, err error) {
	if a.after != r.After {
		a.stop()
	}
	if a.pending == nil {
		page, _, err = a.read(ctx, r, memory)
		memory = nil
	} else {
		page, err = a.take()
	}
	if err != nil || page.End || page.Next <= r.After {
		return page, false, err
	}
	if a.pages++; a.pages > 1 {
		r.After, r.Scanned = page.Next, page.Scanned
		a.start(ctx, r, memory)
	}
	return page, false, nil
}

func (a *readAhead) start(ctx context.Context, r row.EventRead, memory []row.Event) {
	ctx, a.cancel = context.WithCancel(ctx)
	pending := make(chan aheadPage, 1)
	a.pending, a.after = pending, r.After
	go func() {
		page, _, err := a.read(ctx, r, memory)
		pending <- aheadPage{page, err}
	}()
}

// take waits for the page that is being read.
func (a *readAhead) take() (row.EventPage, error) {
	got := <-a.pending
	a.cancel()
	a.pending = nil
	return got.page, got.err
}

// stop ends the read of the next page, if there is one.
func (a *readAhead) stop() {
	if a.pending != nil {
		a.cancel()
		_, _ = a.take()
	}
}

// history returns a cursor that ends at the current last event.
func (s *stream) history(ctx context.Context, after int64) (*cursor, error) {
	if s.err != nil {
		return nil, s.err
	}
	if err := Offset(after).check(); err != nil {
		return nil, err
	}
	c := s.cursor(nil, after)
	err := s.db.engine.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		c.until, err = s.db.engine.Stores.Streams.Head(ctx, q)
		return err
	})
	return c, err
}

// next returns the next stored event, or nil if there is none. The event is valid until the following call. next
// checks ctx for each event, because handling a whole page may take a long time.
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

// read fills the empty page or advances past unselected rows. It returns false at the end.
func (c *cursor) read(ctx context.Context) (moved bool, err error) {
	page, shared, err := c.readPage(ctx, row.EventRead{
		Selection: c.sel, After: c.at, Through: c.until, Limit: c.limit, Scanned: c.scanned,
	}, c.memory[:0])
	if err != nil {
		return false, err
	}
	moved = page.Next > c.at
	c.page, c.memory, c.at, c.scanned = page.Events, page.Events, page.Next, page.Scanned
	c.end = page.End || !moved
	if shared {
		c.memory = nil // others may still use it
	}
	return moved, nil
}
