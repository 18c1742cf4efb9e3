package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// BatchInfo describes a batch (see honker.Batch).
type BatchInfo struct {
	ID        int64
	Name      string
	Headers   map[string]string
	Total     int64     // all members added so far
	Waiting   int64     // members waiting for any reason
	Running   int64     // members with a valid claim
	Done      int64     // members acked, cancelled or discarded
	Dead      int64     // dead members; the batch stays incomplete until they are requeued or discarded
	Open      bool      // not sealed
	CreatedAt time.Time // to the millisecond
	DoneAt    time.Time // time at which the sealed batch completed; zero if it is incomplete
	Next      []int64   // first 100 unfinished jobs that are waiting or have waited for the batch
}

// BatchPage is a page of batches.
type BatchPage struct {
	Batches []BatchInfo
	Next    Cursor // "" on the last page
}

// Batches returns a page of batches, sorted by NewestFirst or OldestFirst. The page starts at opts.After.
// opts.Budget is ignored. A nil opts selects the defaults. honker.DB.Maintain deletes batches one week
// after they complete.
//
// Waiting, running and dead members are counted by scanning indexes, so the cost of a page grows with the
// number of these members. Batches performs a single short read and never waits for the writer.
func Batches(ctx context.Context, db *honker.DB, opts *PageOptions) (*BatchPage, error) {
	p, err := listBatches(ctx, db, opts)
	return p, engine.Wrap("list batches", "", err)
}

// Batch returns the batch with the given ID. It performs a single short read and never waits for the
// writer. It returns [honker.ErrNotFound] if the batch does not exist or has been deleted, and
// [honker.ErrInvalid] if db is nil.
func Batch(ctx context.Context, db *honker.DB, id int64) (*BatchInfo, error) {
	var info BatchInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		row, found, err := s.Batches.Get(ctx, q, id, clock(db))
		if err == nil && !found {
			err = honker.ErrNotFound
		}
		info = batchInfo(&row)
		return err
	})
	if err != nil {
		return nil, engine.WrapID("get batch", id, err)
	}
	return &info, nil
}

func listBatches(ctx context.Context, db *honker.DB, opts *PageOptions) (*BatchPage, error) {
	o, err := opts.withDefaults()
	switch o.Order {
	case NewestFirst, OldestFirst:
	default:
		err = errors.Join(err, fmt.Errorf("%w: batches cannot be listed in order %d; use NewestFirst or OldestFirst", honker.ErrInvalid, o.Order))
	}
	binds := fmt.Sprint("batches ", o.Order)
	at, bad := o.After.place(binds)
	if err := errors.Join(err, bad); err != nil {
		return nil, err
	}
	from := int64(0)
	if at != nil {
		from = at.ID
	}
	var rows []row.Batch
	err = read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) (err error) {
		rows, err = s.Batches.List(ctx, q, o.Order == NewestFirst, from, o.Limit+1, clock(db))
		return err
	})
	if err != nil {
		return nil, err
	}
	p := &BatchPage{Batches: []BatchInfo{}}
	for i := range rows[:min(len(rows), o.Limit)] {
		p.Batches = append(p.Batches, batchInfo(&rows[i]))
	}
	if len(rows) > o.Limit {
		p.Next = cursorOf(&row.Place{ID: rows[o.Limit-1].ID}, binds)
	}
	return p, nil
}

func batchInfo(r *row.Batch) BatchInfo {
	return BatchInfo{
		ID:        r.ID,
		Name:      r.Name,
		Total:     r.Total,
		Waiting:   r.Live - r.Running,
		Running:   r.Running,
		Done:      r.Total - r.Live - r.Dead,
		Dead:      r.Dead,
		Open:      r.Open,
		CreatedAt: r.Created,
		DoneAt:    r.Done,
		Next:      r.Next,
		Headers:   row.DecodeHeaders(r.Headers),
	}
}
