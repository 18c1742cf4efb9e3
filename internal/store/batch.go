package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/honker-go/honker/internal/row"
)

// Batches provides the statements on _honkerx_batches. The members and the waiters of a batch are edges
// (see after.go).
type Batches struct{}

// Uses the primary keys.
const (
	sqlInsertBatch = `INSERT INTO _honkerx_batches (name, headers, created_ms) VALUES (?1, ?2, ?3)`
	sqlSealBatch   = `UPDATE _honkerx_batches SET open = 0 WHERE id = ?1`
)

// Insert adds an open batch and returns its id. Empty name and headers are stored as NULL.
func (Batches) Insert(ctx context.Context, q row.Querier, name, headers string, nowMS int64) (int64, error) {
	if err := ensureAfterTriggers(ctx, q); err != nil {
		return 0, err
	}
	return inserted(ctx, q, sqlInsertBatch, 1, nullText(name), nullText(headers), nowMS)
}

// Seal closes the batch to new members. It returns false if the batch does not exist.
func (Batches) Seal(ctx context.Context, q row.Querier, id int64) (bool, error) {
	n, err := affected(ctx, q, sqlSealBatch, id)
	return n > 0, err
}

// Uses _honkerx_job_batch.
const sqlBatchMembers = `SELECT job_id FROM _honkerx_job INDEXED BY _honkerx_job_batch WHERE batch = ?1 LIMIT ?2 + 0`

// Members returns the ids of up to limit live members.
func (Batches) Members(ctx context.Context, q row.Querier, id int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlBatchMembers, 0, id, limit)
}

// Uses _honkerx_after_waiter.
const sqlForgetEnded = `DELETE FROM _honkerx_after WHERE waiter = -?1 AND batch = ?1 AND job_id IN (
  SELECT job_id FROM _honkerx_after INDEXED BY _honkerx_after_waiter WHERE waiter = -?1 AND state = 1 LIMIT ?2 + 0)`

// ForgetEnded deletes the edges of up to limit finished members and returns their number. The caller must
// make sure that nothing waits for the batch. The remaining edges are deleted by a single statement at the
// end of the batch, and ForgetEnded keeps that statement short.
func (Batches) ForgetEnded(ctx context.Context, q row.Querier, id int64, limit int) (int, error) {
	return affected(ctx, q, sqlForgetEnded, id, limit)
}

// The batches are found by primary key. The counts read the unfinished members, by _honkerx_job_batch and
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

	// Uses _honkerx_dead_job_batch.
	sqlDeadOfBatch = `SELECT job_id FROM _honkerx_dead_job INDEXED BY _honkerx_dead_job_batch WHERE batch = ?1 LIMIT ?2 + 0`
)

// Get returns the batch, or false if it does not exist. A member counts as running if its claim is valid at
// the second now.
func (Batches) Get(ctx context.Context, q row.Querier, id, now int64) (b row.Batch, found bool, err error) {
	all, err := batches(ctx, q, sqlOneBatch, now, id)
	if err != nil || len(all) == 0 {
		return b, false, err
	}
	return all[0], true, nil
}

// DeadMembers returns the ids of up to limit dead members.
func (Batches) DeadMembers(ctx context.Context, q row.Querier, id int64, limit int) ([]int64, error) {
	return returnedIDs(ctx, q, sqlDeadOfBatch, 0, id, limit)
}

// Newest returns up to limit batches with ids below before, newest first.
func (Batches) Newest(ctx context.Context, q row.Querier, before, now int64, limit int) ([]row.Batch, error) {
	return batches(ctx, q, sqlNewestBatches, now, before, limit)
}

// Oldest returns up to limit batches with ids above after, oldest first.
func (Batches) Oldest(ctx context.Context, q row.Querier, after, now int64, limit int) ([]row.Batch, error) {
	return batches(ctx, q, sqlOldestBatches, now, after, limit)
}

func batches(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Batch, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var b row.Batch
		var next string
		err := rows.Scan(&b.ID, (*text)(&b.Name), (*text)(&b.Headers), (*number)(&b.Total), &b.Open, (*number)(&b.CreatedMS), (*number)(&b.DoneMS),
			(*number)(&b.Live), (*number)(&b.Running), (*number)(&b.Dead), &next)
		if err != nil {
			return err
		}
		all = append(all, b)
		return json.Unmarshal([]byte(next), &all[len(all)-1].Next)
	}, args...)
	return all, err
}
