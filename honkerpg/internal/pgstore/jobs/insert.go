// Package jobs contains the statements for jobs and all that concerns them: results, unique keys, links, batches, pauses
// and limits.
package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Jobs contains the statements for the table job.
type Jobs struct{ pgsql.Schema }

const sqlInsert = `INSERT INTO honker.job (queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers)
SELECT $1, u.payload, $3, $4, $5, $6, $7, $8 FROM unnest($2::text[]) WITH ORDINALITY u (payload, ord) ORDER BY u.ord RETURNING id`

// Insert implements engine.JobStore.
func (s Jobs) Insert(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (out row.Inserted, err error) {
	runAt, expires := insertTimes(in, now)
	out.IDs, err = pgsql.IDs(ctx, q, s.SQL(sqlInsert), in.Queue, pgsql.List(in.Payloads), in.Priority, in.MaxAttempts,
		pgsql.StampUp(runAt), pgsql.Stamp(now), expires, sql.NullString{String: in.Headers, Valid: in.Headers != ""})
	if err == nil && len(out.IDs) < len(in.Payloads) {
		err = row.ErrNotInserted
	}
	return out, err
}

// insertTimes returns the time at which jobs may first run, and the time by which they must start.
func insertTimes(in *row.Insert, now time.Time) (runAt time.Time, expires sql.NullTime) {
	switch {
	case in.Delay > 0:
		runAt = now.Add(in.Delay)
	case in.RunAt.After(now):
		runAt = in.RunAt
	default:
		runAt = now
	}
	switch {
	case in.ExpiresIn > 0:
		expires = sql.NullTime{Time: pgsql.StampUp(now.Add(in.ExpiresIn)), Valid: true}
	case !in.ExpiresAt.IsZero():
		expires = sql.NullTime{Time: pgsql.StampUp(in.ExpiresAt), Valid: true}
	}
	return runAt, expires
}
