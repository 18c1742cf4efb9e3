package jobs

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// A renewal is a single statement. The rows are locked in the order of their ids. A cancelled job keeps its slot for as
// long as its claim would have lasted. Progress belongs to an attempt.
const sqlRenew = `WITH held AS MATERIALIZED (
  SELECT j.id, j.attempts FROM honker.job j WHERE j.id = ANY ($1::bigint[]) AND j.worker = $2 AND j.state + 0 = 1 AND j.lease_until >= $3
  ORDER BY j.id FOR UPDATE),
kept AS (UPDATE honker.job j SET lease_until = greatest(j.lease_until, $4) FROM held h WHERE j.id = h.id RETURNING j.id),
places AS (UPDATE honker.place p SET until_at = greatest(p.until_at, $4 + interval '1 microsecond')
  WHERE p.job_id = ANY ($1::bigint[]) AND p.worker = $2 AND p.until_at > $3),
saved AS (INSERT INTO honker.side AS s (job_id, progress)
  SELECT h.id, u.progress FROM unnest($5::bigint[], $6::bigint[], $7::text[]) u (id, attempt, progress)
  JOIN held h ON h.id = u.id AND h.attempts = u.attempt
  ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress)
SELECT id FROM kept`

// Renew implements engine.JobStore.
func (s Jobs) Renew(ctx context.Context, q row.Querier, r row.Renewal, now time.Time) (kept []int64, err error) {
	var ids, attempts []int64
	var texts []string
	for _, p := range r.Progress {
		ids, attempts, texts = append(ids, p.ID), append(attempts, p.Attempt), append(texts, progressText(p.Progress))
	}
	return pgsql.IDs(ctx, q, s.SQL(sqlRenew), pgsql.Replan, pgsql.List(r.IDs), r.Worker, pgsql.Stamp(now), pgsql.StampUp(now.Add(r.Lease)),
		pgsql.List(ids), pgsql.List(attempts), pgsql.List(texts))
}

// held is the condition that a claim, (id $1, worker $2, attempt $3), is valid at the time $4.
const held = ` j.id = $1 AND j.worker = $2 AND j.attempts = $3 AND j.state + 0 = 1 AND j.lease_until >= $4`

const (
	sqlExtend = `WITH extended AS (UPDATE honker.job j SET lease_until = $5 WHERE` + held + ` RETURNING j.id),
saved AS (INSERT INTO honker.side AS s (job_id, progress) SELECT id, $6 FROM extended WHERE $6::text IS NOT NULL
  ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress)
SELECT id FROM extended`

	sqlCheckpoint = `INSERT INTO honker.side AS s (job_id, checkpoint) SELECT j.id, $5 FROM honker.job j WHERE` + held + ` FOR UPDATE
ON CONFLICT (job_id) DO UPDATE SET checkpoint = excluded.checkpoint`
)

// Extend implements engine.JobStore.
func (s Jobs) Extend(ctx context.Context, q row.Querier, e row.Extension, now time.Time) (bool, error) {
	var progress *string
	if e.Progress != nil {
		progress = new(progressText(*e.Progress))
	}
	ids, err := pgsql.IDs(ctx, q, s.SQL(sqlExtend), pgsql.Replan, e.ID, e.Worker, e.Attempt, pgsql.Stamp(now), pgsql.StampUp(now.Add(e.Lease)), progress)
	return len(ids) > 0, err
}

// Checkpoint implements engine.JobStore.
func (s Jobs) Checkpoint(ctx context.Context, q row.Querier, c row.Claim, value string, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlCheckpoint), pgsql.Replan, c.ID, c.Worker, c.Attempt, pgsql.Stamp(now), value)
	return n > 0, err
}
