// Package relays contains the statements for relay messages and dead letters.
package relays

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Families contains the statements for all families.
type Families struct{ pgsql.Schema }

// Relays contains the statements for a family. The tables of all families are the same, with the family as a column.
type Relays struct {
	pgsql.Schema
	family string
}

// Family implements engine.RelayStores.
func (s Families) Family(name string) engine.RelayStore { return Relays{s.Schema, name} }

// milli returns t in whole milliseconds, rounded down.
func milli(t time.Time) time.Time { return pgsql.Stamp(t.Truncate(time.Millisecond)) }

// milliUp returns t in whole milliseconds, rounded up, or NULL for the zero time.
func milliUp(t time.Time) sql.NullTime {
	return sql.NullTime{Time: milli(t.Add(time.Millisecond - 1)), Valid: !t.IsZero()}
}

const (
	sqlPartitions = `SELECT partitions FROM honker.relay_queue WHERE family = $1 AND name = $2`
	sqlRegister   = `SELECT partitions_, changed FROM honker.relay_register($1, $2, $3, $4)`
)

// Partitions implements engine.RelayStore. The tables are never outdated, because opening the database migrates them.
func (s Relays) Partitions(ctx context.Context, q row.Querier, queue string) (n int, outdated bool, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlPartitions), []any{s.family, queue}, &n)
	return n, false, err
}

// Register implements engine.RelayStore.
func (s Relays) Register(ctx context.Context, q row.Querier, queue string, partitions int, now time.Time) (found int, changed bool, err error) {
	var n sql.NullInt64
	_, err = pgsql.One(ctx, q, s.SQL(sqlRegister), []any{s.family, queue, partitions, milli(now)}, &n, &changed)
	if err == nil && !n.Valid {
		err = row.ErrNotInserted
	}
	return int(n.Int64), changed, err
}

const sqlNumber = `SELECT honker.relay_number($1)`

// Number moves committed messages of applications' transactions to their partitions. It is the work pgsql.Number and must
// run in a transaction of its own. It waits for other transactions that number, which are short: when it returns,
// every message that was committed before the call has a number.
func Number(ctx context.Context, q row.Querier, s pgsql.Schema, now time.Time) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlNumber), pgsql.Stamp(now))
	return err
}

const (
	sqlSend = `SELECT honker.relay_send($1, $2, $3, $4, $5, $6, $7)`

	sqlSendLater = `INSERT INTO honker.relay_pending (xid, family, queue, partition, key, type, payload, created_at)
SELECT pg_current_xact_id(), $1, $2, u.partition, u.key, u.type, u.payload, $7
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY u(partition, key, type, payload, n) ORDER BY u.n`
)

// Send implements engine.RelayStore. In an op it waits until the op's transaction is the only one that numbers. An
// application's transaction takes no lock, and its messages are numbered after the commit.
func (s Relays) Send(ctx context.Context, q row.Querier, queue string, messages []row.RelayMessage, now time.Time) (ids []int64, err error) {
	partitions := make([]int64, len(messages))
	keys, types, payloads := make([]string, len(messages)), make([]string, len(messages)), make([][]byte, len(messages))
	for i := range messages {
		m := &messages[i]
		partitions[i], keys[i], types[i], payloads[i] = m.Partition, m.Key, m.Type, m.Payload
	}
	args := []any{s.family, queue, partitions, keys, types, payloads, milli(now)}
	if ours(q) {
		ids, err = pgsql.IDs(ctx, q, s.SQL(sqlSend), args...)
	} else {
		var n int
		n, err = pgsql.Affected(ctx, q, s.SQL(sqlSendLater), args...)
		ids = make([]int64, n)
	}
	if err == nil && len(ids) != len(messages) {
		err = row.ErrNotInserted
	}
	return ids, err
}

// ours reports whether q is in a transaction of honker's own, which may number messages.
func ours(q row.Querier) bool {
	_, ok := q.(pgsql.Session)
	return ok
}

// sqlStrays makes a seek for each partition with messages.
const sqlStrays = `WITH RECURSIVE found AS (
  (SELECT queue, partition FROM honker.relay_message WHERE family = $1 ORDER BY family, queue, partition LIMIT 1)
  UNION ALL
  SELECT n.queue, n.partition FROM found f CROSS JOIN LATERAL (
    SELECT m.queue, m.partition FROM honker.relay_message m
    WHERE m.family = $1 AND (m.queue, m.partition) > (f.queue, f.partition) ORDER BY m.family, m.queue, m.partition LIMIT 1) n
)
SELECT f.queue, f.partition FROM found f
WHERE NOT EXISTS (SELECT FROM honker.relay_partition p WHERE p.family = $1 AND p.queue = f.queue AND p.partition = f.partition)`

// finished are the finished messages of a queue.
const finished = ` FROM honker.relay_partition p JOIN honker.relay_message m
  ON m.family = p.family AND m.queue = p.queue AND m.partition = p.partition AND m.id <= p.cursor WHERE p.family = $1`

const (
	sqlFinished = `SELECT u.name FROM unnest($2::text[]) WITH ORDINALITY u(name, n)
WHERE EXISTS (SELECT` + finished + ` AND p.queue = u.name COLLATE "C") ORDER BY u.n`

	sqlVacuum = `DELETE FROM honker.relay_message d USING (SELECT m.partition, m.id` + finished + ` AND p.queue = $2 LIMIT $3) f
WHERE d.family = $1 AND d.queue = $2 AND d.partition = f.partition AND d.id = f.id`
)

// Leftovers implements engine.RelayStore.
func (s Relays) Leftovers(ctx context.Context, q row.Querier, queues []string) (out row.RelayLeftovers, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlStrays), func(r *sql.Rows) error {
		var p row.RelayPartition
		err := r.Scan(&p.Queue, &p.Partition)
		out.Strays = append(out.Strays, p)
		return err
	}, s.family)
	if err != nil {
		return out, err
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlFinished), func(r *sql.Rows) error {
		var queue string
		err := r.Scan(&queue)
		out.Finished = append(out.Finished, queue)
		return err
	}, s.family, pgsql.List(queues))
	return out, err
}

// Vacuum implements engine.RelayStore.
func (s Relays) Vacuum(ctx context.Context, q row.Querier, queue string, limit int) (int, error) {
	return pgsql.Affected(ctx, q, s.SQL(sqlVacuum), s.family, queue, limit)
}
