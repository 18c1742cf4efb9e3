package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const (
	// sqlFailing scans the partitions. Counting reads an index entry for each message.
	sqlFailing = `SELECT p.family, p.queue, p.partition, p.owner, p.epoch, p.lease_until, p.attempts, p.retry_at, p.last_error, m.created_at,
  (SELECT count(*) FROM (SELECT FROM honker.relay_message n WHERE n.family = p.family AND n.queue = p.queue AND n.partition = p.partition AND n.id > p.cursor
    ORDER BY n.family, n.queue, n.partition, n.id LIMIT 10001) c)
FROM honker.relay_partition p CROSS JOIN LATERAL (SELECT n.created_at FROM honker.relay_message n
  WHERE n.family = p.family AND n.queue = p.queue AND n.partition = p.partition AND n.id > p.cursor ORDER BY n.family, n.queue, n.partition, n.id LIMIT 1) m
WHERE p.last_error <> '' AND p.attempts >= $1 ORDER BY p.family, p.queue, p.partition LIMIT 100`

	// sqlDeaths reads the end of the table. The newest dead letter of a queue has the highest id.
	sqlDeaths = `SELECT d.family, d.queue, count(*), min(d.died_at), max(d.id), (array_agg(d.partition ORDER BY d.id DESC))[1],
  (array_agg(d.attempts ORDER BY d.id DESC))[1], (array_agg(coalesce(d.last_error, '') ORDER BY d.id DESC))[1],
  (SELECT count(*) FROM (SELECT FROM honker.relay_dead LIMIT 1000) c) = 1000
FROM (SELECT * FROM honker.relay_dead ORDER BY id DESC LIMIT 1000) d
WHERE d.died_at > $1 AND d.state IN ('pending', 'replaying') GROUP BY d.family, d.queue ORDER BY d.family, d.queue`
)

// Failing implements engine.RelayStores.
func (s Families) Failing(ctx context.Context, q row.Querier, attempts int64) (all []row.RelayFailing, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlFailing), func(r *sql.Rows) error {
		var p row.RelayFailing
		var lease, retry, oldest sql.NullTime
		var n int64
		err := r.Scan(&p.Family, &p.Queue, &p.Partition, &p.Owner, &p.Epoch, &lease, &p.Attempts, &retry, &p.LastError, &oldest, &n)
		p.LeaseUntil, p.RetryAt, p.Oldest = pgsql.Instant(lease), pgsql.Instant(retry), pgsql.Instant(oldest)
		p.Waiting = row.Count{N: min(n, 10_000), More: n > 10_000}
		all = append(all, p)
		return err
	}, attempts)
	return all, err
}

// Deaths implements engine.RelayStores.
func (s Families) Deaths(ctx context.Context, q row.Querier, since time.Time) (all []row.RelayDeaths, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlDeaths), func(r *sql.Rows) error {
		var d row.RelayDeaths
		var first sql.NullTime
		err := r.Scan(&d.Family, &d.Queue, &d.N.N, &first, &d.Last.ID, &d.Last.Partition, &d.Last.Attempts, &d.Last.LastError, &d.N.More)
		d.First = pgsql.Instant(first)
		all = append(all, d)
		return err
	}, milli(since))
	return all, err
}
