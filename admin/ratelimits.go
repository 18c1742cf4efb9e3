package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// RateInfo describes the last window of a rate limit in which a call was allowed. The limit itself and the
// window length are not stored in the file.
type RateInfo struct {
	Name  string
	Start time.Time // start of the window, which may be over
	Count int64     // calls allowed in the window
}

// RateLimits returns the rate limits that have been used since the last sweep, sorted by name. It performs
// one index lookup per limit and never waits for the writer. It returns [honker.ErrInvalid] if db is nil.
func RateLimits(ctx context.Context, db *honker.DB) ([]RateInfo, error) {
	var all []RateInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.RateLimits.Last(ctx, q)
		all = make([]RateInfo, len(rows))
		for i, row := range rows {
			all[i] = RateInfo{Name: row.Name, Start: row.Start, Count: row.Count}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list rate limits", "", err)
	}
	return all, nil
}
