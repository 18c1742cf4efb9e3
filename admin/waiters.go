package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Waiters says what becomes of the jobs that wait for one that is removed, see honker.After.
type Waiters int

// What becomes of jobs that wait for one that is removed.
const (
	DefaultWaiters Waiters = iota // Cancel: as ReleaseWaiters; Discard: as KeepWaiters
	ReleaseWaiters                // for them the job counts as done
	DropWaiters                   // they are removed too, with those that wait for them, directly or by a batch: Report.Waiters
	KeepWaiters                   // the job is Skipped
)

func (w Waiters) check() error {
	if w < DefaultWaiters || w > KeepWaiters {
		return fmt.Errorf("%w: unknown Waiters %d", honker.ErrInvalid, w)
	}
	return nil
}

// WaitersOf returns the jobs that wait for the live jobs that f picks, directly, by others or by a batch, by their
// ids, but for jobs that f picks itself: [Cancel] with DropWaiters removes them too, and otherwise they may run. With
// f.Batch they are those that wait for the batch as well, whether it has members left or not. It is a read, and never
// waits for the writer. nil as the DB is [honker.ErrInvalid].
func WaitersOf(ctx context.Context, db *honker.DB, f JobFilter) ([]int64, error) {
	ids, err := waitersOf(ctx, db, f)
	return ids, engine.Wrap("list waiters", "", err)
}

func waitersOf(ctx context.Context, db *honker.DB, f JobFilter) (waiters []int64, err error) {
	e, noDB := engineOf(db)
	sel, err := f.selection(false)
	if err := errors.Join(noDB, engine.CheckContext(ctx), err, f.checkChange(), f.checkCodec(e)); err != nil {
		return nil, err
	}
	found, err := (&action{engine: e, filter: f, sel: sel}).find(ctx, e.Read)
	if err != nil {
		return nil, err
	}
	nodes := make([]int64, len(found), len(found)+1)
	for i, j := range found {
		nodes[i] = j.ID
	}
	if f.Batch != 0 {
		nodes = append(nodes, -f.Batch)
	}
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		waiters, err = changes.Waiters(ctx, q, nodes)
		return err
	})
	slices.Sort(waiters)
	return waiters, err
}
