package engine

import (
	"context"
	"errors"
	"time"
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

// FindFunc returns the ids of up to limit rows to be changed.
type FindFunc func(ctx context.Context, q Querier, now time.Time, limit int) ([]int64, error)

// TakeFunc changes the rows of ids that are still as they were found, and returns their number.
type TakeFunc func(ctx context.Context, q Querier, ids []int64, now time.Time) (int, error)

// InChunks finds rows without the write lock and then changes them in small transactions. It
// repeats this until find returns no more rows or take changes none of them. It returns the number
// of changed rows, even with an error. committed, if not nil, is called after each transaction.
func (e *Engine) InChunks(ctx context.Context, find FindFunc, take TakeFunc, committed func()) (total int, err error) {
	if err := errors.Join(e.Writable(), e.RefuseInTx(ctx, "")); err != nil {
		return 0, err
	}
	p := e.NewPace()
	for {
		var ids []int64
		err := e.Read(ctx, func(ctx context.Context, q Querier) (err error) {
			ids, err = find(ctx, q, time.Now(), foundRows)
			return err
		})
		if err != nil || len(ids) == 0 {
			return total, err
		}
		taken, err := p.takeAll(ctx, ids, take, committed)
		total += taken
		if err != nil || taken == 0 || len(ids) < foundRows {
			return total, err
		}
	}
}

// foundRows is the number of rows to find at a time. It is large because find may read the whole
// table.
const foundRows = 1 << 16

// takeAll passes ids to take, p.Size at a time.
func (p *Pace) takeAll(ctx context.Context, ids []int64, take TakeFunc, committed func()) (total int, err error) {
	for len(ids) > 0 {
		part := ids[:min(p.Size, len(ids))]
		taken := 0
		err := p.Write(ctx, func(ctx context.Context, q Querier, now time.Time) (err error) {
			taken, err = take(ctx, q, part, now)
			return err
		})
		if err != nil {
			return total, err
		}
		total, ids = total+taken, ids[len(part):]
		if committed != nil {
			committed()
		}
		if len(ids) == 0 {
			return total, nil
		}
		if err := p.Rest(ctx); err != nil {
			return total, err
		}
	}
	return total, nil
}
