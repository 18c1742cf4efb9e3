package dispatches

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	// sqlRegister replaces the row of another owner once it has expired.
	sqlRegister = `INSERT INTO honker.actor AS a (key, owner, value, expires_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, value = excluded.value, expires_at = excluded.expires_at
WHERE a.expires_at <= $5 OR a.owner = excluded.owner`

	sqlBeat = `UPDATE honker.actor a SET value = b.value, expires_at = b.expires_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[]) b (key, owner, value, expires_at)
WHERE a.key = b.key AND a.owner = b.owner RETURNING a.key`

	sqlLeave = `DELETE FROM honker.actor WHERE key = $1 AND owner = $2`

	sqlActors = `SELECT a.key, a.owner, a.value, a.expires_at FROM honker.actor a
WHERE a.key >= $1 AND (a.key < $2 OR $1 = '' AND $2 = '') AND a.expires_at > $3 ORDER BY a.key`
)

// expiry returns the end of a presence as it is stored.
func expiry(t time.Time) time.Time {
	return pgsql.Stamp(t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond))
}

// Register implements engine.DispatchStore.
func (s Dispatches) Register(ctx context.Context, q row.Querier, p row.DispatchPresence, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlRegister), p.Key, p.Owner, p.Value(), expiry(p.ExpiresAt), pgsql.Stamp(now))
	return n > 0, err
}

// Beat implements engine.DispatchStore.
func (s Dispatches) Beat(ctx context.Context, q row.Querier, all []row.DispatchPresence) (kept []string, err error) {
	keys, owners, values, ends := make([]string, len(all)), make([]string, len(all)), make([]string, len(all)), make([]time.Time, len(all))
	for i := range all {
		keys[i], owners[i], values[i], ends[i] = all[i].Key, all[i].Owner, all[i].Value(), expiry(all[i].ExpiresAt)
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlBeat), func(r *sql.Rows) error {
		var key string
		err := r.Scan(&key)
		kept = append(kept, key)
		return err
	}, keys, owners, values, ends)
	return kept, err
}

// Leave implements engine.DispatchStore.
func (s Dispatches) Leave(ctx context.Context, q row.Querier, key, owner string) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlLeave), key, owner)
	return n > 0, err
}

// Presences implements engine.DispatchStore.
func (s Dispatches) Presences(ctx context.Context, q row.Querier, first, end string, now time.Time) (all []row.DispatchPresence, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlActors), func(r *sql.Rows) error {
		var p row.DispatchPresence
		var value string
		var expires sql.NullTime
		err := r.Scan(&p.Key, &p.Owner, &value, &expires)
		p.ExpiresAt = pgsql.Instant(expires)
		p.SetValue(value)
		all = append(all, p)
		return err
	}, first, end, pgsql.Stamp(now))
	return all, err
}
