package engine

import (
	"context"
	"errors"
	"time"
)

// Pace runs a large change in transactions of some milliseconds, however large the rows are,
// and lets other writers in between them. It is for one goroutine.
type Pace struct {
	Size int // rows of the next transaction, which follows from what the last one took

	engine *Engine
	took   time.Duration // by the last transaction
}

// NewPace returns a Pace that begins with a size that is small for any rows.
func (e *Engine) NewPace() *Pace { return &Pace{Size: firstChunk, engine: e} }

const (
	firstChunk = 256
	mostChunk  = 4096
	chunkTime  = 10 * time.Millisecond
)

// Write runs do in a transaction. The wait for the writer does not count.
func (p *Pace) Write(ctx context.Context, do func(ctx context.Context, q Querier, now time.Time) error) error {
	return p.engine.Write(ctx, "", OpFunc(func(ctx context.Context, q Querier, now time.Time) error {
		began := time.Now()
		defer func() { p.took = time.Since(began) }()
		return do(ctx, q, now)
	}))
}

// Rest chooses the size of the next transaction, and leaves the write lock alone for as long as
// it was held: a writer that waits for it inside SQLite, as those of other programs do, looks
// only now and then.
func (p *Pace) Rest(ctx context.Context) error {
	switch {
	case p.took > chunkTime:
		p.Size = max(1, p.Size/2)
	case p.took < chunkTime/4:
		p.Size = min(2*p.Size, mostChunk)
	}
	return Sleep(ctx, max(p.took, time.Millisecond))
}

// FindFunc finds up to limit rows that are to be changed.
type FindFunc func(ctx context.Context, q Querier, now time.Time, limit int) ([]int64, error)

// TakeFunc changes those of ids that are still as they were found, and counts them.
type TakeFunc func(ctx context.Context, q Querier, ids []int64, now time.Time) (int, error)

// InChunks finds rows without the write lock, and takes it for a few at a time, until no more
// are found or none of those found is taken. It returns how many were taken, also with an error.
// committed is called after each transaction; it may be nil.
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

// foundRows is how many rows are found at a time: finding them may read the whole table.
const foundRows = 1 << 16

// takeAll takes ids a few at a time.
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
