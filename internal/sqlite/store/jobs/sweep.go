package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlQueues makes a seek per queue, over the queues with waiting, running and held jobs. SELECT
// DISTINCT would read every job.
var sqlQueues = `WITH RECURSIVE
  ` + rows.SkipScan("waiting", "queue", "_honker_live INDEXED BY _honkerx_live_pending WHERE state = 'pending'") + `,
  ` + rows.SkipScan("running", "queue", "_honker_live INDEXED BY _honker_live_processing_deadline WHERE state = 'processing'") + `,
  ` + rows.SkipScan("held", "queue", "_honker_live INDEXED BY _honkerx_live_held WHERE state = '"+row.Held+"'") + `
SELECT queue FROM waiting WHERE queue IS NOT NULL UNION SELECT queue FROM running WHERE queue IS NOT NULL
UNION SELECT queue FROM held WHERE queue IS NOT NULL`

// Queues returns the queues that have live jobs.
func (Jobs) Queues(ctx context.Context, q row.Querier) ([]string, error) {
	return rows.Texts(ctx, q, sqlQueues)
}

// sqlExpired reads every waiting job in the queue, so callers should run it without the write lock.
// An index on expires_at would make every job more expensive for the sake of a rare sweep.
var sqlExpired = `SELECT id` + whereExpired + ` UNION ALL SELECT id` + whereExpiredLapsed + ` UNION ALL SELECT id` + whereExpiredHeld + ` LIMIT ?3 + 0`

// These statements use the primary key.
var (
	whereExpiredIDs = ` FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) AND expires_at <= ?2
  AND (state = 'pending' OR state = 'processing' AND claim_expires_at < ?2
    OR state = 'held' AND ` + heldToStart + `)`

	sqlDeadLetterExpiredIDs = intoDead + `'` + row.ReasonExpired + `', created_at, ?2` + whereExpiredIDs
)

const (
	whereOverResults = ` FROM _honker_results WHERE expires_at <= ?1 AND NOT ` + isWanted

	sqlOverResults = `SELECT job_id` + whereOverResults + ` LIMIT ?2 + 0`
	sqlDropResults = `DELETE` + whereOverResults + ` AND job_id IN (SELECT value FROM json_each(?2))`

	whereOverPlaces = ` FROM _honkerx_cancelled WHERE until_ms <= ?1 * 1000`

	sqlOverPlaces = `SELECT job_id` + whereOverPlaces + ` LIMIT ?2 + 0`
	sqlDropPlaces = `DELETE` + whereOverPlaces + ` AND job_id IN (SELECT value FROM json_each(?2))`

	whereOverBatches = ` FROM _honkerx_batches AS b WHERE done_ms < ?1 * 1000
  AND NOT EXISTS (SELECT 1 FROM _honkerx_after AS a WHERE a.job_id = 0 AND a.batch = b.id)`

	sqlOverBatches = `SELECT id` + whereOverBatches + ` LIMIT ?2 + 0`
	sqlDropBatches = `DELETE` + whereOverBatches + ` AND id IN (SELECT value FROM json_each(?2))`
)

// Sweeps of jobs, and of rows that belong to jobs.
var (
	SweepOverdue = engine.Sweep{Of: "queue", Parts: liveQueues, Find: findOverdue, Take: settleOverdue}
	SweepExpired = engine.Sweep{Of: "queue", Parts: liveQueues, Find: findExpired, Take: deadLetterExpired}
	SweepKeys    = rows.RowSweep(sqlKeysOver, sqlDropKeysOver, time.Time.UnixMilli)
	SweepPauses  = engine.Sweep{Find: findPausesOver, Take: endPausesOver}
	SweepPlaces  = rows.RowSweep(sqlOverPlaces, sqlDropPlaces, time.Time.Unix)
	SweepFits    = engine.Sweep{Of: "queue", Parts: fittingQueues, Find: findFitting, Take: fitSome}
	SweepDone    = engine.Sweep{Of: "queue", Parts: KeptDone.parts, Find: KeptDone.find, Take: KeptDone.take}
	SweepDead    = engine.Sweep{Of: "queue", Parts: KeptDead.parts, Find: KeptDead.find, Take: KeptDead.take}
	SweepResults = rows.RowSweep(sqlOverResults, sqlDropResults, time.Time.Unix)
	SweepBatches = rows.RowSweep(sqlOverBatches, sqlDropBatches, time.Time.Unix)
)

// liveQueues returns the queues that have live jobs.
func liveQueues(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	return rows.PartsOf(Jobs{}.Queues(ctx, q))
}

func findOverdue(ctx context.Context, q row.Querier, part row.Part, at time.Time, _ int) ([]int64, error) {
	return rows.Work(Jobs{}.Overdue(ctx, q, part.Name, at.Unix()))
}

func settleOverdue(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	dead, err := Jobs{}.SettleOverdue(ctx, q, part.Name, at.Unix())
	return row.Swept{N: len(dead), Dead: dead, More: true}, err
}

func findExpired(ctx context.Context, q row.Querier, part row.Part, at time.Time, limit int) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlExpired, 0, part.Name, at.Unix(), limit)
}

func deadLetterExpired(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
	dead, err := toDead(ctx, q, sqlDeadLetterExpiredIDs, rows.IDList(ids), at.Unix())
	return row.Swept{N: len(dead), Dead: dead}, err
}

func fittingQueues(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	return rows.PartsOf(rows.Texts(ctx, q, sqlAllFitting))
}

func findFitting(ctx context.Context, q row.Querier, part row.Part, _ time.Time, _ int) ([]int64, error) {
	all, err := rows.Texts(ctx, q, sqlAllFitting)
	return rows.Work(slices.Contains(all, part.Name), err)
}

func fitSome(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, limit int) (row.Swept, error) {
	more, err := Limits{}.FitSome(ctx, q, part.Name, limit, at.Unix())
	return row.Swept{More: more}, err
}

func findPausesOver(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	return rows.Work(Pauses{}.over(ctx, q, at.Unix()))
}

func endPausesOver(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	return rows.Swept(Pauses{}.endOver(ctx, q, at.Unix()))
}
