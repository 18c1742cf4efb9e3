package locks

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Locks contains the statements for the table lock. A row may outlast its lock, so every statement compares
// expires_at: a lock is held while expires_at > now.
type Locks struct{ pgsql.Schema }

// The token is drawn in RETURNING, when this transaction holds the row. A token drawn before could be smaller than
// the token of an owner that has taken and released the lock in between.
const sqlAcquireLock = `INSERT INTO honker.lock AS l (name, owner, expires_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at <= $4
RETURNING nextval('honker.lock_token')`

// lockTries bounds the attempts to take a lock that was released between the attempt and the look at its holder.
const lockTries = 10

// end returns the end of a lock. The time is rounded up to whole seconds: a lock is renewed after a third of a second at the
// earliest.
func end(now time.Time, ttl time.Duration) time.Time {
	if rest := ttl % time.Second; rest > 0 && ttl < math.MaxInt64-time.Second {
		ttl += time.Second - rest
	}
	return pgsql.StampUp(now.Add(ttl))
}

// Acquire implements engine.LockStore.
func (s Locks) Acquire(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (l row.Lock, token int64, err error) {
	until := end(now, ttl)
	for range lockTries {
		ok, err := pgsql.One(ctx, q, s.SQL(sqlAcquireLock), []any{name, owner, until, pgsql.Stamp(now)}, &token)
		if err != nil {
			return row.Lock{}, 0, err
		}
		if ok {
			return row.Lock{Name: name, Owner: owner, Expires: pgsql.Shown(until)}, token, nil
		}
		if all, err := s.Held(ctx, q, name, now); err != nil || len(all) > 0 {
			return append(all, row.Lock{})[0], 0, err
		}
	}
	return row.Lock{}, 0, row.ErrNotInserted
}

const sqlRenewLock = `UPDATE honker.lock SET expires_at = $3 WHERE name = $1 AND owner = $2 AND expires_at > $4`

// Renew implements engine.LockStore.
func (s Locks) Renew(ctx context.Context, q row.Querier, name, owner string, ttl time.Duration, now time.Time) (expires time.Time, held bool, err error) {
	until := end(now, ttl)
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlRenewLock), name, owner, until, pgsql.Stamp(now))
	return pgsql.Shown(until), n > 0, err
}

const sqlReleaseLock = `DELETE FROM honker.lock WHERE name = $1 AND owner = $2`

// Release implements engine.LockStore.
func (s Locks) Release(ctx context.Context, q row.Querier, name, owner string) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlReleaseLock), name, owner)
	return n > 0, err
}

const (
	sqlHeldLock  = `SELECT name, owner, expires_at FROM honker.lock WHERE name = $2 AND expires_at > $1`
	sqlHeldLocks = `SELECT name, owner, expires_at FROM honker.lock WHERE expires_at > $1 ORDER BY name`
)

// Held implements engine.LockStore.
func (s Locks) Held(ctx context.Context, q row.Querier, name string, now time.Time) (all []row.Lock, err error) {
	query, args := sqlHeldLocks, []any{pgsql.Stamp(now)}
	if name != "" {
		query, args = sqlHeldLock, append(args, name)
	}
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var l row.Lock
		var expires sql.NullTime
		err := r.Scan(&l.Name, &l.Owner, &expires)
		l.Expires = pgsql.Instant(expires)
		all = append(all, l)
		return err
	}, args...)
	return all, err
}

const sqlLockStates = `SELECT u.name, l.expires_at FROM unnest($1::text[]) u (name)
LEFT JOIN honker.lock l ON l.name = u.name COLLATE "C" AND l.expires_at > $2`

// States returns the time at which each named lock expires, or the zero time if the lock is free.
func (s Locks) States(ctx context.Context, q row.Querier, names []string, now time.Time) (map[string]time.Time, error) {
	out := make(map[string]time.Time, len(names))
	err := pgsql.Each(ctx, q, s.SQL(sqlLockStates), func(r *sql.Rows) error {
		var name string
		var expires sql.NullTime
		err := r.Scan(&name, &expires)
		out[name] = pgsql.Instant(expires)
		return err
	}, pgsql.List(names), pgsql.Stamp(now))
	return out, err
}
