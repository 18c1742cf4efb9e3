package jobs

import (
	"context"
	"database/sql"
	"slices"
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
saved AS (INSERT INTO honker.side AS s (job_id, progress, started_at, started_in, started_by)
  SELECT h.id, u.progress, u.start, CASE WHEN u.start IS NOT NULL THEN h.attempts END, CASE WHEN u.start IS NOT NULL THEN $2 END
  FROM unnest($5::bigint[], $6::bigint[], $7::text[], $8::timestamptz[]) u (id, attempt, progress, start)
  JOIN held h ON h.id = u.id AND h.attempts = u.attempt
  ON CONFLICT (job_id) DO UPDATE SET progress = coalesce(excluded.progress, s.progress),
    started_at = coalesce(excluded.started_at, s.started_at), started_in = coalesce(excluded.started_in, s.started_in),
    started_by = coalesce(excluded.started_by, s.started_by))
SELECT id FROM kept`

// Renew implements engine.JobStore.
func (s Jobs) Renew(ctx context.Context, q row.Querier, r row.Renewal, now time.Time) (kept []int64, err error) {
	n := notesOf(r)
	return pgsql.IDs(ctx, q, s.SQL(sqlRenew), pgsql.Replan, pgsql.List(r.IDs), r.Worker, pgsql.Stamp(now), pgsql.StampUp(now.Add(r.Lease)),
		pgsql.List(n.ids), pgsql.List(n.attempts), pgsql.List(n.progress), pgsql.List(n.starts))
}

// notes are the columns of the rows that a renewal saves, with nil for NULL. No job has two rows.
type notes struct {
	ids, attempts []int64
	progress      []*string
	starts        []*time.Time
}

func notesOf(r row.Renewal) (n notes) {
	for _, p := range r.Progress {
		n.add(p.ID, p.Attempt, new(progressText(p.Progress)), nil)
	}
	for _, s := range r.Starts {
		at := pgsql.Stamp(s.At)
		if i := slices.Index(n.ids, s.ID); i >= 0 {
			n.starts[i] = &at
			continue
		}
		n.add(s.ID, s.Attempt, nil, &at)
	}
	return n
}

func (n *notes) add(id, attempt int64, progress *string, start *time.Time) {
	n.ids, n.attempts = append(n.ids, id), append(n.attempts, attempt)
	n.progress, n.starts = append(n.progress, progress), append(n.starts, start)
}

// held is the condition that a claim, (id $1, worker $2, attempt $3), is valid at the time $4.
const held = ` j.id = $1 AND j.worker = $2 AND j.attempts = $3 AND j.state + 0 = 1 AND j.lease_until >= $4`

const (
	sqlExtend = `WITH extended AS (UPDATE honker.job j SET lease_until = $5 WHERE` + held + ` RETURNING j.id),
saved AS (INSERT INTO honker.side AS s (job_id, progress, started_at, started_in, started_by)
  SELECT id, $6, $7, CASE WHEN $7::timestamptz IS NOT NULL THEN $3::bigint END, CASE WHEN $7::timestamptz IS NOT NULL THEN $2 END FROM extended WHERE $6::text IS NOT NULL OR $7::timestamptz IS NOT NULL
  ON CONFLICT (job_id) DO UPDATE SET progress = coalesce(excluded.progress, s.progress),
    started_at = coalesce(excluded.started_at, s.started_at), started_in = coalesce(excluded.started_in, s.started_in),
    started_by = coalesce(excluded.started_by, s.started_by))
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
	ids, err := pgsql.IDs(ctx, q, s.SQL(sqlExtend), pgsql.Replan, e.ID, e.Worker, e.Attempt, pgsql.Stamp(now), pgsql.StampUp(now.Add(e.Lease)), progress,
		sql.NullTime{Time: pgsql.Stamp(e.Start), Valid: !e.Start.IsZero()})
	return len(ids) > 0, err
}

// Checkpoint implements engine.JobStore.
func (s Jobs) Checkpoint(ctx context.Context, q row.Querier, c row.Claim, value string, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlCheckpoint), pgsql.Replan, c.ID, c.Worker, c.Attempt, pgsql.Stamp(now), value)
	return n > 0, err
}

// sqlStarted reads the index of starts, which also has the starts of ended attempts.
const sqlStarted = `SELECT j.queue, j.id, coalesce(j.worker, ''), j.attempts, s.started_at
FROM (SELECT * FROM honker.side WHERE started_at IS NOT NULL ORDER BY started_at LIMIT 100000) s JOIN honker.job j ON j.id = s.job_id
WHERE ($1 = '' OR j.queue = $1) AND j.lease_until >= $2 AND ` + isStart + `
ORDER BY s.started_at, j.id LIMIT 10000`

// isStart is the condition that s is the side row of the job j with the start of its current attempt. An attempt that was
// given back leaves its number to the next claim, which another worker makes, or the same one after a run_at that follows the
// start.
const isStart = `j.state + 0 = 1 AND j.worker = s.started_by AND j.attempts = s.started_in AND j.run_at <= s.started_at`

// Started returns up to 10,000 running jobs of queue whose starts are saved, the longest running first. An empty queue
// means all queues.
func (s Jobs) Started(ctx context.Context, q row.Querier, queue string, now time.Time) (all []row.Started, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlStarted), func(r *sql.Rows) error {
		var t row.Started
		var at sql.NullTime
		err := r.Scan(&t.Queue, &t.ID, &t.Worker, &t.Attempt, &at)
		t.At = pgsql.Instant(at)
		all = append(all, t)
		return err
	}, queue, pgsql.Stamp(now))
	return all, err
}
