package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/honker-go/honker/internal/row"
)

// Uses the primary key. Another owner is replaced once its row has expired.
const sqlAddPresence = `INSERT INTO _honkerx_dispatch_presence (key, owner, value, expires_ms) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, value = excluded.value, expires_ms = excluded.expires_ms
WHERE _honkerx_dispatch_presence.expires_ms <= ?5 OR _honkerx_dispatch_presence.owner = excluded.owner`

// Register adds an actor or updates its row. It returns false if another live actor has its key.
func (Dispatches) Register(ctx context.Context, q row.Querier, p row.DispatchPresence, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, sqlAddPresence, p.Key, p.Owner, p.Value, p.ExpiresMS, nowMS)
	return n > 0, err
}

// Uses the primary key.
const sqlBeatPresences = `UPDATE _honkerx_dispatch_presence AS p
SET value = json_extract(b.value, '$.value'), expires_ms = json_extract(b.value, '$.expires_ms')
FROM json_each(?1) AS b
WHERE p.key = json_extract(b.value, '$.key') AND p.owner = json_extract(b.value, '$.owner')
RETURNING key`

// Beat updates the rows of actors and returns the keys of the rows that still exist.
func (Dispatches) Beat(ctx context.Context, q row.Querier, all []row.DispatchPresence) ([]string, error) {
	list, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return texts(ctx, q, sqlBeatPresences, string(list))
}

// Uses the primary key.
const sqlDropPresence = `DELETE FROM _honkerx_dispatch_presence WHERE key = ?1 AND owner = ?2`

// Leave removes an actor. It returns false if the key is free or belongs to another owner.
func (Dispatches) Leave(ctx context.Context, q row.Querier, key, owner string) (bool, error) {
	n, err := affected(ctx, q, sqlDropPresence, key, owner)
	return n > 0, err
}

// Uses the primary key.
const (
	sqlPresences = `SELECT key, owner, value, expires_ms FROM _honkerx_dispatch_presence
WHERE key >= ?1 AND key < ?2 AND expires_ms > ?3 ORDER BY key`

	sqlAllPresences = `SELECT key, owner, value, expires_ms FROM _honkerx_dispatch_presence WHERE expires_ms > ?1 ORDER BY key`
)

// Presences returns the live actors with keys from first up to but excluding end, by key.
func (Dispatches) Presences(ctx context.Context, q row.Querier, first, end string, nowMS int64) ([]row.DispatchPresence, error) {
	return presences(ctx, q, sqlPresences, first, end, nowMS)
}

// AllPresences returns the live actors of all prefixes, by key.
func (Dispatches) AllPresences(ctx context.Context, q row.Querier, nowMS int64) ([]row.DispatchPresence, error) {
	return presences(ctx, q, sqlAllPresences, nowMS)
}

func presences(ctx context.Context, q row.Querier, query string, args ...any) (out []row.DispatchPresence, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var p row.DispatchPresence
		err := rows.Scan(&p.Key, &p.Owner, &p.Value, (*number)(&p.ExpiresMS))
		out = append(out, p)
		return err
	}, args...)
	return out, err
}
