package dispatches

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlAddPresence uses the primary key. It replaces another owner's row once that row has expired.
const sqlAddPresence = `INSERT INTO _honkerx_dispatch_presence (key, owner, value, expires_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, value = excluded.value, expires_ms = excluded.expires_ms
WHERE _honkerx_dispatch_presence.expires_ms <= ?5 OR _honkerx_dispatch_presence.owner = excluded.owner`

// Register adds an actor or updates its row, creating any missing tables. It returns false if another live actor has
// its key.
func (d Dispatches) Register(ctx context.Context, q row.Querier, p row.DispatchPresence, now time.Time) (bool, error) {
	if err := d.Lock(ctx, q); err != nil {
		return false, err
	}
	if err := d.bootstrap(ctx, q, row.DispatchTables); err != nil {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlAddPresence, p.Key, p.Owner, p.Value(), rows.MilliUp(p.ExpiresAt), rows.MilliOf(now))
	return n > 0, err
}

// sqlBeatPresences uses the primary key.
const sqlBeatPresences = `UPDATE _honkerx_dispatch_presence AS p
SET value = json_extract(b.value, '$.value'), expires_ms = json_extract(b.value, '$.expires_ms')
FROM json_each(?1) AS b
WHERE p.key = json_extract(b.value, '$.key') AND p.owner = json_extract(b.value, '$.owner')
RETURNING key`

// beat is an element of the list for sqlBeatPresences.
type beat struct {
	Key       string `json:"key"`
	Owner     string `json:"owner"`
	Value     string `json:"value"`
	ExpiresMS int64  `json:"expires_ms"`
}

// Beat updates the actors' rows and returns the keys of the rows that still exist.
func (Dispatches) Beat(ctx context.Context, q row.Querier, all []row.DispatchPresence) ([]string, error) {
	beats := make([]beat, len(all))
	for i := range all {
		p := &all[i]
		beats[i] = beat{p.Key, p.Owner, p.Value(), rows.MilliUp(p.ExpiresAt)}
	}
	list, err := json.Marshal(beats)
	if err != nil {
		return nil, err
	}
	return rows.Texts(ctx, q, sqlBeatPresences, string(list))
}

// sqlDropPresence uses the primary key.
const sqlDropPresence = `DELETE FROM _honkerx_dispatch_presence WHERE key = ?1 AND owner = ?2`

// Leave removes an actor. It returns false if the key is free or belongs to another owner.
func (d Dispatches) Leave(ctx context.Context, q row.Querier, key, owner string) (bool, error) {
	if there, err := d.exists(ctx, q); err != nil || !there {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlDropPresence, key, owner)
	return n > 0, err
}

// These statements use the primary key.
const (
	sqlPresences = `SELECT key, owner, value, expires_ms FROM _honkerx_dispatch_presence
WHERE key >= ?1 AND key < ?2 AND expires_ms > ?3 ORDER BY key`

	sqlAllPresences = `SELECT key, owner, value, expires_ms FROM _honkerx_dispatch_presence WHERE expires_ms > ?1 ORDER BY key`
)

// Presences returns the live actors with keys from first up to but not including end, sorted by key. If both are
// empty, it returns all live actors.
func (d Dispatches) Presences(ctx context.Context, q row.Querier, first, end string, now time.Time) (out []row.DispatchPresence, err error) {
	if there, err := d.exists(ctx, q); err != nil || !there {
		return nil, err
	}
	query, args := sqlPresences, []any{first, end, rows.MilliOf(now)}
	if first == "" && end == "" {
		query, args = sqlAllPresences, []any{rows.MilliOf(now)}
	}
	err = rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var p row.DispatchPresence
		var value string
		var expires rows.Number
		err := r.Scan(&p.Key, &p.Owner, &value, &expires)
		p.ExpiresAt = row.InstantMS(int64(expires))
		p.SetValue(value)
		out = append(out, p)
		return err
	}, args...)
	return out, err
}
