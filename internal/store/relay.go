package store

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// Relays groups the statements on the _honkerx_relay_ tables of a family. The empty family uses the
// table names as written here.
type Relays struct {
	Family string
}

const relayPrefix = `_honkerx_relay_`

// named rewrites query for the tables of the family.
func (r Relays) named(query string) string {
	if r.Family == "" {
		return query
	}
	return strings.ReplaceAll(query, relayPrefix, relayPrefix+r.Family+"_")
}

//go:embed relay.sql
var relayDDL string

const (
	sqlHasRelay     = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_honkerx_relay_dead'`
	sqlHasRelayKeys = `SELECT 1 FROM pragma_table_info('_honkerx_relay_dead') WHERE name = 'key'`
)

// Exists reports whether the file has the tables. It reads only the schema.
func (r Relays) Exists(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return one(ctx, q, r.named(sqlHasRelay), nil, &x)
}

// Current reports whether the file has the tables with all of their columns. It reads only the
// schema.
func (r Relays) Current(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return one(ctx, q, r.named(sqlHasRelayKeys), nil, &x)
}

// Bootstrap creates the tables, or adds columns that an earlier version lacks, inside the caller's
// transaction. It reports whether it changed anything. The transaction may be deferred. Such a
// transaction cannot write after a read if another writer has committed in between, so Bootstrap
// takes the write lock first.
func (r Relays) Bootstrap(ctx context.Context, q row.Querier) (changed bool, err error) {
	if err := TakeWriteLock(ctx, q); err != nil {
		return false, err
	}
	if current, err := r.Current(ctx, q); err != nil || current {
		return false, err
	}
	tables, others := split(statements(r.named(relayDDL)))
	if err := execAll(ctx, q, tables); err != nil {
		return false, err
	}
	for _, table := range []string{`_honkerx_relay_messages`, `_honkerx_relay_dead`} {
		if err := addColumn(ctx, q, r.named(table), `key TEXT NOT NULL DEFAULT ''`); err != nil {
			return false, err
		}
	}
	return true, execAll(ctx, q, others)
}

const (
	sqlRelayQueue    = `SELECT partitions FROM _honkerx_relay_queues WHERE name = ?1`
	sqlAddRelayQueue = `INSERT INTO _honkerx_relay_queues (name, partitions, created_ms) VALUES (?1, ?2, ?3)`

	// By primary key.
	sqlAddRelayPartitions = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
INSERT OR IGNORE INTO _honkerx_relay_partitions (queue, partition) SELECT ?1, i FROM n`
)

// Partitions returns the number of partitions of a queue, or 0 if the queue is not registered. The
// tables must exist.
func (r Relays) Partitions(ctx context.Context, q row.Querier, queue string) (n int, err error) {
	var found number
	_, err = one(ctx, q, r.named(sqlRelayQueue), []any{queue}, &found)
	return int(found), err
}

// Register adds a queue with the given number of partitions unless it is registered already. It
// returns the number of partitions in force and whether the queue was added.
func (r Relays) Register(ctx context.Context, q row.Querier, queue string, partitions int, nowMS int64) (found int, added bool, err error) {
	if found, err := r.Partitions(ctx, q, queue); err != nil || found != 0 {
		return found, false, err
	}
	n, err := affected(ctx, q, r.named(sqlAddRelayQueue), queue, partitions, nowMS)
	if err == nil && n == 0 {
		err = row.ErrNotInserted
	}
	if err != nil {
		return 0, false, err
	}
	_, err = q.ExecContext(ctx, r.named(sqlAddRelayPartitions), queue, partitions)
	return partitions, true, err
}

const relayMessages = `_honkerx_relay_messages`

var sqlInsertRelay = newInserts(relayMessages, `queue, created_ms, partition, key, type, payload`, 2, 4)

// Send appends messages to queue and returns their ids in the same order.
func (r Relays) Send(ctx context.Context, q row.Querier, queue string, messages []row.RelayMessage, nowMS int64) ([]int64, error) {
	if len(messages) == 1 {
		m := &messages[0]
		id, err := inserted(ctx, q, r.named(sqlInsertRelay.query(1)), 1, queue, nowMS, m.Partition, m.Key, m.Type, m.Payload)
		return []int64{id}, err
	}
	ids := make([]int64, 0, len(messages))
	row := func(args []any, i int) []any {
		m := &messages[i]
		return append(args, m.Partition, m.Key, m.Type, m.Payload)
	}
	err := r.inserts().run(ctx, q, []any{queue, nowMS}, len(messages), row, func(first, last int64) {
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	})
	return ids, err
}

// inserts returns the insert statements for the tables of the family.
func (r Relays) inserts() inserts {
	if r.Family == "" {
		return sqlInsertRelay
	}
	return sqlInsertRelay.mapped(r.named)
}

// A seek per queue and partition with messages.
const sqlRelayStrays = `WITH RECURSIVE found(queue, partition) AS (
    SELECT queue, partition FROM (SELECT queue, partition FROM _honkerx_relay_messages ORDER BY queue, partition LIMIT 1)
    UNION ALL
    SELECT m.queue, m.partition FROM found AS f CROSS JOIN _honkerx_relay_messages AS m
    WHERE m.id = coalesce(
      (SELECT id FROM _honkerx_relay_messages WHERE queue = f.queue AND partition > f.partition ORDER BY partition LIMIT 1),
      (SELECT id FROM _honkerx_relay_messages WHERE queue > f.queue ORDER BY queue, partition LIMIT 1)))
SELECT queue, partition FROM found AS f
WHERE NOT EXISTS (SELECT 1 FROM _honkerx_relay_partitions WHERE queue = f.queue AND partition = f.partition)`

// Strays lists the partitions that have messages but do not exist. Another program has inserted
// these messages, and no processor will take them.
func (r Relays) Strays(ctx context.Context, q row.Querier) (out []row.RelayPartition, err error) {
	err = each(ctx, q, r.named(sqlRelayStrays), func(rows *sql.Rows) error {
		var p row.RelayPartition
		err := rows.Scan(&p.Queue, (*number)(&p.Partition))
		out = append(out, p)
		return err
	})
	return out, err
}

// By the index on (queue, partition, id).
const (
	sqlRelayFinished = `SELECT EXISTS (SELECT 1 FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
  ON m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor WHERE p.queue = ?1)`

	sqlRelayVacuum = `DELETE FROM _honkerx_relay_messages WHERE id IN (
  SELECT m.id FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
  ON m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor WHERE p.queue = ?1 LIMIT ?2 + 0)`
)

// Finished reports whether Vacuum would delete anything.
func (r Relays) Finished(ctx context.Context, q row.Querier, queue string) (some bool, err error) {
	_, err = one(ctx, q, r.named(sqlRelayFinished), []any{queue}, &some)
	return some, err
}

// Vacuum deletes up to limit messages that are finished but still in the table, and returns how
// many it deleted.
func (r Relays) Vacuum(ctx context.Context, q row.Querier, queue string, limit int) (int, error) {
	return affected(ctx, q, r.named(sqlRelayVacuum), queue, limit)
}
