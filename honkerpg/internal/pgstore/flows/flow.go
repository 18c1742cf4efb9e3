// Package flows contains the statements for the runs of package flow.
package flows

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Flows contains the statements for the tables flow_run, flow_step and flow_signal.
type Flows struct{ pgsql.Schema }

// Prepare implements engine.FlowStore. A transaction can write after it has read, and the tables exist.
func (Flows) Prepare(context.Context, row.Querier) error { return nil }

// runColumns are the columns that runScan reads.
const runColumns = `r.job_id, r.flow, r.id, coalesce(r.parent, 0), r.started_at, r.ended_at, coalesce(r.outcome, ''), r.cancelled, coalesce(r.failure, '')`

const (
	sqlFindRun = `SELECT ` + runColumns + ` FROM honker.flow_run r WHERE r.flow = $1 AND r.id = $2`

	sqlHoldRun = sqlFindRun + ` FOR NO KEY UPDATE`

	sqlRunOf = `SELECT ` + runColumns + ` FROM honker.flow_run r WHERE r.job_id = $1`

	sqlAddRun = `INSERT INTO honker.flow_run (job_id, flow, id, parent, started_at) VALUES ($1, $2, $3, nullif($4::bigint, 0), $5)
ON CONFLICT DO NOTHING`
)

// runScan holds the columns of a run until they are converted.
type runScan struct {
	r              row.FlowRun
	started, ended sql.NullTime
}

func (s *runScan) into() []any {
	return []any{&s.r.Job, &s.r.Flow, &s.r.ID, &s.r.Parent, &s.started, &s.ended, (*string)(&s.r.Outcome), &s.r.Cancelled, &s.r.Failure}
}

func (s *runScan) run() row.FlowRun {
	s.r.StartedAt, s.r.EndedAt = pgsql.Instant(s.started), pgsql.Instant(s.ended)
	return s.r
}

// Find implements engine.FlowStore.
func (s Flows) Find(ctx context.Context, q row.Querier, flow, id string) (row.FlowRun, bool, error) {
	return s.one(ctx, q, sqlFindRun, flow, id)
}

// Hold implements engine.FlowStore. It locks the run, or waits for a transaction that has.
func (s Flows) Hold(ctx context.Context, q row.Querier, flow, id string) (row.FlowRun, bool, error) {
	return s.one(ctx, q, sqlHoldRun, flow, id)
}

func (s Flows) one(ctx context.Context, q row.Querier, query string, args ...any) (row.FlowRun, bool, error) {
	var r runScan
	found, err := pgsql.One(ctx, q, s.SQL(query), append([]any{pgsql.Replan}, args...), r.into()...)
	return r.run(), found, err
}

// Add implements engine.FlowStore. It waits for an open transaction that has added a run with that ID.
func (s Flows) Add(ctx context.Context, q row.Querier, r row.FlowRun, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlAddRun), r.Job, r.Flow, r.ID, r.Parent, pgsql.Stamp(now))
	return n > 0, err
}

const (
	sqlStepsOf = `SELECT s.name, s.kind, s.seq, coalesce(s.value, ''), s.began_at, s.ended_at, s.until_at FROM honker.flow_step s WHERE s.job_id = $1`

	sqlSignalsOf = `SELECT g.name, g.value FROM honker.flow_signal g WHERE g.flow = $1 AND g.id = $2`
)

// History implements engine.FlowStore.
func (s Flows) History(ctx context.Context, q row.Querier, job int64) (h row.FlowHistory, found bool, err error) {
	if h.Run, found, err = s.one(ctx, q, sqlRunOf, job); err != nil || !found {
		return h, false, err
	}
	if h.Steps, err = s.steps(ctx, q, job); err != nil {
		return h, false, err
	}
	h.Signals, err = s.Signals(ctx, q, h.Run.Flow, h.Run.ID)
	return h, true, err
}

func (s Flows) steps(ctx context.Context, q row.Querier, job int64) (all []row.FlowStepRow, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlStepsOf), func(r *sql.Rows) error {
		var step row.FlowStepRow
		var began, ended, until sql.NullTime
		err := r.Scan(&step.Name, &step.Kind, &step.Seq, &step.Value, &began, &ended, &until)
		step.Began, step.Ended, step.Until = pgsql.Instant(began), pgsql.Instant(ended), pgsql.Instant(until)
		all = append(all, step)
		return err
	}, pgsql.Replan, job)
	return all, err
}

// Signals implements engine.FlowStore.
func (s Flows) Signals(ctx context.Context, q row.Querier, flow, id string) (map[string]string, error) {
	all := make(map[string]string)
	err := pgsql.Each(ctx, q, s.SQL(sqlSignalsOf), func(r *sql.Rows) error {
		var name, value string
		err := r.Scan(&name, &value)
		all[name] = value
		return err
	}, pgsql.Replan, flow, id)
	return all, err
}

// sqlSaveStep locks the job of the claim, so that nobody can claim it before the step is committed.
const sqlSaveStep = `WITH held AS MATERIALIZED (SELECT j.id FROM honker.job j
  WHERE j.id = $1 AND j.worker = $2 AND j.attempts = $3 AND j.state + 0 = 1 AND j.lease_until >= $4 FOR NO KEY UPDATE)
INSERT INTO honker.flow_step AS s (job_id, name, kind, seq, value, began_at, ended_at, until_at)
SELECT held.id, $5::text, $6::smallint, $7::int, $8::text, $9::timestamptz, $10::timestamptz, $11::timestamptz FROM held
ON CONFLICT (job_id, name) DO UPDATE SET value = excluded.value, ended_at = excluded.ended_at WHERE s.kind = excluded.kind AND s.ended_at IS NULL
RETURNING coalesce((SELECT r.cancelled FROM honker.flow_run r WHERE r.job_id = s.job_id), false)`

// Save implements engine.FlowStore.
func (s Flows) Save(ctx context.Context, q row.Querier, c row.Claim, step row.FlowStepRow, now time.Time) (saved, cancelled bool, err error) {
	saved, err = pgsql.One(ctx, q, s.SQL(sqlSaveStep), []any{c.ID, c.Worker, c.Attempt, pgsql.Stamp(now),
		step.Name, int16(step.Kind), int32(step.Seq), step.Value, pgsql.Stamp(step.Began), stampOrNull(step.Ended), stampOrNull(step.Until)}, &cancelled)
	return saved, cancelled, err
}

func stampOrNull(t time.Time) sql.NullTime {
	return sql.NullTime{Time: pgsql.StampUp(t), Valid: !t.IsZero()}
}

const (
	sqlSignal = `SELECT honker.flow_signal_($1, $2, $3, $4, $5)`

	sqlCancelRun = `UPDATE honker.flow_run r SET cancelled = true WHERE r.job_id = $1 AND r.ended_at IS NULL`

	sqlResume = `SELECT coalesce(honker.flow_resume($1, $2), '')`

	sqlRestartRun = `SELECT honker.flow_restart($1, $2, $3)`

	sqlFailRun = `WITH held AS MATERIALIZED (SELECT j.id FROM honker.job j
  WHERE j.id = $1 AND j.worker = $2 AND j.attempts = $3 AND j.state + 0 = 1 AND j.lease_until >= $4 FOR NO KEY UPDATE)
UPDATE honker.flow_run r SET failure = $5 FROM held WHERE r.job_id = held.id RETURNING true`

	sqlEndRun = `UPDATE honker.flow_run r SET ended_at = $2, outcome = $3, keep_until = $4 WHERE r.job_id = $1`
)

// Signal implements engine.FlowStore.
func (s Flows) Signal(ctx context.Context, q row.Querier, g row.FlowSignal, now time.Time) (first bool, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlSignal), []any{g.Flow, g.ID, g.Name, g.Value, pgsql.Stamp(now)}, &first)
	return first, err
}

// Cancel implements engine.FlowStore.
func (s Flows) Cancel(ctx context.Context, q row.Querier, job int64) error {
	return s.run(ctx, q, sqlCancelRun, job)
}

// Resume implements engine.FlowStore.
func (s Flows) Resume(ctx context.Context, q row.Querier, job int64, now time.Time) (flow string, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlResume), []any{job, pgsql.Stamp(now)}, &flow)
	return flow, err
}

// Restart implements engine.FlowStore.
func (s Flows) Restart(ctx context.Context, q row.Querier, job int64, seq int, now time.Time) (done bool, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlRestartRun), []any{job, seq, pgsql.Stamp(now)}, &done)
	return done, err
}

// Fail implements engine.FlowStore.
func (s Flows) Fail(ctx context.Context, q row.Querier, c row.Claim, failure string, now time.Time) (failed bool, err error) {
	return pgsql.One(ctx, q, s.SQL(sqlFailRun), []any{c.ID, c.Worker, c.Attempt, pgsql.Stamp(now), failure}, &failed)
}

// End implements engine.FlowStore.
func (s Flows) End(ctx context.Context, q row.Querier, job int64, o row.FlowOutcome, keepUntil, now time.Time) error {
	return s.run(ctx, q, sqlEndRun, job, pgsql.Stamp(now), string(o), stampOrNull(keepUntil))
}

func (s Flows) run(ctx context.Context, q row.Querier, query string, args ...any) error {
	_, err := q.ExecContext(ctx, s.SQL(query), append([]any{pgsql.Replan}, args...)...)
	return err
}
