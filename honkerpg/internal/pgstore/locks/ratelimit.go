package locks

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// RateLimits contains the statements for the table rate.
type RateLimits struct{ pgsql.Schema }

// The INSERT admits a window's first call without checking the limit, which is always at least 1. Callers of the
// same window wait for each other's commits at its row.
const sqlTakeRate = `INSERT INTO honker.rate AS r (name, window_start, count) VALUES ($1, $2, 1)
ON CONFLICT (name, window_start) DO UPDATE SET count = r.count + 1 WHERE r.count < $3`

// Take implements engine.RateLimitStore.
func (s RateLimits) Take(ctx context.Context, q row.Querier, name string, start time.Time, limit int) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlTakeRate), name, pgsql.Stamp(start), limit)
	return n > 0, err
}

const sqlRateCount = `SELECT count FROM honker.rate WHERE name = $1 AND window_start = $2`

// Count implements engine.RateLimitStore.
func (s RateLimits) Count(ctx context.Context, q row.Querier, name string, start time.Time) (n int, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlRateCount), []any{name, pgsql.Stamp(start)}, &n)
	return n, err
}

const sqlLastWindows = `SELECT DISTINCT ON (name) name, window_start, count FROM honker.rate ORDER BY name, window_start DESC`

// Last implements engine.RateLimitStore.
func (s RateLimits) Last(ctx context.Context, q row.Querier) (all []row.RateWindow, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlLastWindows), func(r *sql.Rows) error {
		var w row.RateWindow
		var start sql.NullTime
		err := r.Scan(&w.Name, &start, &w.Count)
		w.Start = pgsql.Instant(start)
		all = append(all, w)
		return err
	})
	return all, err
}

// A row does not store the window's length. A window is over when a later window with the same name has begun.
// Limits of different lengths may share a name, so the window must be old as well.
const WhereWindowIsOver = `window_start < $1
  AND EXISTS (SELECT FROM honker.rate later WHERE later.name = r.name AND later.window_start > r.window_start)`
