package jobs

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

var sqlOverdue = `SELECT ` + lapsed("?1") + ` OR ` + exhausted("?1") + `, ` + expiredPending("?1") + `,
  (SELECT CASE WHEN ` + hasKeyLimits + ` THEN 2 WHEN coalesce(running, rate_n) IS NOT NULL THEN 1 ELSE 0 END
    + iif(` + unfitted("?1") + `, 4, 0) FROM _honkerx_queues WHERE queue = ?1)`

// whereLapsedOver selects jobs with lapsed claims that may not run again. Other honker bindings never remove
// such a job if it has also expired: neither their claim nor their sweep finds it.
const whereLapsedOver = ` WHERE id IN (
  SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
  WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2
    AND (attempts >= max_attempts OR expires_at <= ?2)
  ORDER BY claim_expires_at, id LIMIT ?3 + 0)`

// whereExhausted selects pending jobs without attempts left. Only other bindings leave such jobs behind, so
// the partial index is nearly always empty.
const whereExhausted = ` WHERE id IN (
  SELECT id FROM _honker_live INDEXED BY _honkerx_live_exhausted
  WHERE queue = ?1 AND state = 'pending' AND attempts >= max_attempts AND run_at <= ?2
    AND (expires_at IS NULL OR expires_at > ?2)
  ORDER BY run_at, id LIMIT ?3 + 0)`

// whereExpiredKeyed selects expired pending jobs in a queue with key limits, where other jobs may be held
// behind them.
const whereExpiredKeyed = ` WHERE id IN (
  SELECT id FROM _honker_live INDEXED BY _honkerx_live_deadline
  WHERE queue = ?1 AND state = 'pending' AND expires_at <= ?2
  ORDER BY expires_at, id LIMIT ?3 + 0)`

// The dead row keeps the job's id. OR REPLACE is needed because an application that copied a dead job back
// under its id may have left the dead row in place. Dead-lettering must not fail in that case.
const intoDead = `INSERT OR REPLACE INTO _honker_dead
  (id, queue, payload, priority, run_at, attempts, max_attempts, last_error, created_at, died_at)
SELECT id, queue, payload, priority, run_at, attempts, max_attempts, `

const (
	sqlDeadLetterLapsed = intoDead + `iif(expires_at <= ?2, '` + row.ReasonExpired + `', '` + row.ReasonExhausted + `'), created_at, ?2 FROM _honker_live` + whereLapsedOver

	sqlDeadLetterExhausted = intoDead + `'` + row.ReasonExhausted + `', created_at, ?2 FROM _honker_live` + whereExhausted

	sqlDeadLetterExpiredKeyed = intoDead + `'` + row.ReasonExpired + `', created_at, ?2 FROM _honker_live` + whereExpiredKeyed
)

// Jobs with lapsed claims that may run again become pending before the claim, although the claim could take
// them as they are. This way a single index yields all claimable jobs in order.
const sqlReclaim = `UPDATE _honker_live SET state = 'pending', worker_id = NULL, claim_expires_at = NULL
WHERE id IN (
  SELECT id FROM _honker_live INDEXED BY _honker_live_processing_deadline
  WHERE queue = ?1 AND state = 'processing' AND claim_expires_at < ?2
    AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
  ORDER BY claim_expires_at, id LIMIT ?3 + 0)`

// levels returns a WITH clause that enumerates the priorities in use on queue, highest first. Each level
// costs one seek, however many jobs it has. A paused queue yields no levels, so none of its jobs are read.
// queue is an SQL expression.
func levels(queue string) string {
	return levelsIf(queue, `NOT `+paused(queue))
}

// levelsIf is like levels but applies condition instead of the test for a pause.
func levelsIf(queue, condition string) string {
	return `WITH RECURSIVE lv(p) AS (
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending' ORDER BY priority DESC LIMIT 1)
    WHERE ` + condition + `
    UNION ALL
    SELECT (SELECT priority FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ` + queue + ` AND state = 'pending' AND priority < lv.p ORDER BY priority DESC LIMIT 1)
    FROM lv WHERE lv.p IS NOT NULL)`
}

// due returns the FROM clause for the jobs in queue that can be claimed, in the order priority DESC, run_at,
// id. It goes from level to level and reads each level by the pending index. A scan of the whole index would
// visit every job of a higher priority that is not due yet. There is no ORDER BY, because it would sort the
// whole backlog. A property test compares the order with honker's own claim.
func due(queue string) string {
	return allDue(queue) + `
    AND l.attempts < l.max_attempts AND (l.expires_at IS NULL OR l.expires_at > ?2)`
}

// allDue is like due, for queues in which no pending job is exhausted or expired. It reads only the index.
func allDue(queue string) string {
	return `lv CROSS JOIN _honker_live AS l INDEXED BY _honkerx_live_pending
  WHERE l.queue = ` + queue + ` AND l.state = 'pending' AND l.priority = lv.p AND l.run_at <= ?2`
}

// overdue returns the condition that a claim on queue must settle jobs first. These are jobs with lapsed
// claims, pending jobs without attempts left, expired jobs that may hold up others, and jobs affected by
// changed limits (see unfitted).
func overdue(queue string) string {
	return lapsed(queue) + ` OR ` + exhausted(queue) + `
    OR EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + `
      AND (` + hasKeyLimits + ` AND ` + expiredPending(queue) + ` OR ` + unfitted(queue) + `))`
}

// expiredPending returns a condition that costs a single seek.
func expiredPending(queue string) string {
	return `EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_deadline
    WHERE queue = ` + queue + ` AND state = 'pending' AND expires_at <= ?2)`
}

// lapsed, exhausted and waiting return conditions that each cost a single seek, at the head of a partial
// index.
func lapsed(queue string) string {
	return `EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = ` + queue + ` AND state = 'processing' AND claim_expires_at < ?2)`
}

func exhausted(queue string) string {
	return `EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_exhausted
    WHERE queue = ` + queue + ` AND state = 'pending' AND attempts >= max_attempts AND run_at <= ?2
    AND (expires_at IS NULL OR expires_at > ?2))`
}

func waiting(queue string) string {
	return `EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_pending
    WHERE queue = ` + queue + ` AND state = 'pending')`
}

var (
	firstDue    = first(due("?1"))
	firstAllDue = first(allDue("?1"))

	sqlClaim        = claiming(firstDue)
	sqlClaimKeys    = candidates(firstDue)
	sqlClaimAll     = claiming(firstAllDue)
	sqlClaimAllKeys = candidates(firstAllDue)
)

// first returns the query for the first ?3 job ids in the FROM clause due.
func first(due string) string {
	return levels("?1") + `
  SELECT l.id FROM ` + due + `
  LIMIT ?3 + 0`
}

// claiming returns the statement that claims the jobs selected by the query ids.
//
// The statement reads last_error only if an earlier attempt can have set it, and the side row's other
// columns only in a file with side rows, because each subquery costs a seek per job. The LIMIT is part of
// ids because UPDATE … LIMIT is a SQLite build option. The attempt number is cast to an integer because it
// serves as the claim's fencing token.
func claiming(ids string) string {
	return `UPDATE _honker_live
SET state = 'processing', worker_id = ?4, claim_expires_at = ?5, attempts = CAST(attempts AS INTEGER) + 1
WHERE id IN (
  ` + ids + `)
RETURNING ` + jobColumns + `,
  CASE WHEN attempts > 1 THEN ` + ofSide("last_error") + ` END,
  CASE WHEN EXISTS (SELECT 1 FROM _honkerx_job) THEN ` + carried + ` END`
}

// ClaimAt claims up to n jobs from queue for worker and returns them in the order in which they should run.
// A negative n means no limit. nowMS is the current time in Unix milliseconds, and the claims end at
// expires, in Unix seconds. ClaimAt first settles the queue's overdue jobs, and returns the jobs that die as
// a result. It returns [row.ErrStuck] if the queue is ready but no job could be claimed or settled.
func (j Jobs) ClaimAt(ctx context.Context, q row.Querier, queue, worker string, n int, nowMS, expires int64) (jobs []*row.Job, dead []row.Death, err error) {
	now := nowMS / 1000
	dead, settled, found, err := j.settleOverdue(ctx, q, queue, now)
	if err != nil {
		return nil, nil, err
	}
	r := newJobRow()
	r.job, r.times.ClaimExpiresAt = row.Job{Queue: queue, State: "processing", WorkerID: worker}, expires
	c := claim{claim: sqlClaim, keys: sqlClaimKeys, these: sqlClaimThese, now: now, worker: worker, expires: expires,
		list: func(int) (any, error) { return queue, nil },
		got: func(rs *sql.Rows) (string, error) {
			job, err := r.claimed(rs)
			jobs = append(jobs, job)
			return queue, err
		},
	}
	if !found.some && !found.expired {
		c.claim, c.keys = sqlClaimAll, sqlClaimAllKeys
	}
	queues, limits := []string{queue}, []string(nil)
	if found.limited {
		limits = queues
	}
	changed, err := c.some(ctx, q, queues, limits, n, nowMS)
	if err != nil {
		return nil, nil, err
	}
	if len(jobs) == 0 && !settled && !changed && n != 0 {
		return nil, nil, j.stuck(ctx, q, queue, nowMS)
	}
	// RETURNING yields the rows in id order, not in the subquery's order.
	slices.SortFunc(jobs, r.compare)
	return jobs, dead, nil
}

// Overdue reports whether SettleOverdue would change anything.
func (j Jobs) Overdue(ctx context.Context, q row.Querier, queue string, now int64) (bool, error) {
	found, err := j.overdue(ctx, q, queue, now)
	return found.some, err
}

// overdueJobs describes the work that a claim must do on a queue before it takes jobs.
type overdueJobs struct {
	some    bool // there are jobs to settle
	expired bool // some pending jobs have expired
	limited bool // the queue has limits

	unfitted bool // jobs must be fitted to changed limits, or cancelled jobs' slots have expired
}

// overdue runs a single statement. It leaves expired jobs to a sweep, unless others may be held behind them.
func (Jobs) overdue(ctx context.Context, q row.Querier, queue string, now int64) (found overdueJobs, err error) {
	var limits rows.Number
	_, err = rows.One(ctx, q, sqlOverdue, []any{queue, now}, &found.some, &found.expired, &limits)
	found.unfitted, limits = limits&4 != 0, limits&3
	found.some = found.some || found.expired && limits == 2 || found.unfitted
	found.limited = limits > 0
	return found, err
}

// stuck returns ErrStuck if queue is still ready after a claim that changed nothing.
func (j Jobs) stuck(ctx context.Context, q row.Querier, queue string, nowMS int64) error {
	if ready, err := j.ReadyAt(ctx, q, queue, nowMS); err != nil || !ready {
		return err
	}
	return row.ErrStuck
}

// SettleOverdue dead-letters queue's jobs that may not run again, up to rows.OverdueLimit of each kind, and
// returns them. Jobs with lapsed claims become claimable. It returns ErrStuck if there are overdue jobs and
// it could change none of them.
func (j Jobs) SettleOverdue(ctx context.Context, q row.Querier, queue string, now int64) ([]row.Death, error) {
	dead, settled, _, err := j.settleOverdue(ctx, q, queue, now)
	if err != nil || settled {
		return dead, err
	}
	if some, err := j.Overdue(ctx, q, queue, now); err != nil || !some {
		return nil, err
	}
	return nil, row.ErrStuck
}

// settleOverdue reads first and usually writes nothing. It reports whether it settled anything, and returns
// the overdue work that it found.
func (j Jobs) settleOverdue(ctx context.Context, q row.Querier, queue string, now int64) (dead []row.Death, settled bool, found overdueJobs, err error) {
	found, err = j.overdue(ctx, q, queue, now)
	if err != nil || !found.some {
		return nil, false, found, err
	}
	if found.unfitted {
		if err := fitQueue(ctx, q, queue, now); err != nil {
			return nil, false, found, err
		}
	}
	for _, copyRows := range []string{sqlDeadLetterLapsed, sqlDeadLetterExhausted} {
		died, err := toDead(ctx, q, copyRows, queue, now, rows.OverdueLimit)
		if err != nil {
			return nil, false, found, err
		}
		dead = append(dead, died...)
	}
	reclaimed, err := rows.Affected(ctx, q, sqlReclaim, queue, now, rows.OverdueLimit)
	if err != nil {
		return nil, false, found, err
	}
	// A dead job releases its key's next job, which may have expired too.
	for more := found.limited; more && len(dead) < rows.OverdueLimit; {
		died, err := toDead(ctx, q, sqlDeadLetterExpiredKeyed, queue, now, rows.OverdueLimit)
		if err != nil {
			return nil, false, found, err
		}
		dead, more = append(dead, died...), len(died) > 0
	}
	return dead, len(dead)+reclaimed > 0 || found.unfitted, found, nil
}

// fitQueue deletes cancelled jobs' expired slots and fits some jobs to changed limits.
func fitQueue(ctx context.Context, q row.Querier, queue string, now int64) error {
	if _, err := q.ExecContext(ctx, sqlDropPlacesOver, queue, now); err != nil {
		return err
	}
	_, err := Limits{}.FitSome(ctx, q, queue, fittedByClaim, now)
	return err
}

// fittedByClaim bounds the jobs that a single claim fits. The remaining jobs keep the queue ready for the
// next claim.
const fittedByClaim = 256

// These statements use the indexes of whereLapsedOver and whereExhausted.
const (
	sqlPostponeLapsed    = `UPDATE _honker_live SET claim_expires_at = ?4` + whereLapsedOver
	sqlPostponeExhausted = `UPDATE _honker_live SET run_at = ?4` + whereExhausted
)

// Postpone postpones, until the time until, settling queue's overdue jobs that may not run again. It changes
// up to rows.OverdueLimit jobs of each kind, and is meant for jobs that cannot be dead-lettered.
func (Jobs) Postpone(ctx context.Context, q row.Querier, queue string, until, now time.Time) error {
	for _, query := range []string{sqlPostponeLapsed, sqlPostponeExhausted} {
		if _, err := q.ExecContext(ctx, query, queue, now.Unix(), rows.OverdueLimit, until.Unix()); err != nil {
			return err
		}
	}
	return nil
}
