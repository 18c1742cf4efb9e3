package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// filterArgs returns the parameters $1 to $7 of every statement with a filter, followed by more.
func (s Relays) filterArgs(f row.RelayDeadFilter, more ...any) []any {
	var partition sql.NullInt64
	if f.Partition != nil {
		partition = sql.NullInt64{Int64: int64(*f.Partition), Valid: true}
	}
	since := sql.NullTime{Time: milli(f.Since), Valid: !f.Since.IsZero()}
	return append([]any{s.family, f.Queue, partition, f.Type, f.State, since, f.Key}, more...)
}

// deadFilter names the filter's queue. A filter by key replaces anyKey, so that the query uses the index on keys.
const (
	deadFilter = `d.family = $1 AND d.queue = $2 AND ($3::bigint IS NULL OR d.partition = $3) AND ($4::text = '' OR d.type = $4)
  AND ($5::text = '' OR d.state = $5) AND ($6::timestamptz IS NULL OR d.died_at >= $6) AND `
	anyKey = `$7::text = ''`
	oneKey = `d.key = $7 AND d.key <> ''`
)

// filtered returns query, followed by the filter and rest.
func (s Relays) filtered(query string, f row.RelayDeadFilter, rest string) string {
	if f.Key != "" {
		return s.SQL(query + deadFilter + oneKey + rest)
	}
	return s.SQL(query + deadFilter + anyKey + rest)
}

const (
	deadColumns = `id, partition, seq, key, type, payload, created_at, attempts, coalesce(last_error, ''), died_at, state, moved_at`

	// withBefore adds the size of the rows before a row, so that the server limits the size of a page. A client that
	// stops early must still receive all rows.
	withBefore = `, sum(octet_length(d.payload) + coalesce(octet_length(d.last_error), 0)) OVER (ORDER BY d.id ROWS UNBOUNDED PRECEDING)
    - octet_length(d.payload) - coalesce(octet_length(d.last_error), 0) AS before`

	sqlDead     = `SELECT ` + deadColumns + ` FROM (SELECT d.*` + withBefore + ` FROM (SELECT * FROM honker.relay_dead d WHERE `
	deadPage    = ` AND d.id > $8 ORDER BY d.family, d.queue, d.id LIMIT $9) d) page WHERE before < $10 ORDER BY id`
	deadPageKey = ` AND d.id > $8 ORDER BY d.family, d.queue, d.key, d.id LIMIT $9) d) page WHERE before < $10 ORDER BY id`

	sqlCountDead = `SELECT count(*) FROM honker.relay_dead d WHERE `
)

// Dead implements engine.RelayStore.
func (s Relays) Dead(ctx context.Context, q row.Querier, f row.RelayDeadFilter, after int64, limit int) ([]row.RelayDead, error) {
	rest := deadPage
	if f.Key != "" {
		rest = deadPageKey
	}
	return letters(ctx, q, s.filtered(sqlDead, f, rest), s.filterArgs(f, after, limit, pageBytes))
}

// letters returns the rows of a query for deadColumns.
func letters(ctx context.Context, q row.Querier, query string, args []any) (all []row.RelayDead, err error) {
	err = pgsql.Each(ctx, q, query, func(r *sql.Rows) error {
		var d row.RelayDead
		var created, died, moved sql.NullTime
		err := r.Scan(&d.ID, &d.Partition, &d.Seq, &d.Key, &d.Type, &d.Payload, &created, &d.Attempts, &d.LastError, &died, &d.State, &moved)
		d.CreatedAt, d.DiedAt = pgsql.Instant(created), pgsql.Instant(died)
		switch d.State {
		case row.RelayReplaying:
			d.HoldUntil = pgsql.Instant(moved)
		case row.RelayResolved, row.RelayDiscarded:
			d.SettledAt = pgsql.Instant(moved)
		}
		all = append(all, d)
		return err
	}, args...)
	return all, err
}

// CountDead implements engine.RelayStore.
func (s Relays) CountDead(ctx context.Context, q row.Querier, f row.RelayDeadFilter) (n int64, err error) {
	_, err = pgsql.One(ctx, q, s.filtered(sqlCountDead, f, ""), s.filterArgs(f), &n)
	return n, err
}

// The rows are found in the order of relay_dead_open and locked in that order. A letter that another transaction has
// locked is left to it. The last subquery bounds the size of the page, and the others are unlocked at the commit.
const (
	sqlReplay = `WITH free AS (
  SELECT d.id, d.moved_at, octet_length(d.payload) + coalesce(octet_length(d.last_error), 0) AS size FROM honker.relay_dead d
  WHERE d.state IN ('pending', 'replaying') AND (d.state = 'pending' OR d.moved_at < $8) AND `
	replayPage = ` ORDER BY d.moved_at NULLS FIRST, d.id LIMIT $9 FOR UPDATE SKIP LOCKED
), page AS (
  SELECT id, n FROM (
    SELECT id, row_number() OVER w AS n, sum(size) OVER w - size AS before FROM free
    WINDOW w AS (ORDER BY moved_at NULLS FIRST, id ROWS UNBOUNDED PRECEDING)) measured
  WHERE before < $10
), held AS (
  UPDATE honker.relay_dead d SET state = 'replaying', holder = $11, moved_at = $12 FROM page WHERE d.id = page.id RETURNING d.*, page.n
)
SELECT ` + deadColumns + ` FROM held ORDER BY n`
)

// Replay implements engine.RelayStore.
func (s Relays) Replay(ctx context.Context, q row.Querier, p row.RelayReplay, now time.Time) ([]row.RelayDead, error) {
	f := p.RelayDeadFilter
	return letters(ctx, q, s.filtered(sqlReplay, f, replayPage), s.filterArgs(f, milli(now), p.Limit, pageBytes, p.Holder, milliUp(p.Until)))
}

// A hold includes its last millisecond.
const (
	whereHeld = ` WHERE id = $1 AND family = $2 AND queue = $3 AND state = 'replaying' AND holder = $4 AND moved_at >= $5`

	sqlResolve = `UPDATE honker.relay_dead SET state = 'resolved', holder = '', moved_at = $5` + whereHeld
	sqlReject  = `UPDATE honker.relay_dead
SET state = 'pending', holder = '', moved_at = $5, attempts = attempts + 1, last_error = nullif($6, '')` + whereHeld
)

// SettleDead implements engine.RelayStore.
func (s Relays) SettleDead(ctx context.Context, q row.Querier, h row.RelayHold, v row.RelayVerdict, now time.Time) (held bool, err error) {
	query, args := sqlReject, []any{h.ID, s.family, h.Queue, h.Holder, milli(now), v.Cause}
	if v.Resolved {
		query, args = sqlResolve, args[:5]
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(query), args...)
	return n > 0, err
}

const (
	sqlRequeue = `SELECT honker.relay_requeue($1, $2, $3, $4, $5)`

	// sqlDiscard locks the letters in the order of their ids, so that two calls do not deadlock.
	sqlDiscard = `UPDATE honker.relay_dead SET state = 'discarded', holder = '', moved_at = $4 WHERE id = ANY (ARRAY(
  SELECT id FROM honker.relay_dead WHERE id = ANY ($3::bigint[]) AND family = $1 AND queue = $2
  AND (state = 'pending' OR state = 'replaying' AND moved_at < $4) ORDER BY id FOR UPDATE))`
)

// Requeue implements engine.RelayStore. As with Send, the ids are 0 in an application's transaction.
func (s Relays) Requeue(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) ([]int64, error) {
	sent, err := pgsql.IDs(ctx, q, s.SQL(sqlRequeue), s.family, queue, pgsql.List(ids), milli(now), ours(q))
	if pgsql.Dropped(err) {
		err = row.ErrStuck
	}
	return sent, err
}

// Discard implements engine.RelayStore.
func (s Relays) Discard(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) (int, error) {
	return pgsql.Affected(ctx, q, s.SQL(sqlDiscard), s.family, queue, pgsql.List(ids), milli(now))
}

const (
	settled = ` family = $1 AND queue = $2 AND state IN ('resolved', 'discarded') AND moved_at <= $3`

	sqlSettled  = `SELECT id FROM honker.relay_dead WHERE` + settled + ` LIMIT $4`
	sqlDropDead = `DELETE FROM honker.relay_dead WHERE id = ANY ($4) AND` + settled
)

// SettledDead implements engine.RelayStore.
func (s Relays) SettledDead(ctx context.Context, q row.Querier, queue string, before time.Time, limit int) ([]int64, error) {
	return pgsql.IDs(ctx, q, s.SQL(sqlSettled), s.family, queue, milli(before), limit)
}

// DropDead implements engine.RelayStore.
func (s Relays) DropDead(ctx context.Context, q row.Querier, queue string, before time.Time, ids []int64) (int, error) {
	return pgsql.Affected(ctx, q, s.SQL(sqlDropDead), s.family, queue, milli(before), pgsql.List(ids))
}
