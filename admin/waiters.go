package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Waiters selects how to handle jobs that wait for a removed job; see honker.After.
type Waiters int

// Ways to handle jobs that wait for a removed job.
const (
	DefaultWaiters Waiters = iota // ReleaseWaiters for Cancel, KeepWaiters for Discard
	ReleaseWaiters                // the removed job counts as done
	DropWaiters                   // also remove jobs that wait for it, directly, indirectly or through a batch; see Report.Waiters
	KeepWaiters                   // skip jobs that other jobs wait for
)

func (w Waiters) check() error {
	if w < DefaultWaiters || w > KeepWaiters {
		return fmt.Errorf("%w: Waiters %d does not exist", honker.ErrInvalid, w)
	}
	return nil
}

// row converts w to the store's type. DefaultWaiters is converted to unset.
func (w Waiters) row(unset Waiters) row.Waiters {
	if w == DefaultWaiters {
		w = unset
	}
	return map[Waiters]row.Waiters{ReleaseWaiters: row.ReleaseWaiters, DropWaiters: row.DropWaiters, KeepWaiters: row.KeepWaiters}[w]
}

// WaitersOf returns the IDs of the jobs that wait for the live jobs that f selects, directly, through other
// jobs or through a batch. The result does not include jobs that f selects itself. [Cancel] with
// DropWaiters also removes these jobs; without DropWaiters they may run. If f.Batch is set, the result
// includes the jobs that wait for the batch, even if the batch has no unfinished members.
//
// WaitersOf only reads and never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
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
		nodes = append(nodes, -f.Batch) // batches are nodes with negative IDs
	}
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		waiters, err = e.Stores.Operators.Waiters(ctx, q, nodes)
		return err
	})
	slices.Sort(waiters)
	return waiters, err
}
