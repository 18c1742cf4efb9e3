package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// BatchInfo is what the file has of a batch, see honker.Batch.
type BatchInfo struct {
	ID        int64
	Name      string
	Headers   map[string]string
	Total     int64     // members that it has had
	Waiting   int64     // of these: they wait, for whatever
	Running   int64     // a worker holds them by a valid claim
	Done      int64     // acked, cancelled or discarded
	Dead      int64     // the batch, and what waits for it, waits for their requeue
	Open      bool      // not sealed
	CreatedAt time.Time // to the millisecond
	DoneAt    time.Time // when it was sealed and the last of its members was done; zero: not yet
	Next      []int64   // the jobs that wait for the batch, or have waited for it and are not over: the first 100
}

// BatchPage are some of the batches of a file.
type BatchPage struct {
	Batches []BatchInfo
	Next    Cursor // "": the end
}

// batchStore are the statements that list batches.
type batchStore interface {
	Newest(ctx context.Context, q engine.Querier, before, now int64, limit int) ([]row.Batch, error)
	Oldest(ctx context.Context, q engine.Querier, after, now int64, limit int) ([]row.Batch, error)

	Get(ctx context.Context, q engine.Querier, id, now int64) (row.Batch, bool, error)

	// For Explain.
	Members(ctx context.Context, q engine.Querier, id int64, limit int) ([]int64, error)
	DeadMembers(ctx context.Context, q engine.Querier, id int64, limit int) ([]int64, error)
}

var batches batchStore = store.Batches{}

// Batches returns a page of the batches of the file, NewestFirst or OldestFirst: the first page, or the one that
// opts.After leads to. opts.Budget has no meaning. nil opts means defaults. Batches that are done are remembered for
// a week, if honker.DB.Maintain runs.
//
// Members that wait, run or are dead are counted by entries of indexes, so a page costs as much as there are of
// them. It is one short read, which never waits for the writer.
func Batches(ctx context.Context, db *honker.DB, opts *PageOptions) (*BatchPage, error) {
	p, err := listBatches(ctx, db, opts)
	return p, engine.Wrap("list batches", "", err)
}

// Batch returns what the file has of one batch. [honker.ErrNotFound]: there is no such batch, or none any more. It is
// one short read, which never waits for the writer. nil as the DB is [honker.ErrInvalid].
func Batch(ctx context.Context, db *honker.DB, id int64) (*BatchInfo, error) {
	var info BatchInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		row, found, err := batches.Get(ctx, q, id, time.Now().Unix())
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
	list, from := batches.Newest, int64(math.MaxInt64)
	switch o.Order {
	case NewestFirst:
	case OldestFirst:
		list, from = batches.Oldest, 0
	default:
		err = errors.Join(err, fmt.Errorf("%w: batches have no order %d", honker.ErrInvalid, o.Order))
	}
	binds := fmt.Sprint("batches ", o.Order)
	at, bad := o.After.place(binds)
	if err := errors.Join(err, bad); err != nil {
		return nil, err
	}
	if at != nil {
		from = at.ID
	}
	var rows []row.Batch
	err = read(ctx, db, func(ctx context.Context, q engine.Querier) (err error) {
		rows, err = list(ctx, q, from, time.Now().Unix(), o.Limit+1)
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

func batchInfo(row *row.Batch) BatchInfo {
	return BatchInfo{
		ID:        row.ID,
		Name:      row.Name,
		Total:     row.Total,
		Waiting:   row.Live - row.Running,
		Running:   row.Running,
		Done:      row.Total - row.Live - row.Dead,
		Dead:      row.Dead,
		Open:      row.Open,
		CreatedAt: engine.InstantMS(row.CreatedMS),
		DoneAt:    engine.InstantMS(row.DoneMS),
		Next:      row.Next,
		Headers:   engine.DecodeHeaders(row.Headers),
	}
}
