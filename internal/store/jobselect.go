package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// JobSelect picks live or dead jobs. What is set must all match. Times are unix seconds, 0 is none.
type JobSelect struct {
	Dead        bool // of the dead letters; else live ones
	Queues      []string
	IDs         []int64 // nil: any
	Unique      string
	Worker      string
	Error       string
	Contains    string
	Where       map[string]string // JSON paths
	MinAttempts int64

	CreatedSince, CreatedBefore, RunSince, RunBefore, DiedSince, DiedBefore int64
}

// SelectedJob is a job that a JobSelect has picked.
type SelectedJob struct {
	ID        int64
	Queue     string
	DiedAt    int64 // 0: live
	LastError string
}

// query returns the statement for up to limit jobs above an id, and its arguments.
func (s *JobSelect) query(after int64, limit int, order string) (string, []any) {
	c := conditions{args: []any{after, limit}}
	c.where = append(c.where, "j.id > ?1")
	from, died, lastError := "_honker_live AS j LEFT JOIN _honkerx_job AS s ON s.job_id = j.id", "0", "s.last_error"
	if s.Dead {
		from, died, lastError = "_honker_dead AS j LEFT JOIN _honkerx_dead_job AS s ON s.job_id = j.id", "j.died_at", "j.last_error"
	}
	if s.IDs != nil {
		c.add("j.id IN (SELECT value FROM json_each(?))", idList(s.IDs))
	}
	if len(s.Queues) > 0 {
		c.add("j.queue IN (SELECT value FROM json_each(?))", nameList(s.Queues))
	}
	c.text("s.unique_key = ?", s.Unique)
	c.text("instr("+lastError+", ?) > 0", s.Error)
	c.text("instr(j.payload, ?) > 0", s.Contains)
	for _, path := range slices.Sorted(maps.Keys(s.Where)) {
		c.add("iif(json_valid(j.payload), CAST(j.payload ->> ? AS TEXT) = ?, 0)", path, s.Where[path])
	}
	c.number("j.attempts >= ?", s.MinAttempts)
	c.number("j.created_at >= ?", s.CreatedSince)
	c.number("j.created_at < ?", s.CreatedBefore)
	c.number("j.run_at >= ?", s.RunSince)
	c.number("j.run_at < ?", s.RunBefore)
	if s.Dead {
		c.number("j.died_at >= ?", s.DiedSince)
		c.number("j.died_at < ?", s.DiedBefore)
	} else {
		c.text("j.worker_id = ?", s.Worker)
	}
	return `SELECT j.id, j.queue, ` + died + `, ` + lastError + ` FROM ` + from + ` WHERE ` +
		strings.Join(c.where, " AND ") + ` ORDER BY ` + order + ` LIMIT ?2 + 0`, c.args
}

// conditions are those of a query, with the values of their parameters.
type conditions struct {
	where []string
	args  []any
}

// add adds a condition, in which each ? stands for the next of values. They are numbered, since
// the others of the statement are.
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

// Select returns up to limit of the jobs above the id after that s picks, in the order of ids. It
// goes by primary key, so it costs what it passes.
func (j Jobs) Select(ctx context.Context, q Querier, s JobSelect, after int64, limit int) ([]SelectedJob, error) {
	query, args := s.query(after, limit, "j.id")
	return selected(ctx, q, query, args)
}

// NewestDead returns up to limit of the dead jobs that s picks, the last that died first. It reads all
// dead jobs.
func (j Jobs) NewestDead(ctx context.Context, q Querier, s JobSelect, limit int) ([]SelectedJob, error) {
	query, args := s.query(math.MinInt64, limit, "j.died_at DESC, j.id DESC")
	return selected(ctx, q, query, args)
}

func selected(ctx context.Context, q Querier, query string, args []any) (out []SelectedJob, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var j SelectedJob
		var lastError sql.NullString
		err := rows.Scan(&j.ID, &j.Queue, (*number)(&j.DiedAt), &lastError)
		j.LastError = lastError.String
		out = append(out, j)
		return err
	}, args...)
	return out, err
}
