package engine

import (
	"context"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/row"
)

// Pace splits a large change into transactions of a few milliseconds, regardless of how large the rows are, and lets
// other writers run in between. It is not safe for concurrent use.
type Pace struct {
	Size int // number of rows for the next transaction, adapted to the duration of the last

	engine *Engine
	took   time.Duration // duration of the last transaction
}

// NewPace returns a Pace that starts with a transaction so small that it is short even if the rows are large.
func (e *Engine) NewPace() *Pace { return &Pace{Size: firstChunk, engine: e} }

const (
	firstChunk = 256
	mostChunk  = 4096
	chunkTime  = 10 * time.Millisecond
)

// Write runs do in a transaction. Time spent waiting for the write lock does not affect Size.
func (p *Pace) Write(ctx context.Context, do func(ctx context.Context, q Querier, now time.Time) error) error {
	return p.engine.Write(ctx, "", OpFunc(func(ctx context.Context, q Querier, now time.Time) error {
		began := time.Now()
		defer func() { p.took = time.Since(began) }()
		return do(ctx, q, now)
	}))
}

// Rest adapts Size and then leaves the write lock free for as long as it was held. The pause must be that long
// because writers that wait inside SQLite, such as other programs, retry only occasionally.
func (p *Pace) Rest(ctx context.Context) error {
	switch {
	case p.took > chunkTime:
		p.Size = max(1, p.Size/2)
	case p.took < chunkTime/4:
		p.Size = min(2*p.Size, mostChunk)
	}
	return Sleep(ctx, max(p.took, time.Millisecond))
}

// Sweep settles or deletes rows that have become due or obsolete over time. Find runs without the write lock and may
// read a whole table. Take then holds the write lock for only a few rows at a time, and checks them again.
type Sweep struct {
	// Parts returns the parts of the database, such as queues, that may need a sweep at the time at. Each part is
	// swept separately, so that an error in a part does not keep the others from being swept. If Parts is nil, the
	// whole database is a single part, the zero row.Part.
	Parts func(ctx context.Context, q Querier, at time.Time) ([]row.Part, error)
	Of    string // kind of part, such as "queue"
	// Find returns the IDs of up to limit rows. An ID may also stand for other work that only Take understands.
	Find func(ctx context.Context, q Querier, part row.Part, at time.Time, limit int) ([]int64, error)
	// Take settles or deletes the rows in ids that Find would still return, up to about limit rows.
	Take func(ctx context.Context, q Querier, part row.Part, ids []int64, at time.Time, limit int) (row.Swept, error)
}

// InChunks sweeps part in small transactions. Each transaction sweeps as of age before its own time.
// InChunks repeats the sweep until it finds or takes nothing more. It returns the number of rows taken,
// even if it returns an error. If committed is not nil, it is called with the outcome of each transaction.
func (e *Engine) InChunks(ctx context.Context, s Sweep, part row.Part, age time.Duration, committed func(row.Swept)) (total int, err error) {
	if err := errors.Join(e.Writable(), e.RefuseInTx(ctx, "")); err != nil {
		return 0, err
	}
	c := chunks{Pace: e.NewPace(), sweep: s, part: part, age: age, committed: committed}
	for {
		var ids []int64
		err := e.Read(ctx, func(ctx context.Context, q Querier) (err error) {
			ids, err = s.Find(ctx, q, part, e.Now().Add(-age), foundRows)
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

// chunks is the state of a running InChunks.
type chunks struct {
	*Pace
	sweep     Sweep
	part      row.Part
	age       time.Duration
	committed func(row.Swept)
}

// takeAll passes ids to Take in slices of up to Size.
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
