package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Pauses contains the statements for queue pauses, which are columns of _honkerx_queues, and for the
// trigger that enforces pauses on other bindings' claims.
type Pauses struct{}

// pauseHolds is the condition that a pause is in effect at the Unix second ?2. A pause ends at a whole
// second, like all job times.
const pauseHolds = `paused_ms IS NOT NULL AND (until_ms IS NULL OR until_ms > ?2 * 1000)`

// paused returns the condition that queue is paused. It costs a seek. queue is an SQL expression.
func paused(queue string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + ` AND ` + pauseHolds + `)`
}

var sqlPaused = `SELECT ` + paused("?1")

// These statements use the primary key.
const (
	sqlGetPause = `SELECT paused_ms, until_ms, reason, who FROM _honkerx_queues WHERE queue = ?1 AND ` + pauseHolds

	sqlPauses = `SELECT queue, paused_ms, until_ms, reason, who FROM _honkerx_queues WHERE ` + pauseHolds

	sqlSetPause = `INSERT INTO _honkerx_queues (queue, paused_ms, until_ms, reason, who) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (queue) DO UPDATE SET paused_ms = excluded.paused_ms, until_ms = excluded.until_ms,
  reason = excluded.reason, who = excluded.who`

	setNoPause    = `UPDATE _honkerx_queues SET paused_ms = NULL, until_ms = NULL, reason = NULL, who = NULL`
	sqlEndPause   = setNoPause + ` WHERE queue = ?1 AND paused_ms IS NOT NULL`
	sqlEndPauses  = setNoPause + ` WHERE until_ms <= ?1 * 1000`
	sqlOverPauses = `SELECT EXISTS (SELECT 1 FROM _honkerx_queues WHERE until_ms <= ?1 * 1000)
  OR EXISTS (SELECT 1 FROM _honkerx_keys WHERE until_ms <= ?1 * 1000) OR EXISTS (SELECT 1` + whereKeyIdle + `)`
)

// All returns the queue pauses in effect, by queue.
func (Pauses) All(ctx context.Context, q row.Querier, now time.Time) (map[string]*row.Pause, error) {
	all := make(map[string]*row.Pause)
	err := rows.Each(ctx, q, sqlPauses, func(r *sql.Rows) error {
		var p row.Pause
		var queue string
		err := r.Scan(&queue, (*rows.Milli)(&p.Since), (*rows.Milli)(&p.Until), (*rows.Text)(&p.Reason), (*rows.Text)(&p.By))
		all[queue] = &p
		return err
	}, nil, now.Unix())
	return all, err
}

// Get returns queue's pause, or false if the queue is not paused or its pause has ended.
func (Pauses) Get(ctx context.Context, q row.Querier, queue string, now int64) (p row.Pause, found bool, err error) {
	return getPause(ctx, q, sqlGetPause, queue, now)
}

func getPause(ctx context.Context, q row.Querier, query string, args ...any) (p row.Pause, found bool, err error) {
	found, err = rows.One(ctx, q, query, args, (*rows.Milli)(&p.Since), (*rows.Milli)(&p.Until), (*rows.Text)(&p.Reason), (*rows.Text)(&p.By))
	return p, found, err
}

// paused reports whether queue is paused.
func (Jobs) paused(ctx context.Context, q row.Querier, queue string, now int64) (is bool, err error) {
	_, err = rows.One(ctx, q, sqlPaused, []any{queue, now}, &is)
	return is, err
}

// Set pauses queue, or one of its keys if key is not empty. If the queue or key is already paused, the new
// pause keeps the previous pause's Since, and Set returns true.
func (ps Pauses) Set(ctx context.Context, q row.Querier, queue, key string, p row.Pause, now time.Time) (was bool, err error) {
	if key != "" {
		return ps.setKey(ctx, q, queue, key, p, now.Unix())
	}
	before, was, err := ps.Get(ctx, q, queue, now.Unix())
	if err != nil {
		return false, err
	}
	if was {
		p.Since = before.Since
	}
	n, err := rows.Affected(ctx, q, sqlSetPause, queue, rows.MilliOf(p.Since), rows.NullMilli(p.Until), rows.NullText(p.Reason), rows.NullText(p.By))
	if err == nil && n == 0 {
		err = row.ErrNotInserted
	}
	if err != nil {
		return was, err
	}
	return was, fitTriggers(ctx, q)
}

// End ends the pause of queue, or of one of its keys if key is not empty. It returns false if the queue or
// key was not paused, or its pause had already ended.
func (ps Pauses) End(ctx context.Context, q row.Querier, queue, key string, now time.Time) (was bool, err error) {
	if key != "" {
		return ps.endKey(ctx, q, queue, key, now.Unix())
	}
	if _, was, err = ps.Get(ctx, q, queue, now.Unix()); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlEndPause, queue)
	if err != nil || n == 0 {
		return false, err
	}
	return was, fitTriggers(ctx, q)
}

// over reports whether endOver has anything to do.
func (Pauses) over(ctx context.Context, q row.Querier, now int64) (some bool, err error) {
	_, err = rows.One(ctx, q, sqlOverPauses, []any{now}, &some)
	return some, err
}

// endOver deletes expired pauses and returns their number. It also deletes the rows of keys that have no
// pause and whose starts no longer count toward their rate.
func (ps Pauses) endOver(ctx context.Context, q row.Querier, now int64) (ended int, err error) {
	for _, query := range []string{sqlEndPauses, sqlEndKeyPauses} {
		n, err := rows.Affected(ctx, q, query, now)
		if err != nil {
			return 0, err
		}
		ended += n
	}
	if _, err := q.ExecContext(ctx, sqlDropIdleKeys, now); err != nil {
		return 0, err
	}
	if _, err := q.ExecContext(ctx, sqlCountAllKeys); err != nil {
		return 0, err
	}
	return ended, fitTriggers(ctx, q)
}
