// Package locks contains the statements for locks and rate limits.
package locks

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Locks contains the statements for _honker_locks. An expired lock may leave its row behind, so every statement
// compares expires_at. The methods whose names end in At take Unix seconds; honker's SQL functions accept any second,
// including those that package time cannot compare.
type Locks struct{}

// sqlHeldLock uses the primary key. A lock is held while expires_at > now.
const sqlHeldLock = `SELECT owner, expires_at FROM _honker_locks WHERE name = ?1 AND expires_at > ?2`

// HeldAt returns the lock's owner and the second at which it expires, or false if the lock is free.
func (Locks) HeldAt(ctx context.Context, q row.Querier, name string, now int64) (owner string, expires int64, held bool, err error) {
	held, err = rows.One(ctx, q, sqlHeldLock, []any{name, now}, &owner, (*rows.Moment)(&expires))
	return owner, expires, held, err
}

// sqlAcquireLock uses the primary key. honker deletes an expired row and then inserts a row if there is none; this
// statement does both. Unlike honker's, it fails if owner already holds the lock. Otherwise two callers with the same
// owner name would both believe that they hold it.
const sqlAcquireLock = `INSERT INTO _honker_locks (name, owner, expires_at) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
WHERE expires_at <= ?4`

// A single counter serves all locks. A counter per name would leave a row for every name ever used.
const sqlNextToken = `INSERT INTO _honkerx_meta (key, value) VALUES ('lock_token', 1)
ON CONFLICT (key) DO UPDATE SET value = value + 1
RETURNING CAST(value AS INTEGER)`

// Acquire takes a free lock for ttl and returns it with its fencing token, which is larger than all earlier tokens. If
// the lock is held, even by owner itself, Acquire changes nothing and returns the held lock with token 0. If the lock
// was free but couldn't be stored, the error is ErrNotInserted.
func (ls Locks) Acquire(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (l row.Lock, token int64, err error) {
	expires := lockedUntil(now, ttl)
	token, ok, err := ls.AcquireAt(ctx, q, name, owner, now.Unix(), expires)
	if err != nil || ok {
		return row.Lock{Name: name, Owner: owner, Expires: row.Instant(expires)}, token, err
	}
	all, err := ls.Held(ctx, q, name, now) // another process was faster
	if err == nil && len(all) == 0 {
		err = row.ErrNotInserted
	}
	if err != nil {
		return row.Lock{}, 0, err
	}
	return all[0], 0, nil
}

// lockedUntil returns the second at which a lock that is acquired or renewed at now expires. Both now and ttl are
// rounded up, because a one-second lock must outlast the current second if it is to be renewed at all.
func lockedUntil(now time.Time, ttl time.Duration) int64 {
	return engine.UnixUp(now) + engine.Seconds(ttl)
}

// AcquireAt is like Acquire, but returns false if the lock is held, and does not read the holder.
func (Locks) AcquireAt(ctx context.Context, q row.Querier, name, owner string, now, expires int64) (token int64, ok bool, err error) {
	n, err := rows.Affected(ctx, q, sqlAcquireLock, name, owner, expires, now)
	if err != nil || n == 0 {
		return 0, false, err
	}
	_, err = rows.One(ctx, q, sqlNextToken, nil, &token)
	return token, true, err
}

// sqlRenewLock uses the primary key. Unlike honker's statement, it does not revive an expired lock, because another
// owner may have held it since.
const sqlRenewLock = `UPDATE _honker_locks SET expires_at = ?3 WHERE name = ?1 AND owner = ?2 AND expires_at > ?4`

// Renew extends a lock to ttl from now, and returns its new expiry. It returns false if owner no longer holds the
// lock.
func (ls Locks) Renew(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (expires time.Time, held bool, err error) {
	until := lockedUntil(now, ttl)
	held, err = ls.RenewAt(ctx, q, name, owner, now.Unix(), until)
	return row.Instant(until), held, err
}

// RenewAt is like Renew but extends the lock to expires.
func (Locks) RenewAt(ctx context.Context, q row.Querier, name, owner string, now, expires int64) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlRenewLock, name, owner, expires, now)
	return n > 0, err
}

// sqlReleaseLock uses the primary key.
const sqlReleaseLock = `DELETE FROM _honker_locks WHERE name = ?1 AND owner = ?2`

// Release frees a lock. It returns false if the lock does not belong to owner.
func (Locks) Release(ctx context.Context, q row.Querier, name, owner string) (bool, error) {
	n, err := rows.Affected(ctx, q, sqlReleaseLock, name, owner)
	return n > 0, err
}

// sqlLockStates uses the primary key.
const sqlLockStates = `SELECT k.value, coalesce((SELECT expires_at FROM _honker_locks WHERE name = k.value AND expires_at > ?2), 0)
FROM json_each(?1) AS k`

// States returns the time at which each named lock expires, or the zero time if the lock is free.
func (Locks) States(ctx context.Context, q row.Querier, names []string, now time.Time) (map[string]time.Time, error) {
	out := make(map[string]time.Time, len(names))
	err := rows.Each(ctx, q, sqlLockStates, func(r *sql.Rows) error {
		var name string
		var expires rows.Moment
		err := r.Scan(&name, &expires)
		out[name] = row.Instant(int64(expires))
		return err
	}, rows.NameList(names), now.Unix())
	return out, err
}

// The table is small: it has a row for each lock that is held or was never released.
const sqlHeldLocks = `SELECT name, owner, expires_at FROM _honker_locks WHERE expires_at > ?1 ORDER BY name`

// Held returns the lock called name if it is held. An empty name selects all held locks, sorted by name.
func (ls Locks) Held(ctx context.Context, q row.Querier, name string, now time.Time) (all []row.Lock, err error) {
	if name != "" {
		owner, expires, held, err := ls.HeldAt(ctx, q, name, now.Unix())
		if err != nil || !held {
			return nil, err
		}
		return []row.Lock{{Name: name, Owner: owner, Expires: row.Instant(expires)}}, nil
	}
	err = rows.Each(ctx, q, sqlHeldLocks, func(r *sql.Rows) error {
		var l row.Lock
		var expires rows.Moment
		err := r.Scan(&l.Name, &l.Owner, &expires)
		l.Expires = row.Instant(int64(expires))
		all = append(all, l)
		return err
	}, now.Unix())
	return all, err
}
