package jobs

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sideColumns returns a side row's values, except the job id. Only a job with a key stores the
// queue and a slot.
func sideColumns(s Side, queue string) []any {
	if s.Key == "" {
		return []any{nil, nil, nil, rows.NullText(s.Headers)}
	}
	return []any{queue, s.Key, 0, rows.NullText(s.Headers)}
}

// sqlInsertSides inserts a row per job. A job with a unique key already has its row.
var sqlInsertSides = rows.NewInserts(`_honkerx_job`, `queue, key, slot, headers, job_id`, 4, 1)

// These statements use the primary key.
const (
	sqlSetSide = `INSERT INTO _honkerx_job (queue, key, slot, headers, job_id) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (job_id) DO UPDATE SET queue = ifnull(excluded.queue, queue), key = excluded.key, slot = excluded.slot, headers = excluded.headers`
	sqlReplaceSide = `UPDATE _honkerx_job SET headers = ?2, progress = NULL, checkpoint = NULL, requeue = NULL WHERE job_id = ?1`
)

// SetSides adds the side rows s to jobs just inserted into queue. It does nothing if s is empty.
func (Jobs) SetSides(ctx context.Context, q row.Querier, queue string, s Side, ids []int64) error {
	if s.none() || len(ids) == 0 {
		return nil
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil { // they copy a dying job's side row
		return err
	}
	row := func(args []any, i int) []any { return append(args, ids[i]) }
	return sqlInsertSides.Run(ctx, q, sideColumns(s, queue), len(ids), row, func(int64, int64) {})
}

// setSide is like SetSides for a job that may already have a side row because of its unique key.
func (Jobs) setSide(ctx context.Context, q row.Querier, queue string, s Side, id int64) error {
	if s.none() {
		return nil
	}
	if err := ensureKeyTriggers(ctx, q, false); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlSetSide, append(sideColumns(s, queue), id)...)
	return err
}

// replaceSide sets the headers of a job whose arguments were replaced and clears its progress, checkpoint and
// requeue.
func (Jobs) replaceSide(ctx context.Context, q row.Querier, id int64, headers string) error {
	_, err := q.ExecContext(ctx, sqlReplaceSide, id, rows.NullText(headers))
	return err
}

// ofSide returns an expression for a column of a live job's side row.
func ofSide(column string) string {
	return `(SELECT ` + column + ` FROM _honkerx_job WHERE job_id = _honker_live.id)`
}

// carried selects the values that a claim reads from the side row, combined in a single column.
// Each column of a claim costs time even if it is NULL, as this column is for a plain job. If the
// job has only headers, the value is the headers' JSON object. Otherwise it is a JSON array that
// begins with the values that no other program writes.
const carried = `(SELECT CASE WHEN coalesce(key, unique_key, batch, checkpoint) IS NULL THEN headers ELSE
      '[' || json_quote(CAST(key AS TEXT)) || ',' || json_quote(CAST(unique_key AS TEXT)) || ',' || ifnull(CAST(batch AS INTEGER), 0)
      || ',' || ifnull(headers, 'null') || ',' || ifnull(checkpoint, 'null') || ']' END
    FROM _honkerx_job WHERE job_id = _honker_live.id)`

// carry sets j's fields from the column carried.
func carry(j *row.Job, text string) {
	if !strings.HasPrefix(text, "[") {
		j.Headers = text
		return
	}
	list := json.NewDecoder(strings.NewReader(text))
	_, _ = list.Token() // the opening bracket
	var headers, checkpoint json.RawMessage
	for _, field := range []any{&j.Key, &j.Unique, &j.Batch, &headers, &checkpoint} {
		if list.Decode(field) != nil {
			break // another program has stored headers or a checkpoint that is not JSON
		}
	}
	j.Headers, j.Checkpoint = unlessNull(headers), unlessNull(checkpoint)
}

func unlessNull(value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	return string(value)
}
