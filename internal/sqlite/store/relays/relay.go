// Package relays contains the statements for relay messages and dead letters.
package relays

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Relays contains the statements for a family's _honkerx_relay_ tables. The unnamed family uses the
// table names as written here.
type Relays struct {
	Family string
}

const relayPrefix = `_honkerx_relay_`

// named rewrites query for the family's tables.
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

// exists reports whether the file has the tables. It reads only the schema.
func (r Relays) exists(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return rows.One(ctx, q, r.named(sqlHasRelay), nil, &x)
}

// current reports whether the file has the tables with all their columns. It reads only the schema.
func (r Relays) current(ctx context.Context, q row.Querier) (found bool, err error) {
	var x int
	return rows.One(ctx, q, r.named(sqlHasRelayKeys), nil, &x)
}

// bootstrap creates the tables, or adds columns that they lack because an earlier version created them, inside the
// caller's transaction. It reports whether it changed anything. The transaction may be deferred, in which case it
// can't write after a read if another writer has committed in between, so bootstrap takes the write lock first.
func (r Relays) bootstrap(ctx context.Context, q row.Querier) (changed bool, err error) {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return false, err
	}
	if current, err := r.current(ctx, q); err != nil || current {
		return false, err
	}
	return true, r.create(ctx, q)
}

// upgrade takes the write lock and adds columns that an earlier version's tables lack. It reports whether the file
// has the tables, but doesn't create them.
func (r Relays) upgrade(ctx context.Context, q row.Querier) (found bool, err error) {
	if err := rows.TakeWriteLock(ctx, q); err != nil {
		return false, err
	}
	if current, err := r.current(ctx, q); err != nil || current {
		return current, err
	}
	if found, err := r.exists(ctx, q); err != nil || !found {
		return false, err
	}
	return true, r.create(ctx, q)
}

// create executes the schema for the tables, which may already exist in an earlier version.
func (r Relays) create(ctx context.Context, q row.Querier) error {
	tables, others := rows.SplitTables(rows.SplitDDL(r.named(relayDDL)))
	if err := rows.ExecAll(ctx, q, tables); err != nil {
		return err
	}
	for _, table := range []string{`_honkerx_relay_messages`, `_honkerx_relay_dead`} {
		if err := rows.AddColumn(ctx, q, r.named(table), `key TEXT NOT NULL DEFAULT ''`); err != nil {
			return err
		}
	}
	return rows.ExecAll(ctx, q, others)
}

const (
	sqlRelayQueue    = `SELECT partitions FROM _honkerx_relay_queues WHERE name = ?1`
	sqlAddRelayQueue = `INSERT INTO _honkerx_relay_queues (name, partitions, created_ms) VALUES (?1, ?2, ?3)`

	// sqlAddRelayPartitions uses the primary key.
	sqlAddRelayPartitions = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
INSERT OR IGNORE INTO _honkerx_relay_partitions (queue, partition) SELECT ?1, i FROM n`
)

// Partitions returns the number of partitions of a queue, or 0 if it is not registered. outdated reports
// that the tables lack a column, which Register would add.
func (r Relays) Partitions(ctx context.Context, q row.Querier, queue string) (n int, outdated bool, err error) {
	current, err := r.current(ctx, q)
	if err == nil && !current {
		outdated, err = r.exists(ctx, q)
	}
	if err != nil || !current && !outdated {
		return 0, false, err
	}
	n, err = r.partitions(ctx, q, queue)
	return n, outdated, err
}

// partitions is like Partitions, but the tables must exist.
func (r Relays) partitions(ctx context.Context, q row.Querier, queue string) (n int, err error) {
	var found rows.Number
	_, err = rows.One(ctx, q, r.named(sqlRelayQueue), []any{queue}, &found)
	return int(found), err
}

// Register adds a queue with the given number of partitions unless it is already registered, creating any missing
// tables. It returns the actual number of partitions, and whether it changed anything.
func (r Relays) Register(ctx context.Context, q row.Querier, queue string, partitions int, now time.Time) (found int, changed bool, err error) {
	if changed, err = r.bootstrap(ctx, q); err != nil {
		return 0, false, err
	}
	if found, err := r.partitions(ctx, q, queue); err != nil || found != 0 {
		return found, changed, err
	}
	n, err := rows.Affected(ctx, q, r.named(sqlAddRelayQueue), queue, partitions, rows.MilliOf(now))
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

var sqlInsertRelay = rows.NewInserts(relayMessages, `queue, created_ms, partition, key, type, payload`, 2, 4)

// Send appends messages to queue and returns their IDs in the same order.
func (r Relays) Send(ctx context.Context, q row.Querier, queue string, messages []row.RelayMessage, now time.Time) ([]int64, error) {
	if len(messages) == 1 {
		m := &messages[0]
		id, err := rows.Inserted(ctx, q, r.named(sqlInsertRelay.Query(1)), 1, queue, rows.MilliOf(now), m.Partition, m.Key, m.Type, m.Payload)
		return []int64{id}, err
	}
	ids := make([]int64, 0, len(messages))
	row := func(args []any, i int) []any {
		m := &messages[i]
		return append(args, m.Partition, m.Key, m.Type, m.Payload)
	}
	err := r.inserts().Run(ctx, q, []any{queue, rows.MilliOf(now)}, len(messages), row, func(first, last int64) {
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	})
	return ids, err
}

// inserts returns the insert statements for the family's tables.
func (r Relays) inserts() rows.Inserts {
	if r.Family == "" {
		return sqlInsertRelay
	}
	return sqlInsertRelay.Mapped(r.named)
}

// sqlRelayStrays makes a seek for each queue and partition with messages.
const sqlRelayStrays = `WITH RECURSIVE found(queue, partition) AS (
    SELECT queue, partition FROM (SELECT queue, partition FROM _honkerx_relay_messages ORDER BY queue, partition LIMIT 1)
    UNION ALL
    SELECT m.queue, m.partition FROM found AS f CROSS JOIN _honkerx_relay_messages AS m
    WHERE m.id = coalesce(
      (SELECT id FROM _honkerx_relay_messages WHERE queue = f.queue AND partition > f.partition ORDER BY partition LIMIT 1),
      (SELECT id FROM _honkerx_relay_messages WHERE queue > f.queue ORDER BY queue, partition LIMIT 1)))
SELECT queue, partition FROM found AS f
WHERE NOT EXISTS (SELECT 1 FROM _honkerx_relay_partitions WHERE queue = f.queue AND partition = f.partition)`

// Leftovers returns partitions, of any queue, that have messages but don't exist, and those of the given queues from
// which Vacuum would delete messages.
func (r Relays) Leftovers(ctx context.Context, q row.Querier, queues []string) (out row.RelayLeftovers, err error) {
	err = rows.Each(ctx, q, r.named(sqlRelayStrays), func(rs *sql.Rows) error {
		var p row.RelayPartition
		err := rs.Scan(&p.Queue, (*rows.Number)(&p.Partition))
		out.Strays = append(out.Strays, p)
		return err
	})
	for _, queue := range queues {
		some := false
		if err == nil {
			_, err = rows.One(ctx, q, r.named(sqlRelayFinished), []any{queue}, &some)
		}
		if some {
			out.Finished = append(out.Finished, queue)
		}
	}
	return out, err
}

// These statements use the index on (queue, partition, id).
const (
	sqlRelayFinished = `SELECT EXISTS (SELECT 1 FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
  ON m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor WHERE p.queue = ?1)`

	sqlRelayVacuum = `DELETE FROM _honkerx_relay_messages WHERE id IN (
  SELECT m.id FROM _honkerx_relay_partitions AS p CROSS JOIN _honkerx_relay_messages AS m
  ON m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor WHERE p.queue = ?1 LIMIT ?2 + 0)`
)

// Vacuum deletes up to limit messages that are finished but still in the table, and returns how many it deleted.
func (r Relays) Vacuum(ctx context.Context, q row.Querier, queue string, limit int) (int, error) {
	return rows.Affected(ctx, q, r.named(sqlRelayVacuum), queue, limit)
}
