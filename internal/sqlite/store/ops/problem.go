package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

// Problems contains the statements that look for problems in a file. Each reads a limited number of rows and reports
// a limited number of problems.
type Problems struct{}

const (
	mostProblems = `100`    // per kind
	mostRead     = `100000` // index entries read per statement
	mostCounted  = 10_000
	oneMore      = `10001`
)

// boundedCount returns the result of a count that stops at mostCounted + 1.
func boundedCount(n int64) row.Count { return row.Count{N: min(n, mostCounted), More: n > mostCounted} }

// sqlLapsedSince uses the index of claims, (queue, deadline), up to the first claim that another worker
// could take over.
const sqlLapsedSince = `SELECT claim_expires_at FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
ORDER BY claim_expires_at LIMIT 1`

// LapsedSince returns the time at which queue's oldest lapsed claim expired, considering only jobs with
// attempts left that have not expired. It returns the zero time if there is none.
func (Problems) LapsedSince(ctx context.Context, q row.Querier, queue string, now time.Time) (since time.Time, err error) {
	_, err = rows.One(ctx, q, sqlLapsedSince, []any{queue, now.Unix()}, (*rows.Second)(&since))
	return since, err
}

// sqlErrors reads up to ?4 entries from the indexes of dead and of waiting jobs, the latter for each of the first five
// priorities and on both sides of now, and looks up their errors by primary key.
const sqlErrors = `WITH RECURSIVE p(n, i) AS (
  SELECT (SELECT priority` + waitingAt + ` ORDER BY priority DESC LIMIT 1), 1 UNION ALL
  SELECT (SELECT priority` + waitingAt + ` AND priority < p.n ORDER BY priority DESC LIMIT 1), i + 1 FROM p WHERE p.n IS NOT NULL AND i < 5)
SELECT id, attempts, last_error, 1 FROM (SELECT id, attempts, last_error FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = ?1 AND died_at > ?2 ORDER BY died_at DESC LIMIT ?4 + 0)
UNION ALL SELECT s.job_id, l.attempts, s.last_error, 0 FROM p CROSS JOIN _honkerx_job AS s CROSS JOIN _honker_live AS l ON l.id = s.job_id
  WHERE s.job_id IN (SELECT id` + waitingAt + ` AND priority = p.n AND run_at > ?3 ORDER BY run_at LIMIT ?4 + 0)
UNION ALL SELECT s.job_id, l.attempts, s.last_error, 0 FROM p CROSS JOIN _honkerx_job AS s CROSS JOIN _honker_live AS l ON l.id = s.job_id
  WHERE s.job_id IN (SELECT id` + waitingAt + ` AND priority = p.n AND run_at <= ?3 ORDER BY run_at DESC LIMIT ?4 + 0)`

const waitingAt = ` FROM _honker_live INDEXED BY _honkerx_live_pending WHERE queue = ?1 AND state = 'pending'`

// Errors implements engine.ProblemStore.
func (Problems) Errors(ctx context.Context, q row.Querier, queue string, since time.Time, limit int, now time.Time) (all []row.FailedJob, err error) {
	err = rows.Each(ctx, q, sqlErrors, func(r *sql.Rows) error {
		var f row.FailedJob
		err := r.Scan(&f.ID, (*rows.Number)(&f.Attempts), (*rows.Text)(&f.Error), &f.Dead)
		if f.Error != "" {
			all = append(all, f)
		}
		return err
	}, queue, since.Unix(), now.Unix(), limit)
	return all, err
}

// Problems returns the database's problems. Each statement reads a limited number of rows.
func (Problems) Problems(ctx context.Context, q row.Querier, ages row.ProblemAges, now time.Time) (t row.Troubles, err error) {
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, look := range []func() error{
		func() (err error) { t.DeadMembers, err = deadMembers(ctx, q); return err },
		func() (err error) { t.HeldFree, err = heldFree(ctx, q); return err },
		func() (err error) { t.Deaths, err = diedSince(ctx, q, before(ages.Death).Unix()); return err },
		func() (err error) {
			t.KeyPauses, err = oldKeyPauses(ctx, q, before(ages.Pause).UnixMilli())
			return err
		},
		func() (err error) { t.Late, err = lateTasks(ctx, q, before(ages.Late).Unix()-1); return err },
		func() (err error) { t.Skips, err = skippedFires(ctx, q); return err },
		func() (err error) { t.Behind, err = behind(ctx, q, before(ages.Unseen).Unix(), now.Unix()); return err },
		func() (err error) { _, err = rows.One(ctx, q, sqlNewest, nil, (*rows.Second)(&t.Newest)); return err },
	} {
		if err := look(); err != nil {
			return row.Troubles{}, err
		}
	}
	return t, nil
}

// sqlDiedSince uses the index (queue, died_at). It reads only each queue's recent entries.
var sqlDiedSince = `WITH RECURSIVE ` + rows.SkipScan("n", "queue", "_honker_dead INDEXED BY _honkerx_dead_queue WHERE 1") + `
SELECT queue, d, first FROM (SELECT n.queue AS queue,
    (SELECT count(*) FROM (SELECT 1 FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = n.queue AND died_at > ?1 LIMIT ` + oneMore + `)) AS d,
    (SELECT min(died_at) FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = n.queue AND died_at > ?1) AS first
  FROM n WHERE n.queue IS NOT NULL) WHERE d > 0 LIMIT ` + mostProblems

// diedSince returns, by queue, the jobs that died after since and are still dead.
func diedSince(ctx context.Context, q row.Querier, since int64) (all []row.QueueDeaths, err error) {
	err = rows.Each(ctx, q, sqlDiedSince, func(r *sql.Rows) error {
		var d row.QueueDeaths
		var n int64
		err := r.Scan(&d.Queue, &n, (*rows.Second)(&d.First))
		d.N = boundedCount(n)
		all = append(all, d)
		return err
	}, since)
	return all, err
}

// sqlDeadMembers uses the edges' index (waiter, state), and primary keys.
const sqlDeadMembers = `SELECT l.queue, count(DISTINCT a.waiter), min(a.waiter), max(a.job_id), ifnull(min(d.died_at), 0)
FROM (SELECT job_id, waiter, state FROM _honkerx_after INDEXED BY _honkerx_after_waiter LIMIT ` + mostRead + `) AS a
JOIN _honker_live AS l ON l.id = a.waiter LEFT JOIN _honker_dead AS d ON d.id = a.job_id
WHERE a.state = 2 GROUP BY l.queue ORDER BY l.queue LIMIT ` + mostProblems

// deadMembers returns, by queue, the jobs that are waiting for dead jobs.
func deadMembers(ctx context.Context, q row.Querier) (all []row.DeadMembers, err error) {
	err = rows.Each(ctx, q, sqlDeadMembers, func(r *sql.Rows) error {
		var d row.DeadMembers
		err := r.Scan(&d.Queue, &d.N, &d.Waiter, &d.Member, (*rows.Second)(&d.Since))
		all = append(all, d)
		return err
	})
	return all, err
}

// sqlLateTasks uses the index of due tasks.
const sqlLateTasks = `SELECT name, next_fire_at FROM _honker_scheduler_tasks INDEXED BY _honkerx_scheduler_due
WHERE enabled = 1 AND next_fire_at <= ?1 ORDER BY next_fire_at LIMIT ` + mostProblems

// lateTasks returns the enabled schedules whose next time is at or before by.
func lateTasks(ctx context.Context, q row.Querier, by int64) (all []row.Late, err error) {
	err = rows.Each(ctx, q, sqlLateTasks, func(r *sql.Rows) error {
		var l row.Late
		err := r.Scan(&l.Name, (*rows.Second)(&l.At))
		all = append(all, l)
		return err
	}, by)
	return all, err
}

// sqlSkippedFires walks the side rows of schedules and finds the schedules by name.
const sqlSkippedFires = `SELECT t.name, t.queue, x.last_skip_ms FROM _honkerx_schedules AS x JOIN _honker_scheduler_tasks AS t ON t.name = x.name
WHERE t.enabled = 1 AND x.last_skip_ms > ifnull(x.last_fire_ms, 0) ORDER BY t.name LIMIT ` + mostProblems

// skippedFires returns the enabled schedules that have skipped their last time.
func skippedFires(ctx context.Context, q row.Querier) (all []row.SkippedFire, err error) {
	err = rows.Each(ctx, q, sqlSkippedFires, func(r *sql.Rows) error {
		var s row.SkippedFire
		err := r.Scan(&s.Name, &s.Queue, (*rows.Milli)(&s.At))
		all = append(all, s)
		return err
	})
	return all, err
}

// sqlBehind finds consumers and groups by primary key, and their events by (topic, offset). It omits consumers with a
// pattern or a filter, because finding their next event may require reading all events. It doesn't report a group
// with a live member.
const sqlBehind = `WITH r(kind, name, topic, offset, ack) AS (
  SELECT 'consumer', c.name, c.topic, c.offset, coalesce(x.last_ack_ms, x.created_ms, 0) FROM _honker_stream_consumers AS c
    LEFT JOIN _honkerx_consumers AS x ON x.topic = c.topic AND x.name = c.name WHERE substr(c.topic, -1) <> '*' AND x.filter IS NULL
  UNION ALL
  SELECT 'group', g.name, g.topic, min(g.cursor, ` + streams.LowestOpen + `), 0 FROM _honkerx_groups AS g
    WHERE substr(g.topic, -1) <> '*' AND g.filter IS NULL
    AND NOT EXISTS (SELECT 1 FROM _honkerx_group_members AS m WHERE m.group_id = g.id AND m.expires_ms > ?2 * 1000))
SELECT r.kind, r.name, r.topic, s.created_at, r.ack,
  (SELECT count(*) FROM (SELECT 1` + streams.ByTopic + `r.topic AND offset > r.offset LIMIT ` + oneMore + `))
FROM r CROSS JOIN _honker_stream AS s ON s.offset = (SELECT min(offset)` + streams.ByTopic + `r.topic AND offset > r.offset)
WHERE s.created_at <= ?1 - iif(r.ack = 0 AND r.kind = 'consumer', 82800, 0) AND r.ack <= ?1 * 1000 ORDER BY r.topic, r.kind, r.name LIMIT ` + mostProblems

// behind returns the consumers and groups that have not seen an event older than before and have not saved their
// offset since. If the time of the last save is unknown, the event must be another 23 hours older.
func behind(ctx context.Context, q row.Querier, before, now int64) (all []row.Behind, err error) {
	err = rows.Each(ctx, q, sqlBehind, func(r *sql.Rows) error {
		var b row.Behind
		var n int64
		err := r.Scan(&b.Kind, &b.Name, &b.Topic, (*rows.Second)(&b.Oldest), (*rows.Milli)(&b.Acked), &n)
		b.Unseen = boundedCount(n)
		all = append(all, b)
		return err
	}, before, now)
	return all, err
}

// sqlOldKeyPauses scans a table that holds only keys that are paused or rate limited.
const sqlOldKeyPauses = `SELECT queue, key, paused_ms, reason, who FROM _honkerx_keys
WHERE paused_ms <= ?1 AND until_ms IS NULL ORDER BY queue, key LIMIT ` + mostProblems

// oldKeyPauses returns the key pauses that have no end and began at or before beforeMS.
func oldKeyPauses(ctx context.Context, q row.Querier, beforeMS int64) (all []row.OldPause, err error) {
	err = rows.Each(ctx, q, sqlOldKeyPauses, func(r *sql.Rows) error {
		var p row.OldPause
		err := r.Scan(&p.Queue, &p.Key, (*rows.Milli)(&p.Since), (*rows.Text)(&p.Reason), (*rows.Text)(&p.By))
		all = append(all, p)
		return err
	}, beforeMS)
	return all, err
}

// sqlHeldKeys uses the index of held jobs, (queue, id), and primary keys. A pause without an end also
// holds jobs.
const sqlHeldKeys = `SELECT h.queue, h.key, h.n, h.job_id, iif(q.in_order = 1, 1, ifnull(q.per_key, 0)), ifnull(q.in_order = 1, 0)
FROM (SELECT queue, key, count(*) AS n, min(job_id) AS job_id FROM (SELECT s.queue, s.key, s.job_id
    FROM _honker_live AS l INDEXED BY _honkerx_live_held CROSS JOIN _honkerx_job AS s ON s.job_id = l.id AND s.slot = 2
    WHERE l.state = 'held' LIMIT 10000) GROUP BY queue, key) AS h
LEFT JOIN _honkerx_queues AS q ON q.queue = h.queue LEFT JOIN _honkerx_keys AS k ON k.queue = h.queue AND k.key = h.key
WHERE (k.paused_ms IS NULL OR k.until_ms IS NOT NULL) AND q.fit_job IS NULL
  AND NOT EXISTS (SELECT 1 FROM _honkerx_cancelled AS c WHERE c.queue = h.queue AND c.key = h.key) LIMIT ` + mostProblems

// sqlKeyHasRoom uses _honkerx_job_key, reading at most as many of the key's jobs as may run, and primary keys. If the
// queue runs in order, a job that is waiting for something else blocks the jobs behind it.
const sqlKeyHasRoom = `SELECT EXISTS (SELECT 1 FROM _honkerx_job WHERE job_id = ?3 AND slot = 2)
AND (?4 = 0 OR ?4 > (SELECT count(*) FROM (SELECT 1 FROM _honkerx_job AS s INDEXED BY _honkerx_job_key JOIN _honker_live AS l ON l.id = s.job_id
  WHERE s.queue = ?1 AND s.key = ?2 AND (s.slot = 1 OR s.slot = 0 AND (l.state = 'pending' OR ?5 AND s.job_id < ?3))
  LIMIT ?4 + 0)))`

// heldFree returns the keys that have a held job even though their limits would let another job run. Check applies
// the same rule.
func heldFree(ctx context.Context, q row.Querier) (free []row.HeldKey, err error) {
	var held []row.HeldKey
	err = rows.Each(ctx, q, sqlHeldKeys, func(r *sql.Rows) error {
		var k row.HeldKey
		err := r.Scan(&k.Queue, &k.Key, &k.N, &k.First, (*rows.Number)(&k.PerKey), &k.InOrder)
		held = append(held, k)
		return err
	})
	for _, k := range held {
		var room bool
		if _, err := rows.One(ctx, q, sqlKeyHasRoom, []any{k.Queue, k.Key, k.First, k.PerKey, k.InOrder}, &room); err != nil {
			return nil, err
		}
		if room {
			free = append(free, k)
		}
	}
	return free, err
}

// sqlNewest reads the last rows of both tables by primary key.
const sqlNewest = `SELECT max(ifnull((SELECT created_at FROM _honker_live ORDER BY id DESC LIMIT 1), 0),
  ifnull((SELECT created_at FROM _honker_stream ORDER BY offset DESC LIMIT 1), 0))`

// Both tables are small: they hold only topics and queues that were configured.
const sqlRetains = `SELECT (SELECT count(*) FROM _honkerx_retention),
  (SELECT count(*) FROM _honkerx_queues WHERE done_count IS NOT NULL OR dead_count > 0 OR dead_age_ms > 0)`

// Retains returns the number of topics and the number of queues that have a retention.
func (Problems) Retains(ctx context.Context, q row.Querier) (topics, queues int64, err error) {
	_, err = rows.One(ctx, q, sqlRetains, nil, &topics, &queues)
	return topics, queues, err
}
