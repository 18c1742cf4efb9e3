package engine

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Pace splits a large change into transactions of a few milliseconds, however large the rows are,
// and lets other writers in between them. It is not safe for concurrent use.
type Pace struct {
	Size int // rows of the next transaction, adapted to the time of the last one

	engine *Engine
	took   time.Duration // duration of the last transaction
}

// NewPace returns a Pace whose first transaction is small for rows of any size.
func (e *Engine) NewPace() *Pace { return &Pace{Size: firstChunk, engine: e} }

const (
	firstChunk = 256
	mostChunk  = 4096
	chunkTime  = 10 * time.Millisecond
)

// Write runs do in a transaction. The time that it waits for the writer does not affect Size.
func (p *Pace) Write(ctx context.Context, do func(ctx context.Context, q Querier, now time.Time) error) error {
	return p.engine.Write(ctx, "", OpFunc(func(ctx context.Context, q Querier, now time.Time) error {
		began := time.Now()
		defer func() { p.took = time.Since(began) }()
		return do(ctx, q, now)
	}))
}

// Rest adapts Size and then leaves the write lock free for as long as it was held. It must pause
// that long, because writers that wait inside SQLite, such as other programs, retry only now and
// then.
func (p *Pace) Rest(ctx context.Context) error {
	switch {
	case p.took > chunkTime:
		p.Size = max(1, p.Size/2)
	case p.took < chunkTime/4:
		p.Size = min(2*p.Size, mostChunk)
	}
	return Sleep(ctx, max(p.took, time.Millisecond))
}

// Sweep settles or deletes rows that the passage of time has made due or useless. Find looks without the
// write lock and may read a whole table. Take then holds the write lock for a few rows only, and checks
// them again.
type Sweep struct {
	// Parts returns the parts that may have something to sweep at a time, each of which is swept alone, so
	// that the error of one does not keep the others from being swept. nil means that the whole database is
	// a single part, with the zero row.Part.
	Parts func(ctx context.Context, q Querier, at time.Time) ([]row.Part, error)
	Of    string // kind of the parts, such as "queue"
	// Find returns up to limit numbers of rows, or of other pieces of work that only Take understands.
	Find func(ctx context.Context, q Querier, part row.Part, at time.Time, limit int) ([]int64, error)
	// Take takes those of ids that Find would still return, and up to about limit rows.
	Take func(ctx context.Context, q Querier, part row.Part, ids []int64, at time.Time, limit int) (row.Swept, error)
}

// InChunks runs a sweep of a part in small transactions, for the time that lies age before each of them. It
// repeats the sweep until it finds nothing or takes nothing more. It returns the number of taken rows, even
// with an error. committed, if not nil, is called with the outcome of each transaction.
func (e *Engine) InChunks(ctx context.Context, s Sweep, part row.Part, age time.Duration, committed func(row.Swept)) (total int, err error) {
	if err := errors.Join(e.Writable(), e.RefuseInTx(ctx, "")); err != nil {
		return 0, err
	}
	c := chunks{Pace: e.NewPace(), sweep: s, part: part, age: age, committed: committed}
	for {
		var ids []int64
		err := e.Read(ctx, func(ctx context.Context, q Querier) (err error) {
			ids, err = s.Find(ctx, q, part, time.Now().Add(-age), foundRows)
			return err
		})
		if err != nil || len(ids) == 0 {
			return total, err
		}
		taken, err := c.takeAll(ctx, ids)
		total += taken.N
		if err == nil && taken.More {
			err = c.Rest(ctx)
		}
		if err != nil || !taken.More && (taken.N == 0 || len(ids) < foundRows) {
			return total, err
		}
	}
}

// foundRows is the number of rows to find at a time. It is large because a Find may read the whole
// table.
const foundRows = 1 << 16

// chunks is a running sweep of a part.
type chunks struct {
	*Pace
	sweep     Sweep
	part      row.Part
	age       time.Duration
	committed func(row.Swept)
}

// takeAll passes ids to Take, Size at a time.
func (c *chunks) takeAll(ctx context.Context, ids []int64) (total row.Swept, err error) {
	for len(ids) > 0 {
		some := ids[:min(c.Size, len(ids))]
		var taken row.Swept
		err := c.Write(ctx, func(ctx context.Context, q Querier, now time.Time) (err error) {
			taken, err = c.sweep.Take(ctx, q, c.part, some, now.Add(-c.age), c.Size)
			return err
		})
		if err != nil {
			return total, err
		}
		total.N, total.More, ids = total.N+taken.N, total.More || taken.More, ids[len(some):]
		if c.committed != nil {
			c.committed(taken)
		}
		if len(ids) == 0 {
			return total, nil
		}
		if err := c.Rest(ctx); err != nil {
			return total, err
		}
	}
	return total, nil
}
