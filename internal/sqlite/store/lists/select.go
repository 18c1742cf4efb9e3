package lists

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// phaseOfLive computes the phase of a row of _honker_live. It must agree with Job.Phase. Each ? is
// the current second; there are four.
const phaseOfLive = `CASE j.state
  WHEN 'pending' THEN CASE WHEN j.expires_at <= ? THEN 'expired' WHEN j.run_at > ? THEN 'scheduled'
    WHEN j.attempts >= j.max_attempts THEN 'expired' ELSE 'ready' END
  WHEN 'processing' THEN CASE WHEN j.claim_expires_at >= ? THEN 'running'
    WHEN j.expires_at <= ? OR j.attempts >= j.max_attempts THEN 'expired' ELSE 'lapsed' END
  WHEN '` + row.Held + `' THEN 'held' ELSE '' END`

// tableOf describes a job table: its join with the side rows, and the columns whose names differ.
type tableOf struct{ name, from, id, died, lastError string }

var tables = [...]tableOf{
	row.Live: {name: "_honker_live", from: "_honker_live AS j LEFT JOIN _honkerx_job AS s ON s.job_id = j.id", id: "id", died: "0", lastError: "s.last_error"},
	row.Dead: {name: "_honker_dead", from: "_honker_dead AS j LEFT JOIN _honkerx_dead_job AS s ON s.job_id = j.id", id: "id", died: "j.died_at", lastError: "j.last_error"},
	row.Done: {name: "_honkerx_done", from: "_honkerx_done AS j LEFT JOIN _honkerx_done AS s ON s.job_id = j.job_id", id: "job_id", died: "0", lastError: "j.last_error"},
}

// selection is a JobSelect at a Unix second.
type selection struct {
	row.JobSelect
	now int64
}

// selectConditions adds s's conditions on a table's row j and its side row s.
func selectConditions(s *selection, in row.Table, c *conditions) {
	if s.IDs != nil {
		c.add("j."+tables[in].id+" IN (SELECT value FROM json_each(?))", rows.IDList(s.IDs))
	}
	if len(s.Queues) > 0 {
		c.add("j.queue IN (SELECT value FROM json_each(?))", rows.NameList(s.Queues))
	}
	if in == row.Live && s.Phases != nil {
		c.add("("+phaseOfLive+") IN (SELECT value FROM json_each(?))", s.now, s.now, s.now, s.now, phaseList(s.Phases))
	}
	c.text("s.unique_key = ?", s.Unique)
	c.text("s.key = ?", s.Key)
	c.number("s.batch = ?", s.Batch)
	c.text("instr("+tables[in].lastError+", ?) > 0", s.Error)
	c.text("instr(j.payload, ?) > 0", s.Contains)
	c.fields("j.payload", s.Where)
	c.fields("s.headers", s.Header)
	c.number("j.attempts >= ?", s.MinAttempts)
	c.number("j.created_at >= ?", rows.SecondUp(s.CreatedSince))
	c.number("j.created_at < ?", rows.SecondUp(s.CreatedBefore))
	c.number("j.run_at >= ?", rows.SecondUp(s.RunSince))
	c.number("j.run_at < ?", rows.SecondUp(s.RunBefore))
	if in == row.Dead {
		c.number("j.died_at >= ?", rows.SecondUp(s.DiedSince))
		c.number("j.died_at < ?", rows.SecondUp(s.DiedBefore))
	}
	if in == row.Live {
		c.text("j.worker_id = ?", s.Worker)
		c.number("s.requeue = ? AND j.attempts = s.base", s.Requeue)
	}
}

// selectQuery returns the statement for up to limit jobs with ids above after, and its arguments.
func selectQuery(s *selection, after int64, limit int) (string, []any) {
	t := tables[s.In]
	c := conditions{where: []string{"j." + t.id + " > ?1"}, args: []any{after, limit}}
	selectConditions(s, s.In, &c)
	return `SELECT j.` + t.id + `, j.queue, ` + t.died + `, ` + t.lastError + `, coalesce(j.attempts < j.max_attempts, 0) FROM ` + t.from + ` WHERE ` +
		strings.Join(c.where, " AND ") + ` ORDER BY j.` + t.id + ` LIMIT ?2 + 0`, c.args
}

// conditions collects a WHERE clause's conditions and the values of their parameters.
type conditions struct {
	where []string
	args  []any
}

// add appends a condition and binds each ? in it to the next of values. The parameters are numbered
// because the rest of the statement uses numbered parameters.
func (c *conditions) add(condition string, values ...any) {
	parts := strings.Split(condition, "?")
	for i, v := range values {
		c.args = append(c.args, v)
		parts[i] += fmt.Sprint("?", len(c.args))
	}
	c.where = append(c.where, strings.Join(parts, ""))
}

func (c *conditions) text(condition, value string) {
	if value != "" {
		c.add(condition, value)
	}
}

func (c *conditions) number(condition string, value int64) {
	if value != 0 {
		c.add(condition, value)
	}
}

// fields adds a condition for each JSON path in of: the field at that path in column must equal the
// given text.
func (c *conditions) fields(column string, of map[string]string) {
	for _, path := range slices.Sorted(maps.Keys(of)) {
		c.add("iif(json_valid("+column+"), CAST("+column+" ->> ? AS TEXT) = ?, 0)", path, of[path])
	}
}

// phaseList encodes phases as a JSON array for json_each.
func phaseList(phases []row.Phase) string {
	b, _ := json.Marshal(phases) // strings cannot fail
	return string(b)
}

// Select returns up to limit jobs with ids above after that s selects, in id order. It walks the
// primary key, so the cost includes the rows that it skips.
func (Lists) Select(ctx context.Context, q row.Querier, s row.JobSelect, after int64, limit int, now time.Time) (out []row.SelectedJob, err error) {
	return selectJobs(ctx, q, &selection{s, now.Unix()}, after, limit)
}

func selectJobs(ctx context.Context, q row.Querier, s *selection, after int64, limit int) (out []row.SelectedJob, err error) {
	query, args := selectQuery(s, after, limit)
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var j row.SelectedJob
		err := r.Scan(&j.ID, &j.Queue, (*rows.Second)(&j.DiedAt), (*rows.Text)(&j.LastError), &j.Left)
		out = append(out, j)
		return err
	}, args...)
	return out, err
}
