package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

const (
	// sqlRelayFailing scans the partitions and uses the index on (queue, partition, id).
	sqlRelayFailing = `SELECT p.queue, p.partition, p.owner, p.epoch, p.lease_until_ms, p.attempts, p.retry_at_ms, p.last_error, m.created_ms,
  (SELECT count(*) FROM (SELECT 1 FROM _honkerx_relay_messages AS n WHERE n.queue = p.queue AND n.partition = p.partition AND n.id > p.cursor LIMIT 10001))
FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
WHERE p.last_error <> '' AND p.attempts >= ?1 AND m.id =
  (SELECT min(n.id) FROM _honkerx_relay_messages AS n WHERE n.queue = p.queue AND n.partition = p.partition AND n.id > p.cursor)
ORDER BY p.queue, p.partition LIMIT 100`

	// sqlRelayDeaths reads the end of the table. The bare columns are those of the row with the highest id.
	sqlRelayDeaths = `SELECT queue, count(*), min(died_ms), max(id), partition, attempts, last_error, (SELECT count(*) FROM (SELECT 1 FROM _honkerx_relay_dead LIMIT 1000)) = 1000
FROM (SELECT * FROM _honkerx_relay_dead ORDER BY id DESC LIMIT 1000)
WHERE died_ms > ?1 AND state IN ('pending', 'replaying') GROUP BY queue ORDER BY queue`
)

// Failing implements engine.RelayStores.
func (RelayFamilies) Failing(ctx context.Context, q row.Querier, attempts int64) (all []row.RelayFailing, err error) {
	err = eachFamily(ctx, q, sqlRelayFailing, func(family string, r *sql.Rows) error {
		p := row.RelayFailing{Family: family}
		var n int64
		err := r.Scan(&p.Queue, (*rows.Number)(&p.Partition), &p.Owner, (*rows.Number)(&p.Epoch), (*rows.Milli)(&p.LeaseUntil),
			(*rows.Number)(&p.Attempts), (*rows.Milli)(&p.RetryAt), (*rows.Text)(&p.LastError), (*rows.Milli)(&p.Oldest), &n)
		p.Waiting = row.Count{N: min(n, 10_000), More: n > 10_000}
		all = append(all, p)
		return err
	}, attempts)
	return all[:min(len(all), 100)], err
}

// Deaths implements engine.RelayStores.
func (RelayFamilies) Deaths(ctx context.Context, q row.Querier, since time.Time) (all []row.RelayDeaths, err error) {
	err = eachFamily(ctx, q, sqlRelayDeaths, func(family string, r *sql.Rows) error {
		d := row.RelayDeaths{Family: family}
		err := r.Scan(&d.Queue, &d.N.N, (*rows.Milli)(&d.First), &d.Last.ID, (*rows.Number)(&d.Last.Partition), (*rows.Number)(&d.Last.Attempts),
			(*rows.Text)(&d.Last.LastError), &d.N.More)
		all = append(all, d)
		return err
	}, rows.MilliOf(since))
	return all, err
}

// eachFamily runs query for each family's tables.
func eachFamily(ctx context.Context, q row.Querier, query string, f func(family string, r *sql.Rows) error, args ...any) error {
	families, err := completeFamilies(ctx, q)
	for _, family := range families {
		if err := rows.Each(ctx, q, Relays{family}.named(query), func(r *sql.Rows) error { return f(family, r) }, args...); err != nil {
			return err
		}
	}
	return err
}
