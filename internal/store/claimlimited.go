package store

import (
	"context"
	"database/sql"
	"slices"
)

// claim is one claim of jobs of one queue or of several, as statements that differ in how they choose
// the jobs. Their parameters are the list of the queues, the second, the number of jobs, the
// worker, and the end of the claim.
type claim struct {
	claim string // claims the first n that are due
	keys  string // their keys, without claiming them, see candidates
	these string // claims those of a list of ids

	list    func(open []string) (any, error)
	now     int64
	worker  string
	expires int64
	got     func(rows *sql.Rows) error // a job
}

// By primary key.
var sqlClaimThese = claiming(`SELECT value FROM json_each(?1)`)

// candidates is the statement that returns the jobs of which the query ids gives the ids, in its
// order, with their keys. It has the parameters of the claim.
func candidates(ids string) string {
	return `SELECT l.id, l.queue, s.key FROM (
  ` + ids + `) AS c CROSS JOIN _honker_live AS l ON l.id = c.id
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL`
}

// run executes query and counts the jobs that it has claimed.
func (c *claim) run(ctx context.Context, q Querier, query string, list any, n int) (got int, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		got++
		return c.got(rows)
	}, list, c.now, n, c.worker, c.expires)
	return got, err
}

// open claims up to n jobs, negative for no bound, of those of queues that are not full: in a full one it
// would find nothing but jobs that it may not take. limits are those of queues that have some. It tells
// whether it has changed anything but by a claim without limits.
func (c *claim) open(ctx context.Context, q Querier, queues, limits []string, n int, nowMS int64) (changed bool, err error) {
	open, rooms := queues, []room(nil)
	if len(limits) > 0 {
		if open, rooms, err = withRoom(ctx, q, queues, limits, nowMS); err != nil || len(open) == 0 {
			return false, err
		}
	}
	list, err := c.list(open)
	if err != nil {
		return false, err
	}
	if len(rooms) == 0 {
		_, err := c.run(ctx, q, c.claim, list, n)
		return false, err
	}
	if len(queues) == 1 {
		n = rooms[0].bound(n)
	}
	return c.limited(ctx, q, list, rooms, n, nowMS)
}

// withRoom returns those of queues that are not full, and what the limits leave of those that have some.
func withRoom(ctx context.Context, q Querier, queues, limits []string, nowMS int64) (open []string, rooms []room, err error) {
	for _, queue := range queues {
		r := room{jobs: noBound}
		if slices.Contains(limits, queue) {
			if r, err = roomOf(ctx, q, queue, nowMS); err != nil {
				return nil, nil, err
			}
			if r.jobs > 0 {
				rooms = append(rooms, r)
			}
		}
		if r.jobs > 0 {
			open = append(open, queue)
		}
	}
	return open, rooms, nil
}

// By primary key.
const (
	sqlBeginClaim = `UPDATE _honkerx_queues SET claim_ms = ?2 WHERE queue = ?1`
	sqlEndClaim   = `UPDATE _honkerx_queues SET claim_ms = NULL WHERE queue = ?1`
	sqlChanges    = `SELECT total_changes()`
)

// limited claims up to n jobs of the queues of list, of which some have limits. The triggers see to the
// limits, at the time of this claim.
func (c *claim) limited(ctx context.Context, q Querier, list any, rooms []room, n int, nowMS int64) (changed bool, err error) {
	pass := func(n, _ int) (int, error) { return c.run(ctx, q, c.claim, list, n) }
	keyed := false
	for _, r := range rooms {
		keyed = keyed || r.keyed
		if r.perKey > 0 {
			pass = func(n, ahead int) (int, error) { return c.byKeys(ctx, q, list, rooms, n, ahead) }
		}
		if !r.timed {
			continue
		}
		if _, err := q.ExecContext(ctx, sqlBeginClaim, r.queue, nowMS); err != nil {
			return false, err
		}
		defer func() {
			if _, ended := q.ExecContext(ctx, sqlEndClaim, r.queue); err == nil {
				err = ended
			}
		}()
	}
	if !keyed {
		got, err := pass(n, 0)
		return got > 0, err
	}
	return passes(ctx, q, n, pass)
}

// Bounds of the jobs that one claim holds for their keys, since other writers wait meanwhile. What
// is left then is ready, so that the next claim follows at once.
const (
	maxPasses   = 100
	maxChanges  = 3000 // a job that is held is two, or three
	passedAhead = 100  // jobs that a pass looks at, however few it may claim, after one that has met some to hold
)

// passes runs a claim of up to n jobs until there is no more to claim: a claim that meets a job of which
// the key has no room holds that, and gets one less. It tells whether it has changed anything.
func passes(ctx context.Context, q Querier, n int, pass func(n, ahead int) (got int, err error)) (changed bool, err error) {
	var began, before, after int64
	if _, err := one(ctx, q, sqlChanges, nil, &began); err != nil {
		return false, err
	}
	after = began
	for i := range maxPasses {
		before = after
		got, err := pass(n, min(i, 1)*passedAhead)
		if err != nil {
			return false, err
		}
		if n >= 0 {
			n -= got
		}
		if n == 0 {
			return true, nil
		}
		if _, err := one(ctx, q, sqlChanges, nil, &after); err != nil {
			return false, err
		}
		if after == before || after-began > maxChanges {
			break
		}
	}
	return after > began, nil
}

// queueKey is a key of a queue.
type queueKey struct{ queue, key string }

// By _honkerx_job_key.
var (
	sqlRunningOfKey = `SELECT (SELECT count(*) FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = ?2 AND slot = 1)
  + ` + cancelled("?1", "?2", "?3 * 1000")

	sqlHoldJobs = `UPDATE _honkerx_job SET slot = 2, priority = l.priority, run_at = l.run_at
FROM _honker_live AS l WHERE l.id = _honkerx_job.job_id AND job_id IN (SELECT value FROM json_each(?1))`
)

// byKeys is a pass over queues in which some bound the jobs of a key. One UPDATE goes over its rows in
// the order of their ids, so it would give the room of a key to the oldest job, not to the first in turn:
// those with room are chosen here, and the others held.
func (c *claim) byKeys(ctx context.Context, q Querier, list any, rooms []room, n, ahead int) (got int, err error) {
	limit := n
	if n >= 0 {
		limit = max(n, ahead)
	}
	var jobs []int64
	var keys []queueKey
	err = each(ctx, q, c.keys, func(rows *sql.Rows) error {
		var id int64
		var k queueKey
		err := rows.Scan(&id, &k.queue, (*text)(&k.key))
		jobs, keys = append(jobs, id), append(keys, k)
		return err
	}, list, c.now, limit)
	if err != nil {
		return 0, err
	}
	free := make(map[queueKey]int64)
	var chosen, full []int64
	for i, id := range jobs {
		if n >= 0 && len(chosen) == n {
			break
		}
		room, err := c.freeOf(ctx, q, free, rooms, keys[i])
		if err != nil {
			return 0, err
		}
		if room <= 0 {
			full = append(full, id)
			continue
		}
		free[keys[i]] = room - 1
		chosen = append(chosen, id)
	}
	if len(full) > 0 {
		if _, err := q.ExecContext(ctx, sqlHoldJobs, idList(full)); err != nil {
			return 0, err
		}
	}
	if len(chosen) == 0 {
		return 0, nil
	}
	return c.run(ctx, q, c.these, idList(chosen), n)
}

// freeOf is how many more jobs of a key may start, as far as PerKey goes; free remembers it.
func (c *claim) freeOf(ctx context.Context, q Querier, free map[queueKey]int64, rooms []room, k queueKey) (int64, error) {
	if n, known := free[k]; known {
		return n, nil
	}
	i := slices.IndexFunc(rooms, func(r room) bool { return r.queue == k.queue })
	if k.key == "" || i < 0 || rooms[i].perKey == 0 {
		return noBound, nil
	}
	var running int64
	_, err := one(ctx, q, sqlRunningOfKey, []any{k.queue, k.key, c.now}, &running)
	free[k] = rooms[i].perKey - running
	return free[k], err
}
