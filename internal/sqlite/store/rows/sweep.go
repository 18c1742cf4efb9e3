package rows

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// RowSweep returns a sweep whose rows are selected by find and deleted by drop. Both compare a column with a time in
// the given unit.
func RowSweep(find, drop string, unit func(time.Time) int64) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return ReturnedIDs(ctx, q, find, 0, unit(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			return Swept(Affected(ctx, q, drop, unit(at), IDList(ids)))
		},
	}
}

// Swept returns the outcome of a sweep that changed n rows.
func Swept(n int, err error) (row.Swept, error) { return row.Swept{N: n}, err }

// Work returns a single number if there is some work, and no numbers otherwise. It is for a sweep whose Take finds
// the rows itself.
func Work(some bool, err error) ([]int64, error) {
	if !some || err != nil {
		return nil, err
	}
	return []int64{1}, nil
}

// PartsOf returns a part for each name.
func PartsOf(names []string, err error) ([]row.Part, error) {
	parts := make([]row.Part, len(names))
	for i, name := range names {
		parts[i].Name = name
	}
	return parts, err
}
