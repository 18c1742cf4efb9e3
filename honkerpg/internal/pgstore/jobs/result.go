package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Results contains the statements for the table result, and the queries that find out how a job ended.
type Results struct{ pgsql.Schema }

const sqlSaveResult = `INSERT INTO honker.result (job_id, value, created_at, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (job_id) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`

// Save implements engine.ResultStore.
func (s Results) Save(ctx context.Context, q row.Querier, id int64, value string, ttl time.Duration, now time.Time) error {
	expires := sql.NullTime{Time: pgsql.StampUp(now.Add(ttl)), Valid: ttl > 0}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSaveResult), id, value, pgsql.Stamp(now), expires)
	if err == nil && n == 0 {
		return row.ErrNotInserted
	}
	return err
}

// LastJob is the highest id that was ever assigned to a job. The sequence is not read as a table: where sequential scans
// are off, that looks so expensive that the server compiles the plan of each call.
const LastJob = `coalesce(pg_sequence_last_value('honker.job_id_seq'), 0)`

// isWanted is the condition that a result, r, is kept even after it has expired, because a job that waited for its job, or for
// a batch of it, has not ended.
const isWanted = `EXISTS (SELECT FROM honker.edge e WHERE e.parent = r.job_id AND e.parent <> 0)`

// sqlFate is a single statement, because the job could move to another table between two statements.
const sqlFate = `SELECT r.value, d.id IS NOT NULL, coalesce(d.last_error, ''), d.died_at, coalesce(d.attempts, 0),
  EXISTS (SELECT FROM honker.job WHERE id = $1), $1 <= ` + LastJob + `
FROM (SELECT) x
LEFT JOIN honker.result r ON r.job_id = $1 AND (r.expires_at IS NULL OR r.expires_at > $2 OR ` + isWanted + `)
LEFT JOIN honker.dead d ON d.id = $1`

// Fate implements engine.ResultStore.
func (s Results) Fate(ctx context.Context, q row.Querier, id int64, now time.Time) (f row.Fate, err error) {
	var result sql.NullString
	var died sql.NullTime
	_, err = pgsql.One(ctx, q, s.SQL(sqlFate), []any{pgsql.Replan, id, pgsql.Stamp(now)}, &result, &f.Dead, &f.LastError, &died, &f.Attempts, &f.Live, &f.Known)
	f.Result, f.HasResult, f.DiedAt = result.String, result.Valid, pgsql.Instant(died)
	return f, err
}

const sqlDecided = `SELECT u.id FROM unnest($1::bigint[]) u (id) WHERE EXISTS (SELECT FROM honker.result WHERE job_id = u.id)
  OR NOT EXISTS (SELECT FROM honker.job WHERE id = u.id) AND u.id <= ` + LastJob

// Decided returns the jobs among all that have a result or are no longer live.
func (s Results) Decided(ctx context.Context, q row.Querier, all []int64) ([]int64, error) {
	return pgsql.IDs(ctx, q, s.SQL(sqlDecided), pgsql.Replan, pgsql.List(all))
}
