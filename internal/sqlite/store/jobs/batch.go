package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Batches contains the statements for _honkerx_batches. A batch's members and waiters are edges (see after.go).
type Batches struct{}

// These statements use the primary keys.
const (
	sqlInsertBatch = `INSERT INTO _honkerx_batches (name, headers, created_ms) VALUES (?1, ?2, ?3)`
	sqlSealBatch   = `UPDATE _honkerx_batches SET open = 0 WHERE id = ?1`
)

// Insert adds an open batch and returns its id. Empty name and headers are stored as NULL.
func (Batches) Insert(ctx context.Context, q row.Querier, name, headers string, now time.Time) (int64, error) {
	if err := ensureAfterTriggers(ctx, q); err != nil {
		return 0, err
	}
	return rows.Inserted(ctx, q, sqlInsertBatch, 1, rows.NullText(name), rows.NullText(headers), now.UnixMilli())
}

// Seal closes the batch to new members. It returns false if the batch does not exist.
func (Batches) Seal(ctx context.Context, q row.Querier, id int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlSealBatch, id)
	return n > 0, err
}

// sqlBatchMembers uses _honkerx_job_batch.
const sqlBatchMembers = `SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_batch WHERE batch = ?1 LIMIT ?2 + 0`

// Members returns the ids of up to limit members that are live, or dead if dead is set.
func (Batches) Members(ctx context.Context, q row.Querier, id int64, dead bool, limit int) ([]int64, error) {
	query := sqlBatchMembers
	if dead {
		query = sqlDeadOfBatch
	}
	return rows.ReturnedIDs(ctx, q, query, 0, id, limit)
}

// Cancel seals the batch, removes the jobs that wait for it, and forgets up to limit members that have ended. Only
// when no such members are left does it remove up to limit other members, together with the jobs that wait for them.
// That order matters because the removal may end the batch, which forgets all remaining members in a single statement.
// Cancel returns the removed jobs and whether there may be more, and false if the batch does not exist.
func (bs Batches) Cancel(ctx context.Context, q row.Querier, id int64, limit int, now time.Time) (gone []row.Change, more, found bool, err error) {
	if found, err = bs.Seal(ctx, q, id); err != nil || !found {
		return nil, false, found, err
	}
	var jobs Jobs
	if gone, err = jobs.dropWaiters(ctx, q, []int64{-id}); err != nil {
		return nil, false, true, err
	}
	forgotten, err := bs.forgetEnded(ctx, q, id, limit)
	if err != nil || forgotten == limit {
		return gone, true, true, err
	}
	members, err := bs.Members(ctx, q, id, false, limit)
	if err != nil {
		return nil, false, true, err
	}
	waiters, err := jobs.dropWaiters(ctx, q, members)
	if err != nil {
		return nil, false, true, err
	}
	cancelled, err := jobs.CancelMany(ctx, q, row.CancelJobs{IDs: members, Running: true}, now)
	if err != nil {
		return nil, false, true, err
	}
	gone = append(append(gone, waiters...), cancelled.Jobs...)
	return gone, len(gone) > 0, true, nil
}

// sqlForgetEnded uses _honkerx_after_waiter.
const sqlForgetEnded = `DELETE FROM _honkerx_after WHERE waiter = -?1 AND batch = ?1 AND job_id IN (
  SELECT job_id FROM _honkerx_after INDEXED BY _honkerx_after_waiter WHERE waiter = -?1 AND state = 1 LIMIT ?2 + 0)`

// forgetEnded deletes the edges of up to limit finished members and returns their number. The caller must make sure
// that nothing waits for the batch. When the batch ends, a single statement deletes the remaining edges; forgetEnded
// keeps that statement short.
func (Batches) forgetEnded(ctx context.Context, q row.Querier, id int64, limit int) (int, error) {
	return rows.Affected(ctx, q, sqlForgetEnded, id, limit)
}

// These statements find the batches by primary key. The counts read the unfinished members, by _honkerx_job_batch and
// _honkerx_dead_job_batch.
const (
	batchesWhere = `SELECT id, name, headers, total, open, created_ms, done_ms,
  (SELECT count(*) FROM _honkerx_job INDEXED BY _honkerx_job_batch WHERE batch = b.id),
  (SELECT count(*) FROM _honkerx_job AS s INDEXED BY _honkerx_job_batch CROSS JOIN _honker_live AS l ON l.id = s.job_id
    WHERE s.batch = b.id AND l.state = 'processing' AND l.claim_expires_at >= ?1),
  (SELECT count(*) FROM _honkerx_dead_job INDEXED BY _honkerx_dead_job_batch WHERE batch = b.id),
  (SELECT json_group_array(waiter) FROM (SELECT waiter FROM _honkerx_after WHERE job_id = 0 AND batch = b.id ORDER BY waiter LIMIT 100))
FROM _honkerx_batches AS b WHERE `

	sqlNewestBatches = batchesWhere + `id < ?2 ORDER BY id DESC LIMIT ?3 + 0`
	sqlOldestBatches = batchesWhere + `id > ?2 ORDER BY id LIMIT ?3 + 0`
	sqlOneBatch      = batchesWhere + `id = ?2`

	// sqlDeadOfBatch uses _honkerx_dead_job_batch.
	sqlDeadOfBatch = `SELECT job_id FROM _honkerx_dead_job INDEXED BY _honkerx_dead_job_batch WHERE batch = ?1 LIMIT ?2 + 0`
)

// Get returns the batch, or false if it does not exist. A member counts as running if its claim is valid.
func (Batches) Get(ctx context.Context, q row.Querier, id int64, now time.Time) (b row.Batch, found bool, err error) {
	all, err := batches(ctx, q, sqlOneBatch, now.Unix(), id)
	if err != nil || len(all) == 0 {
		return b, false, err
	}
	return all[0], true, nil
}

// List returns up to limit batches following the batch with the id after, oldest first, or newest first if newest is
// set. If after is 0, the list starts at the beginning.
func (Batches) List(ctx context.Context, q row.Querier, newest bool, after int64, limit int, now time.Time) ([]row.Batch, error) {
	switch {
	case !newest:
		return batches(ctx, q, sqlOldestBatches, now.Unix(), after, limit)
	case after == 0:
		after = math.MaxInt64
	}
	return batches(ctx, q, sqlNewestBatches, now.Unix(), after, limit)
}

func batches(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Batch, err error) {
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var b row.Batch
		var next string
		err := r.Scan(&b.ID, (*rows.Text)(&b.Name), (*rows.Text)(&b.Headers), (*rows.Number)(&b.Total), &b.Open, (*rows.Milli)(&b.Created), (*rows.Milli)(&b.Done),
			(*rows.Number)(&b.Live), (*rows.Number)(&b.Running), (*rows.Number)(&b.Dead), &next)
		if err != nil {
			return err
		}
		all = append(all, b)
		return json.Unmarshal([]byte(next), &all[len(all)-1].Next)
	}, args...)
	return all, err
}
