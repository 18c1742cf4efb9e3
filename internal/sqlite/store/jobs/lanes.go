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

// lanesDue walks all lanes' jobs in tag order, then in claim order. It knows each lane's next job, takes
// the first of these jobs, and then seeks the next job in that lane: with the same priority and time, else
// with a later time, else with a lower priority. It reads a row per returned job and a row per lane, however
// many jobs wait. It leaves a lane that has no room for another job.
//
// LIMIT -1 makes SQLite parse the JSON once instead of at every use.
var lanesDue = `WITH RECURSIVE walk(tag, priority, run_at, id, queue, step, room) AS (
    SELECT k.start, l.priority, l.run_at, l.id, k.queue, k.step, k.room
    FROM (SELECT json_extract(value, '$[0]') AS queue, json_extract(value, '$[1]') AS start,
        json_extract(value, '$[2]') AS step, json_extract(value, '$[3]') AS room FROM json_each(?1) LIMIT -1) AS k
      CROSS JOIN _honker_live AS l ON l.id = coalesce(
        (` + headOfTop("k.queue") + `),
        (` + levels("k.queue") + ` SELECT l.id FROM ` + due("k.queue") + ` LIMIT 1))
    WHERE NOT ` + paused("k.queue") + `
    UNION ALL
    SELECT w.tag + w.step, l.priority, l.run_at, l.id, w.queue, w.step, w.room - 1
    FROM walk AS w CROSS JOIN _honker_live AS l ON l.id = coalesce(
      (` + following(`l.run_at = w.run_at AND l.id > w.id`) + `),
      (` + following(`l.run_at > w.run_at AND l.run_at <= ?2`) + `),
      (` + levelsBelow("w.queue", "w.priority") + ` SELECT l.id FROM ` + due("w.queue") + ` LIMIT 1))
    WHERE w.room > 1
    ORDER BY 1, 2 DESC, 3, 4 LIMIT ?3 + 0)
  SELECT id FROM walk`

var (
	sqlClaimLanes     = claiming(lanesDue) + `, queue`
	sqlClaimLanesKeys = candidates(lanesDue)
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
	return `SELECT l.id FROM _honker_live AS l INDEXED BY _honkerx_live_pending
        WHERE l.queue = w.queue AND l.state = 'pending' AND l.priority = w.priority
          AND ` + then + ` AND l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)
        LIMIT 1`
}

// levelsBelow is like levels but starts below priority.
func levelsBelow(queue, priority string) string {
	return `WITH RECURSIVE lv(p) AS (
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending' AND priority < ` + priority + ` ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending' AND priority < lv.p ORDER BY priority DESC LIMIT 1)
    FROM lv WHERE lv.p IS NOT NULL)`
}

// ClaimLanes is like ClaimAt but claims from several queues, in the order described at row.Lane.
func (j Jobs) ClaimLanes(ctx context.Context, q row.Querier, lanes []row.Lane, worker string, n int, nowMS, expires int64) (jobs []*row.Job, dead []row.Death, err error) {
	queues := make([]string, len(lanes))
	for i, l := range lanes {
		queues[i] = l.Queue
	}
	dead, settled, limits, err := j.settleLanes(ctx, q, queues, nowMS/1000)
	if err != nil {
		return nil, nil, err
	}
	r := newJobRow()
	r.into = append(r.into, &r.job.Queue)
	r.job, r.times.ClaimExpiresAt = row.Job{State: "processing", WorkerID: worker}, expires
	c := claim{claim: sqlClaimLanes, keys: sqlClaimLanesKeys, these: sqlClaimThese + `, queue`, now: nowMS / 1000, worker: worker, expires: expires,
		got: func(rs *sql.Rows) (string, error) {
			job, err := r.claimed(rs)
			jobs = append(jobs, job)
			return r.job.Queue, err
		},
	}
	c.list = func(ahead int) (any, error) { return c.laneList(lanes, ahead) }
	changed, err := c.some(ctx, q, queues, limits, n, nowMS)
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) > 0 || settled || changed || n == 0 {
		slices.SortFunc(jobs, r.compare)
		sortLanes(jobs, lanes)
		return jobs, dead, nil
	}
	for _, queue := range queues {
		if err := j.stuck(ctx, q, queue, nowMS); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

// laneList returns the open lanes as the JSON parameter of lanesDue.
func (c *claim) laneList(lanes []row.Lane, ahead int) (string, error) {
	list := make([][4]any, 0, len(lanes))
	for _, l := range lanes {
		if !slices.Contains(c.open, l.Queue) {
			continue
		}
		most := int64(noBound)
		if room := c.room(l.Queue); room != nil {
			if most = room.jobs; most == 0 {
				continue // filled by an earlier pass
			}
			if room.keyed { // jobs that are held for their keys take no room
				most = max(most, int64(ahead))
			}
		}
		list = append(list, [4]any{l.Queue, l.Start, l.Step, most})
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// settleLanes settles overdue jobs of queues and reports whether it settled any. A single read finds the
// queues that have such jobs. limits lists the queues with limits.
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

// sortLanes sorts jobs by their tags. The jobs must be in claim order, in which jobs with the same tag stay.
func sortLanes(jobs []*row.Job, lanes []row.Lane) {
	next := make(map[string]row.Lane, len(lanes))
	for _, l := range lanes {
		next[l.Queue] = l
	}
	tags := make(map[*row.Job]int64, len(jobs))
	for _, job := range jobs {
		l := next[job.Queue]
		tags[job] = l.Start
		l.Start += l.Step
		next[job.Queue] = l
	}
	slices.SortStableFunc(jobs, func(a, b *row.Job) int { return cmp.Compare(tags[a], tags[b]) })
}
