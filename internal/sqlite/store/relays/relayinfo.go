package relays

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// sqlRelayInfo uses the index on (queue, partition, id). Finding the first waiting message takes a single seek, and
// counting reads an index entry for each message. A partition may lack a row if another program registered the queue.
const sqlRelayInfo = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
SELECT n.i, ifnull(p.processed, 0),
  (SELECT count(*) FROM _honkerx_relay_messages AS m WHERE m.queue = ?1 AND m.partition = n.i AND m.id > ifnull(p.cursor, 0)),
  (SELECT m.created_ms FROM _honkerx_relay_messages AS m
    WHERE m.queue = ?1 AND m.partition = n.i AND m.id > ifnull(p.cursor, 0) ORDER BY m.id LIMIT 1),
  ifnull(p.owner, ''), p.epoch, p.lease_until_ms, p.attempts, p.retry_at_ms, ifnull(p.last_error, '')
FROM n LEFT JOIN _honkerx_relay_partitions AS p ON p.queue = ?1 AND p.partition = n.i`

// Info returns the progress of a queue with the given number of partitions.
func (r Relays) Info(ctx context.Context, q row.Querier, queue string, partitions int) (out row.RelayInfo, err error) {
	err = rows.Each(ctx, q, r.named(sqlRelayInfo), func(rs *sql.Rows) error {
		var p row.RelayProgressInfo
		var oldest, lease, retry rows.Number
		err := rs.Scan(&p.Partition, (*rows.Number)(&p.Processed), &p.Waiting, &oldest,
			&p.Owner, (*rows.Number)(&p.Epoch), &lease, (*rows.Number)(&p.Attempts), &retry, &p.LastError)
		p.Oldest, p.LeaseUntil, p.RetryAt = row.InstantMS(int64(oldest)), row.InstantMS(int64(lease)), row.InstantMS(int64(retry))
		out.Partitions = append(out.Partitions, p)
		return err
	}, queue, partitions)
	if err == nil {
		_, err = rows.One(ctx, q, r.named(sqlRelayMisplaced), []any{queue, partitions}, &out.Misplaced)
	}
	if err == nil {
		_, err = rows.One(ctx, q, r.named(sqlOpenRelayDead), []any{queue}, &out.OpenDead)
	}
	return out, err
}

// sqlRelayMisplaced reads two ranges of the index on (queue, partition, id). SQLite sorts partitions that aren't
// numbers after all numbers.
const sqlRelayMisplaced = `SELECT
  (SELECT count(*) FROM _honkerx_relay_messages WHERE queue = ?1 AND partition < 0)
  + (SELECT count(*) FROM _honkerx_relay_messages WHERE queue = ?1 AND partition >= ?2)`

const (
	sqlRelayQueues = `SELECT name, partitions FROM _honkerx_relay_queues ORDER BY name`

	sqlRelayBlocked = `SELECT queue, partition, owner, epoch, lease_until_ms, attempts, retry_at_ms, ifnull(last_error, '')
FROM _honkerx_relay_partitions WHERE lease_until_ms > ?1 OR retry_at_ms > ?1 ORDER BY queue, partition`

	// sqlRelayBreak uses the primary key.
	sqlRelayBreak = `UPDATE _honkerx_relay_partitions SET owner = '', lease_until_ms = 0, retry_at_ms = 0
WHERE queue = ?1 AND partition = ?2 AND epoch = ?3 AND (lease_until_ms > ?4 OR retry_at_ms > ?4)`
)

// RelayFamilies contains the statements for all families' relay tables.
type RelayFamilies struct{}

// Family returns the statements for a family's tables.
func (RelayFamilies) Family(name string) engine.RelayStore { return Relays{Family: name} }

// Registered returns the queues of all families, sorted by family and name.
func (RelayFamilies) Registered(ctx context.Context, q row.Querier) (out []row.RelayRegistered, err error) {
	families, err := completeFamilies(ctx, q)
	for _, family := range families {
		err := rows.Each(ctx, q, Relays{family}.named(sqlRelayQueues), func(r *sql.Rows) error {
			found := row.RelayRegistered{Family: family}
			err := r.Scan(&found.Queue, &found.Partitions)
			out = append(out, found)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, err
}

// Blocked returns the partitions, in all families, that are leased or waiting for a retry, sorted by
// family, queue and partition. It scans the tables of partitions, which have at most 64 rows per queue.
func (RelayFamilies) Blocked(ctx context.Context, q row.Querier, now time.Time) (out []row.RelayBlocked, err error) {
	families, err := completeFamilies(ctx, q)
	for _, family := range families {
		err := rows.Each(ctx, q, Relays{family}.named(sqlRelayBlocked), func(r *sql.Rows) error {
			p := row.RelayBlocked{Family: family}
			var lease, retry rows.Number
			err := r.Scan(&p.Queue, (*rows.Number)(&p.Partition), &p.Owner, (*rows.Number)(&p.Epoch), &lease,
				(*rows.Number)(&p.Attempts), &retry, &p.LastError)
			p.LeaseUntil, p.RetryAt = row.InstantMS(int64(lease)), row.InstantMS(int64(retry))
			out = append(out, p)
			return err
		}, rows.MilliOf(now))
		if err != nil {
			return nil, err
		}
	}
	return out, err
}

// Break frees a blocked partition in family if its epoch has not changed. It returns false if the
// partition is not blocked or has been taken again. The former holder can no longer save its progress.
func (RelayFamilies) Break(ctx context.Context, q row.Querier, family string, p row.RelayPartition, epoch int64, now time.Time) (bool, error) {
	families, err := completeFamilies(ctx, q)
	if err != nil || !slices.Contains(families, family) {
		return false, err
	}
	n, err := rows.Affected(ctx, q, Relays{family}.named(sqlRelayBreak), p.Queue, p.Partition, epoch, rows.MilliOf(now))
	return n > 0, err
}
