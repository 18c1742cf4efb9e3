package locks

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// RateLimits contains the statements for _honker_rate_limits.
type RateLimits struct{}

// sqlTakeRate uses the primary key. The INSERT admits a window's first call without checking the
// limit, which is always at least 1.
const sqlTakeRate = `INSERT INTO _honker_rate_limits (name, window_start, count) VALUES (?1, ?2, 1)
ON CONFLICT (name, window_start) DO UPDATE SET count = count + 1 WHERE count < ?3`

// Take counts a call in the window that starts at start. If the window already has limit calls,
// Take returns false and counts nothing.
func (RateLimits) Take(ctx context.Context, q row.Querier, name string, start time.Time, limit int) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlTakeRate, name, start.Unix(), limit)
	return n > 0, err
}

// sqlRateCount uses the primary key.
const sqlRateCount = `SELECT count FROM _honker_rate_limits WHERE name = ?1 AND window_start = ?2`

// Count returns how many calls were admitted in the window that starts at start.
func (RateLimits) Count(ctx context.Context, q row.Querier, name string, start time.Time) (int, error) {
	var n rows.Number
	_, err := rows.One(ctx, q, sqlRateCount, []any{name, start.Unix()}, &n)
	return int(n), err
}

// sqlSweepRates scans the table, because the primary key begins with the name.
const sqlSweepRates = `DELETE FROM _honker_rate_limits WHERE window_start < ?1`

// Sweep deletes all windows that started before the Unix time before, and returns how many it deleted.
func (RateLimits) Sweep(ctx context.Context, q row.Querier, before int64) (int, error) {
	return rows.Affected(ctx, q, sqlSweepRates, before)
}

// sqlRateWindows uses the primary key. The first seek finds the next name, and a second seek finds its last window.
var sqlRateWindows = `WITH RECURSIVE ` + rows.SkipScan("names", "name", "_honker_rate_limits WHERE 1") + `
SELECT n.name, w.window_start, w.count FROM names AS n CROSS JOIN _honker_rate_limits AS w
WHERE w.name = n.name AND w.window_start = (SELECT max(window_start) FROM _honker_rate_limits WHERE name = n.name)
ORDER BY n.name`

// Last returns the last window of each limit, sorted by name.
func (RateLimits) Last(ctx context.Context, q row.Querier) (all []row.RateWindow, err error) {
	err = rows.Each(ctx, q, sqlRateWindows, func(r *sql.Rows) error {
		var w row.RateWindow
		var start rows.Number
		err := r.Scan(&w.Name, &start, (*rows.Number)(&w.Count))
		w.Start = row.Instant(int64(start))
		all = append(all, w)
		return err
	})
	return all, err
}

const (
	// A row does not store the window's length. A window is over when a later window with the same name has begun.
	// Limits with different window lengths may share a name, so the window must also be old.
	whereOverWindows = ` FROM _honker_rate_limits AS w WHERE window_start < ?1
  AND EXISTS (SELECT 1 FROM _honker_rate_limits AS later WHERE later.name = w.name AND later.window_start > w.window_start)`

	sqlOverWindows = `SELECT rowid` + whereOverWindows + ` LIMIT ?2 + 0`
	sqlDropWindows = `DELETE` + whereOverWindows + ` AND rowid IN (SELECT value FROM json_each(?2))`

	whereOldWindows = ` FROM _honker_rate_limits WHERE window_start < ?1`

	sqlOldWindows = `SELECT rowid` + whereOldWindows + ` LIMIT ?2 + 0`
	sqlDropOld    = `DELETE` + whereOldWindows + ` AND rowid IN (SELECT value FROM json_each(?2))`
)

// Sweeps of windows that are over, and of all windows that began before a given time.
var (
	SweepWindows    = rows.RowSweep(sqlOverWindows, sqlDropWindows, time.Time.Unix)
	SweepOldWindows = rows.RowSweep(sqlOldWindows, sqlDropOld, time.Time.Unix)
)
