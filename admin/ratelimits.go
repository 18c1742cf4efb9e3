package admin

import (
	"context"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// RateInfo is the last window of a rate limit in which a call was let through. The file
// knows neither the limit nor the length of a window: they are those of the handles.
type RateInfo struct {
	Name  string
	Start time.Time // of the window, which may be over
	Count int64     // calls that it has let through
}

// rateStore are the statements about rate limits.
type rateStore interface {
	Last(ctx context.Context, q engine.Querier) ([]row.RateWindow, error)
}

var rates rateStore = store.RateLimits{}

// RateLimits returns the rate limits that were used and not swept since, by name: one seek each. It
// never waits for the writer. nil as the DB is [honker.ErrInvalid].
func RateLimits(ctx context.Context, db *honker.DB) ([]RateInfo, error) {
	var all []RateInfo
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := rates.Last(ctx, q)
		all = make([]RateInfo, len(rows))
		for i, row := range rows {
			all[i] = RateInfo{Name: row.Name, Start: engine.Instant(row.Start), Count: row.Count}
		}
		return err
	})
	if err != nil {
		return nil, engine.Wrap("list rate limits", "", err)
	}
	return all, nil
}
