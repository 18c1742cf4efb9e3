package moves

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Settings, keys, events and readers are copied and stay in the file.

const sqlMoveSettings = `SELECT json_object(
'queues', json((SELECT json_group_array(json_object('queue', k.queue, 'paused_ms', k.paused_ms, 'until_ms', k.until_ms, 'reason', k.reason, 'who', k.who,
  'running', k.running, 'per_key', k.per_key, 'in_order', coalesce(k.in_order, 0), 'rate_n', k.rate_n, 'rate_per_ms', k.rate_per_ms,
  'rate_burst', k.rate_burst, 'key_rate_n', k.key_rate_n, 'key_rate_per_ms', k.key_rate_per_ms, 'key_rate_burst', k.key_rate_burst,
  'done_count', k.done_count, 'done_age_ms', k.done_age_ms, 'dead_count', k.dead_count, 'dead_age_ms', k.dead_age_ms))
  FROM _honkerx_queues AS k WHERE ?1 IS NULL OR k.queue IN (SELECT value FROM json_each(?1)))),
'keys', json((SELECT json_group_array(json_object('queue', k.queue, 'key', k.key, 'paused_ms', k.paused_ms, 'until_ms', k.until_ms,
  'reason', k.reason, 'who', k.who))
  FROM _honkerx_keys AS k WHERE k.paused_ms IS NOT NULL AND (?1 IS NULL OR k.queue IN (SELECT value FROM json_each(?1))))),
'retention', json((SELECT json_group_array(json_object('topic', r.topic, 'max_count', r.max_count, 'max_age_ms', r.max_age_ms))
  FROM _honkerx_retention AS r WHERE ?2 IS NULL OR r.topic IN (SELECT value FROM json_each(?2)))))`

// Settings implements engine.MoveStore.
func (Moves) Settings(ctx context.Context, q row.Querier, queues, topics []string) (text string, err error) {
	_, err = rows.One(ctx, q, sqlMoveSettings, []any{listOf(queues), listOf(topics)}, &text)
	return text, err
}

// listOf returns names as JSON, or NULL for nil.
func listOf(names []string) any {
	if names == nil {
		return nil
	}
	return rows.NameList(names)
}

// The keys that a live job of the file holds, or that stay taken for a time.
const sqlMoveUnique = `SELECT u.queue, u.key, json_object('queue', u.queue, 'key', u.key, 'id', u.job_id, 'until_ms', u.until_ms, 'first_ms', u.first_ms,
  'live', EXISTS (SELECT 1 FROM _honkerx_job AS s WHERE s.job_id = u.job_id AND s.unique_until < 2))
FROM _honkerx_unique AS u WHERE (u.queue, u.key) > (?1, ?2) AND (u.until_ms > ?3
  OR EXISTS (SELECT 1 FROM _honkerx_job AS s WHERE s.job_id = u.job_id AND s.unique_until < 2))
ORDER BY u.queue, u.key LIMIT ?4 + 0`

const sqlMoveReceived = `SELECT source, id, json_object('source', source, 'id', id, 'received_ms', received_ms, 'expires_ms', expires_ms)
FROM _honkerx_inbox_received WHERE (source, id) > (?1, ?2) AND expires_ms > ?3 ORDER BY source, id LIMIT ?4 + 0`

const sqlMoveHasReceived = `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_honkerx_inbox_received'`

// Unique implements engine.MoveStore.
func (Moves) Unique(ctx context.Context, q row.Querier, after [2]string, limit int, now time.Time) (row.MovePart, error) {
	return partOf(ctx, q, sqlMoveUnique, after, limit, now)
}

// Received implements engine.MoveStore.
func (Moves) Received(ctx context.Context, q row.Querier, after [2]string, limit int, now time.Time) (row.MovePart, error) {
	var x int
	if found, err := rows.One(ctx, q, sqlMoveHasReceived, nil, &x); err != nil || !found {
		return row.MovePart{}, err
	}
	return partOf(ctx, q, sqlMoveReceived, after, limit, now)
}

func partOf(ctx context.Context, q row.Querier, query string, after [2]string, limit int, now time.Time) (row.MovePart, error) {
	p := row.MovePart{After: after}
	var text []byte
	err := rows.Each(ctx, q, query, func(r *sql.Rows) error {
		var one string
		if err := r.Scan(&p.After[0], &p.After[1], &one); err != nil {
			return err
		}
		if p.N++; utf8.ValidString(one) && !hasNUL(one) {
			text = element(text, one)
		}
		return nil
	}, after[0], after[1], now.UnixMilli(), limit)
	p.Text = string(append(element(text, ""), ']'))
	return p, err
}

// element appends an element to the text of an array.
func element(text []byte, one string) []byte {
	switch {
	case len(text) == 0:
		text = append(text, '[')
	case one != "":
		text = append(text, ',')
	}
	return append(text, one...)
}

const (
	sqlMoveTopics = `SELECT topic, max(offset), count(*) FROM _honker_stream GROUP BY topic ORDER BY topic`

	sqlMoveEvents = `SELECT offset, length(payload), json_object('offset', offset, 'key', key, 'payload', CAST(payload AS TEXT), 'created', created_at)
FROM _honker_stream WHERE topic = ?1 AND offset > ?2 ORDER BY offset LIMIT ?3 + 0`
)

// Topics implements engine.MoveStore.
func (Moves) Topics(ctx context.Context, q row.Querier) (all []row.MoveTopic, err error) {
	err = rows.Each(ctx, q, sqlMoveTopics, func(r *sql.Rows) error {
		var t row.MoveTopic
		err := r.Scan((*rows.Text)(&t.Topic), &t.Last, &t.Count)
		all = append(all, t)
		return err
	})
	return all, err
}

// Events implements engine.MoveStore.
func (Moves) Events(ctx context.Context, q row.Querier, topic string, after int64, limit int) (p row.MovePart, err error) {
	p.Last = after
	var text []byte
	var total int64
	err = rows.Each(ctx, q, sqlMoveEvents, func(r *sql.Rows) error {
		var offset, size int64
		var one string
		if err := r.Scan(&offset, (*rows.Number)(&size), &one); err != nil {
			return err
		}
		if total += size; total > parcelBytes && p.N > 0 {
			return nil
		}
		if !utf8.ValidString(one) || hasNUL(one) {
			return fmt.Errorf("%w: PostgreSQL cannot hold event %d of topic %q, whose text has a zero byte or is not UTF-8", engine.ErrInvalid, offset, topic)
		}
		p.N, p.Last = p.N+1, offset
		text = element(text, one)
		return nil
	}, topic, after, limit)
	p.Text = string(append(element(text, ""), ']'))
	return p, err
}

// Claims of a group go along as events that have come back: their members are in the file, and cannot ack them elsewhere.
const sqlMoveReaders = `SELECT json_object(
'consumers', json((SELECT json_group_array(json_object('topic', c.topic, 'name', c.name, 'offset', c.offset, 'created_ms', x.created_ms,
  'ack_ms', x.last_ack_ms, 'filter', x.filter))
  FROM _honker_stream_consumers AS c LEFT JOIN _honkerx_consumers AS x ON x.topic = c.topic AND x.name = c.name
  WHERE ?1 IS NULL OR c.topic IN (SELECT value FROM json_each(?1)))),
'groups', json((SELECT json_group_array(json_object('topic', g.topic, 'name', g.name, 'cursor', g.cursor, 'created_ms', g.created_ms, 'filter', g.filter,
  'claims', json((SELECT json_group_array(json_object('offset', d.offset, 'state', max(d.state, 1), 'deadline_ms', d.deadline_ms,
    'attempts', d.attempts, 'holder', d.holder, 'error', replace(d.last_error, char(0), '')))
    FROM (SELECT * FROM _honkerx_group_claims WHERE group_id = g.id ORDER BY token, offset) AS d))))
  FROM _honkerx_groups AS g WHERE ?1 IS NULL OR g.topic IN (SELECT value FROM json_each(?1)))))`

// Readers implements engine.MoveStore.
func (Moves) Readers(ctx context.Context, q row.Querier, topics []string) (text string, err error) {
	_, err = rows.One(ctx, q, sqlMoveReaders, []any{listOf(topics)}, &text)
	return text, err
}

const (
	sqlMoveLeft = `SELECT queue, count(*), coalesce(sum(state = 'processing' AND claim_expires_at >= ?1), 0) FROM _honker_live GROUP BY queue`

	sqlMoveLeftDead      = `SELECT queue, count(*) FROM _honker_dead GROUP BY queue`
	sqlMoveLeftDone      = `SELECT queue, count(*) FROM _honkerx_done GROUP BY queue`
	sqlMoveLeftSchedules = `SELECT queue, count(*) FROM _honker_scheduler_tasks GROUP BY queue`
)

// Left implements engine.MoveStore.
func (Moves) Left(ctx context.Context, q row.Querier, now time.Time) (left []row.MoveQueue, err error) {
	at := map[string]int{}
	of := func(queue string) *row.MoveQueue {
		if _, there := at[queue]; !there {
			at[queue] = len(left)
			left = append(left, row.MoveQueue{Queue: queue})
		}
		return &left[at[queue]]
	}
	err = rows.Each(ctx, q, sqlMoveLeft, func(r *sql.Rows) error {
		var queue rows.Text
		var n, running int64
		err := r.Scan(&queue, &n, &running)
		of(string(queue)).Waiting, of(string(queue)).Running = n-running, running
		return err
	}, now.Unix())
	if err != nil {
		return nil, err
	}
	counts := []struct {
		query string
		to    func(*row.MoveQueue) *int64
	}{
		{sqlMoveLeftDead, func(m *row.MoveQueue) *int64 { return &m.Dead }},
		{sqlMoveLeftDone, func(m *row.MoveQueue) *int64 { return &m.Done }},
		{sqlMoveLeftSchedules, func(m *row.MoveQueue) *int64 { return &m.Schedules }},
	}
	for _, c := range counts {
		err := rows.Each(ctx, q, c.query, func(r *sql.Rows) error {
			var queue rows.Text
			var n int64
			err := r.Scan(&queue, &n)
			*c.to(of(string(queue))) = n
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(left, func(a, b row.MoveQueue) int { return cmp.Compare(a.Queue, b.Queue) })
	return left, nil
}
