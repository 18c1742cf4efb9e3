// Package flows contains the statements for the runs of package flow.
package flows

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Flows contains the statements for the _honkerx_flow_ tables.
type Flows struct{}

//go:embed flow.sql
var flowDDL string

const sqlHasFlows = `SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = '_honkerx_flow_returned'`

// exists reports whether the file has the tables. It reads the schema.
func (Flows) exists(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return rows.One(ctx, q, sqlHasFlows, nil, &x)
}

// Prepare takes the write lock for q's transaction and creates the tables, unless they exist.
func (f Flows) Prepare(ctx context.Context, q row.Querier) error {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return err
	}
	if found, err := f.exists(ctx, q); err != nil || found {
		return err
	}
	return rows.ExecAll(ctx, q, rows.SplitDDL(flowDDL))
}

// runColumns are the columns that scanRun reads.
const runColumns = `job_id, flow, id, coalesce(parent, 0), started_ms, ended_ms, coalesce(outcome, ''), cancelled, coalesce(failure, '')`

// These statements use the primary key, and the index of names.
const (
	sqlFindRun = `SELECT ` + runColumns + ` FROM _honkerx_flow_runs WHERE flow = ?1 AND id = ?2`

	sqlRunOf = `SELECT ` + runColumns + ` FROM _honkerx_flow_runs WHERE job_id = ?1`

	sqlAddRun = `INSERT INTO _honkerx_flow_runs (job_id, flow, id, parent, started_ms) VALUES (?1, ?2, ?3, nullif(?4, 0), ?5) ON CONFLICT DO NOTHING`
)

// runScan holds the columns of a run until they are converted.
type runScan struct {
	r              row.FlowRun
	started, ended rows.Number
}

func (s *runScan) into() []any {
	return []any{&s.r.Job, &s.r.Flow, &s.r.ID, &s.r.Parent, &s.started, &s.ended, (*string)(&s.r.Outcome), &s.r.Cancelled, &s.r.Failure}
}

func (s *runScan) run() row.FlowRun {
	s.r.StartedAt, s.r.EndedAt = row.InstantMS(int64(s.started)), row.InstantMS(int64(s.ended))
	return s.r
}

// Find returns the run of flow with the given ID, or false if there is none.
func (f Flows) Find(ctx context.Context, q row.Querier, flow, id string) (row.FlowRun, bool, error) {
	return findRun(ctx, q, sqlFindRun, flow, id)
}

// findRun selects a run. It does not look for the tables first, because that reads the whole schema.
func findRun(ctx context.Context, q row.Querier, query string, args ...any) (row.FlowRun, bool, error) {
	var s runScan
	found, err := rows.One(ctx, q, query, args, s.into()...)
	if err != nil && strings.Contains(err.Error(), "no such table: _honkerx_flow_runs") {
		err = nil
	}
	return s.run(), found, err
}

// Hold is like Find, but takes the write lock first.
func (f Flows) Hold(ctx context.Context, q row.Querier, flow, id string) (row.FlowRun, bool, error) {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return row.FlowRun{}, false, err
	}
	return f.Find(ctx, q, flow, id)
}

// Add records the run of a new job. It returns false and changes nothing if the flow has a run with that ID. It must
// run after Prepare.
func (Flows) Add(ctx context.Context, q row.Querier, r row.FlowRun, now time.Time) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlAddRun, r.Job, r.Flow, r.ID, r.Parent, rows.MilliOf(now))
	return n > 0, err
}

// These statements use the primary keys.
const (
	sqlStepsOf = `SELECT name, kind, seq, coalesce(value, ''), began_ms, ended_ms, until_ms FROM _honkerx_flow_steps WHERE job_id = ?1`

	sqlSignalsOf = `SELECT name, value FROM _honkerx_flow_signals WHERE flow = ?1 AND id = ?2`
)

// History returns the recorded state of the run of a job, or false if there is none.
func (f Flows) History(ctx context.Context, q row.Querier, job int64) (h row.FlowHistory, found bool, err error) {
	if h.Run, found, err = findRun(ctx, q, sqlRunOf, job); err != nil || !found {
		return h, false, err
	}
	if h.Steps, err = stepsOf(ctx, q, job); err != nil {
		return h, false, err
	}
	h.Signals, err = f.Signals(ctx, q, h.Run.Flow, h.Run.ID)
	return h, true, err
}

func stepsOf(ctx context.Context, q row.Querier, job int64) (all []row.FlowStepRow, err error) {
	err = rows.Each(ctx, q, sqlStepsOf, func(r *sql.Rows) error {
		var s row.FlowStepRow
		var began, ended, until rows.Number
		err := r.Scan(&s.Name, &s.Kind, &s.Seq, &s.Value, &began, &ended, &until)
		s.Began, s.Ended, s.Until = row.InstantMS(int64(began)), row.InstantMS(int64(ended)), row.InstantMS(int64(until))
		all = append(all, s)
		return err
	}, job)
	return all, err
}

// Signals returns the values of the signals to a run, by name.
func (Flows) Signals(ctx context.Context, q row.Querier, flow, id string) (map[string]string, error) {
	all := make(map[string]string)
	err := rows.Each(ctx, q, sqlSignalsOf, func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		all[name] = value
		return err
	}, flow, id)
	return all, err
}

// These statements use the primary keys. The claim of the job is the fence.
const (
	saveStep = `INSERT INTO _honkerx_flow_steps (job_id, name, kind, seq, value, began_ms, ended_ms, until_ms)
SELECT id, ?5, ?6, ?7, ?8, ?9, ?10, ?11 FROM _honker_live
WHERE id = ?1 AND worker_id = ?2 AND attempts = ?3 AND state = 'processing' AND claim_expires_at >= ?4`

	endStep = `
ON CONFLICT (job_id, name) DO UPDATE SET value = excluded.value, ended_ms = excluded.ended_ms WHERE kind = excluded.kind AND ended_ms IS NULL`

	sqlSaveStep = saveStep + ` AND NOT EXISTS (SELECT 1 FROM _honkerx_flow_runs WHERE job_id = ?1 AND cancelled)` + endStep

	sqlSaveStepOfCancelled = saveStep + endStep + `
RETURNING (SELECT cancelled FROM _honkerx_flow_runs AS r WHERE r.job_id = _honkerx_flow_steps.job_id)`
)

// Save records a step or its end, and returns whether the run was cancelled. It returns false and changes nothing if the
// claim is no longer valid, or if the step has ended already.
//
// A run is rarely cancelled, and the first statement is enough for any other. By itself it is a transaction, unlike a
// statement that returns rows.
func (Flows) Save(ctx context.Context, q row.Querier, c row.Claim, s row.FlowStepRow, now time.Time) (saved, cancelled bool, err error) {
	args := []any{c.ID, c.Worker, c.Attempt, now.Unix(), s.Name, s.Kind, s.Seq, s.Value, rows.MilliOf(s.Began), milliOrNull(s.Ended), milliOrNull(s.Until)}
	if n, err := rows.Affected(ctx, q, sqlSaveStep, args...); err != nil || n > 0 {
		return n > 0, false, err
	}
	saved, err = rows.One(ctx, q, sqlSaveStepOfCancelled, args, &cancelled)
	return saved, cancelled, err
}

func milliOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return rows.MilliUp(t)
}

// These statements use the primary keys.
const (
	sqlSignal = `INSERT INTO _honkerx_flow_signals (flow, id, name, value, at_ms) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING`

	sqlCancelRun = `UPDATE _honkerx_flow_runs SET cancelled = 1 WHERE job_id = ?1 AND ended_ms IS NULL`

	sqlRestartRun = `UPDATE _honkerx_flow_runs SET cancelled = 0, failure = NULL WHERE job_id = ?1
  AND NOT EXISTS (SELECT 1 FROM _honker_live WHERE id = ?1 AND state = 'processing' AND claim_expires_at >= ?2)`

	sqlDropStepsFrom = `DELETE FROM _honkerx_flow_steps WHERE job_id = ?1 AND seq >= ?2`

	sqlFailRun = `UPDATE _honkerx_flow_runs SET failure = ?5 WHERE job_id = (SELECT id FROM _honker_live
WHERE id = ?1 AND worker_id = ?2 AND attempts = ?3 AND state = 'processing' AND claim_expires_at >= ?4)`

	sqlEndRun = `UPDATE _honkerx_flow_runs SET ended_ms = ?2, outcome = ?3, keep_until_ms = ?4 WHERE job_id = ?1`

	sqlResume = `UPDATE _honker_live SET run_at = ?2 WHERE id = ?1 AND state = 'pending' AND run_at > ?2`

	sqlFlowOf = `SELECT flow FROM _honkerx_flow_runs WHERE job_id = ?1`

	sqlResumeWaiter = `UPDATE _honker_live SET run_at = ?4
WHERE id = (SELECT job_id FROM _honkerx_flow_runs WHERE flow = ?1 AND id = ?2) AND state = 'pending' AND run_at > ?4
  AND EXISTS (SELECT 1 FROM _honkerx_flow_steps AS s WHERE s.job_id = _honker_live.id AND s.name = ?3 AND s.kind = 2)`
)

// The triggers resume runs too, but by the clock of the machine.

// Signal records a signal. It returns false and changes nothing if the run has a signal of that name. The run must not
// be over.
func (Flows) Signal(ctx context.Context, q row.Querier, s row.FlowSignal, now time.Time) (bool, error) {
	if _, err := q.ExecContext(ctx, sqlResumeWaiter, s.Flow, s.ID, s.Name, now.Unix()); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlSignal, s.Flow, s.ID, s.Name, s.Value, rows.MilliOf(now))
	return n > 0, err
}

// Cancel records a request to cancel the run of a job.
func (Flows) Cancel(ctx context.Context, q row.Querier, job int64) error {
	_, err := q.ExecContext(ctx, sqlCancelRun, job)
	return err
}

// Resume makes the suspended run of a job due, and returns its flow, or "" if the job has no run.
func (Flows) Resume(ctx context.Context, q row.Querier, job int64, now time.Time) (flow string, err error) {
	if _, err := q.ExecContext(ctx, sqlResume, job, now.Unix()); err != nil {
		return "", err
	}
	_, err = rows.One(ctx, q, sqlFlowOf, []any{job}, &flow)
	return flow, err
}

// Restart deletes the steps of a job's run from seq on, and forgets that the run was cancelled or undone. It returns false
// and changes nothing if a worker holds the job.
func (Flows) Restart(ctx context.Context, q row.Querier, job int64, seq int, now time.Time) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlRestartRun, job, now.Unix())
	if err != nil || n == 0 {
		return false, err
	}
	_, err = q.ExecContext(ctx, sqlDropStepsFrom, job, seq)
	return true, err
}

// Fail records the error for which the run of a job is undone. It returns false and changes nothing if the claim is no
// longer valid.
func (Flows) Fail(ctx context.Context, q row.Querier, c row.Claim, failure string, now time.Time) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlFailRun, c.ID, c.Worker, c.Attempt, now.Unix(), failure)
	return n > 0, err
}

// End records the end of the run of a job. The run is kept until keepUntil, or for ever if that is zero.
func (Flows) End(ctx context.Context, q row.Querier, job int64, o row.FlowOutcome, keepUntil, now time.Time) error {
	_, err := q.ExecContext(ctx, sqlEndRun, job, rows.MilliOf(now), string(o), milliOrNull(keepUntil))
	return err
}
