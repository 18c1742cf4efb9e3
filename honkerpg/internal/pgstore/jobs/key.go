package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// A pause that has ended is no pause.
const sqlKeys = `WITH counted AS (
  SELECT j.key, count(*) FILTER (WHERE j.state = 1 AND j.lease_until >= $2) AS running, 0::bigint AS cancelled,
    count(*) FILTER (WHERE j.state > 1) AS held, count(*) FILTER (WHERE j.state = 0 OR j.state = 1 AND j.lease_until < $2) AS waiting,
    min(j.created_at) FILTER (WHERE j.state <> 1 OR j.lease_until < $2) AS oldest
  FROM honker.job j WHERE j.queue = $1 AND j.key IS NOT NULL AND j.id > 0 GROUP BY j.key
  UNION ALL SELECT p.key, 0, count(*), 0, 0, NULL FROM honker.place p WHERE p.queue = $1 AND p.key IS NOT NULL AND p.until_at > $2 GROUP BY p.key
  UNION ALL SELECT k.key, 0, 0, 0, 0, NULL FROM honker.key k WHERE k.queue = $1 AND honker.pauses(k.paused_at, k.paused_until, $2)),
of AS (SELECT c.key, sum(c.running)::bigint AS running, sum(c.cancelled)::bigint AS cancelled, sum(c.held)::bigint AS held,
    sum(c.waiting)::bigint AS waiting, min(c.oldest) AS oldest FROM counted c GROUP BY c.key)
SELECT o.key, o.running, o.cancelled, o.held, o.waiting, o.oldest, k.paused_at, k.paused_until, coalesce(k.reason, ''), coalesce(k.who, '')
FROM of o LEFT JOIN honker.key k ON k.queue = $1 AND k.key = o.key AND honker.pauses(k.paused_at, k.paused_until, $2)
ORDER BY o.held DESC, o.running + o.cancelled DESC, o.waiting DESC, o.key LIMIT $3`

// Keys implements engine.JobStore. It reads every job of the queue that has a key.
func (s Jobs) Keys(ctx context.Context, q row.Querier, queue string, limit int, now time.Time) (all []row.KeyStats, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlKeys), func(r *sql.Rows) error {
		var k row.KeyStats
		var oldest, since, until sql.NullTime
		var p row.Pause
		err := r.Scan(&k.Key, &k.Running, &k.Cancelled, &k.Held, &k.Waiting, &oldest, &since, &until, &p.Reason, &p.By)
		k.Oldest = pgsql.Instant(oldest)
		if since.Valid {
			p.Since, p.Until = pgsql.Instant(since), pgsql.Instant(until)
			k.Pause = &p
		}
		all = append(all, k)
		return err
	}, queue, pgsql.Stamp(now), limit)
	return all, err
}
