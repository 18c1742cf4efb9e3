package store

import (
	"context"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// rowSweep returns a sweep of the rows that find selects and drop deletes. Both compare a column with a time
// in the given unit.
func rowSweep(find, drop string, unit func(time.Time) int64) engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return returnedIDs(ctx, q, find, 0, unit(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			return swept(affected(ctx, q, drop, unit(at), idList(ids)))
		},
	}
}

func swept(n int, err error) (row.Swept, error) { return row.Swept{N: n}, err }

// work returns a number that stands for some work, or no number. It is for a sweep whose Take finds its rows
// itself.
func work(some bool, err error) ([]int64, error) {
	if !some || err != nil {
		return nil, err
	}
	return []int64{1}, nil
}

// partsOf returns a part for each name.
func partsOf(names []string, err error) ([]row.Part, error) {
	parts := make([]row.Part, len(names))
	for i, name := range names {
		parts[i].Name = name
	}
	return parts, err
}
