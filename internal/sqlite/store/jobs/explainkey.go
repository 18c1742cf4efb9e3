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

// keyForecast is a key's state as the next claims see it. Each simulated claim updates it.
type keyForecast struct {
	pause     *row.Pause
	running   int64   // jobs running now or taken by an earlier claim
	first     int64   // lowest id of its live jobs in an ordered queue; math.MaxInt64 if none
	tat, next float64 // Unix milliseconds until which starts are used up, and reserved
}

// full reports whether the key has reached its limit of running jobs. With InOrder, first is the key's job
// that must run before the job id, or 0.
func (k *keyForecast) full(l row.QueueLimits, id int64) (full bool, first int64) {
	full = l.PerKey > 0 && k.running >= l.PerKey || l.InOrder && k.running > 0
	if l.InOrder && k.first < id {
		first = k.first
	}
	return full, first
}

// startAt returns the second at which one of the key's jobs may start at the key's rate, or 0 if it may
// start now. See keyOverRate.
func (k *keyForecast) startAt(o *forecast, c candidate) (second int64) {
	if o.Limits.KeyRate.N == 0 {
		return 0
	}
	allowance := o.Limits.KeyRate.Every() * float64(o.Limits.KeyRate.Burst-1)
	reserved := max(k.tat, k.next)
	over := reserved
	if c.reserved {
		over = k.tat - 1000
	}
	if over-allowance <= float64(o.nowMS)+0.5 {
		return 0
	}
	return int64((reserved - allowance + 999.999) / 1000)
}

// claim simulates a claim that reaches one of the key's jobs, and reports whether the job starts.
func (k *keyForecast) claim(o *forecast, c candidate) bool {
	every, now := 0.0, float64(o.nowMS)
	if o.Limits.KeyRate.N > 0 {
		every = o.Limits.KeyRate.Every()
	}
	if full, first := k.full(o.Limits, c.id); full || first != 0 || k.pause != nil {
		return false
	}
	if k.startAt(o, c) != 0 {
		k.next = max(k.tat, k.next) + every
		return false
	}
	k.running++
	if every > 0 {
		k.tat = now + every + max(0, k.tat-now)
	}
	return true
}

// firstOfKey returns the query for a key's oldest job in slot, among the jobs that a claim does not
// dead-letter. It applies only to queues that run a key's jobs in order. There all jobs in a slot have the
// same priority and time in the index, so the query walks along the index and skips jobs that can no longer
// run.
func firstOfKey(slot, order string) string {
	return `iif(?4, (SELECT s.job_id FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
    WHERE s.queue = ?1 AND s.key = c.value AND s.slot = ` + slot + ` AND s.priority IS ` + order + ` AND s.run_at IS ` + order + `
      AND NOT CASE l.state
        WHEN 'pending' THEN ifnull(l.expires_at <= ?2, 0) OR l.run_at <= ?2 AND l.attempts >= l.max_attempts
        WHEN 'processing' THEN l.claim_expires_at < ?2 AND (l.attempts >= l.max_attempts OR ifnull(l.expires_at <= ?2, 0))
        ELSE s.slot = 2 AND ifnull(l.expires_at <= ?2, 0) END
    ORDER BY s.job_id LIMIT 1), NULL)`
}

var (
	// sqlForecastHead uses the pending index; see due. Jobs that can no longer run count toward the limit.
	sqlForecastHead = levelsIf("?1", "1") + `
SELECT l.id, l.priority, l.run_at, s.key, ifnull(s.wait, 0) & 1,
  l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)
FROM lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL
WHERE l.queue = ?1 AND l.state = 'pending' AND l.priority = lv.p AND l.run_at <= ?2
LIMIT ?3 + 0`

	// sqlHeldOfKeys uses _honkerx_job_key, in the order in which held jobs are released.
	sqlHeldOfKeys = `SELECT l.id, l.priority, l.run_at, s.key, ifnull(s.wait, 0) & 1, 1
FROM json_each(?4) AS c CROSS JOIN _honkerx_job AS s INDEXED BY _honkerx_job_key ON s.queue = ?1 AND s.key = c.value AND s.slot = 2
CROSS JOIN _honker_live AS l ON l.id = s.job_id
WHERE l.run_at <= ?2 AND (l.expires_at IS NULL OR l.expires_at > ?2) AND NOT ` + waits("l.id") + `
LIMIT ?3 + 0`

	sqlKeyForecasts = `SELECT c.value, ifnull(` + pauseHolds + `, 0), paused_ms, until_ms, reason, who, k.tat_ms, k.next_ms,
  (SELECT count(*) FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
    WHERE s.queue = ?1 AND s.key = c.value AND s.slot = 1 AND l.claim_expires_at >= ?2)
    + ` + cancelled("?1", "c.value", "?2 * 1000") + `,
  ` + firstOfKey("0", "NULL") + `,
  ` + firstOfKey("1", "NULL") + `,
  ` + firstOfKey("2", "0") + `
FROM json_each(?3) AS c LEFT JOIN _honkerx_keys AS k ON k.queue = ?1 AND k.key = c.value`
)

// readHead reads the first jobs in claim order. over lists the keys whose held jobs the next claim may
// release.
func (o *forecast) readHead(ctx context.Context, q row.Querier, over []string) error {
	pending, looked, err := o.candidates(ctx, q, sqlForecastHead)
	if err != nil {
		return err
	}
	o.head, o.more = append(pending, o.settled...), looked == forecastJobs
	if len(over) > 0 {
		held, _, err := o.candidates(ctx, q, sqlHeldOfKeys, rows.NameList(over))
		if err != nil {
			return err
		}
		o.head = append(o.head, held...)
	}
	slices.SortFunc(o.head, candidate.compare)
	if o.more && len(pending) > 0 { // jobs after the last pending job are unknown
		last := pending[len(pending)-1]
		o.head = slices.DeleteFunc(o.head, func(c candidate) bool { return c.compare(last) > 0 })
	}
	var keys []string
	for _, c := range o.head {
		keys = append(keys, c.key)
	}
	return o.readKeys(ctx, q, keys)
}

// candidates runs a query for jobs. looked is the number of rows read, including jobs that can no longer
// run.
func (o *forecast) candidates(ctx context.Context, q row.Querier, query string, args ...any) (found []candidate, looked int, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var c candidate
		var ok bool
		err := r.Scan((*rows.Number)(&c.id), (*rows.Number)(&c.priority), (*rows.Number)(&c.runAt), (*rows.Text)(&c.key), &c.reserved, &ok)
		looked++
		if ok {
			found = append(found, c)
		}
		return err
	}, append([]any{o.Name, o.now, forecastJobs}, args...)...)
	return found, looked, err
}

// readKeys reads the state of the keys that are not yet in o.keys.
func (o *forecast) readKeys(ctx context.Context, q row.Querier, keys []string) error {
	var unknown []string
	for _, key := range keys {
		if key != "" && o.keys[key] == nil {
			o.keys[key] = &keyForecast{first: math.MaxInt64}
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return rows.Each(ctx, q, sqlKeyForecasts, func(r *sql.Rows) error {
		var k keyForecast
		var p row.Pause
		var key string
		var paused bool
		var tat, next sql.NullFloat64
		var first [3]rows.Number
		err := r.Scan(&key, &paused, (*rows.Milli)(&p.Since), (*rows.Milli)(&p.Until), (*rows.Text)(&p.Reason), (*rows.Text)(&p.By), &tat, &next,
			&k.running, &first[0], &first[1], &first[2])
		k.tat, k.next, k.first = tat.Float64, next.Float64, math.MaxInt64
		if paused {
			k.pause = &p
		}
		for _, id := range first {
			if id != 0 {
				k.first = min(k.first, int64(id))
			}
		}
		o.keys[key] = &k
		return err
	}, o.Name, o.now, rows.NameList(unknown), o.Limits.InOrder)
}

// lasting returns the obstacles that may still keep a job from starting when it becomes due. It is for jobs
// that are not due yet.
func (o *forecast) lasting(ctx context.Context, q row.Querier, job row.Job) (s row.JobForecast, err error) {
	if job.Key == "" || !o.keyed {
		return s, nil
	}
	if err := o.readKeys(ctx, q, []string{job.Key}); err != nil {
		return s, err
	}
	k := o.keys[job.Key]
	s.KeyPause = k.pause
	_, s.First = k.full(o.Limits, job.ID)
	return s, nil
}

// byKeys simulates the claims of the jobs ahead of c and records their effect on c in s.
func (o *forecast) byKeys(ctx context.Context, q row.Querier, c candidate, s *row.JobForecast) error {
	ahead := slices.DeleteFunc(slices.Clone(o.head), func(d candidate) bool { return d.compare(c) >= 0 })
	s.Ahead.More = o.more && len(ahead) == len(o.head)
	if c.key != "" && o.Limits.KeyRate.N > 0 {
		held, _, err := o.candidates(ctx, q, sqlHeldOfKeys, rows.NameList([]string{c.key}))
		if err != nil {
			return err
		}
		for _, d := range held { // a job whose start is postponed releases the next job of its key
			if d.compare(c) < 0 && !slices.Contains(ahead, d) {
				ahead = append(ahead, d)
			}
		}
		slices.SortFunc(ahead, candidate.compare)
	}
	if err := o.readKeys(ctx, q, []string{c.key}); err != nil {
		return err
	}
	claims := o.claims()
	for _, d := range ahead {
		if claims.take(d) {
			s.Ahead.N++
		}
	}
	if c.key == "" {
		return nil
	}
	k := claims.key(c.key)
	s.KeyPause, s.KeyRunning, s.KeyStart = k.pause, k.running, row.Instant(k.startAt(o, c))
	s.KeyFull, s.First = k.full(o.Limits, c.id)
	return nil
}

// claims simulates consecutive claims of single jobs. Each claim changes the state that the next claim
// finds.
type claims struct {
	o    *forecast
	keys map[string]*keyForecast
}

// claims starts a simulation. It copies the keys it changes, so o can be reused for other jobs.
func (o *forecast) claims() claims { return claims{o, make(map[string]*keyForecast)} }

// key returns a key's simulated state, which readKeys must have read before.
func (s claims) key(key string) *keyForecast {
	if s.keys[key] == nil {
		k := *s.o.keys[key]
		s.keys[key] = &k
	}
	return s.keys[key]
}

// take simulates a claim that reaches c, and reports whether it takes the job. It ignores the queue's pause
// and limits.
func (s claims) take(c candidate) bool {
	return c.key == "" || !s.o.keyed || s.key(c.key).claim(s.o, c)
}

// sqlFirstWaiting selects a waiting job of each kind in a queue from which nothing can be claimed: a held
// job, the next job to become due, and jobs that can no longer run. Each is found at the head of an index.
var sqlFirstWaiting = levelsIf("?1", "1") + `
SELECT (SELECT id FROM _honker_live INDEXED BY _honkerx_live_held WHERE queue = ?1 AND state = 'held' ORDER BY id LIMIT 1)
UNION ALL
SELECT id FROM (SELECT id, min(run_at) FROM (
  SELECT (SELECT id FROM _honker_live INDEXED BY _honkerx_live_pending
    WHERE queue = ?1 AND state = 'pending' AND priority = lv.p AND run_at > ?2 ORDER BY run_at, id LIMIT 1) AS first FROM lv)
  CROSS JOIN _honker_live ON id = first)
UNION ALL
SELECT (SELECT id FROM _honker_live INDEXED BY _honkerx_live_deadline WHERE queue = ?1 AND state = 'pending' AND expires_at <= ?2 ORDER BY expires_at, id LIMIT 1)
UNION ALL
SELECT (SELECT id FROM _honker_live INDEXED BY _honkerx_live_exhausted
  WHERE queue = ?1 AND state = 'pending' AND attempts >= max_attempts ORDER BY run_at, id LIMIT 1)
UNION ALL
SELECT (SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
  WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2 ORDER BY claim_expires_at, id LIMIT 1)`

// first returns the first job that the next claims take, ignoring the queue's pause and limits, and the
// number of jobs they take. If they take none, first is 0 and waits is a job that waits for some other
// reason, or 0 if the queue is empty.
func (o *forecast) first(ctx context.Context, q row.Querier) (first, waits int64, n row.Count, err error) {
	if !o.keyed {
		if err := o.readHead(ctx, q, nil); err != nil {
			return 0, 0, n, err
		}
	}
	claims := o.claims()
	for _, c := range o.head {
		if claims.take(c) {
			first = cmp.Or(first, c.id)
			n.N++
		}
	}
	n.More = o.more
	switch {
	case first != 0:
		return first, 0, n, nil
	case len(o.head) > 0:
		return 0, o.head[0].id, n, nil
	}
	err = rows.Each(ctx, q, sqlFirstWaiting, func(r *sql.Rows) error {
		var id rows.Number
		err := r.Scan(&id)
		waits = cmp.Or(waits, int64(id))
		return err
	}, o.Name, o.now)
	return 0, waits, n, err
}
