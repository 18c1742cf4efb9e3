package ops

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Minutes contains the statements for _honkerx_minutes.
type Minutes struct{}

// These statements use the primary key.
const (
	sqlAddMinutes = `INSERT INTO _honkerx_minutes (minute, queue, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10
FROM json_each(?1) WHERE true
ON CONFLICT (minute, queue) DO UPDATE SET enqueued = enqueued + excluded.enqueued, claimed = claimed + excluded.claimed,
  acked = acked + excluded.acked, retried = retried + excluded.retried, died = died + excluded.died,
  snoozed = snoozed + excluded.snoozed, wait_ms = wait_ms + excluded.wait_ms, ran_ms = ran_ms + excluded.ran_ms,
  max_wait_ms = max(max_wait_ms, excluded.max_wait_ms)`

	sqlMinuteQueues = `SELECT DISTINCT queue FROM _honkerx_minutes WHERE minute >= ?1 AND queue NOT IN ('', '` + row.OtherQueues + `')`

	// One seek finds the next minute, and a second seek finds the queue's row for it, no matter how many queues there
	// are.
	sqlMinutes = `WITH RECURSIVE t(minute) AS (SELECT (SELECT min(minute) FROM _honkerx_minutes WHERE minute >= ?2) UNION ALL
    SELECT (SELECT min(minute) FROM _honkerx_minutes WHERE minute > t.minute) FROM t WHERE t.minute IS NOT NULL)
SELECT m.minute, m.enqueued, m.claimed, m.acked, m.retried, m.died, m.snoozed, m.wait_ms, m.ran_ms, m.max_wait_ms
FROM t CROSS JOIN _honkerx_minutes AS m WHERE m.minute = t.minute AND m.queue = ?1 ORDER BY t.minute`

	// sqlAllMinutes reads all queues' rows.
	sqlAllMinutes = `SELECT minute, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms, queue
FROM _honkerx_minutes WHERE minute >= ?1 ORDER BY minute, queue`

	// A seek finds the next step that has rows, followed by a seek for each of the step's minutes. The sums form a
	// single JSON value, because a GROUP BY would sort all rows.
	sqlMinuteSteps = `WITH RECURSIVE t(first) AS (SELECT (SELECT min(minute) FROM _honkerx_minutes WHERE minute >= ?2) / ?3 * ?3 UNION ALL
    SELECT (SELECT min(minute) FROM _honkerx_minutes WHERE minute >= t.first + ?3) / ?3 * ?3 FROM t WHERE t.first IS NOT NULL),
  k(i) AS MATERIALIZED (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i + 1 < ?3)
SELECT (SELECT iif(count(*) = 0, NULL, json_array(t.first, sum(m.enqueued), sum(m.claimed), sum(m.acked), sum(m.retried), sum(m.died),
    sum(m.snoozed), sum(m.wait_ms), sum(m.ran_ms), max(m.max_wait_ms)))
  FROM k CROSS JOIN _honkerx_minutes AS m WHERE m.minute = t.first + k.i AND m.queue = ?1) FROM t ORDER BY t.first`

	// sqlMinuteSums makes a seek for each minute in the range.
	sqlMinuteSums = `WITH RECURSIVE t(minute) AS (SELECT ?2 UNION ALL SELECT minute + 1 FROM t WHERE minute + 1 < ?3)
SELECT coalesce(sum(m.claimed), 0), coalesce(sum(m.acked), 0), coalesce(sum(m.retried), 0), coalesce(sum(m.died), 0), coalesce(sum(m.wait_ms), 0), coalesce(sum(m.ran_ms), 0)
FROM t CROSS JOIN _honkerx_minutes AS m WHERE m.minute = t.minute AND m.queue = ?1`

	sqlOldMinute   = `SELECT EXISTS (SELECT 1 FROM _honkerx_minutes WHERE minute < ?1)`
	sqlTrimMinutes = `DELETE FROM _honkerx_minutes WHERE minute < min(?1, (SELECT min(minute) FROM _honkerx_minutes) + ?2)`
)

// minuteOf returns the stored minute that contains t.
func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// An atMinute scans a column of minutes.
type atMinute time.Time

// Scan implements sql.Scanner.
func (t *atMinute) Scan(v any) error {
	var n rows.Number
	err := n.Scan(v)
	*t = atMinute(row.Instant(int64(n) * 60))
	return err
}

// Add adds the counts in all to the stored rows, in a single statement.
func (Minutes) Add(ctx context.Context, q row.Querier, all []row.Minute) error {
	r := make([][]any, len(all))
	for i, m := range all {
		r[i] = []any{minuteOf(m.Start), m.Queue, m.Enqueued, m.Claimed, m.Acked, m.Retried, m.Died, m.Snoozed,
			m.Wait.Milliseconds(), m.Ran.Milliseconds(), m.MaxWait.Milliseconds()}
	}
	var text strings.Builder
	_ = json.NewEncoder(&text).Encode(r) // numbers and strings cannot fail
	_, err := q.ExecContext(ctx, sqlAddMinutes, text.String())
	return err
}

// Queues returns the queues that have their own row in the minute of since or later.
func (Minutes) Queues(ctx context.Context, q row.Querier, since time.Time) ([]string, error) {
	return rows.Texts(ctx, q, sqlMinuteQueues, minuteOf(since))
}

// List returns queue's rows starting with the minute or step that contains since, oldest first.
func (m Minutes) List(ctx context.Context, q row.Querier, queue string, since time.Time, step time.Duration) (all []row.Minute, err error) {
	if n := int64(step / time.Minute); n > 1 {
		return m.steps(ctx, q, queue, minuteOf(since)/n*n, n)
	}
	r := row.Minute{Queue: queue}
	into := minuteNumbers(&r)
	err = rows.Each(ctx, q, sqlMinutes, func(rs *sql.Rows) error {
		err := rs.Scan(into...)
		all = append(all, r)
		return err
	}, queue, minuteOf(since))
	return all, err
}

// All returns all queues' rows starting with the minute that contains since, oldest first.
func (Minutes) All(ctx context.Context, q row.Querier, since time.Time) (all []row.Minute, err error) {
	var m row.Minute
	into := append(minuteNumbers(&m), &m.Queue)
	err = rows.Each(ctx, q, sqlAllMinutes, func(r *sql.Rows) error {
		err := r.Scan(into...)
		all = append(all, m)
		return err
	}, minuteOf(since))
	return all, err
}

// minuteNumbers returns the scan destinations for all columns except the queue.
func minuteNumbers(m *row.Minute) []any {
	return []any{(*atMinute)(&m.Start), (*rows.Number)(&m.Enqueued), (*rows.Number)(&m.Claimed), (*rows.Number)(&m.Acked), (*rows.Number)(&m.Retried),
		(*rows.Number)(&m.Died), (*rows.Number)(&m.Snoozed), (*rows.SpanMilli)(&m.Wait), (*rows.SpanMilli)(&m.Ran), (*rows.SpanMilli)(&m.MaxWait)}
}

// steps sums queue's rows in steps of step minutes. minute must be a multiple of step.
func (Minutes) steps(ctx context.Context, q row.Querier, queue string, minute, step int64) (all []row.Minute, err error) {
	err = rows.Each(ctx, q, sqlMinuteSteps, func(r *sql.Rows) error {
		var sums []byte // nil if only other queues have rows
		if err := r.Scan(&sums); err != nil || sums == nil {
			return err
		}
		var n [10]int64
		err := json.Unmarshal(sums, &n)
		all = append(all, row.Minute{
			Start: row.Instant(n[0] * 60), Queue: queue, Enqueued: n[1], Claimed: n[2], Acked: n[3], Retried: n[4], Died: n[5], Snoozed: n[6],
			Wait: row.Milliseconds(n[7]), Ran: row.Milliseconds(n[8]), MaxWait: row.Milliseconds(n[9]),
		})
		return err
	}, queue, minute, step)
	return all, err
}

// Sums implements engine.MinuteStore. It costs a seek per minute.
func (Minutes) Sums(ctx context.Context, q row.Querier, queue string, since, before time.Time) (m row.Minute, err error) {
	_, err = rows.One(ctx, q, sqlMinuteSums, []any{queue, minuteOf(since), minuteOf(before)}, (*rows.Number)(&m.Claimed), (*rows.Number)(&m.Acked),
		(*rows.Number)(&m.Retried), (*rows.Number)(&m.Died), (*rows.SpanMilli)(&m.Wait), (*rows.SpanMilli)(&m.Ran))
	return m, err
}

// old reports whether there are rows older than minute.
func (Minutes) old(ctx context.Context, q row.Querier, minute int64) (some bool, err error) {
	_, err = rows.One(ctx, q, sqlOldMinute, []any{minute}, &some)
	return some, err
}

// Trim deletes rows older than minute, but only from the span oldest minutes, and returns the number of rows deleted.
func (Minutes) Trim(ctx context.Context, q row.Querier, minute int64, span int) (int, error) {
	return rows.Affected(ctx, q, sqlTrimMinutes, minute, span)
}

// SweepMinutes deletes old counts.
var SweepMinutes = engine.Sweep{Find: findOldMinutes, Take: trimOldMinutes}

func findOldMinutes(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
	return rows.Work(Minutes{}.old(ctx, q, at.Unix()/60))
}

// trimmedMinutes is the number of minutes deleted in each transaction. A minute has up to a hundred
// rows.
const trimmedMinutes = 30

func trimOldMinutes(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
	n, err := Minutes{}.Trim(ctx, q, at.Unix()/60, trimmedMinutes)
	return row.Swept{N: n, More: n > 0}, err
}
