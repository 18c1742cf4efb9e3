package jobs

import (
	"context"
	"database/sql"
	"slices"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// claim is a single claim on one or more queues. Its statements differ in how they choose the jobs. Their
// parameters are the list of queues, the current second, the number of jobs, the worker, and the end of the
// claim.
type claim struct {
	claim string // claims the first n due jobs
	keys  string // selects these jobs and their keys, see candidates
	these string // claims the jobs in a list of ids

	now     int64
	worker  string
	expires int64
	open    []string // the queues that are not full
	rooms   []room   // of these queues, those with limits

	// list returns the parameter for the open queues. A claim should visit no more jobs in a queue than it
	// has room for. In a queue with key limits it should visit ahead jobs, if that is more.
	list func(ahead int) (any, error)
	got  func(r *sql.Rows) (queue string, err error) // called for each claimed job
}

// sqlClaimThese uses the primary key.
var sqlClaimThese = claiming(`SELECT value FROM json_each(?1)`)

// candidates returns the statement that selects the jobs returned by the query ids, in the same order, with
// their keys. It takes the claim's parameters.
func candidates(ids string) string {
	return `SELECT l.id, l.queue, s.key FROM (
  ` + ids + `) AS c CROSS JOIN _honker_live AS l ON l.id = c.id
LEFT JOIN _honkerx_job AS s ON s.job_id = l.id AND s.key IS NOT NULL`
}

// run executes query and returns the number of jobs that it claimed.
func (c *claim) run(ctx context.Context, q row.Querier, query string, list any, n int) (got int, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		got++
		queue, err := c.got(r)
		if room := c.room(queue); room != nil && room.jobs != noBound {
			room.jobs--
		}
		return err
	}, list, c.now, n, c.worker, c.expires)
	return got, err
}

// due claims up to n due jobs. A negative n means no limit.
func (c *claim) due(ctx context.Context, q row.Querier, n int) (got int, err error) {
	list, err := c.list(0)
	if err != nil {
		return 0, err
	}
	return c.run(ctx, q, c.claim, list, n)
}

// room returns the room of queue, or nil if the queue has no limits.
func (c *claim) room(queue string) *room {
	for i := range c.rooms {
		if c.rooms[i].queue == queue {
			return &c.rooms[i]
		}
	}
	return nil
}

// some claims up to n jobs from the queues that are not full. A negative n means no limit. It leaves out
// full queues, where the statement would only visit jobs that it may not take. limits lists the queues with
// limits. some reports whether a claim with limits has changed anything.
func (c *claim) some(ctx context.Context, q row.Querier, queues, limits []string, n int, nowMS int64) (changed bool, err error) {
	c.open = queues
	if len(limits) > 0 {
		if c.open, c.rooms, err = withRoom(ctx, q, queues, limits, nowMS); err != nil || len(c.open) == 0 {
			return false, err
		}
	}
	if len(c.rooms) == 0 {
		_, err := c.due(ctx, q, n)
		return false, err
	}
	if len(queues) == 1 {
		n = c.rooms[0].bound(n)
	}
	return c.limited(ctx, q, n, nowMS)
}

// withRoom returns the queues that are not full, and the remaining room in the queues in limits.
func withRoom(ctx context.Context, q row.Querier, queues, limits []string, nowMS int64) (open []string, rooms []room, err error) {
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

// These statements use the primary key.
const (
	sqlBeginClaim = `UPDATE _honkerx_queues SET claim_ms = ?2 WHERE queue = ?1`
	sqlEndClaim   = `UPDATE _honkerx_queues SET claim_ms = NULL WHERE queue = ?1`
	sqlChanges    = `SELECT total_changes()`
)

// limited claims up to n jobs from the open queues, at least some of which have limits. The triggers enforce
// the limits, using the time of this claim.
func (c *claim) limited(ctx context.Context, q row.Querier, n int, nowMS int64) (changed bool, err error) {
	pass := func(n, _ int) (int, error) { return c.due(ctx, q, n) }
	keyed := false
	for _, r := range c.rooms {
		keyed = keyed || r.keyed
		if r.perKey > 0 {
			pass = func(n, ahead int) (int, error) { return c.byKeys(ctx, q, n, ahead) }
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

// Bounds on the jobs that a single claim holds for their keys, because other writers wait in the meantime.
// The remaining jobs keep the queue ready, so the next claim follows immediately.
const (
	maxPasses   = 100
	maxChanges  = 3000 // holding a job takes two or three changes
	passedAhead = 100  // minimum number of jobs that a pass considers after an earlier pass has held some
)

// passes runs a claim of up to n jobs until there is nothing left to claim. It may need several passes,
// because each job that is held for a full key leaves the claim one job short. It reports whether it
// changed anything.
func passes(ctx context.Context, q row.Querier, n int, pass func(n, ahead int) (got int, err error)) (changed bool, err error) {
	var began, before, after int64
	if _, err := rows.One(ctx, q, sqlChanges, nil, &began); err != nil {
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
		if _, err := rows.One(ctx, q, sqlChanges, nil, &after); err != nil {
			return false, err
		}
		if after == before || after-began > maxChanges {
			break
		}
	}
	return after > began, nil
}

// queueKey identifies a key within a queue.
type queueKey struct{ queue, key string }

// These statements use _honkerx_job_key.
var (
	sqlRunningOfKey = `SELECT (SELECT count(*) FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key = ?2 AND slot = 1)
  + ` + cancelled("?1", "?2", "?3 * 1000")

	sqlHoldJobs = `UPDATE _honkerx_job SET slot = 2, priority = l.priority, run_at = l.run_at
FROM _honker_live AS l WHERE l.id = _honkerx_job.job_id AND job_id IN (SELECT value FROM json_each(?1))`
)

// byKeys makes a pass over queues of which at least one limits the running jobs per key. A single UPDATE
// visits its rows in id order, so it would give a key's free slot to the oldest job instead of the next in
// turn. Therefore byKeys chooses the jobs itself, and holds the jobs without a free slot.
func (c *claim) byKeys(ctx context.Context, q row.Querier, n, ahead int) (got int, err error) {
	limit := n
	if n >= 0 {
		limit = max(n, ahead)
	}
	list, err := c.list(ahead)
	if err != nil {
		return 0, err
	}
	var jobs []int64
	var keys []queueKey
	err = rows.Each(ctx, q, c.keys, func(r *sql.Rows) error {
		var id int64
		var k queueKey
		err := r.Scan(&id, &k.queue, (*rows.Text)(&k.key))
		jobs, keys = append(jobs, id), append(keys, k)
		return err
	}, list, c.now, limit)
	if err != nil {
		return 0, err
	}
	free, ofQueue := make(map[queueKey]int64), make(map[string]int64)
	var chosen, full []int64
	for i, id := range jobs {
		if n >= 0 && len(chosen) == n {
			break
		}
		queue := keys[i].queue
		if room := c.room(queue); room != nil && ofQueue[queue] == room.jobs {
			continue // for a later claim
		}
		room, err := c.freeOf(ctx, q, free, keys[i])
		if err != nil {
			return 0, err
		}
		if room <= 0 {
			full = append(full, id)
			continue
		}
		free[keys[i]] = room - 1
		ofQueue[queue]++
		chosen = append(chosen, id)
	}
	if len(full) > 0 {
		if _, err := q.ExecContext(ctx, sqlHoldJobs, rows.IDList(full)); err != nil {
			return 0, err
		}
	}
	if len(chosen) == 0 {
		return 0, nil
	}
	return c.run(ctx, q, c.these, rows.IDList(chosen), n)
}

// freeOf returns how many more of a key's jobs may start under the PerKey limit. It caches the result in
// free.
func (c *claim) freeOf(ctx context.Context, q row.Querier, free map[queueKey]int64, k queueKey) (int64, error) {
	if n, known := free[k]; known {
		return n, nil
	}
	room := c.room(k.queue)
	if k.key == "" || room == nil || room.perKey == 0 {
		return noBound, nil
	}
	var running int64
	_, err := rows.One(ctx, q, sqlRunningOfKey, []any{k.queue, k.key, c.now}, &running)
	free[k] = room.perKey - running
	return free[k], err
}
