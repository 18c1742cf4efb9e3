package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Pauses contains the statements for pauses, which are columns of the table queue.
type Pauses struct{ pgsql.Schema }

// The common table expression locks the row, so that it sees the pause that the statement replaces.
const (
	sqlPauses = `SELECT queue, paused_at, paused_until, coalesce(reason, ''), coalesce(who, '') FROM honker.queue
WHERE honker.pauses(paused_at, paused_until, $1)`

	sqlSetPause = `WITH old AS MATERIALIZED (SELECT paused_at FROM honker.queue
  WHERE queue = $1 AND honker.pauses(paused_at, paused_until, $6) FOR UPDATE)
INSERT INTO honker.queue AS k (queue, paused_at, paused_until, reason, who) VALUES ($1, coalesce((SELECT paused_at FROM old), $2), $3, $4, $5)
ON CONFLICT (queue) DO UPDATE SET paused_at = excluded.paused_at, paused_until = excluded.paused_until, reason = excluded.reason, who = excluded.who
RETURNING EXISTS (SELECT FROM old)`

	sqlEndPause = `WITH old AS MATERIALIZED (SELECT queue, honker.pauses(paused_at, paused_until, $2) AS was FROM honker.queue
  WHERE queue = $1 AND paused_at IS NOT NULL FOR UPDATE)
UPDATE honker.queue k SET paused_at = NULL, paused_until = NULL, reason = NULL, who = NULL FROM old WHERE k.queue = old.queue RETURNING old.was`

	sqlPauseKey  = `SELECT honker.pause_key($1, $2, $3, $4, $5, $6, $7)`
	sqlResumeKey = `SELECT coalesce(honker.resume_key($1, $2, $3, false), false)`

	sqlOverPauses = `SELECT 1 WHERE EXISTS (SELECT FROM honker.queue WHERE paused_until <= $1) OR EXISTS (SELECT FROM honker.key WHERE paused_until <= $1)
  OR EXISTS (SELECT FROM honker.starts s WHERE honker.is_idle(s, $1))`
	sqlEndPauses = `SELECT honker.end_pauses($1, $2)`
)

// All implements engine.PauseStore.
func (s Pauses) All(ctx context.Context, q row.Querier, now time.Time) (map[string]*row.Pause, error) {
	all := make(map[string]*row.Pause)
	err := pgsql.Each(ctx, q, s.SQL(sqlPauses), func(r *sql.Rows) error {
		var p row.Pause
		var queue string
		var since, until sql.NullTime
		err := r.Scan(&queue, &since, &until, &p.Reason, &p.By)
		p.Since, p.Until = pgsql.Instant(since), pgsql.Instant(until)
		all[queue] = &p
		return err
	}, pgsql.Stamp(now))
	return all, err
}

// Set implements engine.PauseStore.
func (s Pauses) Set(ctx context.Context, q row.Querier, queue, key string, p row.Pause, now time.Time) (was bool, err error) {
	until := sql.NullTime{Time: pgsql.StampUp(p.Until), Valid: !p.Until.IsZero()}
	if key != "" {
		return s.setKey(ctx, q, []any{queue, key, pgsql.Stamp(p.Since), until, text(p.Reason), text(p.By), pgsql.Stamp(now)})
	}
	found, err := pgsql.One(ctx, q, s.SQL(sqlSetPause),
		[]any{queue, pgsql.Stamp(p.Since), until, text(p.Reason), text(p.By), pgsql.Stamp(now)}, &was)
	if err == nil && !found {
		err = row.ErrNotInserted
	}
	return was, err
}

// setKey pauses a key.
func (s Pauses) setKey(ctx context.Context, q row.Querier, args []any) (bool, error) {
	var was sql.NullBool
	_, err := pgsql.One(ctx, q, s.SQL(sqlPauseKey), args, &was)
	if err == nil && !was.Valid {
		err = row.ErrNotInserted
	}
	return was.Bool, err
}

// End implements engine.PauseStore.
func (s Pauses) End(ctx context.Context, q row.Querier, queue, key string, now time.Time) (was bool, err error) {
	if key != "" {
		_, err = pgsql.One(ctx, q, s.SQL(sqlResumeKey), []any{queue, key, pgsql.Stamp(now)}, &was)
		return was, err
	}
	_, err = pgsql.One(ctx, q, s.SQL(sqlEndPause), []any{queue, pgsql.Stamp(now)}, &was)
	return was, err
}

// Sweep returns the sweep of the pauses that are over, and of the starts that no longer count toward a rate. It finds the
// ID 1 if there are any.
func (s Pauses) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOverPauses), pgsql.Stamp(at))
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, limit int) (out row.Swept, err error) {
			_, err = pgsql.One(ctx, q, s.SQL(sqlEndPauses), []any{pgsql.Stamp(at), limit}, &out.N)
			out.More = out.N >= limit
			return out, err
		},
	}
}
