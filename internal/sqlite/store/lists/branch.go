package lists

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A branch is a statement that finds part of the jobs after a place. It returns up to ?1 rows (id, A, B) in
// list order. Rows with an equal value and rows with a later value need separate branches, because a row
// comparison such as (a, id) > (?, ?) would walk all rows with the equal value.
type branch struct {
	in    row.Table
	query string
	args  []any // from ?2
}

// places returns up to n candidates after a place, in list order. A nil place means the start of the list.
// If it returns fewer than n, the list has ended. If sorted is set, places reads the ids from the indexes of
// the selected queues and phases and sorts them, at about 80 ns per job. Otherwise it walks in list order,
// and reads only jobs with side rows if no others can match.
func places(ctx context.Context, q row.Querier, s *selection, order row.Order, sorted bool, after *row.Place, n int) ([]row.Place, error) {
	var found []row.Place
	byID := order == row.NewestFirst || order == row.OldestFirst
	for _, a := range selectBranches(s, order, sorted, after) {
		err := rows.Each(ctx, q, a.query, func(r *sql.Rows) error {
			p := row.Place{In: a.in}
			err := r.Scan(&p.ID, (*sortKey)(&p.A), (*sortKey)(&p.B))
			if byID {
				p.A, p.B = row.SortKey{}, row.SortKey{} // unused
			}
			found = append(found, p)
			return err
		}, parameters(a.query, append([]any{n}, a.args...)...)...)
		if err != nil {
			return nil, err
		}
		if order == row.ClaimOrder && len(found) >= n {
			break // later branches sort after these rows
		}
	}
	if byID {
		slices.SortFunc(found, order.CompareIDs)
		found = slices.Compact(found) // index ranges may overlap
	}
	return found[:min(n, len(found))], nil
}

func selectBranches(s *selection, order row.Order, sorted bool, after *row.Place) []branch {
	switch {
	case len(s.Tables()) == 0:
		return nil
	case order == row.ClaimOrder:
		return claimBranches(s, after)
	case order == row.LastDiedFirst:
		return deathBranches(s, after)
	case sorted:
		return collectBranches(s, order, after)
	}
	var branches []branch
	for _, in := range s.Tables() {
		branches = append(branches, walkBranch(s, order, in, after))
	}
	return branches
}

// beyond returns the condition that an id follows a place, and the sort order. ?2 is the place's id. In the
// tables after the place's own, the same id also follows.
func beyond(o row.Order, id string, in row.Table, after *row.Place) (condition, sort string, args []any) {
	op, sort, bound := " < ", id+" DESC", int64(math.MaxInt64)
	if o == row.OldestFirst {
		op, sort, bound = " > ", id, math.MinInt64
	}
	if after == nil {
		op = op[:2] + "= "
	} else if bound = after.ID; in > after.In {
		op = op[:2] + "= "
	}
	return id + op + "?2", sort, []any{bound}
}

// walkBranch walks the primary key of a table. If only jobs with a side row can match, it walks the
// smaller side table.
func walkBranch(s *selection, order row.Order, in row.Table, after *row.Place) branch {
	table, id, distinct := tables[in].name, tables[in].id, ""
	sided := s.Unique != "" || s.Key != "" || s.Batch != 0 || len(s.Header) > 0
	switch {
	case s.IDs != nil:
		table, id, distinct = "json_each(?3)", "value", "DISTINCT "
	case in == row.Live && (sided || s.Error != ""):
		table, id = "_honkerx_job", "job_id"
	case in == row.Dead && sided:
		table, id = "_honkerx_dead_job", "job_id"
	}
	condition, sort, args := beyond(order, id, in, after)
	switch {
	case s.IDs != nil:
		args = append(args, rows.IDList(s.IDs))
	case s.Batch != 0 && in != row.Done: // uses the index on batch
		condition += " AND batch = ?3"
		args = append(args, s.Batch)
	}
	return branch{in, `SELECT ` + distinct + id + `, NULL, NULL FROM ` + table + ` WHERE ` + condition + ` ORDER BY ` + sort + ` LIMIT ?1 + 0`, args}
}

// claimBranches walks the pending index of the queue.
func claimBranches(s *selection, after *row.Place) []branch {
	find := func(condition string, args ...any) branch {
		return branch{row.Live, `SELECT id, priority, run_at FROM _honker_live INDEXED BY _honkerx_live_pending
WHERE queue = ?2 AND state = 'pending'` + condition + ` ORDER BY priority DESC, run_at, id LIMIT ?1 + 0`, append([]any{s.Queues[0]}, args...)}
	}
	if after == nil {
		return []branch{find("")}
	}
	return []branch{
		find(` AND priority = ?3 AND run_at = ?4 AND id > ?5`, keyValue(after.A), keyValue(after.B), after.ID),
		find(` AND priority = ?3 AND run_at > ?4`, keyValue(after.A), keyValue(after.B)),
		find(` AND priority < ?3`, keyValue(after.A)),
	}
}

// deathBranches merges the dead letters of the queues, each in index order. The recursion keeps the
// head of every queue in its sorted work queue. When it takes a job, it adds the next job of the
// same queue.
func deathBranches(s *selection, after *row.Place) []branch {
	head := `(SELECT id FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = n.queue ORDER BY died_at DESC, id DESC LIMIT 1)`
	names := deadRange.names("n")
	if len(s.Queues) > 0 {
		names = `n(queue) AS (SELECT DISTINCT value FROM json_each(?4))`
	}
	if before := rows.SecondUp(s.DiedBefore); after == nil && before != 0 {
		after = &row.Place{A: row.SortKey{N: before}, ID: math.MinInt64}
	}
	args := []any{nil, nil, rows.NameList(s.Queues)}
	if after != nil {
		head = nextDeath("n.queue", "?2", "?3")
		args[0], args[1] = keyValue(after.A), after.ID
	}
	return []branch{{row.Dead, `WITH RECURSIVE ` + names + `,
  m(id, queue, died_at) AS (
    SELECT d.id, d.queue, d.died_at FROM n CROSS JOIN _honker_dead AS d ON d.id = ` + head + `
    UNION ALL
    SELECT d.id, d.queue, d.died_at FROM m CROSS JOIN _honker_dead AS d ON d.id = ` + nextDeath("m.queue", "m.died_at", "m.id") + `
    ORDER BY 3 DESC, 1 DESC LIMIT ?1 + 0)
SELECT id, died_at, NULL FROM m`, args}}
}

// nextDeath returns an expression for the id of the next dead letter of a queue after the given
// job, latest death first.
func nextDeath(queue, diedAt, id string) string {
	find := `(SELECT id FROM _honker_dead INDEXED BY _honkerx_dead_queue WHERE queue = ` + queue + ` AND `
	return `coalesce(` + find + `died_at = ` + diedAt + ` AND id < ` + id + ` ORDER BY id DESC LIMIT 1),
      ` + find + `died_at < ` + diedAt + ` ORDER BY died_at DESC, id DESC LIMIT 1))`
}

// collectBranches reads the index ranges of s and sorts the result.
func collectBranches(s *selection, order row.Order, after *row.Place) (branches []branch) {
	for _, in := range selectRanges(s) {
		id := "j." + tables[in.in].id
		condition, sort, args := beyond(order, id, in.in, after)
		query := in.query(s, id+", NULL, NULL") + " AND " + condition + " ORDER BY " + sort + " LIMIT ?1 + 0"
		branches = append(branches, branch{in.in, query, append(args, s.now, rows.NameList(s.Queues))})
	}
	return branches
}

// few reports whether the queues and phases of s contain at most most jobs. It returns false without
// counting if s names ids, or if s names no queues and either no phases or only phases of finished jobs.
func few(ctx context.Context, q row.Querier, s *selection, most int64) (bool, error) {
	if s.IDs != nil || len(s.Queues) == 0 && !slices.Contains(s.Tables(), row.Live) || len(s.Queues) == 0 && s.Phases == nil {
		return false, nil
	}
	left := most + 1
	for _, in := range selectRanges(s) {
		var n int64
		query := `SELECT count(*) FROM (` + in.query(s, "1") + ` LIMIT ?1 + 0)`
		if _, err := rows.One(ctx, q, query, parameters(query, left, nil, s.now, rows.NameList(s.Queues)), &n); err != nil {
			return false, err
		}
		if left -= n; left <= 0 {
			return false, nil
		}
	}
	return true, nil
}

// parameters returns values up to the last that query refers to. A statement must not be given more
// parameters than it has.
func parameters(query string, values ...any) []any {
	for n := len(values); n > 0; n-- {
		if strings.Contains(query, "?"+strconv.Itoa(n)) {
			return values[:n]
		}
	}
	return nil
}

// loadJobs reads the jobs at the given places and returns those that s selects, by index in at.
func loadJobs(ctx context.Context, q row.Querier, s *selection, at []row.Place) (map[int]row.Job, error) {
	ids, index := byTable(at, s.IDs)
	found := make(map[int]row.Job, len(at))
	for in := range ids {
		query, args := loadQuery(s, in, ids[in])
		err := rows.Each(ctx, q, query, func(r *sql.Rows) error {
			job, err := scanListed(r)
			found[index[in][job.ID]] = job
			return err
		}, args...)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// byTable returns the ids of places and their indexes in at, by table. It leaves out places that are not among only, unless
// that is nil: the candidates in the order of claims or deaths may be any jobs.
func byTable(at []row.Place, only []int64) (ids map[row.Table][]int64, index map[row.Table]map[int64]int) {
	ids, index = make(map[row.Table][]int64), make(map[row.Table]map[int64]int)
	for i, p := range at {
		if only != nil && !slices.Contains(only, p.ID) {
			continue
		}
		if index[p.In] == nil {
			index[p.In] = make(map[int64]int)
		}
		ids[p.In] = append(ids[p.In], p.ID)
		index[p.In][p.ID] = i
	}
	return ids, index
}

// listed holds the columns that differ between the job tables. A column that a table lacks is NULL.
var listed = [...]string{
	row.Live: `j.id, j.state, j.worker_id, j.claim_expires_at, j.expires_at, s.last_error, NULL, NULL, ` + jobs.StartOf("j"),
	row.Dead: `j.id, 'dead', NULL, NULL, NULL, j.last_error, j.died_at, NULL, NULL`,
	row.Done: `j.job_id, 'done', j.worker_id, NULL, j.expires_at, j.last_error, NULL, j.done_ms, NULL`,
}

// loadQuery returns the statement that reads, by primary key, the jobs among ids that s selects, and its
// arguments.
func loadQuery(s *selection, in row.Table, ids []int64) (string, []any) {
	c := conditions{args: []any{rows.IDList(ids)}}
	selectConditions(s, in, &c)
	where := ""
	if len(c.where) > 0 {
		where = " WHERE " + strings.Join(c.where, " AND ")
	}
	t := tables[in]
	return `SELECT ` + listed[in] + `, j.queue, j.payload, j.priority, j.run_at, j.attempts, j.max_attempts, j.created_at, s.unique_key, s.key, s.headers, s.batch, s.progress
FROM json_each(?1) AS c CROSS JOIN ` + strings.Replace(t.from, " AS j", " AS j ON j."+t.id+" = c.value", 1) + where, c.args
}

func scanListed(r *sql.Rows) (j row.Job, err error) {
	err = r.Scan(&j.ID, &j.State, (*rows.Text)(&j.WorkerID), (*rows.Second)(&j.ClaimExpiresAt), (*rows.Second)(&j.ExpiresAt), (*rows.Text)(&j.LastError),
		(*rows.Second)(&j.DiedAt), (*rows.Milli)(&j.DoneAt), (*rows.Milli)(&j.StartedAt), &j.Queue, &j.Payload, (*rows.Number)(&j.Priority), (*rows.Second)(&j.RunAt),
		(*rows.Number)(&j.Attempts), (*rows.Number)(&j.MaxAttempts), (*rows.Second)(&j.CreatedAt), (*rows.Text)(&j.Unique), (*rows.Text)(&j.Key), (*rows.Text)(&j.Headers),
		(*rows.Number)(&j.Batch), (*rows.Text)(&j.Progress))
	return j, err
}
