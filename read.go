package honker

import (
	"context"
	"fmt"
	"iter"

	"github.com/honker-go/honker/internal/store"
)

// Read yields the events above offset after that are stored when it begins, in order,
// and ends. It saves nothing. No read transaction is held while the body runs; what is
// deleted meanwhile may be missing.
//
// An event whose payload does not decode into E is yielded with an error, and the loop
// may go on. Any other error, also the end of ctx, comes without an event and is the
// last. A negative offset is [ErrInvalid].
func (s *Stream[E]) Read(ctx context.Context, after int64) iter.Seq2[*Event[E], error] {
	return func(yield func(*Event[E], error) bool) {
		c, err := s.s.history(ctx, after)
		for err == nil {
			var row *store.Event
			if row, err = c.next(ctx); row == nil {
				break
			}
			if !yield(newEvent[E](row)) {
				return
			}
		}
		if err != nil {
			yield(nil, fail("read", s.s.name, err))
		}
	}
}

// history is a cursor that ends at the last event that there is now.
func (s *stream) history(ctx context.Context, after int64) (*cursor, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if after < 0 {
		return nil, fmt.Errorf("%w: negative offset %d", ErrInvalid, after)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	c := s.cursor(nil, after)
	var err error
	c.until, err = store.Streams{}.Last(context.WithoutCancel(ctx), s.db.own)
	return c, s.db.because(err)
}

// cursor reads selected events page by page.
type cursor struct {
	s       *stream
	sel     store.Selection
	limit   int
	until   int64         // events above are not read
	at      int64         // what is selected up to here was read
	horizon int64         // of a sparse selection: the last row that may be looked at
	page    []store.Event // read, and not yet handed out
	memory  []store.Event // the page as a whole, to be used again
}

// scanRows bounds one look at a sparse selection: some milliseconds.
const scanRows = 20_000

func (s *stream) cursor(f *store.Filter, after int64) *cursor {
	return &cursor{s: s, sel: s.selection(f), limit: s.opts.Batch, until: store.Unbounded, at: after}
}

// next returns the next event that is stored, valid until the call after; nil when there
// is none.
func (c *cursor) next(ctx context.Context) (*store.Event, error) {
	for len(c.page) == 0 {
		if moved, err := c.read(ctx); err != nil || !moved {
			return nil, err
		}
	}
	row := &c.page[0]
	c.page = c.page[1:]
	return row, nil
}

// read fills the empty page, or gets past rows that are not selected; false at the end.
func (c *cursor) read(ctx context.Context) (moved bool, err error) {
	if ctx.Err() != nil {
		return false, ended(ctx)
	}
	if c.s.db.isClosed() {
		return false, ErrClosed
	}
	through, err := c.through(context.WithoutCancel(ctx))
	if err != nil || through <= c.at {
		return false, c.s.db.because(err)
	}
	rows, more, err := store.Streams{}.Read(context.WithoutCancel(ctx), c.s.db.own, c.sel, c.at, through, c.limit, c.memory[:0])
	if err != nil {
		return false, c.s.db.because(err)
	}
	c.page, c.memory = rows, rows
	switch {
	case len(rows) > 0 && (more || !c.sel.Sparse()):
		c.at = rows[len(rows)-1].Offset
	case c.sel.Sparse():
		c.at = through
	default:
		return false, nil
	}
	return true, nil
}

// through is how far the next read may look.
func (c *cursor) through(ctx context.Context) (int64, error) {
	if !c.sel.Sparse() {
		return c.until, nil
	}
	var err error
	if c.horizon <= c.at {
		c.horizon, _, err = store.Streams{}.Horizon(ctx, c.s.db.own, c.sel, c.at, scanRows)
	}
	return min(c.horizon, c.until), err
}
