package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// forecast predicts a queue's next claims without claiming: whether they take a job, after how many
// others, and what keeps it from starting. It assumes that each claim takes a single job, that all claims
// happen at the same moment, and that the workers have room for every job.
//
// The prediction follows ClaimAt and keyTriggers step by step. A model test compares them.
type forecast struct {
	row.QueueForecast

	now, nowMS int64
	most       int // bound on the jobs counted as ahead of a job
	tat        float64
	settled    []candidate    // jobs that the next claim makes claimable before it takes any
	freed      map[int64]bool // held jobs that the next claim releases by dead-lettering another job

	keyed bool                    // the queue has limits on keys
	head  []candidate             // if keyed, the first jobs in claim order
	more  bool                    // more jobs may follow head
	keys  map[string]*keyForecast // the keys read so far
}

// candidate is a job that a claim considers.
type candidate struct {
	id, priority, runAt int64
	key                 string // empty if the job has no key
	reserved            bool   // runAt is a start assigned by its key's rate
}

// compare orders candidates as claims do: highest priority first, then by time and id.
func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
}

// forecastJobs bounds the jobs that a forecast examines individually.
const forecastJobs = 1000

// These statements use the primary key, the index of claim deadlines, and the index of cancelled jobs'
// slots.
var (
	sqlForecastRow = `SELECT rate_tat_ms, ` + hasKeyLimits + ` FROM _honkerx_queues WHERE queue = ?1`

	sqlCountRunning = `SELECT count(*), ` + cancelled("?1", "", "?2 * 1000") + ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at >= ?2`
)

// sqlJobSide uses the primary keys.
const sqlJobSide = `SELECT ifnull(s.wait, 0) & 1, ifnull(s.wait, 0) & 2 > 0, ifnull(s.slot, 0) = 2, u.job_id
FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.next_id = s.job_id
WHERE s.job_id = ?1`

// jobSideOf returns a job's JobSide. It is zero for a job without a side row.
func jobSideOf(ctx context.Context, q row.Querier, id int64) (s row.JobSide, err error) {
	_, err = rows.One(ctx, q, sqlJobSide, []any{id}, &s.Reserved, &s.Paused, &s.Held, (*rows.Number)(&s.After))
	return s, err
}

// These statements find running jobs by the index of claim deadlines, and a key's running jobs by
// _honkerx_job_key.
const (
	sqlRunningJobs = `SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at >= ?2 ORDER BY claim_expires_at, id LIMIT ?3 + 0`

	sqlRunningJobsOfKey = `SELECT s.job_id FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
WHERE s.queue = ?1 AND s.key = ?4 AND s.slot = 1 AND l.claim_expires_at >= ?2 LIMIT ?3 + 0`

	// An empty ?4 selects all keys.
	sqlCancelledJobs = `SELECT job_id FROM _honkerx_cancelled WHERE queue = ?1 AND (?4 = '' OR key = ?4) AND until_ms > ?2 * 1000 LIMIT ?3 + 0`
)

// runningJobs returns the ids of up to limit jobs in queue whose claims are valid at the second now. An
// empty key selects all keys.
func runningJobs(ctx context.Context, q row.Querier, queue, key string, now int64, limit int) ([]int64, error) {
	if key == "" {
		return rows.ReturnedIDs(ctx, q, sqlRunningJobs, 0, queue, now, limit)
	}
	return rows.ReturnedIDs(ctx, q, sqlRunningJobsOfKey, 0, queue, now, limit, key)
}

// cancelledJobs returns the ids of up to limit cancelled jobs that still occupy a slot in queue at the
// second now. An empty key selects all keys.
func cancelledJobs(ctx context.Context, q row.Querier, queue, key string, now int64, limit int) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlCancelledJobs, 0, queue, now, limit, key)
}

// sqlOpenEdges uses _honkerx_after_waiter.
const sqlOpenEdges = `SELECT * FROM (SELECT job_id, batch, 1 FROM _honkerx_after INDEXED BY _honkerx_after_waiter
  WHERE waiter = ?1 AND state = 2 LIMIT ?2 + 0)
UNION ALL
SELECT * FROM (SELECT job_id, batch, 0 FROM _honkerx_after INDEXED BY _honkerx_after_waiter
  WHERE waiter = ?1 AND state = 0 LIMIT ?2 + 0)`

// openEdges returns the edges that hold a job: up to limit edges to dead jobs or batches, followed by up
// to limit edges to unfinished ones.
func openEdges(ctx context.Context, q row.Querier, id int64, limit int) (all []row.Edge, err error) {
	err = rows.Each(ctx, q, sqlOpenEdges, func(r *sql.Rows) error {
		var e row.Edge
		err := r.Scan((*rows.Number)(&e.Job), (*rows.Number)(&e.Batch), &e.Dead)
		all = append(all, e)
		return err
	}, id, limit)
	return all, err
}

var sqlHighestJob = rows.SequenceOf("_honker_live")

// highest returns the highest job id ever assigned.
func highest(ctx context.Context, q row.Querier) (id int64, err error) {
	_, err = rows.One(ctx, q, sqlHighestJob, nil, (*rows.Number)(&id))
	return id, err
}

// sqlUnsettled selects the jobs that a claim settles first: jobs whose claim has lapsed, jobs without
// attempts left and, if ?4 is set, expired jobs. The second half of a row is the job that takes over the
// unique key when the first job ends. The lookups use the same indexes as the claim.
var sqlUnsettled = `SELECT l.id, l.priority, l.run_at, s.key, l.attempts >= l.max_attempts OR ifnull(l.expires_at <= ?2, 0),
  n.id, n.priority, n.run_at, (SELECT key FROM _honkerx_job WHERE job_id = n.id)
FROM (
  SELECT * FROM (SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 ORDER BY claim_expires_at, id LIMIT ?3 + 0)
  UNION ALL
  SELECT * FROM (SELECT id FROM _honker_live INDEXED BY _honkerx_live_exhausted
    WHERE queue = ?1 AND state = 'pending' AND attempts >= max_attempts AND run_at <= ?2
      AND (expires_at IS NULL OR expires_at > ?2) ORDER BY run_at, id LIMIT ?3 + 0)
  UNION ALL
  SELECT * FROM (SELECT id FROM _honker_live INDEXED BY _honkerx_live_deadline
    WHERE ?4 AND queue = ?1 AND state = 'pending' AND expires_at <= ?2 ORDER BY expires_at, id LIMIT ?3 + 0)) AS c
CROSS JOIN _honker_live AS l ON l.id = c.id
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id
LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.job_id = l.id
LEFT JOIN _honker_live AS n ON n.id = u.next_id AND n.state = 'held' AND (n.expires_at IS NULL OR n.expires_at > ?2)
  AND NOT ` + waits("n.id") + `
`

// sqlFreedWaiters selects the queue's jobs that wait only for jobs in ?3, which the next claim
// dead-letters, and that a dead predecessor releases. It uses the primary keys and _honkerx_after_waiter.
const sqlFreedWaiters = `SELECT l.id, l.priority, l.run_at, s.key
FROM json_each(?3) AS d CROSS JOIN _honkerx_after AS a ON a.job_id = d.value AND a.state = 0 AND a.if_dead = 1
CROSS JOIN _honker_live AS l ON l.id = a.waiter AND l.queue = ?1 AND l.state = 'held' AND (l.expires_at IS NULL OR l.expires_at > ?2)
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id
LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.next_id = l.id
WHERE ifnull(s.slot, 0) <> 2 AND u.next_id IS NULL AND NOT EXISTS (
    SELECT 1 FROM _honkerx_after WHERE waiter = l.id AND state = 2
    UNION ALL SELECT 1 FROM _honkerx_after WHERE waiter = l.id AND state = 0
      AND (if_dead = 0 OR job_id NOT IN (SELECT value FROM json_each(?3))))`

// sqlKeysOfEnded selects the keys of expired slots, which the next claim deletes. It uses
// _honkerx_cancelled_key.
const sqlKeysOfEnded = `SELECT DISTINCT key FROM _honkerx_cancelled WHERE queue = ?1 AND key IS NOT NULL AND until_ms <= ?2 * 1000 LIMIT ?3 + 0`

// newForecast reads the part of queue's state at nowMS that does not depend on a particular job. It counts
// up to most jobs as ahead of a job. It writes nothing.
func newForecast(ctx context.Context, q row.Querier, queue string, most int, nowMS int64) (*forecast, error) {
	o := &forecast{QueueForecast: row.QueueForecast{Name: queue}, now: nowMS / 1000, nowMS: nowMS, most: most, freed: make(map[int64]bool), keys: make(map[string]*keyForecast)}
	pause, paused, err := Pauses{}.Get(ctx, q, queue, o.now)
	if err != nil {
		return nil, err
	}
	if paused {
		o.Pause = &pause
	}
	if o.Limits, err = (Limits{}).Get(ctx, q, queue); err != nil {
		return nil, err
	}
	var tat sql.NullFloat64
	if _, err := rows.One(ctx, q, sqlForecastRow, []any{queue}, &tat, &o.keyed); err != nil {
		return nil, err
	}
	o.tat = tat.Float64
	if _, err := rows.One(ctx, q, sqlCountRunning, []any{queue, o.now}, &o.Running, &o.Cancelled); err != nil {
		return nil, err
	}
	o.Running += o.Cancelled
	found, err := Jobs{}.overdue(ctx, q, queue, o.now)
	if err != nil {
		return nil, err
	}
	var over []string
	if found.some {
		if over, err = o.settle(ctx, q, found.limited); err != nil {
			return nil, err
		}
	}
	if found.unfitted {
		keys, err := rows.Texts(ctx, q, sqlKeysOfEnded, queue, o.now, rows.OverdueLimit)
		if err != nil {
			return nil, err
		}
		over = append(over, keys...)
	}
	if !o.keyed {
		return o, nil
	}
	return o, o.readHead(ctx, q, over)
}

// settle reads the jobs that the next claim settles first, and adds those that become claimable to the
// candidates. It returns the keys that gain a free slot.
func (o *forecast) settle(ctx context.Context, q row.Querier, limited bool) (keys []string, err error) {
	var dying []int64
	err = rows.Each(ctx, q, sqlUnsettled, func(r *sql.Rows) error {
		var c, next candidate
		var over bool
		err := r.Scan((*rows.Number)(&c.id), (*rows.Number)(&c.priority), (*rows.Number)(&c.runAt), (*rows.Text)(&c.key), &over,
			(*rows.Number)(&next.id), (*rows.Number)(&next.priority), (*rows.Number)(&next.runAt), (*rows.Text)(&next.key))
		if over {
			dying = append(dying, c.id)
			o.free(next)
		} else {
			o.settled = append(o.settled, c)
		}
		if c.key != "" && !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
		return err
	}, o.Name, o.now, rows.OverdueLimit, limited)
	if err != nil || len(dying) == 0 {
		return keys, err
	}
	return keys, rows.Each(ctx, q, sqlFreedWaiters, func(r *sql.Rows) error {
		var c candidate
		err := r.Scan((*rows.Number)(&c.id), (*rows.Number)(&c.priority), (*rows.Number)(&c.runAt), (*rows.Text)(&c.key))
		o.free(c)
		return err
	}, o.Name, o.now, rows.IDList(dying))
}

// free records a job that the next claim releases before it takes any jobs. A zero candidate is ignored.
func (o *forecast) free(c candidate) {
	if c.id == 0 || o.freed[c.id] {
		return
	}
	o.freed[c.id] = true
	if c.runAt <= o.now {
		o.settled = append(o.settled, c)
	}
}

// of predicts how the next claims treat a job in the queue that is due. runAt is its time as stored.
func (o *forecast) of(ctx context.Context, q row.Querier, job row.Job, runAt int64, side row.JobSide) (s row.JobForecast, err error) {
	c := candidate{id: job.ID, priority: job.Priority, runAt: runAt, key: job.Key, reserved: side.Reserved}
	if o.keyed {
		err = o.byKeys(ctx, q, c, &s)
	} else {
		s.Ahead, err = o.count(ctx, q, c)
	}
	if err != nil {
		return s, err
	}
	o.queueLimits(&s)
	return s, nil
}

// queueLimits applies the queue's limits to the jobs ahead of a job.
func (o *forecast) queueLimits(s *row.JobForecast) {
	if o.Limits.Running > 0 {
		s.QueueFull = s.Ahead.N >= o.Limits.Running-o.Running
	}
	if o.Limits.Rate.N == 0 {
		return
	}
	now, every, burst := float64(o.nowMS), o.Limits.Rate.Every(), float64(o.Limits.Rate.Burst)
	starts, next := startsAt(now, every, burst, o.tat)
	s.RateSpent = s.Ahead.N >= starts
	if starts == 0 {
		s.Next = row.InstantMS(firstTick(next))
	}
	tat := o.tat
	if tat < now || tat > now+every*burst+1000 { // the clock went back; see startsAt
		tat = now
	}
	s.About = row.InstantMS(firstTick(tat + every*(float64(s.Ahead.N)+1-burst)))
}

// firstTick returns the first millisecond at which a start due at ms is allowed.
func firstTick(ms float64) int64 { return int64(math.Ceil(ms - startSlack)) }

// sqlCountAhead counts the pending jobs ahead of a position in claim order, level by level. Jobs that can
// no longer run are skipped but count toward the limit.
var sqlCountAhead = levelsIf("?1", "1") + `
SELECT count(*), ifnull(sum(ok), 0) FROM (
  SELECT l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2) AS ok
  FROM lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
  WHERE lv.p >= ?4 AND l.queue = ?1 AND l.state = 'pending' AND l.priority = lv.p AND l.run_at <= ?2
    AND (l.priority > ?4 OR l.run_at < ?5 OR l.run_at = ?5 AND l.id < ?6)
  LIMIT ?3 + 0)`

// count returns the number of jobs ahead of c in a queue without limits on keys.
func (o *forecast) count(ctx context.Context, q row.Querier, c candidate) (ahead row.Count, err error) {
	var looked, ok int64
	_, err = rows.One(ctx, q, sqlCountAhead, []any{o.Name, o.now, o.most, c.priority, c.runAt, c.id}, &looked, &ok)
	for _, s := range o.settled {
		if s.compare(c) < 0 {
			ok++
		}
	}
	return row.Count{N: ok, More: looked >= int64(o.most)}, err
}
