package store

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/honker-go/honker/internal/row"
)

// Outlook is what the next claims of a queue would find, without claiming: whether they take a job, after
// how many others, and what keeps it from starting. It is for claims of one job after the other, at one
// moment, by workers that take all they can get.
//
// It follows the claim step by step, see ClaimAt and keyTriggers; a model test holds the two together.
type Outlook struct {
	Queue     string
	Pause     *row.Pause // nil: none
	Limits    row.QueueLimits
	Running   int64 // jobs with a claim that holds, and those that were cancelled and may run on
	Cancelled int64 // these
	Most      int   // that are counted as ahead of a job

	now, nowMS int64
	tat        float64
	settled    []candidate    // by the next claim, before it takes anything
	freed      map[int64]bool // jobs that are held for one that the next claim dead-letters

	keyed bool                   // there are limits on keys
	head  []candidate            // with those: the first jobs in the order of claims
	more  bool                   // and there are others behind them
	keys  map[string]*keyOutlook // that were looked up
}

// candidate is a job that a claim comes across.
type candidate struct {
	id, priority, runAt int64
	key                 string // "": none
	reserved            bool   // its time is a start that the rate of its key has given it
}

func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
}

const (
	// outlookJobs bounds the jobs that an Outlook goes through one by one.
	outlookJobs = 1000
	// AheadJobs bounds those that are only counted.
	AheadJobs = 10_000
)

// By primary key, the index of deadlines, and that of places.
var (
	sqlOutlookRow = `SELECT rate_tat_ms, ` + hasKeyLimits + ` FROM _honkerx_queues WHERE queue = ?1`

	sqlCountRunning = `SELECT count(*), ` + cancelled("?1", "", "?2 * 1000") + ` FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at >= ?2`
)

// By primary keys.
const sqlJobSide = `SELECT ifnull(s.wait, 0) & 1, ifnull(s.wait, 0) & 2 > 0, ifnull(s.slot, 0) = 2, u.job_id
FROM _honkerx_job AS s LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.next_id = s.job_id
WHERE s.job_id = ?1`

// Side reads the JobSide of a job; the zero one for a job without a side row.
func (Jobs) Side(ctx context.Context, q Querier, id int64) (s row.JobSide, err error) {
	_, err = one(ctx, q, sqlJobSide, []any{id}, &s.Reserved, &s.Paused, &s.Held, (*number)(&s.After))
	return s, err
}

// Where the jobs lie that run, by the index of deadlines, and those of a key, by _honkerx_job_key.
const (
	sqlRunningJobs = `SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
WHERE queue = ?1 AND state = 'processing' AND claim_expires_at >= ?2 ORDER BY claim_expires_at, id LIMIT ?3 + 0`

	sqlRunningJobsOfKey = `SELECT s.job_id FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
WHERE s.queue = ?1 AND s.key = ?4 AND s.slot = 1 AND l.claim_expires_at >= ?2 LIMIT ?3 + 0`

	// Of all keys where ?4 is empty.
	sqlCancelledJobs = `SELECT job_id FROM _honkerx_cancelled WHERE queue = ?1 AND (?4 = '' OR key = ?4) AND until_ms > ?2 * 1000 LIMIT ?3 + 0`
)

// RunningJobs returns up to limit jobs of queue with a claim that holds, of all keys for "".
func (Jobs) RunningJobs(ctx context.Context, q Querier, queue, key string, now int64, limit int) ([]int64, error) {
	if key == "" {
		return returnedIDs(ctx, q, sqlRunningJobs, 0, queue, now, limit)
	}
	return returnedIDs(ctx, q, sqlRunningJobsOfKey, 0, queue, now, limit, key)
}

// CancelledJobs returns up to limit jobs of queue that were cancelled and still take a place, of all keys for "".
func (Jobs) CancelledJobs(ctx context.Context, q Querier, queue, key string, now int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlCancelledJobs, 0, queue, now, limit, key)
}

// By _honkerx_after_waiter.
const sqlOpenEdges = `SELECT * FROM (SELECT job_id, batch, 1 FROM _honkerx_after INDEXED BY _honkerx_after_waiter
  WHERE waiter = ?1 AND state = 2 LIMIT ?2 + 0)
UNION ALL
SELECT * FROM (SELECT job_id, batch, 0 FROM _honkerx_after INDEXED BY _honkerx_after_waiter
  WHERE waiter = ?1 AND state = 0 LIMIT ?2 + 0)`

// OpenEdges returns up to limit of what a job waits for that is dead, and up to limit of what is not done yet.
func (Jobs) OpenEdges(ctx context.Context, q Querier, id int64, limit int) (all []row.Edge, err error) {
	err = each(ctx, q, sqlOpenEdges, func(rows *sql.Rows) error {
		var e row.Edge
		err := rows.Scan((*number)(&e.Job), (*number)(&e.Batch), &e.Dead)
		all = append(all, e)
		return err
	}, id, limit)
	return all, err
}

var sqlHighestJob = sequenceOf("_honker_live")

// Highest returns the highest id that a job was ever given.
func (Jobs) Highest(ctx context.Context, q Querier) (id int64, err error) {
	_, err = one(ctx, q, sqlHighestJob, nil, (*number)(&id))
	return id, err
}

// What a claim settles first: jobs with a claim that has lapsed, those without an attempt left, and, with ?4,
// those that have expired. And the job that the end of one lets go. By the indexes that the claim finds them by.
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

// The jobs of the queue that wait for nothing but jobs of ?3, which the next claim dead-letters, and for which dead
// ones will do. By primary keys, and _honkerx_after_waiter.
const sqlFreedWaiters = `SELECT l.id, l.priority, l.run_at, s.key
FROM json_each(?3) AS d CROSS JOIN _honkerx_after AS a ON a.job_id = d.value AND a.state = 0 AND a.if_dead = 1
CROSS JOIN _honker_live AS l ON l.id = a.waiter AND l.queue = ?1 AND l.state = 'held' AND (l.expires_at IS NULL OR l.expires_at > ?2)
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id
LEFT JOIN _honkerx_unique AS u ON u.queue = s.queue AND u.key = s.unique_key AND u.next_id = l.id
WHERE ifnull(s.slot, 0) <> 2 AND u.next_id IS NULL AND NOT EXISTS (
    SELECT 1 FROM _honkerx_after WHERE waiter = l.id AND state = 2
    UNION ALL SELECT 1 FROM _honkerx_after WHERE waiter = l.id AND state = 0
      AND (if_dead = 0 OR job_id NOT IN (SELECT value FROM json_each(?3))))`

// sqlKeysOfEnded selects the keys of which the next claim gives up places of cancelled jobs. By _honkerx_cancelled_key.
const sqlKeysOfEnded = `SELECT DISTINCT key FROM _honkerx_cancelled WHERE queue = ?1 AND key IS NOT NULL AND until_ms <= ?2 * 1000 LIMIT ?3 + 0`

// Outlook reads what there is to know of a queue at nowMS before its jobs are looked at.
func (j Jobs) Outlook(ctx context.Context, q Querier, queue string, nowMS int64) (*Outlook, error) {
	o := &Outlook{Queue: queue, Most: AheadJobs, now: nowMS / 1000, nowMS: nowMS, freed: make(map[int64]bool), keys: make(map[string]*keyOutlook)}
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
	if _, err := one(ctx, q, sqlOutlookRow, []any{queue}, &tat, &o.keyed); err != nil {
		return nil, err
	}
	o.tat = tat.Float64
	if _, err := one(ctx, q, sqlCountRunning, []any{queue, o.now}, &o.Running, &o.Cancelled); err != nil {
		return nil, err
	}
	o.Running += o.Cancelled
	found, err := j.overdue(ctx, q, queue, o.now)
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
		keys, err := texts(ctx, q, sqlKeysOfEnded, queue, o.now, overdueLimit)
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

// settle reads what the next claim settles first: what becomes claimable by it are candidates. It returns the
// keys that have more room after it.
func (o *Outlook) settle(ctx context.Context, q Querier, limited bool) (keys []string, err error) {
	var dying []int64
	err = each(ctx, q, sqlUnsettled, func(rows *sql.Rows) error {
		var c, next candidate
		var over bool
		err := rows.Scan((*number)(&c.id), (*number)(&c.priority), (*number)(&c.runAt), (*text)(&c.key), &over,
			(*number)(&next.id), (*number)(&next.priority), (*number)(&next.runAt), (*text)(&next.key))
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
	}, o.Queue, o.now, overdueLimit, limited)
	if err != nil || len(dying) == 0 {
		return keys, err
	}
	return keys, each(ctx, q, sqlFreedWaiters, func(rows *sql.Rows) error {
		var c candidate
		err := rows.Scan((*number)(&c.id), (*number)(&c.priority), (*number)(&c.runAt), (*text)(&c.key))
		o.free(c)
		return err
	}, o.Queue, o.now, idList(dying))
}

// free notes a job that the next claim lets go before it takes any; the zero one is none.
func (o *Outlook) free(c candidate) {
	if c.id == 0 || o.freed[c.id] {
		return
	}
	o.freed[c.id] = true
	if c.runAt <= o.now {
		o.settled = append(o.settled, c)
	}
}

// Freed tells whether the next claim dead-letters the jobs that this one waits for, and so lets it go.
func (o *Outlook) Freed(id int64) bool { return o.freed[id] }

// Of returns what the next claims do with a job of the queue that is due.
func (o *Outlook) Of(ctx context.Context, q Querier, job row.Job, side row.JobSide) (s row.Standing, err error) {
	c := candidate{id: job.ID, priority: job.Priority, runAt: job.RunAt, key: job.Key, reserved: side.Reserved}
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

// queueLimits holds the place of a job against the limits of the queue.
func (o *Outlook) queueLimits(s *row.Standing) {
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
		s.NextMS = firstTick(next)
	}
	tat := o.tat
	if tat < now || tat > now+every*burst+1000 { // see startsAt
		tat = now
	}
	s.AboutMS = firstTick(tat + every*(float64(s.Ahead.N)+1-burst))
}

// firstTick is the first millisecond at which a start that is due at ms is let pass.
func firstTick(ms float64) int64 { return int64(math.Ceil(ms - startSlack)) }

// Jobs that wait before a place in the order of claims, level by level. Those that can run no more are passed,
// and count as looked at.
var sqlCountAhead = levelsIf("?1", "1") + `
SELECT count(*), ifnull(sum(ok), 0) FROM (
  SELECT l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2) AS ok
  FROM lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
  WHERE lv.p >= ?4 AND l.queue = ?1 AND l.state = 'pending' AND l.priority = lv.p AND l.run_at <= ?2
    AND (l.priority > ?4 OR l.run_at < ?5 OR l.run_at = ?5 AND l.id < ?6)
  LIMIT ?3 + 0)`

// count is the place of a job in a queue without limits on keys.
func (o *Outlook) count(ctx context.Context, q Querier, c candidate) (ahead row.Count, err error) {
	var looked, ok int64
	_, err = one(ctx, q, sqlCountAhead, []any{o.Queue, o.now, o.Most, c.priority, c.runAt, c.id}, &looked, &ok)
	for _, s := range o.settled {
		if s.compare(c) < 0 {
			ok++
		}
	}
	return row.Count{N: ok, More: looked >= int64(o.Most)}, err
}
