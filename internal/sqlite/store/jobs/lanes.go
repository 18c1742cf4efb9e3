package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

var sqlOverdueLanes = `SELECT k.value, ` + overdue("k.value") + `, ` + limited("k.value") + ` FROM json_each(?1) AS k
WHERE ` + overdue("k.value") + ` OR ` + limited("k.value")

// strictDue visits the priority levels of all lanes in lane order, and each level as a claim of a
// single queue does. SQLite reads a later lane only if the earlier lanes have returned fewer jobs
// than the limit.
var strictDue = `WITH RECURSIVE lv(lane, queue, p) AS (
    SELECT k.key, k.value, (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = k.value AND state = 'pending' ORDER BY priority DESC LIMIT 1)
    FROM json_each(?1) AS k WHERE NOT ` + paused("k.value") + `
    UNION ALL
    SELECT lv.lane, lv.queue, (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = lv.queue AND state = 'pending' AND priority < lv.p ORDER BY priority DESC LIMIT 1)
    FROM lv WHERE lv.p IS NOT NULL
    ORDER BY 1, 3 DESC)
  SELECT l.id FROM ` + due("lv.queue") + `
  LIMIT ?3 + 0`

// fairDue walks the jobs of all lanes in the order of their tags. It knows the next job of each
// lane, takes the job with the lowest tag, and then seeks the next job of that lane: with the same
// priority and time, else with a later time, else with a lower priority. It reads a row per
// returned job and a row per lane, however many jobs wait.
//
// An exhausted lane yields a NULL, which the LIMIT of the walk counts too. Each NULL follows a job
// of its lane, so at most ?3 - 1 of them come before the last job. LIMIT -1 makes SQLite parse the
// JSON and seek the first jobs once instead of at every use.
var fairDue = `WITH RECURSIVE walk(tag, lane, queue, step, id) AS (
    SELECT start, lane, queue, step, id FROM (
      SELECT k.start, k.lane, k.queue, k.step, coalesce(
        (` + headOfTop("k.queue") + `),
        (` + levels("k.queue") + ` SELECT l.id FROM ` + due("k.queue") + ` LIMIT 1)) AS id
      FROM (SELECT key AS lane, json_extract(value, '$[0]') AS queue,
        json_extract(value, '$[1]') AS start, json_extract(value, '$[2]') AS step FROM json_each(?1) LIMIT -1) AS k
      WHERE NOT ` + paused("k.queue") + ` LIMIT -1)
    WHERE id IS NOT NULL
    UNION ALL
    SELECT w.tag + w.step, w.lane, w.queue, w.step, coalesce(
      (` + following(`l.run_at = c.run_at AND l.id > c.id`) + `),
      (` + following(`l.run_at > c.run_at AND l.run_at <= ?2`) + `),
      (` + levelsBelow("w.queue", "w.id") + ` SELECT l.id FROM ` + due("w.queue") + ` LIMIT 1))
    FROM walk AS w WHERE w.id IS NOT NULL
    ORDER BY 1, 2 LIMIT ?3 + max(0, min(?3 - 1, json_array_length(?1))))
  SELECT id FROM walk WHERE id IS NOT NULL
  LIMIT ?3 + 0`

var (
	sqlClaimStrict     = claiming(strictDue) + `, queue`
	sqlClaimStrictKeys = candidates(strictDue)
	sqlClaimFair       = claiming(fairDue) + `, queue`
	sqlClaimFairKeys   = candidates(fairDue)
)

// headOfTop returns a query for the first claimable job of queue among those with the highest
// priority. Such a job nearly always exists, and this query is cheaper than a look at all levels.
func headOfTop(queue string) string {
	return `SELECT l.id FROM _honker_live AS l INDEXED BY _honkerx_live_pending
        WHERE l.queue = ` + queue + ` AND l.state = 'pending'
          AND l.priority = (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
            WHERE queue = ` + queue + ` AND state = 'pending' ORDER BY priority DESC LIMIT 1)
          AND l.run_at <= ?2 AND l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)
        LIMIT 1`
}

// following returns a query for the first claimable job after the current job of the walk that has
// the same priority and satisfies then. Callers use it twice, because with (run_at, id) > (…)
// SQLite would read all jobs of the same second again.
func following(then string) string {
	return `SELECT l.id FROM _honker_live AS c CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
        WHERE c.id = w.id AND l.queue = w.queue AND l.state = 'pending' AND l.priority = c.priority
          AND ` + then + ` AND l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)
        LIMIT 1`
}

// levelsBelow is like levels but starts below the priority of the job id.
func levelsBelow(queue, id string) string {
	return `WITH RECURSIVE lv(p) AS (
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending'
        AND priority < (SELECT priority FROM _honker_live WHERE id = ` + id + `) ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending' AND priority < lv.p ORDER BY priority DESC LIMIT 1)
    FROM lv WHERE lv.p IS NOT NULL)`
}

// ClaimStrict is like ClaimAt but claims from several queues. It claims from a later queue only
// when the earlier queues have no more jobs to claim.
func (j Jobs) ClaimStrict(ctx context.Context, q row.Querier, queues []string, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, error) {
	c := claim{claim: sqlClaimStrict, keys: sqlClaimStrictKeys, worker: worker, expires: expires,
		list: func(open []string) (any, error) { return rows.NameList(open), nil }}
	return j.claimLanes(ctx, q, queues, c, n, nowMS)
}

// ClaimFair is like ClaimAt but claims from several queues, which take turns as described at
// row.Lane.
func (j Jobs) ClaimFair(ctx context.Context, q row.Querier, lanes []row.Lane, worker string, n int, nowMS, expires int64) ([]*row.Job, []row.Death, error) {
	queues := make([]string, len(lanes))
	for i, l := range lanes {
		queues[i] = l.Queue
	}
	c := claim{claim: sqlClaimFair, keys: sqlClaimFairKeys, worker: worker, expires: expires,
		list: func(open []string) (any, error) {
			r := make([][3]any, 0, len(lanes))
			for _, l := range lanes {
				if slices.Contains(open, l.Queue) {
					r = append(r, [3]any{l.Queue, l.Start, l.Step})
				}
			}
			list, err := json.Marshal(r)
			return string(list), err
		}}
	jobs, dead, err := j.claimLanes(ctx, q, queues, c, n, nowMS)
	sortFair(jobs, lanes, queues)
	return jobs, dead, err
}

// claimLanes runs the claim c on the given queues. It sorts the jobs by the position of their queue, then in
// claim order.
func (j Jobs) claimLanes(ctx context.Context, q row.Querier, queues []string, c claim, n int, nowMS int64) (jobs []*row.Job, dead []row.Death, err error) {
	c.now = nowMS / 1000
	dead, settled, limits, err := j.settleLanes(ctx, q, queues, c.now)
	if err != nil {
		return nil, nil, err
	}
	r := newJobRow()
	r.into = append(r.into, &r.job.Queue)
	r.job, r.times.ClaimExpiresAt = row.Job{State: "processing", WorkerID: c.worker}, c.expires
	c.these = sqlClaimThese + `, queue`
	c.got = func(rs *sql.Rows) error {
		job, err := r.claimed(rs)
		jobs = append(jobs, job)
		return err
	}
	changed, err := c.open(ctx, q, queues, limits, n, nowMS)
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) > 0 || settled || changed || n == 0 {
		slices.SortFunc(jobs, func(a, b *row.Job) int {
			return cmp.Or(cmp.Compare(slices.Index(queues, a.Queue), slices.Index(queues, b.Queue)), r.compare(a, b))
		})
		return jobs, dead, nil
	}
	for _, queue := range queues {
		if err := j.stuck(ctx, q, queue, nowMS); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

// settleLanes settles overdue jobs of queues and reports whether it settled any. A single read
// finds the queues that have such jobs. limits returns the queues that have limits.
func (j Jobs) settleLanes(ctx context.Context, q row.Querier, queues []string, now int64) (dead []row.Death, settled bool, limits []string, err error) {
	var late []string
	var queue string
	var overdue, limited bool
	err = rows.Each(ctx, q, sqlOverdueLanes, func(r *sql.Rows) error {
		err := r.Scan(&queue, &overdue, &limited)
		if overdue {
			late = append(late, queue)
		}
		if limited {
			limits = append(limits, queue)
		}
		return err
	}, rows.NameList(queues), now)
	for _, queue := range late {
		if err != nil {
			break
		}
		var died []row.Death
		var some bool
		died, some, _, err = j.settleOverdue(ctx, q, queue, now)
		for i := range died {
			died[i].Queue = queue
		}
		dead, settled = append(dead, died...), settled || some
	}
	return dead, settled, limits, err
}

// sortFair sorts jobs by their tags. The jobs of each queue must be in claim order.
func sortFair(jobs []*row.Job, lanes []row.Lane, queues []string) {
	type tagged struct {
		tag int64
		job *row.Job
	}
	rank := make([]int64, len(lanes))
	all := make([]tagged, len(jobs))
	for i, job := range jobs {
		lane := slices.Index(queues, job.Queue)
		all[i] = tagged{lanes[lane].Start + rank[lane]*lanes[lane].Step, job}
		rank[lane]++
	}
	// The sort is stable, so the earlier lane wins when two tags are equal.
	slices.SortStableFunc(all, func(a, b tagged) int { return cmp.Compare(a.tag, b.tag) })
	for i, t := range all {
		jobs[i] = t.job
	}
}
