package store

import (
	"context"
	"database/sql"

	"github.com/honker-go/honker/internal/row"
)

// By the index on (queue, partition, id). The first waiting message takes a seek, and the count
// reads an index entry per message. A partition may lack its row if another program has registered
// the queue.
const sqlRelayInfo = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
SELECT n.i, ifnull(p.processed, 0),
  (SELECT count(*) FROM _honkerx_relay_messages AS m WHERE m.queue = ?1 AND m.partition = n.i AND m.id > ifnull(p.cursor, 0)),
  (SELECT m.created_ms FROM _honkerx_relay_messages AS m
    WHERE m.queue = ?1 AND m.partition = n.i AND m.id > ifnull(p.cursor, 0) ORDER BY m.id LIMIT 1),
  ifnull(p.owner, ''), p.epoch, p.lease_until_ms, p.attempts, p.retry_at_ms, ifnull(p.last_error, '')
FROM n LEFT JOIN _honkerx_relay_partitions AS p ON p.queue = ?1 AND p.partition = n.i`

// Info returns the state of each partition of a queue.
func (r Relays) Info(ctx context.Context, q row.Querier, queue string, partitions int) (out []row.RelayPartitionInfo, err error) {
	err = each(ctx, q, r.named(sqlRelayInfo), func(rows *sql.Rows) error {
		var p row.RelayPartitionInfo
		err := rows.Scan(&p.Partition, (*number)(&p.Processed), &p.Waiting, (*number)(&p.OldestMS),
			&p.Owner, (*number)(&p.Epoch), (*number)(&p.LeaseUntilMS), (*number)(&p.Attempts), (*number)(&p.RetryMS), &p.LastError)
		out = append(out, p)
		return err
	}, queue, partitions)
	return out, err
}

// Two ranges of the index on (queue, partition, id). SQLite sorts a partition that is not a number
// after the last number.
const sqlRelayMisplaced = `SELECT
  (SELECT count(*) FROM _honkerx_relay_messages WHERE queue = ?1 AND partition < 0)
  + (SELECT count(*) FROM _honkerx_relay_messages WHERE queue = ?1 AND partition >= ?2)`

// Misplaced returns the number of messages in partitions that the queue does not have. Only another
// program can have inserted them.
func (r Relays) Misplaced(ctx context.Context, q row.Querier, queue string, partitions int) (n int64, err error) {
	_, err = one(ctx, q, r.named(sqlRelayMisplaced), []any{queue, partitions}, &n)
	return n, err
}

// OpenDead returns the number of dead letters that are neither resolved nor discarded.
func (r Relays) OpenDead(ctx context.Context, q row.Querier, queue string) (n int64, err error) {
	_, err = one(ctx, q, r.named(sqlOpenRelayDead), []any{queue}, &n)
	return n, err
}

const (
	sqlRelayBlocked = `SELECT queue, partition, owner, epoch, lease_until_ms, attempts, retry_at_ms, ifnull(last_error, '')
FROM _honkerx_relay_partitions WHERE lease_until_ms > ?1 OR retry_at_ms > ?1 ORDER BY queue, partition`

	// By primary key.
	sqlRelayBreak = `UPDATE _honkerx_relay_partitions SET owner = '', lease_until_ms = 0, retry_at_ms = 0
WHERE queue = ?1 AND partition = ?2 AND epoch = ?3 AND (lease_until_ms > ?4 OR retry_at_ms > ?4)`
)

// Blocked lists the partitions of all queues that are leased or wait after a failure. It scans the
// table of partitions, which has at most 64 rows per queue.
func (r Relays) Blocked(ctx context.Context, q row.Querier, nowMS int64) (out []row.RelayPartitionInfo, err error) {
	err = each(ctx, q, r.named(sqlRelayBlocked), func(rows *sql.Rows) error {
		var p row.RelayPartitionInfo
		err := rows.Scan(&p.Queue, (*number)(&p.Partition), &p.Owner, (*number)(&p.Epoch), (*number)(&p.LeaseUntilMS),
			(*number)(&p.Attempts), (*number)(&p.RetryMS), &p.LastError)
		out = append(out, p)
		return err
	}, nowMS)
	return out, err
}

// Break frees a blocked partition if its epoch is still epoch. It returns false if the partition is
// not blocked or has been taken again. The former holder can no longer save its progress.
func (r Relays) Break(ctx context.Context, q row.Querier, p row.RelayPartition, epoch, nowMS int64) (bool, error) {
	n, err := affected(ctx, q, r.named(sqlRelayBreak), p.Queue, p.Partition, epoch, nowMS)
	return n > 0, err
}
