package store

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"

	"github.com/honker-go/honker/internal/row"
)

// keyOutlook is what the next claims find of a key, and how it changes with each of them.
type keyOutlook struct {
	pause     *row.Pause
	running   int64   // with a claim that holds, or claimed by a claim before
	first     int64   // of its live jobs, by id; 0: none
	tat, next float64 // until when its starts are spent, and reserved
}

// full tells why a claim holds a job of the key: as many run as may, or in order another one comes first.
func (k *keyOutlook) full(l row.QueueLimits, id int64) (full bool, first int64) {
	full = l.PerKey > 0 && k.running >= l.PerKey || l.InOrder && k.running > 0
	if l.InOrder && k.first < id {
		first = k.first
	}
	return full, first
}

// startAt is when a job of the key can start by its rate; 0: at once. See keyOverRate.
func (k *keyOutlook) startAt(o *Outlook, c candidate) (second int64) {
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

// claim does what a claim does with a job of the key, and tells whether it starts.
func (k *keyOutlook) claim(o *Outlook, c candidate) bool {
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

// firstOfKey is the oldest job of a key in a slot that a claim does not dead-letter, where jobs run in order: they
// have no other priority and time there, so it is a walk along the index past those that are over.
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
	// By the pending index, see due. A job that can run no more counts as looked at.
	sqlOutlookHead = levelsIf("?1", "1") + `
SELECT l.id, l.priority, l.run_at, s.key, ifnull(s.wait, 0) & 1,
  l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)
FROM lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL
WHERE l.queue = ?1 AND l.state = 'pending' AND l.priority = lv.p AND l.run_at <= ?2
LIMIT ?3 + 0`

	// By _honkerx_job_key, in the order in which they are let go.
	sqlHeldOfKeys = `SELECT l.id, l.priority, l.run_at, s.key, ifnull(s.wait, 0) & 1, 1
FROM json_each(?4) AS c CROSS JOIN _honkerx_job AS s INDEXED BY _honkerx_job_key ON s.queue = ?1 AND s.key = c.value AND s.slot = 2
CROSS JOIN _honker_live AS l ON l.id = s.job_id
WHERE l.run_at <= ?2 AND (l.expires_at IS NULL OR l.expires_at > ?2) AND NOT ` + waits("l.id") + `
LIMIT ?3 + 0`

	sqlKeyOutlooks = `SELECT c.value, ifnull(` + pauseHolds + `, 0), paused_ms, until_ms, reason, who, k.tat_ms, k.next_ms,
  (SELECT count(*) FROM _honkerx_job AS s INDEXED BY _honkerx_job_key CROSS JOIN _honker_live AS l ON l.id = s.job_id
    WHERE s.queue = ?1 AND s.key = c.value AND s.slot = 1 AND l.claim_expires_at >= ?2)
    + ` + cancelled("?1", "c.value", "?2 * 1000") + `,
  ` + firstOfKey("0", "NULL") + `,
  ` + firstOfKey("1", "NULL") + `,
  ` + firstOfKey("2", "0") + `
FROM json_each(?3) AS c LEFT JOIN _honkerx_keys AS k ON k.queue = ?1 AND k.key = c.value`
)

// readHead reads the first jobs in the order of claims. over are keys of which the next claim lets jobs go.
func (o *Outlook) readHead(ctx context.Context, q Querier, over []string) error {
	pending, looked, err := o.candidates(ctx, q, sqlOutlookHead)
	if err != nil {
		return err
	}
	o.head, o.more = append(pending, o.settled...), looked == outlookJobs
	if len(over) > 0 {
		held, _, err := o.candidates(ctx, q, sqlHeldOfKeys, nameList(over))
		if err != nil {
			return err
		}
		o.head = append(o.head, held...)
	}
	slices.SortFunc(o.head, candidate.compare)
	if o.more && len(pending) > 0 { // what comes after the last one is not known
		last := pending[len(pending)-1]
		o.head = slices.DeleteFunc(o.head, func(c candidate) bool { return c.compare(last) > 0 })
	}
	var keys []string
	for _, c := range o.head {
		keys = append(keys, c.key)
	}
	return o.readKeys(ctx, q, keys)
}

// candidates runs a query for jobs, and tells how many it has looked at.
func (o *Outlook) candidates(ctx context.Context, q Querier, query string, args ...any) (found []candidate, looked int, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var c candidate
		var ok bool
		err := rows.Scan((*number)(&c.id), (*number)(&c.priority), (*number)(&c.runAt), (*text)(&c.key), &c.reserved, &ok)
		looked++
		if ok {
			found = append(found, c)
		}
		return err
	}, append([]any{o.Queue, o.now, outlookJobs}, args...)...)
	return found, looked, err
}

// readKeys looks those of keys up that were not yet.
func (o *Outlook) readKeys(ctx context.Context, q Querier, keys []string) error {
	var unknown []string
	for _, key := range keys {
		if key != "" && o.keys[key] == nil {
			o.keys[key] = &keyOutlook{first: math.MaxInt64}
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return each(ctx, q, sqlKeyOutlooks, func(rows *sql.Rows) error {
		var k keyOutlook
		var p row.Pause
		var key string
		var paused bool
		var tat, next sql.NullFloat64
		var first [3]number
		err := rows.Scan(&key, &paused, (*number)(&p.SinceMS), (*number)(&p.UntilMS), (*text)(&p.Reason), (*text)(&p.By), &tat, &next,
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
	}, o.Queue, o.now, nameList(unknown), o.Limits.InOrder)
}

// Lasting returns what keeps a job from starting that is not due yet, as far as it may still do so when it is.
func (o *Outlook) Lasting(ctx context.Context, q Querier, job row.Job) (s row.Standing, err error) {
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

// byKeys goes through the jobs before c as claims do.
func (o *Outlook) byKeys(ctx context.Context, q Querier, c candidate, s *row.Standing) error {
	ahead := slices.DeleteFunc(slices.Clone(o.head), func(d candidate) bool { return d.compare(c) >= 0 })
	s.Ahead.More = o.more && len(ahead) == len(o.head)
	if c.key != "" && o.Limits.KeyRate.N > 0 {
		held, _, err := o.candidates(ctx, q, sqlHeldOfKeys, nameList([]string{c.key}))
		if err != nil {
			return err
		}
		for _, d := range held { // a job that gets a later start lets the next one go
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
	s.KeyPause, s.KeyRunning, s.KeyStart = k.pause, k.running, k.startAt(o, c)
	s.KeyFull, s.First = k.full(o.Limits, c.id)
	return nil
}

// claims are those of one job after the other, of which each changes what the next one finds.
type claims struct {
	o    *Outlook
	keys map[string]*keyOutlook
}

func (o *Outlook) claims() claims { return claims{o, make(map[string]*keyOutlook)} }

// key is what the next claim finds of a key that was looked up.
func (s claims) key(key string) *keyOutlook {
	if s.keys[key] == nil {
		k := *s.o.keys[key]
		s.keys[key] = &k
	}
	return s.keys[key]
}

// take is a claim that comes to c, but for the pause and the limits of the queue. It tells whether it takes it.
func (s claims) take(c candidate) bool {
	return c.key == "" || !s.o.keyed || s.key(c.key).claim(s.o, c)
}

// What waits in a queue of which claims take nothing, by indexes: a job that is held, the next that is due, and one
// that can run no more.
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

// First returns the job of the queue that claims take first, or would but for the pause and the limits of the queue, and
// how many they take; 0 and none where there is no such job. Then waits is one that waits for something else.
func (o *Outlook) First(ctx context.Context, q Querier) (first, waits int64, n row.Count, err error) {
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
	err = each(ctx, q, sqlFirstWaiting, func(rows *sql.Rows) error {
		var id number
		err := rows.Scan(&id)
		waits = cmp.Or(waits, int64(id))
		return err
	}, o.Queue, o.now)
	return 0, waits, n, err
}
