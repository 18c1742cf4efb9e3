package store

import (
	"context"

	"github.com/honker-go/honker/internal/row"
)

// A Sweep deletes rows of a kind that become useless with time. Found scans the whole table without
// the write lock. Drop then holds the write lock for a few rows only.
type Sweep struct{ find, drop string }

// newSweep returns the sweep of two statements that compare a column with the unix second ?1. find
// selects up to ?2 ids, and drop deletes the rows among the ids of the list ?2.
func newSweep(find, drop string) Sweep { return Sweep{find, drop} }

// Found returns the ids of up to limit rows that the sweep deletes at unix.
func (s Sweep) Found(ctx context.Context, q row.Querier, unix int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, s.find, 0, unix, limit)
}

// Drop deletes the rows among ids that the sweep still selects, and returns how many it deleted.
func (s Sweep) Drop(ctx context.Context, q row.Querier, unix int64, ids []int64) (int, error) {
	return affected(ctx, q, s.drop, unix, idList(ids))
}
