package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	sqlInfo = `SELECT n.i, coalesce(p.processed, 0),
  (SELECT count(*) FROM honker.relay_message m WHERE m.family = $1 AND m.queue = $2 AND m.partition = n.i AND m.id > coalesce(p.cursor, 0)),
  (SELECT m.created_at FROM honker.relay_message m WHERE m.family = $1 AND m.queue = $2 AND m.partition = n.i AND m.id > coalesce(p.cursor, 0)
    ORDER BY m.family, m.queue, m.partition, m.id LIMIT 1),
  coalesce(p.owner, ''), coalesce(p.epoch, 0), p.lease_until, coalesce(p.attempts, 0), p.retry_at, coalesce(p.last_error, '')
FROM generate_series(0, $3::bigint - 1) n(i) LEFT JOIN honker.relay_partition p ON p.family = $1 AND p.queue = $2 AND p.partition = n.i
ORDER BY n.i`

	sqlCounts = `SELECT
  (SELECT count(*) FROM honker.relay_message WHERE family = $1 AND queue = $2 AND partition < 0)
    + (SELECT count(*) FROM honker.relay_message WHERE family = $1 AND queue = $2 AND partition >= $3),
  (SELECT count(*) FROM honker.relay_dead WHERE family = $1 AND queue = $2 AND state IN ('pending', 'replaying'))`
)

// Info implements engine.RelayStore. It does not count messages that have no number yet.
func (s Relays) Info(ctx context.Context, q row.Querier, queue string, partitions int) (out row.RelayInfo, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlInfo), func(r *sql.Rows) error {
		var p row.RelayProgressInfo
		var oldest, lease, retry sql.NullTime
		err := r.Scan(&p.Partition, &p.Processed, &p.Waiting, &oldest, &p.Owner, &p.Epoch, &lease, &p.Attempts, &retry, &p.LastError)
		p.Oldest, p.LeaseUntil, p.RetryAt = pgsql.Instant(oldest), pgsql.Instant(lease), pgsql.Instant(retry)
		out.Partitions = append(out.Partitions, p)
		return err
	}, s.family, queue, partitions)
	if err == nil {
		_, err = pgsql.One(ctx, q, s.SQL(sqlCounts), []any{s.family, queue, partitions}, &out.Misplaced, &out.OpenDead)
	}
	return out, err
}

const (
	sqlRegistered = `SELECT family, name, partitions FROM honker.relay_queue ORDER BY family, name`

	sqlBlocked = `SELECT family, queue, partition, owner, epoch, lease_until, attempts, retry_at, coalesce(last_error, '')
FROM honker.relay_partition WHERE lease_until > $1 OR retry_at > $1 ORDER BY family, queue, partition`

	sqlBreak = `UPDATE honker.relay_partition SET owner = '', lease_until = NULL, retry_at = NULL
WHERE family = $1 AND queue = $2 AND partition = $3 AND epoch = $4 AND (lease_until > $5 OR retry_at > $5)`
)

// Registered implements engine.RelayStores.
func (s Families) Registered(ctx context.Context, q row.Querier) (all []row.RelayRegistered, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlRegistered), func(r *sql.Rows) error {
		var found row.RelayRegistered
		err := r.Scan(&found.Family, &found.Queue, &found.Partitions)
		all = append(all, found)
		return err
	})
	return all, err
}

// Blocked implements engine.RelayStores. It scans the partitions, of which a queue has at most 64.
func (s Families) Blocked(ctx context.Context, q row.Querier, now time.Time) (all []row.RelayBlocked, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlBlocked), func(r *sql.Rows) error {
		var p row.RelayBlocked
		var lease, retry sql.NullTime
		err := r.Scan(&p.Family, &p.Queue, &p.Partition, &p.Owner, &p.Epoch, &lease, &p.Attempts, &retry, &p.LastError)
		p.LeaseUntil, p.RetryAt = pgsql.Instant(lease), pgsql.Instant(retry)
		all = append(all, p)
		return err
	}, milli(now))
	return all, err
}

// Break implements engine.RelayStores.
func (s Families) Break(ctx context.Context, q row.Querier, family string, p row.RelayPartition, epoch int64, now time.Time) (bool, error) {
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlBreak), family, p.Queue, p.Partition, epoch, milli(now))
	return n > 0, err
}
