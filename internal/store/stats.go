package store

import (
	"context"
	"database/sql"
)

// QueueStats is what lies in a queue at one moment. A time that there is not is 0.
type QueueStats struct {
	Queue                                                  string
	Ready, Scheduled, Running, Lapsed, Held, Expired, Dead int64
	OldestReady, NextAt                                    int64
}

// Each count reads an entry of an index for each job that it counts, and the rows only of jobs
// with a claim that has lapsed, a deadline that has passed or no attempt left. The times are
// heads of indexes. All of it is one statement, and so of one moment.
const (
	whereLapsed = ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = n.queue AND state = 'processing' AND claim_expires_at < ?2`
	whereOverdueWaiting = ` FROM _honker_live INDEXED BY _honkerx_live_deadline
    WHERE queue = n.queue AND state = 'pending' AND expires_at <= ?2`
	whereSpent = ` FROM _honker_live INDEXED BY _honkerx_live_exhausted
    WHERE queue = n.queue AND state = 'pending' AND attempts >= max_attempts AND run_at <= ?2
      AND (expires_at IS NULL OR expires_at > ?2)`
	canRun = ` attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)`
)

// countLevels counts the jobs that wait, by a range of the pending index for each priority.
func countLevels(condition string) string {
	return `(` + levels("n.queue") + ` SELECT count(*)
    FROM lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
    WHERE l.queue = n.queue AND l.state = 'pending' AND l.priority = lv.p AND l.run_at ` + condition + `)`
}

// firstOfLevels is the earliest time of a job that waits and can run, by a seek for each priority.
func firstOfLevels(condition string) string {
	return `(` + levels("n.queue") + ` SELECT min((SELECT run_at FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = n.queue AND state = 'pending' AND priority = lv.p AND run_at ` + condition + ` AND` + canRun + `
      ORDER BY run_at LIMIT 1)) FROM lv)`
}

var statsColumns = `n.queue,
  ` + countLevels("<= ?2") + `
    - (SELECT count(*)` + whereOverdueWaiting + ` AND run_at <= ?2)
    - (SELECT count(*)` + whereSpent + `),
  ` + countLevels("> ?2") + `
    - (SELECT count(*)` + whereOverdueWaiting + ` AND run_at > ?2),
  (SELECT count(*) FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = n.queue AND state = 'processing' AND claim_expires_at >= ?2),
  (SELECT count(*)` + whereLapsed + ` AND` + canRun + `),
  (SELECT count(*) FROM _honker_live INDEXED BY _honkerx_live_held WHERE queue = n.queue AND state = 'held'),
  (SELECT count(*)` + whereOverdueWaiting + `) + (SELECT count(*)` + whereSpent + `)
    + (SELECT count(*)` + whereLapsed + ` AND (attempts >= max_attempts OR expires_at <= ?2)),
  (SELECT count(*) FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = n.queue),
  ` + firstOfLevels("<= ?2") + `,
  ` + firstOfLevels("> ?2") + `,
  (SELECT claim_expires_at FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = n.queue AND state = 'processing' AND claim_expires_at >= ?2 AND` + canRun + `
    ORDER BY claim_expires_at LIMIT 1)`

// skipScan is a table expression, named, of the queues in a partial index: one seek each, however
// many jobs they have.
func skipScan(name, table, index, condition string) string {
	from := `(SELECT min(queue) FROM ` + table + ` INDEXED BY ` + index + ` WHERE ` + condition
	return name + `(queue) AS (SELECT ` + from + `) UNION ALL
    SELECT ` + from + ` AND queue > s.queue) FROM ` + name + ` AS s WHERE s.queue IS NOT NULL)`
}

var (
	sqlQueueStats = `SELECT ` + statsColumns + ` FROM (SELECT ?1 AS queue) AS n`

	sqlAllStats = `WITH RECURSIVE
  ` + skipScan("waiting", liveTable, "_honkerx_live_pending", "state = 'pending'") + `,
  ` + skipScan("running", liveTable, "_honker_live_processing_deadline", "state = 'processing'") + `,
  ` + skipScan("held", liveTable, "_honkerx_live_held", "state = 'held'") + `,
  ` + skipScan("dead", "_honker_dead", "_honkerx_dead_queue", "1") + `
SELECT ` + statsColumns + ` FROM (SELECT queue FROM waiting UNION SELECT queue FROM running
  UNION SELECT queue FROM held UNION SELECT queue FROM dead) AS n
WHERE n.queue IS NOT NULL ORDER BY n.queue`
)

// Stats counts what lies in queue.
func (Jobs) Stats(ctx context.Context, q Querier, queue string, now int64) (QueueStats, error) {
	all, err := readStats(ctx, q, sqlQueueStats, queue, now)
	if err != nil {
		return QueueStats{}, err
	}
	return all[0], nil
}

// AllStats counts what lies in each queue that has jobs or dead letters, by name.
func (Jobs) AllStats(ctx context.Context, q Querier, now int64) ([]QueueStats, error) {
	return readStats(ctx, q, sqlAllStats, nil, now)
}

func readStats(ctx context.Context, q Querier, query string, queue any, now int64) (all []QueueStats, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var s QueueStats
		var oldest, due, lapse number
		err := rows.Scan(&s.Queue, &s.Ready, &s.Scheduled, &s.Running, &s.Lapsed, &s.Held, &s.Expired, &s.Dead, &oldest, &due, &lapse)
		s.OldestReady, s.NextAt = int64(oldest), nextOf(due, lapse)
		all = append(all, s)
		return err
	}, queue, now)
	return all, err
}
