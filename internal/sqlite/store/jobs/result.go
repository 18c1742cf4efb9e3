package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Results contains the statements for _honker_results, and those that find out how a job ended.
type Results struct{}

const sqlSaveResult = `INSERT INTO _honker_results (job_id, value, created_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (job_id) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`

// Save stores value, which is JSON text, as a job's result. The result is kept for ttl, or forever if
// ttl is not positive. A second Save replaces the first. Save returns ErrNotInserted if a trigger
// dropped the row.
func (r Results) Save(ctx context.Context, q row.Querier, id int64, value string, ttl time.Duration, now time.Time) error {
	return r.SaveUntil(ctx, q, id, value, now.Unix(), engine.Expiry(now, ttl))
}

// SaveUntil is like Save but takes the second at which the result expires; 0 means never.
func (Results) SaveUntil(ctx context.Context, q row.Querier, id int64, value string, now, expires int64) error {
	n, err := rows.Affected(ctx, q, sqlSaveResult, id, value, now, rows.Nullable(expires))
	if err == nil && n == 0 {
		return row.ErrNotInserted
	}
	return err
}

// isWanted is the condition that a result must be kept even after it has expired, because a job that
// waited for its job has not finished yet.
const isWanted = `EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = _honker_results.job_id)`

// sqlGetResult uses the primary key. An expired result counts as missing, and so does SQL NULL.
const sqlGetResult = `SELECT value FROM _honker_results
WHERE job_id = ?1 AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > ?2 OR ` + isWanted + `)`

// Get returns a job's result, or false if there is none or it has expired.
func (Results) Get(ctx context.Context, q row.Querier, id, now int64) (value string, found bool, err error) {
	found, err = rows.One(ctx, q, sqlGetResult, []any{id, now}, &value)
	return value, found, err
}

// sqlSweepResults scans the table, because an index would make every Save more expensive.
const sqlSweepResults = `DELETE FROM _honker_results WHERE expires_at <= ?1 AND NOT ` + isWanted

// Sweep deletes expired results and returns how many it deleted.
func (Results) Sweep(ctx context.Context, q row.Querier, now int64) (int, error) {
	return rows.Affected(ctx, q, sqlSweepResults, now)
}

// sqlFate uses the primary keys, in any queue. sqlite_sequence holds the highest id ever assigned. A
// job with an id no higher than that, and in none of the tables, is done or was cancelled.
const sqlFate = `SELECT
  (SELECT value FROM _honker_results WHERE job_id = ?1 AND (expires_at IS NULL OR expires_at > ?2 OR ` + isWanted + `)),
  EXISTS (SELECT 1 FROM _honker_dead WHERE id = ?1),
  (SELECT last_error FROM _honker_dead WHERE id = ?1),
  (SELECT died_at FROM _honker_dead WHERE id = ?1),
  (SELECT attempts FROM _honker_dead WHERE id = ?1),
  EXISTS (SELECT 1 FROM _honker_live WHERE id = ?1),
  EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '_honker_live' AND seq >= ?1)`

// Fate looks for the job in every table that may contain it. It uses a single statement because the job
// could move to another table between two statements.
func (Results) Fate(ctx context.Context, q row.Querier, id int64, now time.Time) (row.Fate, error) {
	var f row.Fate
	var result sql.NullString
	var died rows.Number
	_, err := rows.One(ctx, q, sqlFate, []any{id, now.Unix()}, &result, &f.Dead, (*rows.Text)(&f.LastError),
		&died, (*rows.Number)(&f.Attempts), &f.Live, &f.Known)
	f.Result, f.HasResult, f.DiedAt = result.String, result.Valid, row.Instant(int64(died))
	return f, err
}

// sqlDecided uses the primary keys.
const sqlDecided = `SELECT k.value FROM json_each(?1) AS k
WHERE EXISTS (SELECT 1 FROM _honker_results WHERE job_id = k.value)
  OR NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = k.value)
    AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '_honker_live' AND seq >= k.value)`

// Decided returns the jobs among ids that have a result or are no longer live.
func (Results) Decided(ctx context.Context, q row.Querier, ids []int64) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlDecided, len(ids), rows.IDList(ids))
}
