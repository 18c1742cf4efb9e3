package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// A probe of an index finds each next queue.
const sqlLiveQueues = `WITH RECURSIVE w (queue) AS (SELECT min(queue) FROM honker.job WHERE state = 0
    UNION ALL SELECT (SELECT min(j.queue) FROM honker.job j WHERE j.state = 0 AND j.queue > w.queue) FROM w WHERE w.queue IS NOT NULL),
  r (queue) AS (SELECT min(queue) FROM honker.job WHERE state = 1
    UNION ALL SELECT (SELECT min(j.queue) FROM honker.job j WHERE j.state = 1 AND j.queue > r.queue) FROM r WHERE r.queue IS NOT NULL)
SELECT queue FROM w WHERE queue IS NOT NULL UNION SELECT queue FROM r WHERE queue IS NOT NULL
UNION SELECT queue FROM honker.job WHERE state > 1 ORDER BY queue`

// LiveQueues returns the names of the queues that have live jobs.
func (s Jobs) LiveQueues(ctx context.Context, q row.Querier) ([]string, error) {
	return pgsql.Texts(ctx, q, s.SQL(sqlLiveQueues))
}

// liveParts returns a part for each queue that has live jobs.
func (s Jobs) liveParts(ctx context.Context, q row.Querier, _ time.Time) ([]row.Part, error) {
	names, err := s.LiveQueues(ctx, q)
	parts := make([]row.Part, len(names))
	for i, name := range names {
		parts[i].Name = name
	}
	return parts, err
}

// Claims that have lapsed, and waiting jobs without attempts left, of the queue $1 at the time $2.
const (
	lapsed = ` FROM honker.job j WHERE j.queue = $1 AND j.state = 1 AND j.lease_until < $2`
	spent  = ` FROM honker.job j WHERE j.queue = $1 AND j.state = 0 AND j.attempts >= j.max_attempts AND j.run_at <= $2`

	// The server expects spent jobs everywhere: for EXISTS it would read the table until it finds one. So it is asked
	// for the first in an order that only their index has.
	sqlOverdue = `SELECT 1::bigint WHERE (SELECT j.id` + lapsed + ` ORDER BY j.lease_until LIMIT 1) IS NOT NULL
  OR (SELECT j.id` + spent + ` ORDER BY j.run_at LIMIT 1) IS NOT NULL`

	sqlBuryOverdue = `SELECT b.* FROM honker.bury(ARRAY(SELECT j.id` + lapsed + ` ORDER BY j.lease_until LIMIT $3)
  || ARRAY(SELECT j.id` + spent + ` ORDER BY j.run_at LIMIT $3), $2) b`
	sqlReclaim = `SELECT honker.reclaim($1, $2)`

	// An expired job of any state that has not started in time.
	sqlExpired = `SELECT j.id FROM honker.job j WHERE j.queue = $1 AND j.state <> 1 AND j.expires_at <= $2 AND honker.is_over(j, $2)
UNION ALL SELECT j.id` + lapsed + ` AND j.expires_at <= $2 LIMIT $3`
	sqlBury = `SELECT b.* FROM honker.bury($1::bigint[], $2) b`
)

// SweepOverdue returns the sweep of the jobs whose claims have lapsed. It finds the ID 1 if a queue has any.
func (s Jobs) SweepOverdue() engine.Sweep {
	return engine.Sweep{
		Of:    "queue",
		Parts: s.liveParts,
		Find: func(ctx context.Context, q row.Querier, part row.Part, at time.Time, _ int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOverdue), pgsql.Replan, part.Name, pgsql.Stamp(at))
		},
		Take: func(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, limit int) (row.Swept, error) {
			dead, err := s.bury(ctx, q, sqlBuryOverdue, pgsql.Replan, part.Name, pgsql.Stamp(at), limit)
			if err == nil {
				_, err = q.ExecContext(ctx, s.SQL(sqlReclaim), part.Name, pgsql.Stamp(at))
			}
			return row.Swept{N: len(dead), Dead: dead, More: true}, err
		},
	}
}

// SweepExpired returns the sweep of the jobs that have expired before they could start.
func (s Jobs) SweepExpired() engine.Sweep {
	return engine.Sweep{
		Of:    "queue",
		Parts: s.liveParts,
		Find: func(ctx context.Context, q row.Querier, part row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlExpired), pgsql.Replan, part.Name, pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			dead, err := s.bury(ctx, q, sqlBury, pgsql.List(ids), pgsql.Stamp(at))
			return row.Swept{N: len(dead), Dead: dead}, err
		},
	}
}

// bury runs a statement that dead-letters jobs, and returns them.
func (s Jobs) bury(ctx context.Context, q row.Querier, query string, args ...any) (dead []row.Death, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var d row.Death
		err := r.Scan(&d.ID, &d.Queue, &d.Attempts, &d.Worker, &d.Reason)
		dead = append(dead, d)
		return err
	}, args...)
	if len(dead) > 0 {
		pgsql.Leave(q, pgsql.Resolve)
	}
	return dead, err
}

// SweepResults returns the sweep of the expired results. A job that has not ended may still read the
// results of the jobs that it waited for.
func (s Results) SweepResults() engine.Sweep {
	return s.RowSweep("result", `r.expires_at <= $1 AND NOT `+isWanted)
}
