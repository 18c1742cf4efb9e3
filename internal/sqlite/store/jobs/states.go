package jobs

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlQueueStates performs a claim's reads for each queue in ?1, so that an idle worker does not take the
// write lock in vain. A running job counts from the first second after its claim has lapsed, even without
// attempts left, because a claim must dead-letter it. In a paused queue nothing is due before the pause
// ends.
var sqlQueueStates = `SELECT k.value,
  ` + overdue("k.value") + `,
  EXISTS (` + levels("k.value") + ` SELECT 1 FROM ` + due("k.value") + `),
  ` + limited("k.value") + `,
  coalesce((SELECT until_ms / 1000 FROM _honkerx_queues
    WHERE queue = k.value AND ` + pauseHolds + `),
  (` + levels("k.value") + `
    SELECT min((SELECT run_at FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = k.value AND state = 'pending' AND priority = lv.p AND run_at > ?2
      ORDER BY run_at LIMIT 1))
    FROM lv)),
  CASE WHEN ` + keyedQueue("k.value") + ` THEN (SELECT expires_at FROM _honker_live INDEXED BY _honkerx_live_deadline
    WHERE queue = k.value AND state = 'pending' AND expires_at > ?2 ORDER BY expires_at LIMIT 1) END,
  (SELECT claim_expires_at FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = k.value AND state = 'processing' AND claim_expires_at >= ?2
    ORDER BY claim_expires_at LIMIT 1)
FROM json_each(?1) AS k`

var sqlReady = `SELECT EXISTS (` + levels("?1") + ` SELECT 1 FROM ` + due("?1") + `), ` + overdue("?1") + `, ` + limited("?1")

// ReadyAt reports whether a claim on queue would find work. It is cheaper than StatesAt, which also looks
// for the next time.
func (Jobs) ReadyAt(ctx context.Context, q row.Querier, queue string, nowMS int64) (ready bool, err error) {
	var due, overdue, limited bool
	_, err = rows.One(ctx, q, sqlReady, []any{queue, nowMS / 1000}, &due, &overdue, &limited)
	if err != nil || overdue || !due || !limited {
		return due || overdue, err
	}
	r, err := roomOf(ctx, q, queue, nowMS)
	return r.jobs > 0, err
}

// States returns the states of queues, in the same order. Without next it omits the times, which makes the
// statement for a single queue cheaper.
func (j Jobs) States(ctx context.Context, q row.Querier, queues []string, next bool, now time.Time) ([]row.QueueState, error) {
	if next || len(queues) != 1 {
		return j.StatesAt(ctx, q, queues, now.UnixMilli())
	}
	ready, err := j.ReadyAt(ctx, q, queues[0], now.UnixMilli())
	return []row.QueueState{{Queue: queues[0], Ready: ready}}, err
}

// StatesAt returns the states of queues, in the same order. It runs a statement for all queues and another
// for each queue with limits.
func (Jobs) StatesAt(ctx context.Context, q row.Querier, queues []string, nowMS int64) ([]row.QueueState, error) {
	type seen struct {
		due  bool
		next int64
	}
	states := make([]row.QueueState, 0, len(queues))
	var full []int // indexes of states that depend on the limits of their queue
	all := make([]seen, 0, len(queues))
	err := rows.Each(ctx, q, sqlQueueStates, func(r *sql.Rows) error {
		var s row.QueueState
		var overdue, due bool
		var at, deadline, lapse rows.Number
		err := r.Scan(&s.Queue, &overdue, &due, &s.Limited, &at, &deadline, &lapse)
		s.Ready = due || overdue
		if s.Limited && !overdue {
			full = append(full, len(states))
		}
		states, all = append(states, s), append(all, seen{due, rows.NextClaim(rows.Earlier(at, deadline), lapse)})
		return err
	}, rows.NameList(queues), nowMS/1000)
	if err != nil {
		return nil, err
	}
	for _, i := range full {
		if all[i].next, err = limitState(ctx, q, &states[i], all[i].due, all[i].next, nowMS); err != nil {
			return nil, err
		}
	}
	for i := range states {
		states[i].Next = row.Instant(all[i].next)
	}
	return states, nil
}

// limitState adjusts a queue's state to its limits. It also returns next, so that the queue is checked again
// when a cancelled job's slot expires.
func limitState(ctx context.Context, q row.Querier, s *row.QueueState, due bool, next, nowMS int64) (int64, error) {
	r, err := roomOf(ctx, q, s.Queue, nowMS)
	if due {
		s.Ready, s.Start = r.jobs > 0, row.InstantMS(int64(math.Ceil(r.startMS)))
	}
	return int64(rows.Earlier(rows.Number(next), r.freeAt)), err
}

// sqlNextClaim is equivalent to honker's queue_next_claim_at, without reading every row. Unlike a queue's
// state, it ignores jobs that can never be claimed because they are exhausted or expired.
var sqlNextClaim = `SELECT
  (` + levels("?1") + `
    SELECT min((SELECT run_at FROM _honker_live INDEXED BY _honkerx_live_pending
      WHERE queue = ?1 AND state = 'pending' AND priority = lv.p AND run_at > ?2
        AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
      ORDER BY run_at LIMIT 1))
    FROM lv),
  (SELECT claim_expires_at FROM _honker_live INDEXED BY _honker_live_processing_deadline
    WHERE queue = ?1 AND state = 'processing' AND claim_expires_at >= ?2
      AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > ?2)
    ORDER BY claim_expires_at LIMIT 1),
  ` + limited("?1")

// NextClaim returns the next time after now at which a job in queue becomes claimable, or the zero time if
// none will. It takes the queue's pause and limits into account, so the result may also apply to a job that
// is already due.
func (j Jobs) NextClaim(ctx context.Context, q row.Querier, queue string, now time.Time) (time.Time, error) {
	unix, err := j.NextClaimAt(ctx, q, queue, now.UnixMilli())
	return row.Instant(unix), err
}

// NextClaimAt returns the next second after nowMS at which a job in queue becomes claimable, or 0 if none
// will. It takes the queue's pause and limits into account, so the result may also apply to a job that is
// already due.
func (j Jobs) NextClaimAt(ctx context.Context, q row.Querier, queue string, nowMS int64) (int64, error) {
	pause, found, err := Pauses{}.Get(ctx, q, queue, nowMS/1000)
	switch {
	case err != nil:
		return 0, err
	case found && pause.Until.IsZero():
		return 0, nil
	case found:
		nowMS = pause.Until.UnixMilli()
		if ready, err := j.ReadyAt(ctx, q, queue, nowMS); err != nil || ready {
			return nowMS / 1000, err
		}
	}
	var due, lapse rows.Number
	var limited bool
	_, err = rows.One(ctx, q, sqlNextClaim, []any{queue, nowMS / 1000}, &due, &lapse, &limited)
	if err != nil || !limited {
		return rows.NextClaim(due, lapse), err
	}
	return j.nextStart(ctx, q, queue, nowMS, due, lapse)
}

// sqlAnyWaiting reads the heads of partial indexes.
var sqlAnyWaiting = `SELECT ` + waiting("?1") + ` OR EXISTS (SELECT 1 FROM _honker_live INDEXED BY _honkerx_live_held WHERE queue = ?1 AND state = 'held')`

// nextStart returns the time of the next claim on a queue with limits. due is the time of its next job, and
// lapse is the end of its next claim. If the queue is running as many jobs as it may, a slot becomes free
// only when a claim ends or a cancelled job's slot expires.
func (Jobs) nextStart(ctx context.Context, q row.Querier, queue string, nowMS int64, due, lapse rows.Number) (int64, error) {
	r, err := roomOf(ctx, q, queue, nowMS)
	if err != nil {
		return 0, err
	}
	if r.full {
		due = 0
	}
	if r.freeAt > 0 {
		var waits bool
		if _, err := rows.One(ctx, q, sqlAnyWaiting, []any{queue}, &waits); err != nil {
			return 0, err
		}
		if waits {
			lapse = rows.Earlier(lapse, r.freeAt-1)
		}
	}
	start := int64(math.Ceil(r.startMS / 1000))
	if start != 0 && !r.full {
		var waits, overdue, limited bool
		if _, err := rows.One(ctx, q, sqlReady, []any{queue, nowMS / 1000}, &waits, &overdue, &limited); err != nil || waits {
			return start, err
		}
	}
	next := rows.NextClaim(due, lapse)
	if next == 0 {
		return 0, nil
	}
	return max(next, start), nil
}
