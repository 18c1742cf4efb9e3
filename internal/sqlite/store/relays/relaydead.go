package relays

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// deadFilterArgs returns the parameters ?1 to ?6, which are the same for every statement with a filter, followed by
// more.
func deadFilterArgs(f row.RelayDeadFilter, more ...any) []any {
	var partition any
	if f.Partition != nil {
		partition = int64(*f.Partition)
	}
	return append([]any{f.Queue, partition, f.Type, f.State, rows.MilliOf(f.Since), f.Key}, more...)
}

// reads is like selects, but for a read. Unlike a write, a read doesn't upgrade tables created by an earlier version,
// so it must work without the key column.
func (r Relays) reads(ctx context.Context, q row.Querier, query string, f row.RelayDeadFilter) (string, error) {
	current, err := r.current(ctx, q)
	if err != nil {
		return "", err
	}
	if !current {
		query = strings.ReplaceAll(query, deadColumns, keylessColumns)
		query = strings.ReplaceAll(query, deadFilter, keylessFilter)
	}
	return r.selects(query, f), nil
}

// selects adapts a filtered query to f and to the family's tables. A filter by key makes the query use
// the index on keys.
func (r Relays) selects(query string, f row.RelayDeadFilter) string {
	if f.Key != "" {
		query = strings.ReplaceAll(query, ` NOT INDEXED`, ``)
		query = strings.ReplaceAll(query, `AND state =`, `AND +state =`)
		query = strings.ReplaceAll(query, deadFilter, keyedFilter)
	}
	return r.named(query)
}

const (
	deadColumns    = `id, partition, seq, key, type, payload, created_ms, attempts, ifnull(last_error, ''), died_ms, state, hold_until_ms`
	keylessColumns = `id, partition, seq, '', type, payload, created_ms, attempts, ifnull(last_error, ''), died_ms, state, hold_until_ms`

	relayFilter   = `(?2 IS NULL OR partition = ?2) AND (?3 = '' OR type = ?3) AND (?4 = '' OR state = ?4) AND (?5 = 0 OR died_ms >= ?5)`
	deadFilter    = relayFilter + ` AND (?6 = '' OR key = ?6)`
	keylessFilter = relayFilter + ` AND ?6 = ''`
	keyedFilter   = relayFilter + ` AND key = ?6 AND key <> ''` // the last condition matches the partial index

	// sqlRelayDead uses the primary key, so that reading all pages visits each of the family's dead
	// letters once.
	sqlRelayDead = `SELECT ` + deadColumns + ` FROM _honkerx_relay_dead NOT INDEXED
WHERE queue = ?1 AND ` + deadFilter + ` AND id > ?7 ORDER BY id LIMIT ?8 + 0`

	// sqlCountRelayDead uses the index on states. It reads the rows themselves only if the filter tests
	// other columns.
	sqlCountRelayDead = `SELECT count(*) FROM _honkerx_relay_dead WHERE queue = ?1 AND ` + deadFilter
	sqlOpenRelayDead  = `SELECT count(*) FROM _honkerx_relay_dead WHERE queue = ?1 AND state IN ('pending', 'replaying')`
)

// Dead returns up to limit dead letters that match f and have IDs above after, in ID order. It stops at
// rows.PageBytes, so there may be more even if it returns fewer than limit.
func (r Relays) Dead(ctx context.Context, q row.Querier, f row.RelayDeadFilter, after int64, limit int) ([]row.RelayDead, error) {
	query, err := r.reads(ctx, q, sqlRelayDead, f)
	if err != nil {
		return nil, err
	}
	return deadPage(ctx, q, query, deadFilterArgs(f, after, limit))
}

// deadPage runs a query for deadColumns and returns its rows up to rows.PageBytes.
func deadPage(ctx context.Context, q row.Querier, query string, args []any) (out []row.RelayDead, err error) {
	size := 0
	var created, died, moved rows.Number
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var d row.RelayDead
		err := r.Scan(&d.ID, (*rows.Number)(&d.Partition), (*rows.Number)(&d.Seq), &d.Key, &d.Type, &d.Payload, &created,
			(*rows.Number)(&d.Attempts), &d.LastError, &died, &d.State, &moved)
		if err != nil {
			return err
		}
		d.CreatedAt, d.DiedAt = row.InstantMS(int64(created)), row.InstantMS(int64(died))
		setMoved(&d, int64(moved))
		out = append(out, d)
		if size += len(d.Payload) + len(d.LastError); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, args...)
	if errors.Is(err, rows.ErrPageFull) {
		err = nil
	}
	return out, err
}

// setMoved sets the time that hold_until_ms stands for in d's state.
func setMoved(d *row.RelayDead, ms int64) {
	switch d.State {
	case row.RelayReplaying:
		d.HoldUntil = row.InstantMS(ms)
	case row.RelayResolved, row.RelayDiscarded:
		d.SettledAt = row.InstantMS(ms)
	}
}

// CountDead returns the number of dead letters that match f.
func (r Relays) CountDead(ctx context.Context, q row.Querier, f row.RelayDeadFilter) (n int64, err error) {
	query, err := r.reads(ctx, q, sqlCountRelayDead, f)
	if err == nil {
		_, err = rows.One(ctx, q, query, deadFilterArgs(f), &n)
	}
	return n, err
}

// The query reads two ranges of the index on states, each in the order of the result. ?7 is the current
// time.
const (
	sqlFreeRelayDead = `SELECT ` + deadColumns + ` FROM _honkerx_relay_dead
WHERE queue = ?1 AND state = 'pending' AND ` + deadFilter + `
UNION ALL
SELECT ` + deadColumns + ` FROM _honkerx_relay_dead
WHERE queue = ?1 AND state = 'replaying' AND hold_until_ms < ?7 AND ` + deadFilter + `
ORDER BY hold_until_ms, id LIMIT ?8 + 0`

	// sqlHoldRelayDead uses the primary key.
	sqlHoldRelayDead = `UPDATE _honkerx_relay_dead SET state = 'replaying', holder = ?2, hold_until_ms = ?3
WHERE id IN (SELECT value FROM json_each(?1))`
)

// Replay gives p.Holder a hold on up to p.Limit dead letters that match the filter. It takes pending
// dead letters, and those whose hold has expired. The least recently taken come first.
func (r Relays) Replay(ctx context.Context, q row.Querier, p row.RelayReplay, now time.Time) ([]row.RelayDead, error) {
	if found, err := r.upgrade(ctx, q); err != nil || !found {
		return nil, err
	}
	f, untilMS := p.RelayDeadFilter, rows.MilliUp(p.Until)
	page, err := deadPage(ctx, q, r.selects(sqlFreeRelayDead, f), deadFilterArgs(f, rows.MilliOf(now), p.Limit))
	if err != nil || len(page) == 0 {
		return nil, err
	}
	ids := make([]int64, len(page))
	for i := range page {
		ids[i] = page[i].ID
		page[i].State = row.RelayReplaying
		setMoved(&page[i], untilMS)
	}
	n, err := rows.Affected(ctx, q, r.named(sqlHoldRelayDead), rows.IDList(ids), p.Holder, untilMS)
	return page, allMoved(n, len(ids), "taken", err)
}

// allMoved returns an error if a trigger left some of the rows unchanged.
func allMoved(n, of int, what string, err error) error {
	if err == nil && n != of {
		return fmt.Errorf("only %d of %d dead letters were %s: %w", n, of, what, row.ErrStuck)
	}
	return err
}

// These statements use the primary key. A hold includes its last millisecond.
const (
	whereHeldDead = ` WHERE id = ?1 AND queue = ?2 AND state = 'replaying' AND holder = ?3 AND hold_until_ms >= ?4`

	sqlResolveRelayDead = `UPDATE _honkerx_relay_dead SET state = 'resolved', holder = '', hold_until_ms = ?4` + whereHeldDead
	sqlRejectRelayDead  = `UPDATE _honkerx_relay_dead
SET state = 'pending', holder = '', hold_until_ms = ?4, attempts = attempts + 1, last_error = nullif(?5, '')` + whereHeldDead
)

// SettleDead ends the hold on a dead letter with verdict v. It returns false and changes nothing if the hold has
// already ended.
func (r Relays) SettleDead(ctx context.Context, q row.Querier, h row.RelayHold, v row.RelayVerdict, now time.Time) (held bool, err error) {
	if found, err := r.upgrade(ctx, q); err != nil || !found {
		return false, err
	}
	query, args := sqlRejectRelayDead, []any{h.ID, h.Queue, h.Holder, rows.MilliOf(now), v.Cause}
	if v.Resolved {
		query, args = sqlResolveRelayDead, args[:4]
	}
	n, err := rows.Affected(ctx, q, r.named(query), args...)
	return n > 0, err
}

// These statements use the primary key. ?3 is the current time.
const (
	whereFreeIDs = ` WHERE id IN (SELECT value FROM json_each(?2)) AND +queue = ?1
  AND (+state = 'pending' OR +state = 'replaying' AND hold_until_ms < ?3)`

	sqlRequeueRelayDead = `INSERT INTO _honkerx_relay_messages (queue, partition, key, type, payload, created_ms)
SELECT queue, partition, key, type, payload, ?3 FROM _honkerx_relay_dead` + whereFreeIDs + ` ORDER BY id RETURNING id`

	sqlDropRequeued = `DELETE FROM _honkerx_relay_dead` + whereFreeIDs

	sqlDiscardRelayDead = `UPDATE _honkerx_relay_dead SET state = 'discarded', holder = '', hold_until_ms = ?3` + whereFreeIDs
)

// Requeue takes those of the dead letters in ids that Replay could take, and sends them as new messages at the end of
// their partitions. It deletes the dead letters and returns the IDs of the new messages.
func (r Relays) Requeue(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) ([]int64, error) {
	if found, err := r.upgrade(ctx, q); err != nil || !found {
		return nil, err
	}
	nowMS := rows.MilliOf(now)
	sent, err := rows.ReturnedIDs(ctx, q, r.named(sqlRequeueRelayDead), 0, queue, rows.IDList(ids), nowMS)
	if err != nil || len(sent) == 0 {
		return nil, err
	}
	dropped, err := rows.Affected(ctx, q, r.named(sqlDropRequeued), queue, rows.IDList(ids), nowMS)
	return sent, allMoved(dropped, len(sent), "requeued", err)
}

// Discard marks as discarded those of the dead letters in ids that Replay could take, and returns how many it marked.
func (r Relays) Discard(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) (int, error) {
	if found, err := r.upgrade(ctx, q); err != nil || !found {
		return 0, err
	}
	return rows.Affected(ctx, q, r.named(sqlDiscardRelayDead), queue, rows.IDList(ids), rows.MilliOf(now))
}

// These statements use the index on states.
const (
	sqlSettledRelayDead = `SELECT id FROM _honkerx_relay_dead
WHERE queue = ?1 AND state IN ('resolved', 'discarded') AND hold_until_ms <= ?2 LIMIT ?3 + 0`

	// sqlDropRelayDead uses the primary key.
	sqlDropRelayDead = `DELETE FROM _honkerx_relay_dead WHERE id IN (SELECT value FROM json_each(?3))
  AND +queue = ?1 AND +state IN ('resolved', 'discarded') AND hold_until_ms <= ?2`
)

// SettledDead returns the IDs of up to limit of queue's dead letters that were resolved or discarded no later than
// before.
func (r Relays) SettledDead(ctx context.Context, q row.Querier, queue string, before time.Time, limit int) ([]int64, error) {
	return rows.ReturnedIDs(ctx, q, r.named(sqlSettledRelayDead), 0, queue, rows.MilliOf(before), limit)
}

// DropDead deletes the dead letters in ids that SettledDead would still return, and returns how many it deleted.
func (r Relays) DropDead(ctx context.Context, q row.Querier, queue string, before time.Time, ids []int64) (int, error) {
	return rows.Affected(ctx, q, r.named(sqlDropRelayDead), queue, rows.MilliOf(before), rows.IDList(ids))
}
