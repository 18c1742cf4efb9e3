package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// Locks are the statements on _honker_locks. A lock that has expired may leave its row
// behind, so every statement compares expires_at.
type Locks struct{}

// The locks by which one process of all leads, in whatever language.
const (
	SchedulerLock   = "honker-scheduler"
	MaintenanceLock = "honker-maintenance" // of this package alone
)

// By primary key. A lock is held while expires_at > now.
const sqlHeldLock = `SELECT owner, expires_at FROM _honker_locks WHERE name = ?1 AND expires_at > ?2`

// Held returns the holder of the lock; false when it is free.
func (Locks) Held(ctx context.Context, q Querier, name string, now int64) (row.Lock, bool, error) {
	var l row.Lock
	var expires moment
	held, err := one(ctx, q, sqlHeldLock, []any{name, now}, &l.Owner, &expires)
	l.ExpiresAt = int64(expires)
	return l, held, err
}

// By primary key. honker deletes an expired row and then inserts if there is none; here that
// is one statement. Unlike honker's, it does not succeed for an owner that holds the lock
// already: two callers of one name would both believe they have it.
const sqlAcquireLock = `INSERT INTO _honker_locks (name, owner, expires_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
WHERE expires_at <= ?4`

// One counter serves all names, since a counter per name would leave a row for each name
// that was ever used.
const sqlNextToken = `INSERT INTO _honkerx_meta (key, value) VALUES ('lock_token', 1)
ON CONFLICT (key) DO UPDATE SET value = value + 1
RETURNING CAST(value AS INTEGER)`

// Acquire takes a free lock until expires and returns its fencing token, which is larger
// than any before; false when the lock is held, also when owner itself holds it.
func (Locks) Acquire(ctx context.Context, q Querier, name, owner string, now, expires int64) (token int64, ok bool, err error) {
	n, err := affected(ctx, q, sqlAcquireLock, name, owner, expires, now)
	if err != nil || n == 0 {
		return 0, false, err
	}
	_, err = one(ctx, q, sqlNextToken, nil, &token)
	return token, true, err
}

// By primary key. Unlike honker's, it does not revive an expired lock: another owner may have
// held it in between.
const sqlRenewLock = `UPDATE _honker_locks SET expires_at = ?3 WHERE name = ?1 AND owner = ?2 AND expires_at > ?4`

// Renew makes a lock last until expires; false when owner no longer holds it.
func (Locks) Renew(ctx context.Context, q Querier, name, owner string, now, expires int64) (bool, error) {
	n, err := affected(ctx, q, sqlRenewLock, name, owner, expires, now)
	return n > 0, err
}

// By primary key.
const sqlReleaseLock = `DELETE FROM _honker_locks WHERE name = ?1 AND owner = ?2`

// Release frees a lock; false when it does not belong to owner.
func (Locks) Release(ctx context.Context, q Querier, name, owner string) (bool, error) {
	n, err := affected(ctx, q, sqlReleaseLock, name, owner)
	return n > 0, err
}

// By primary key.
const sqlLockStates = `SELECT k.value, coalesce((SELECT expires_at FROM _honker_locks WHERE name = k.value AND expires_at > ?2), 0)
FROM json_each(?1) AS k`

// States returns for each of names when the lock expires, 0 for one that is free.
func (Locks) States(ctx context.Context, q Querier, names []string, now int64) (map[string]int64, error) {
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

// The table has a row for each lock that is held or was not released.
const sqlHeldLocks = `SELECT name, owner, expires_at FROM _honker_locks WHERE expires_at > ?1 ORDER BY name`

// All returns the locks that are held, by name.
func (Locks) All(ctx context.Context, q Querier, now int64) (all []row.NamedLock, err error) {
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
