package jobs

import (
	"context"
	"fmt"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// The dependencies between jobs and batches are edges, the rows of _honkerx_after. An open edge (state 0)
// holds its waiter. There are no counters that could drift. There are three kinds of edges:
//
//   - (job, 0, waiter): the waiter waits for the job
//   - (0, batch, waiter): the waiter waits for the batch
//   - (job, batch, -batch): the job is a member of the batch, and the batch waits for it
//
// A batch is complete when it has no open edge, the same test that releases a waiting job.

// These statements use the primary keys.
var (
	sqlNoSuchJob   = neverGiven("_honker_live")
	sqlNoSuchBatch = neverGiven("_honkerx_batches")

	sqlBatchTakes = `SELECT open = 1 OR EXISTS (SELECT 1 FROM _honkerx_after WHERE waiter = -?1 AND state = 0)
FROM _honkerx_batches WHERE id = ?1`
)

// neverGiven selects an id in the list ?1 that table has never assigned.
func neverGiven(table string) string {
	return `SELECT value FROM json_each(?1) WHERE value > ifnull((` + rows.SequenceOf(table) + `), 0) LIMIT 1`
}

// later returns a WITH clause for the direct and indirect waiters of the nodes that the query from selects.
// A node is a job id or a negated batch id. The recursion uses the primary key.
func later(from string) string {
	return `WITH RECURSIVE later(id) AS (` + from + ` UNION
  SELECT a.waiter FROM later CROSS JOIN _honkerx_after AS a
    ON a.job_id = max(later.id, 0) AND a.batch BETWEEN max(-later.id, 0) AND iif(later.id < 0, -later.id, 9223372036854775807)
  WHERE a.state <> 1)`
}

// sqlWaitsAlready uses the primary keys.
var sqlWaitsAlready = later(`VALUES (?1)`) + ` SELECT id FROM later WHERE id IN (SELECT value FROM json_each(?2)) LIMIT 1`

// sqlKeyWaits uses the primary keys, and _honkerx_job_key for a queue that runs the jobs of a key in order.
var sqlKeyWaits = later(`VALUES (?1)`) + ` SELECT s.job_id FROM later CROSS JOIN _honkerx_job AS s ON s.job_id = later.id
WHERE s.queue = ?2 AND s.key = ?3 LIMIT 1`

// checkLinks checks the links l of jobs that are to be enqueued in queue with the given key. It returns
// [engine.ErrInvalid] for an unknown id or a cycle, and [row.ErrBatchDone] if the batch l.In no longer takes
// members. It writes nothing.
func (Jobs) checkLinks(ctx context.Context, q row.Querier, queue, key string, l *row.Links) error {
	if err := neverWas(ctx, q, sqlNoSuchJob, "job", l.Jobs); err != nil {
		return err
	}
	if err := neverWas(ctx, q, sqlNoSuchBatch, "batch", l.Batches); err != nil {
		return err
	}
	if l.In == 0 {
		return nil
	}
	if err := neverWas(ctx, q, sqlNoSuchBatch, "batch", []int64{l.In}); err != nil {
		return err
	}
	var takes bool
	found, err := rows.One(ctx, q, sqlBatchTakes, []any{l.In}, &takes)
	if err == nil && (!found || !takes) {
		err = fmt.Errorf("batch %d: %w", l.In, row.ErrBatchDone)
	}
	if err != nil {
		return err
	}
	if err := noCircle(ctx, q, -l.In, l); err != nil {
		return err
	}
	return noCircleOfKey(ctx, q, queue, key, l.In)
}

// noCircleOfKey rejects a new member of a batch if a job with the same key already waits for that batch. In
// a queue with ordered keys the waiting job has to run first, so the two would deadlock.
func noCircleOfKey(ctx context.Context, q row.Querier, queue, key string, batch int64) error {
	if key == "" {
		return nil
	}
	limits, err := Limits{}.Get(ctx, q, queue)
	if err != nil || !limits.InOrder {
		return err
	}
	var id int64
	found, err := rows.One(ctx, q, sqlKeyWaits, []any{-batch, queue, key}, &id)
	if err == nil && found {
		err = fmt.Errorf("%w: job %d waits for batch %d, and the jobs of its key %q run in order: a later member with this key would wait forever; give the member another key, or enqueue job %d last",
			engine.ErrInvalid, id, batch, key, id)
	}
	return err
}

// neverWas returns [engine.ErrInvalid] if query, which takes a list of ids of the given kind, finds an
// unknown id.
func neverWas(ctx context.Context, q row.Querier, query, kind string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var id int64
	found, err := rows.One(ctx, q, query, []any{rows.IDList(ids)}, &id)
	if err == nil && found {
		err = fmt.Errorf("%w: no %s with id %d has ever existed", engine.ErrInvalid, kind, id)
	}
	return err
}

// noCircle rejects links that would make node wait for a job or batch that already waits for node. A new
// job cannot close a cycle, because it can only refer to older ids.
func noCircle(ctx context.Context, q row.Querier, node int64, l *row.Links) error {
	if l == nil || !l.Waits() {
		return nil
	}
	nodes := append(make([]int64, 0, len(l.Jobs)+len(l.Batches)), l.Jobs...)
	for _, b := range l.Batches {
		nodes = append(nodes, -b)
	}
	var id int64
	found, err := rows.One(ctx, q, sqlWaitsAlready, []any{node, rows.IDList(nodes)}, &id)
	if err == nil && found {
		err = fmt.Errorf("%w: %s already waits for %s, and the dependencies must not form a cycle", engine.ErrInvalid, nodeName(id), nodeName(node))
	}
	return err
}

// nodeName returns the name of a node for error messages.
func nodeName(node int64) string {
	if node < 0 {
		return fmt.Sprint("batch ", -node)
	}
	return fmt.Sprint("job ", node)
}

// These statements use the primary keys and _honkerx_after_waiter.
var (
	sqlJoinBatch = `INSERT INTO _honkerx_job (job_id, batch) SELECT value, ?2 FROM json_each(?1) WHERE 1
ON CONFLICT (job_id) DO UPDATE SET batch = excluded.batch`
	sqlAddMembers = `INSERT INTO _honkerx_after (job_id, batch, waiter) SELECT value, ?2, -?2 FROM json_each(?1)`
	sqlAddTotal   = `UPDATE _honkerx_batches SET total = total + json_array_length(?1) WHERE id = ?2`

	sqlAfterJobs = `INSERT OR IGNORE INTO _honkerx_after (job_id, waiter, state, if_dead)
SELECT a.value, w.value, CASE WHEN EXISTS (SELECT 1 FROM _honker_live WHERE id = a.value) THEN 0
    WHEN EXISTS (SELECT 1 FROM _honker_dead WHERE id = a.value) THEN iif(?3, 1, 2) ELSE 1 END, ?3
FROM json_each(?1) AS w CROSS JOIN json_each(?2) AS a`

	sqlAfterBatches = `INSERT OR IGNORE INTO _honkerx_after (job_id, batch, waiter, state, if_dead)
SELECT 0, a.value, w.value, ` + batchState("a.value", "?3") + `, ?3 FROM json_each(?1) AS w CROSS JOIN json_each(?2) AS a`

	sqlHoldWaiters = `UPDATE _honker_live SET state = 'held'
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'pending' AND ` + waits("_honker_live.id")
)

// AddLinks inserts l's edges for the jobs ids and adds the jobs to its batch. The same transaction must
// already have checked l with checkLinks and inserted the jobs.
func (Jobs) AddLinks(ctx context.Context, q row.Querier, l *row.Links, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	if err := ensureAfterTriggers(ctx, q); err != nil {
		return err
	}
	jobs := rows.IDList(ids)
	if l.In != 0 {
		for _, query := range []string{sqlJoinBatch, sqlAddMembers, sqlAddTotal} {
			if _, err := q.ExecContext(ctx, query, jobs, l.In); err != nil {
				return err
			}
		}
	}
	return addEdges(ctx, q, l, jobs)
}

// addEdges inserts the edges that jobs, a list of ids, wait for, and holds the jobs that cannot run yet.
func addEdges(ctx context.Context, q row.Querier, l *row.Links, jobs string) error {
	if !l.Waits() {
		return nil
	}
	if len(l.Jobs) > 0 {
		if _, err := q.ExecContext(ctx, sqlAfterJobs, jobs, rows.IDList(l.Jobs), l.IfDead); err != nil {
			return err
		}
	}
	if len(l.Batches) > 0 {
		if _, err := q.ExecContext(ctx, sqlAfterBatches, jobs, rows.IDList(l.Batches), l.IfDead); err != nil {
			return err
		}
	}
	_, err := q.ExecContext(ctx, sqlHoldWaiters, jobs)
	return err
}

// addWaits adds the edges of l to a waiting job that was replaced by an enqueue. InsertUnique has already
// rejected cycles.
func (Jobs) addWaits(ctx context.Context, q row.Querier, l *row.Links, id int64) error {
	if !l.Waits() {
		return nil
	}
	if err := ensureAfterTriggers(ctx, q); err != nil {
		return err
	}
	if err := addEdges(ctx, q, l, rows.IDList([]int64{id})); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlNextOfKeyOf, id) // if the job had been released for its key, the next job takes its turn
	return err
}

// isAwaited is the condition that other jobs wait for a live job. SQLite evaluates the first part once per
// statement, so the second part costs a seek for each job only in a file with edges.
const isAwaited = `(EXISTS (SELECT 1 FROM _honkerx_after)
    AND EXISTS (SELECT 1 FROM _honkerx_after AS w WHERE w.job_id = _honker_live.id AND w.state = 0))`

// endsEdges returns the statement that marks the edges of live jobs as done and so releases their waiters.
// It must run before the jobs are deleted, because the triggers cannot tell from a delete whether the job
// will be dead.
func endsEdges(where string) string {
	return `UPDATE _honkerx_after SET state = 1 WHERE state = 0 AND job_id IN (SELECT id FROM _honker_live` + where + `)`
}

// sqlHasEdges uses the primary key.
const sqlHasEdges = `SELECT EXISTS (SELECT 1 FROM _honkerx_after)`

// hasEdges reports whether the file has any edges.
func (Jobs) hasEdges(ctx context.Context, q row.Querier) (some bool, err error) {
	_, err = rows.One(ctx, q, sqlHasEdges, nil, &some)
	return some, err
}

// sqlAfterOf uses _honkerx_after_waiter.
const sqlAfterOf = `SELECT DISTINCT iif(a.job_id > 0, a.job_id, m.job_id) AS id
FROM _honkerx_after AS a LEFT JOIN _honkerx_after AS m ON a.job_id = 0 AND m.waiter = -a.batch
WHERE a.waiter = ?1 AND (a.job_id > 0 OR m.job_id IS NOT NULL) ORDER BY id`

// AfterOf returns the ids of the jobs that the job id is or was waiting for, in ascending order. If the
// job waits for a batch, they include the batch's members.
func (Jobs) AfterOf(ctx context.Context, q row.Querier, id int64) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlAfterOf, 0, id)
}

// These statements use the primary keys.
var (
	sqlWaiters = later(`SELECT value FROM json_each(?1) WHERE 1`) + `
SELECT l.id FROM later CROSS JOIN _honker_live AS l ON l.id = later.id
WHERE l.state = 'held' AND l.id NOT IN (SELECT value FROM json_each(?1))`

	sqlDropWaiters = `DELETE FROM _honker_live WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id, queue`
)

// Waiters returns the jobs that are waiting for any of nodes, directly or indirectly, excluding the
// nodes themselves. A node is a job id or a negated batch id.
func (Jobs) Waiters(ctx context.Context, q row.Querier, nodes []int64) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, sqlWaiters, 0, rows.IDList(nodes))
}

// unawaited returns the ids that no job waits for.
func (j Jobs) unawaited(ctx context.Context, q row.Querier, ids []int64) ([]int64, error) {
	if some, err := j.hasEdges(ctx, q); err != nil || !some {
		return ids, err
	}
	var out []int64
	for _, id := range ids {
		waiters, err := j.Waiters(ctx, q, []int64{id})
		if err != nil {
			return nil, err
		}
		if len(waiters) == 0 {
			out = append(out, id)
		}
	}
	return out, nil
}

// dropWaiters deletes the jobs that Waiters returns for nodes.
func (j Jobs) dropWaiters(ctx context.Context, q row.Querier, nodes []int64) ([]row.Change, error) {
	ids, err := j.Waiters(ctx, q, nodes)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return changes(ctx, q, sqlDropWaiters, rows.IDList(ids))
}
