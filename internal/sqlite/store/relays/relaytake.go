package relays

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// relayQueueList encodes queues as a JSON array for json_each.
func relayQueueList(queues []row.RelayQueue) string {
	pairs := make([][2]any, len(queues))
	for i, q := range queues {
		lease := q.Lease / time.Millisecond
		if q.Lease%time.Millisecond > 0 { // the lease must not end before the handler's
			lease++
		}
		pairs[i] = [2]any{q.Name, int64(lease)}
	}
	return pairList(pairs)
}

// relayExceptions encodes partitions, which must not be taken, as a JSON array for json_each.
func relayExceptions(partitions []row.RelayPartition) string {
	pairs := make([][2]any, len(partitions))
	for i, p := range partitions {
		pairs[i] = [2]any{p.Queue, p.Partition}
	}
	return pairList(pairs)
}

func pairList(pairs [][2]any) string {
	b, _ := json.Marshal(pairs) // strings and integers cannot fail
	return string(b)
}

// A partition can be taken if it has no owner, isn't waiting for a retry, and has a message. Finding the first
// message is a seek in the index on (queue, partition, id). A queue without messages costs a single seek.
const (
	relayReady = `p.lease_until_ms <= ?2 AND p.retry_at_ms <= ?2
    AND (?4 = 0 OR p.attempts = 0 AND p.last_error IS NULL)
    AND (?3 = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(?3) AS x
      WHERE json_extract(x.value, '$[0]') = p.queue AND json_extract(x.value, '$[1]') = p.partition))`

	relayFirst = `(SELECT m.id FROM _honkerx_relay_messages AS m
    WHERE m.queue = p.queue AND m.partition = p.partition AND m.id > p.cursor ORDER BY m.id LIMIT 1)`

	relayAwake = `EXISTS (SELECT 1 FROM _honkerx_relay_messages AS a WHERE a.queue = json_extract(k.value, '$[0]'))`
)

// The least recently taken partition comes first, so that a busy partition does not starve the others. Among
// partitions that were never taken, the partition with the oldest message comes first. Only those need the second
// seek.
const sqlRelayTake = `UPDATE _honkerx_relay_partitions AS t
SET owner = ?5, epoch = t.epoch + 1, lease_until_ms = ?2 + c.lease, attempts = t.attempts + 1, taken = c.taken
FROM (SELECT p.queue, p.partition, json_extract(k.value, '$[1]') AS lease, max(p.taken) OVER () + 1 AS taken
  FROM json_each(?1) AS k CROSS JOIN _honkerx_relay_partitions AS p ON p.queue = json_extract(k.value, '$[0]')
  WHERE ` + relayAwake + ` AND ` + relayReady + ` AND ` + relayFirst + ` IS NOT NULL
  ORDER BY p.taken, iif(p.taken = 0, ` + relayFirst + `, 0) LIMIT 1) AS c
WHERE t.queue = c.queue AND t.partition = c.partition
RETURNING queue, partition, epoch, attempts, processed, cursor, attempts > 1 OR last_error IS NOT NULL`

// Take leases a partition with messages to owner and returns its first messages. It returns false if
// there is no such partition. It returns [row.ErrStuck] if the partition turns out to have no
// messages, because one of the application's triggers deleted them.
func (r Relays) Take(ctx context.Context, q row.Querier, w row.RelayWanted, owner string, now time.Time) (b row.RelayBatch, found bool, err error) {
	t := &b.RelayTaken
	t.Owner = owner
	found, err = rows.One(ctx, q, r.named(sqlRelayTake), []any{relayQueueList(w.Queues), rows.MilliOf(now), relayExceptions(w.Except), w.Healthy, owner},
		&t.Queue, (*rows.Number)(&t.Partition), (*rows.Number)(&t.Epoch), (*rows.Number)(&t.Attempts), (*rows.Number)(&t.Processed), (*rows.Number)(&t.Cursor), &t.Failing)
	if err != nil || !found {
		return b, false, err
	}
	b.Size = w.Size(t)
	b.Messages, err = r.read(ctx, q, t.RelayPartition, t.Cursor, b.Size)
	if err == nil && len(b.Messages) == 0 {
		err = row.ErrStuck
	}
	return b, true, err
}

// Await implements engine.RelayStore. A file has one writer, so no other transaction has locked a partition.
func (Relays) Await(context.Context, row.Querier, row.RelayPartition) error { return nil }

// sqlRelayRead uses the index on (queue, partition, id).
const sqlRelayRead = `SELECT id, key, type, payload, created_ms FROM _honkerx_relay_messages
WHERE queue = ?1 AND partition = ?2 AND id > ?3 ORDER BY id LIMIT ?4 + 0`

// read returns up to limit messages with IDs above after, in ID order, and stops at rows.PageBytes.
func (r Relays) read(ctx context.Context, q row.Querier, p row.RelayPartition, after int64, limit int) (out []row.RelayMessage, err error) {
	size := 0
	var created rows.Number // declared here because a variable in scan would be allocated for each row
	err = rows.Each(ctx, q, r.named(sqlRelayRead), func(rs *sql.Rows) error {
		m := row.RelayMessage{Partition: p.Partition}
		if err := rs.Scan(&m.ID, &m.Key, &m.Type, &m.Payload, &created); err != nil {
			return err
		}
		m.CreatedAt = row.InstantMS(int64(created))
		out = append(out, m)
		if size += len(m.Payload); size >= rows.PageBytes {
			return rows.ErrPageFull
		}
		return nil
	}, p.Queue, p.Partition, after, limit)
	if errors.Is(err, rows.ErrPageFull) {
		err = nil
	}
	return out, err
}

// sqlRelaySave uses the primary key. An expired lease is still valid until another owner takes the
// partition.
const sqlRelaySave = `UPDATE _honkerx_relay_partitions
SET processed = processed + ?5, cursor = max(cursor, ?6), owner = '', lease_until_ms = 0, attempts = ?7, retry_at_ms = ?8, last_error = nullif(?9, '')
WHERE queue = ?1 AND partition = ?2 AND owner = ?3 AND epoch = ?4`

// sqlRelayDelete uses the index on (queue, partition, id) and deletes only the batch. Older finished messages are
// left to Vacuum, which limits how much it does at a time.
const sqlRelayDelete = `DELETE FROM _honkerx_relay_messages WHERE queue = ?1 AND partition = ?2 AND id > ?3 AND id <= ?4`

// Save ends a lease and saves its progress. It returns false and changes nothing if the lease was
// lost.
func (r Relays) Save(ctx context.Context, q row.Querier, l row.RelayLease, p row.RelayProgress, now time.Time) (held bool, err error) {
	n, err := rows.Affected(ctx, q, r.named(sqlRelaySave), l.Queue, l.Partition, l.Owner, l.Epoch,
		p.Finished, p.Cursor, p.Attempts, rows.MilliUp(p.RetryAt), p.LastError)
	if err != nil || n == 0 {
		return false, err
	}
	for _, d := range p.Dead {
		if err := r.deadLetter(ctx, q, d, rows.MilliOf(now)); err != nil {
			return false, err
		}
	}
	if p.Finished > 0 {
		_, err = q.ExecContext(ctx, r.named(sqlRelayDelete), l.Queue, l.Partition, p.After, p.Cursor)
	}
	return true, err
}

// These statements use the primary key.
const (
	sqlRelayDeadLetter = `INSERT INTO _honkerx_relay_dead (id, queue, partition, seq, key, type, payload, created_ms, attempts, last_error, died_ms)
SELECT id, queue, partition, ?2, key, type, payload, created_ms, ?3, nullif(?4, ''), ?5 FROM _honkerx_relay_messages WHERE id = ?1`

	sqlHasRelayMessage = `SELECT 1 FROM _honkerx_relay_messages WHERE id = ?1`
)

// deadLetter copies a message to the dead letters. It is not an error if another program has deleted the message.
func (r Relays) deadLetter(ctx context.Context, q row.Querier, d row.RelayDeath, nowMS int64) error {
	n, err := rows.Affected(ctx, q, r.named(sqlRelayDeadLetter), d.ID, d.Seq, d.Attempts, d.Reason, nowMS)
	if err != nil || n > 0 {
		return err
	}
	var x int
	found, err := rows.One(ctx, q, r.named(sqlHasRelayMessage), []any{d.ID}, &x)
	if found {
		return row.ErrNotInserted
	}
	return err
}

const sqlRelayStates = `SELECT json_extract(k.value, '$[0]'),
  EXISTS (SELECT 1 FROM _honkerx_relay_partitions AS p
    WHERE p.queue = json_extract(k.value, '$[0]') AND ` + relayReady + ` AND ` + relayFirst + ` IS NOT NULL),
  (SELECT min(max(p.lease_until_ms, p.retry_at_ms)) FROM _honkerx_relay_partitions AS p
    WHERE p.queue = json_extract(k.value, '$[0]') AND max(p.lease_until_ms, p.retry_at_ms) > ?2 AND ` + relayFirst + ` IS NOT NULL)
FROM json_each(?1) AS k WHERE ` + relayAwake

// States returns, in a single statement, the state of each queue in w that has messages. Next also
// takes into account the partitions that w excludes.
func (r Relays) States(ctx context.Context, q row.Querier, w row.RelayWanted, now time.Time) ([]row.RelayState, error) {
	var out []row.RelayState
	err := rows.Each(ctx, q, r.named(sqlRelayStates), func(rs *sql.Rows) error {
		var s row.RelayState
		next := rows.Moment(row.Unbounded)
		err := rs.Scan(&s.Queue, &s.Ready, &next)
		if next < row.Unbounded {
			s.Next = row.InstantMS(int64(next))
		}
		out = append(out, s)
		return err
	}, relayQueueList(w.Queues), rows.MilliOf(now), relayExceptions(w.Except), w.Healthy)
	return out, err
}
