package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Locks groups the statements on _honker_locks. An expired lock may leave its row behind, so every
// statement compares expires_at.
type Locks struct{}

// By primary key. A lock is held while expires_at > now.
const sqlHeldLock = `SELECT owner, expires_at FROM _honker_locks WHERE name = ?1 AND expires_at > ?2`

// Held returns the holder of the lock; false if the lock is free.
func (Locks) Held(ctx context.Context, q row.Querier, name string, now int64) (row.Lock, bool, error) {
	var l row.Lock
	var expires moment
	held, err := one(ctx, q, sqlHeldLock, []any{name, now}, &l.Owner, &expires)
	l.ExpiresAt = int64(expires)
	return l, held, err
}

// By primary key. honker deletes an expired row and then inserts if there is none; this statement
// does both. Unlike honker's, it fails if owner already holds the lock. Otherwise two callers with
// the same owner name would both believe that they hold it.
const sqlAcquireLock = `INSERT INTO _honker_locks (name, owner, expires_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
WHERE expires_at <= ?4`

// A single counter serves all locks. A counter per name would leave a row for every name ever used.
const sqlNextToken = `INSERT INTO _honkerx_meta (key, value) VALUES ('lock_token', 1)
ON CONFLICT (key) DO UPDATE SET value = value + 1
RETURNING CAST(value AS INTEGER)`

// Acquire takes a free lock until expires and returns its fencing token, which is larger than all
// earlier tokens. It returns false if the lock is held, even by owner itself.
func (Locks) Acquire(ctx context.Context, q row.Querier, name, owner string, now, expires int64) (token int64, ok bool, err error) {
	n, err := affected(ctx, q, sqlAcquireLock, name, owner, expires, now)
	if err != nil || n == 0 {
		return 0, false, err
	}
	_, err = one(ctx, q, sqlNextToken, nil, &token)
	return token, true, err
}

// By primary key. Unlike honker's, it does not revive an expired lock, because another owner may
// have held it in the meantime.
const sqlRenewLock = `UPDATE _honker_locks SET expires_at = ?3 WHERE name = ?1 AND owner = ?2 AND expires_at > ?4`

// Renew extends a lock until expires. It returns false if owner no longer holds the lock.
func (Locks) Renew(ctx context.Context, q row.Querier, name, owner string, now, expires int64) (bool, error) {
	n, err := affected(ctx, q, sqlRenewLock, name, owner, expires, now)
	return n > 0, err
}

// By primary key.
const sqlReleaseLock = `DELETE FROM _honker_locks WHERE name = ?1 AND owner = ?2`

// Release frees a lock. It returns false if the lock does not belong to owner.
func (Locks) Release(ctx context.Context, q row.Querier, name, owner string) (bool, error) {
	n, err := affected(ctx, q, sqlReleaseLock, name, owner)
	return n > 0, err
}

// By primary key.
const sqlLockStates = `SELECT k.value, coalesce((SELECT expires_at FROM _honker_locks WHERE name = k.value AND expires_at > ?2), 0)
FROM json_each(?1) AS k`

// States returns the expiry of each named lock, or 0 if the lock is free.
func (Locks) States(ctx context.Context, q row.Querier, names []string, now int64) (map[string]int64, error) {
	out := make(map[string]int64, len(names))
	err := each(ctx, q, sqlLockStates, func(rows *sql.Rows) error {
		var name string
		var expires moment
		err := rows.Scan(&name, &expires)
		out[name] = int64(expires)
		return err
	}, nameList(names), now)
	return out, err
}

// The table is small: it has a row for each lock that is held or was not released.
const sqlHeldLocks = `SELECT name, owner, expires_at FROM _honker_locks WHERE expires_at > ?1 ORDER BY name`

// All returns the locks that are held, sorted by name.
func (Locks) All(ctx context.Context, q row.Querier, now int64) (all []row.NamedLock, err error) {
	err = each(ctx, q, sqlHeldLocks, func(rows *sql.Rows) error {
		var l row.NamedLock
		var expires moment
		err := rows.Scan(&l.Name, &l.Owner, &expires)
		l.ExpiresAt = int64(expires)
		all = append(all, l)
		return err
	}, now)
	return all, err
}
