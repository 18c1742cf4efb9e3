package moves

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// A partition of a relay is closed by a lease without an end before its first message moves. So no handler of the file
// gets a message whose predecessors are in the other database. Messages that programs still send to the file move too.

//go:embed relay.sql
var relayTrigger string

const (
	sqlMoveRelayTables = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_honkerx_relay_*' ORDER BY name`

	sqlMoveRelayQueues = `SELECT q.name, q.partitions,
  (SELECT count(*) FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
    ON m.queue = p.queue AND m.partition = p.partition AND m.id > p.cursor WHERE p.queue = q.name),
  (SELECT count(*) FROM _honkerx_relay_partitions WHERE queue = q.name AND ` + relayLeased + `),
  (SELECT count(*) FROM _honkerx_relay_dead WHERE queue = q.name)
FROM _honkerx_relay_queues AS q ORDER BY q.name`

	relayLeased = `owner NOT IN ('', 'honker move', 'honker move: closing') AND lease_until_ms > ?1`

	sqlMoveRelayLeased = `SELECT count(*) FROM _honkerx_relay_partitions WHERE queue = ?2 AND ` + relayLeased

	sqlMoveRelayMark = `INSERT INTO _honkerx_moving_relays (family, queue) VALUES (?1, ?2) ON CONFLICT DO NOTHING`

	relayFree = `queue = ?1 AND (lease_until_ms <= ?2 OR owner = 'honker move: closing')`

	sqlMoveRelayClosed = `SELECT partition, 0, json_object('partition', partition, 'processed', processed, 'cursor', cursor, 'attempts', attempts,
  'retry_ms', retry_at_ms, 'error', replace(last_error, char(0), '')) FROM _honkerx_relay_partitions WHERE ` + relayFree + ` ORDER BY partition`

	sqlMoveRelayClose = `UPDATE _honkerx_relay_partitions SET owner = 'honker move', lease_until_ms = 7258118400000, epoch = epoch + 1, attempts = 0,
  retry_at_ms = 0, last_error = NULL WHERE ` + relayFree

	sqlMoveRelayMessages = `SELECT m.id, length(m.payload), json_object('id', m.id, 'partition', m.partition, 'key', m.key, 'type', m.type,
  'payload', hex(m.payload), 'created_ms', m.created_ms)
FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m ON m.queue = p.queue AND m.partition = p.partition AND m.id > p.cursor
WHERE p.queue = ?1 AND p.owner = 'honker move' ORDER BY p.partition, m.id LIMIT ?2 + 0`

	// A hold that has lapsed goes along, so that its holder cannot settle it in the file.
	sqlMoveRelayDead = `SELECT id, length(payload), json_object('id', id, 'partition', partition, 'seq', seq, 'key', key, 'type', type,
  'payload', hex(payload), 'created_ms', created_ms, 'attempts', attempts, 'error', replace(last_error, char(0), ''), 'died_ms', died_ms,
  'state', state, 'holder', holder, 'moved_ms', hold_until_ms)
FROM _honkerx_relay_dead WHERE queue = ?1 AND (state <> 'replaying' OR hold_until_ms < ?3) LIMIT ?2 + 0`

	sqlMoveRelayDrop     = `DELETE FROM _honkerx_relay_messages WHERE id IN (SELECT value FROM json_each(?1))`
	sqlMoveRelayDropDead = `DELETE FROM _honkerx_relay_dead WHERE id IN (SELECT value FROM json_each(?1))`

	sqlMoveRelayLast = `SELECT seq FROM sqlite_sequence WHERE name = ?1`
)

var relayTable = regexp.MustCompile(`^_honkerx_relay_(?:([a-z][a-z0-9_]*)_)?(queues|messages|partitions|dead)$`)

// relay names the tables of a family.
type relay string

func (r relay) named(query string) string {
	if r == "" {
		return query
	}
	return strings.ReplaceAll(query, "_honkerx_relay_", "_honkerx_relay_"+string(r)+"_")
}

// families returns the families whose tables are complete.
func families(ctx context.Context, q row.Querier) (all []relay, err error) {
	names, err := rows.Texts(ctx, q, sqlMoveRelayTables)
	tables := map[relay]int{}
	for _, name := range names {
		if m := relayTable.FindStringSubmatch(name); m != nil {
			tables[relay(m[1])]++
		}
	}
	for _, r := range slices.Sorted(maps.Keys(tables)) {
		if tables[r] == 4 {
			all = append(all, r)
		}
	}
	return all, err
}

// Relays implements engine.MoveStore.
func (Moves) Relays(ctx context.Context, q row.Querier, now time.Time) (all []row.MoveRelay, err error) {
	names, err := families(ctx, q)
	for _, family := range names {
		if err == nil {
			err = rows.Each(ctx, q, family.named(sqlMoveRelayQueues), func(r *sql.Rows) error {
				m := row.MoveRelay{Family: string(family)}
				err := r.Scan((*rows.Text)(&m.Queue), &m.Partitions, &m.Waiting, &m.Leased, &m.Dead)
				all = append(all, m)
				return err
			}, now.UnixMilli())
		}
	}
	return all, err
}

// relayParcel is the JSON of a parcel of a relay.
type relayParcel struct {
	Family   string          `json:"family"`
	Queue    string          `json:"queue"`
	Last     int64           `json:"last"` // the last id of the family
	Closed   json.RawMessage `json:"closed"`
	Messages json.RawMessage `json:"messages"`
	Dead     json.RawMessage `json:"dead"`
}

// Relay implements engine.MoveStore.
func (Moves) Relay(ctx context.Context, q row.Querier, token, family, queue string, limit int, now time.Time) (p row.Parcel, leased int64, err error) {
	if err := held(ctx, q, token); err != nil {
		return p, 0, err
	}
	r, ms := relay(family), now.UnixMilli()
	if err := r.prepare(ctx, q, queue); err != nil {
		return p, 0, err
	}
	out := relayParcel{Family: family, Queue: queue, Dead: json.RawMessage("[]")}
	var closed, messages, dead []int64
	if closed, out.Closed, err = r.list(ctx, q, sqlMoveRelayClosed, queue, ms); err != nil {
		return p, 0, err
	}
	if _, err := q.ExecContext(ctx, r.named(sqlMoveRelayClose), queue, ms); err != nil {
		return p, 0, err
	}
	if messages, out.Messages, err = r.list(ctx, q, sqlMoveRelayMessages, queue, limit); err != nil {
		return p, 0, err
	}
	if len(messages) == 0 {
		if dead, out.Dead, err = r.list(ctx, q, sqlMoveRelayDead, queue, limit, ms); err != nil {
			return p, 0, err
		}
	}
	if len(closed)+len(messages)+len(dead) == 0 {
		_, err = rows.One(ctx, q, r.named(sqlMoveRelayLeased), []any{ms, queue}, &leased)
		return p, leased, err
	}
	if err := r.drop(ctx, q, sqlMoveRelayDrop, messages); err != nil {
		return p, 0, err
	}
	if err := r.drop(ctx, q, sqlMoveRelayDropDead, dead); err != nil {
		return p, 0, err
	}
	if _, err := rows.One(ctx, q, sqlMoveRelayLast, []any{r.named("_honkerx_relay_messages")}, (*rows.Number)(&out.Last)); err != nil {
		return p, 0, err
	}
	text, err := json.Marshal(map[string]relayParcel{"relay": out})
	if err != nil {
		return p, 0, err
	}
	p, err = add(ctx, q, string(text))
	return p, 0, err
}

// prepare adds the columns that tables of an earlier version lack, and the trigger.
func (r relay) prepare(ctx context.Context, q row.Querier, queue string) error {
	for _, table := range []string{"_honkerx_relay_messages", "_honkerx_relay_dead"} {
		if err := rows.AddColumn(ctx, q, r.named(table), `key TEXT NOT NULL DEFAULT ''`); err != nil {
			return err
		}
	}
	if err := rows.ExecAll(ctx, q, rows.SplitDDL(r.named(strings.ReplaceAll(relayTrigger, "FAMILY", string(r))))); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, sqlMoveRelayMark, string(r), queue)
	return err
}

// list returns the ids and the JSON of the rows of a query, up to the size of a parcel. Its queue is the first argument.
func (r relay) list(ctx context.Context, q row.Querier, query string, args ...any) (ids []int64, text []byte, err error) {
	var total int64
	err = rows.Each(ctx, q, r.named(query), func(rs *sql.Rows) error {
		var id, size int64
		var one string
		if err := rs.Scan(&id, (*rows.Number)(&size), &one); err != nil {
			return err
		}
		if total += size; total > parcelBytes && len(ids) > 0 {
			return nil
		}
		if !utf8.ValidString(one) || hasNUL(one) {
			return fmt.Errorf("%w: PostgreSQL cannot hold message %d of relay %q, whose key, type or error has a zero byte or is not UTF-8",
				engine.ErrInvalid, id, args[0])
		}
		ids, text = append(ids, id), element(text, one)
		return nil
	}, args...)
	return ids, append(element(text, ""), ']'), err
}

func (r relay) drop(ctx context.Context, q row.Querier, query string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	n, err := rows.Affected(ctx, q, r.named(query), rows.IDList(ids))
	if err == nil && n != len(ids) {
		err = row.ErrIgnored
	}
	return err
}
