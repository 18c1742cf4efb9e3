package store

import "context"

// Side is what a job takes along from its enqueue, beyond honker's columns. A plain job has nothing of it,
// and no side row.
type Side struct {
	Key     string // what it shares limits by
	Headers string // a JSON object
}

// None tells whether a job with s is a plain one.
func (s Side) None() bool { return s == Side{} }

// columns are the values of the side row of a job of queue, but for its id. Only a key needs the queue and a slot.
func (s Side) columns(queue string) []any {
	if s.Key == "" {
		return []any{nil, nil, nil, nullText(s.Headers)}
	}
	return []any{queue, s.Key, 0, nullText(s.Headers)}
}

// One row for each job. With a unique key it is there already.
var sqlInsertSides = newInserts(`_honkerx_job`, `queue, key, slot, headers, job_id`, 4, 1)

// By primary key.
const (
	sqlSetSide = `INSERT INTO _honkerx_job (queue, key, slot, headers, job_id) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (job_id) DO UPDATE SET queue = ifnull(excluded.queue, queue), key = excluded.key, slot = excluded.slot, headers = excluded.headers`
	sqlSetHeaders = `UPDATE _honkerx_job SET headers = ?2 WHERE job_id = ?1 AND headers IS NOT ?2`
)

// SetSides gives s to jobs that were just inserted in queue.
func (Jobs) SetSides(ctx context.Context, q Querier, queue string, s Side, ids []int64) error {
	if s.None() || len(ids) == 0 {
		return nil
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil { // a dead job takes it along
		return err
	}
	row := func(args []any, i int) []any { return append(args, ids[i]) }
	return sqlInsertSides.run(ctx, q, s.columns(queue), len(ids), row, func(int64, int64) {})
}

// SetSide is SetSides of a job that may have a unique key.
func (Jobs) SetSide(ctx context.Context, q Querier, queue string, s Side, id int64) error {
	if s.None() {
		return nil
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlSetSide, append(s.columns(queue), id)...)
	return err
}

// SetHeaders changes the headers of a live job that has a side row; empty for none.
func (Jobs) SetHeaders(ctx context.Context, q Querier, id int64, headers string) error {
	_, err := q.ExecContext(ctx, sqlSetHeaders, id, nullText(headers))
	return err
}

// ofSide is a column of the side row of a row of _honker_live.
func ofSide(column string) string {
	return `(SELECT ` + column + ` FROM _honkerx_job WHERE job_id = _honker_live.id)`
}

// carried is what the handler of a job is given of its side row, as one column: each column of a claim has
// its price, also where it is NULL, as this one is for a plain job.
const carried = `(SELECT headers FROM _honkerx_job WHERE job_id = _honker_live.id)`

// carry takes what the column carried says.
func (j *Job) carry(text string) { j.Headers = text }
