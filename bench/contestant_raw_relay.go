package main

import (
	"context"
	"database/sql"
	"time"
)

// The statements of package relay.
const (
	rawSend = `INSERT INTO _honkerx_relay_messages (queue, created_ms, partition, key, type, payload) VALUES (?1, ?2, ?3, '', ?4, ?5)`

	rawRelayFirst = `(SELECT m.id FROM _honkerx_relay_messages AS m
    WHERE m.queue = p.queue AND m.partition = p.partition AND m.id > p.cursor ORDER BY m.id LIMIT 1)`

	rawRelayTake = `UPDATE _honkerx_relay_partitions AS t
SET owner = ?4, epoch = t.epoch + 1, lease_until_ms = ?2 + c.lease, attempts = t.attempts + 1, taken = c.taken
FROM (SELECT p.queue, p.partition, json_extract(k.value, '$[1]') AS lease, max(p.taken) OVER () + 1 AS taken
  FROM json_each(?1) AS k CROSS JOIN _honkerx_relay_partitions AS p ON p.queue = json_extract(k.value, '$[0]')
  WHERE EXISTS (SELECT 1 FROM _honkerx_relay_messages AS a WHERE a.queue = json_extract(k.value, '$[0]'))
    AND p.lease_until_ms <= ?2 AND p.retry_at_ms <= ?2
    AND (?3 = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(?3) AS x
      WHERE json_extract(x.value, '$[0]') = p.queue AND json_extract(x.value, '$[1]') = p.partition))
    AND ` + rawRelayFirst + ` IS NOT NULL
  ORDER BY p.taken, iif(p.taken = 0, ` + rawRelayFirst + `, 0) LIMIT 1) AS c
WHERE t.queue = c.queue AND t.partition = c.partition
RETURNING queue, partition, epoch, attempts, processed, cursor`

	rawRelayRead = `SELECT id, key, type, payload, created_ms FROM _honkerx_relay_messages
WHERE queue = ?1 AND partition = ?2 AND id > ?3 ORDER BY id LIMIT ?4 + 0`

	rawRelaySave = `UPDATE _honkerx_relay_partitions
SET processed = processed + ?5, cursor = max(cursor, ?6), owner = '', lease_until_ms = 0, attempts = ?7, retry_at_ms = ?8, last_error = nullif(?9, '')
WHERE queue = ?1 AND partition = ?2 AND owner = ?3 AND epoch = ?4`

	rawRelayDelete = `DELETE FROM _honkerx_relay_messages WHERE queue = ?1 AND partition = ?2 AND id <= ?3`

	rawRelayQueues = `[["bench",30000]]`
	rawRelayOwner  = "00000000000000000000000000000000"
	rawRelayType   = "application/json"
)

// rawRelay is a single loop. Like a processor of the relay, it saves the progress of a batch and
// takes the next batch in the same transaction.
type rawRelay struct{ *rawQueue }

func (r *rawQueue) Relay(int) Relayer { return rawRelay{r} }

func (r rawRelay) send(partition int, n int64) error {
	return r.enqueue.exec(rawSend, "bench", time.Now().UnixMilli(), partition, rawRelayType, []byte(payloadText(n)))
}

func (r rawRelay) Send(_ context.Context, partition int, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.send(partition, n)
}

func (r rawRelay) SendOrder(_ context.Context, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enqueue.tx(func() error {
		if err := r.enqueue.exec(insertOrder); err != nil {
			return err
		}
		return r.send(0, n)
	})
}

// rawRelayBatch is a batch taken from a partition.
type rawRelayBatch struct {
	partition, epoch, processed, cursor int64
	messages                            []rawMessage
}

type rawMessage struct {
	id      int64
	payload []byte
}

func (r rawRelay) Deliver(ctx context.Context, d delivery, handle handleFunc) error {
	var held *rawRelayBatch
	var seen int64
	for held != nil || ctx.Err() == nil {
		err := r.work.tx(func() (err error) {
			if d.Kind == byTx {
				err = r.receive(held, handle)
			}
			if err == nil {
				held, err = r.step(held, d.size(), ctx.Err() == nil)
			}
			return err
		})
		if err != nil {
			return err
		}
		if d.Kind != byTx {
			held.each(handle)
		}
		if held == nil && ctx.Err() == nil {
			if seen, err = r.work.waitForCommit(ctx, seen, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d delivery) size() int {
	if d.Batch == 0 {
		return defaultBatch
	}
	return d.Batch
}

func (b *rawRelayBatch) each(handle handleFunc) {
	if b == nil {
		return
	}
	for i, m := range b.messages {
		handle(int(b.partition), b.processed+1+int64(i), m.payload)
	}
}

// receive inserts a receipt for each message in its own savepoint.
func (r rawRelay) receive(b *rawRelayBatch, handle handleFunc) error {
	if b == nil {
		return nil
	}
	for _, m := range b.messages {
		if err := r.work.exec("SAVEPOINT honker_message"); err != nil {
			return err
		}
		if err := r.work.exec(insertReceipt, m.id); err != nil {
			return err
		}
		if err := r.work.exec("RELEASE honker_message"); err != nil {
			return err
		}
	}
	b.each(handle)
	return nil
}

// step saves the progress of held and takes the next batch.
func (r rawRelay) step(held *rawRelayBatch, size int, more bool) (*rawRelayBatch, error) {
	if held != nil {
		last := held.messages[len(held.messages)-1].id
		err := r.work.exec(rawRelaySave, "bench", held.partition, rawRelayOwner, held.epoch, len(held.messages), last, 0, 0, "")
		if err != nil {
			return nil, err
		}
		if err := r.work.exec(rawRelayDelete, "bench", held.partition, last); err != nil {
			return nil, err
		}
	}
	if !more {
		return nil, nil
	}
	next, err := r.take()
	if err != nil || next == nil {
		return nil, err
	}
	next.messages, err = r.read(next, size)
	return next, err
}

// take takes a partition with messages. It returns nil if there is none.
func (r rawRelay) take() (*rawRelayBatch, error) {
	s, err := r.work.stmt(rawRelayTake)
	if err != nil {
		return nil, err
	}
	var b rawRelayBatch
	var queue string
	var attempts int64
	err = s.QueryRowContext(context.Background(), rawRelayQueues, time.Now().UnixMilli(), "[]", rawRelayOwner).
		Scan(&queue, &b.partition, &b.epoch, &attempts, &b.processed, &b.cursor)
	if err == sql.ErrNoRows {
		return nil, nil
	}
	return &b, err
}

func (r rawRelay) read(b *rawRelayBatch, size int) (out []rawMessage, err error) {
	s, err := r.work.stmt(rawRelayRead)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background(), "bench", b.partition, b.cursor, size)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m rawMessage
		var key, kind string
		var created int64
		if err := rows.Scan(&m.id, &key, &kind, &m.payload, &created); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, rows.Err()
}
