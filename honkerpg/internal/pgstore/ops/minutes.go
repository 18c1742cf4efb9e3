package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Minutes contains the statements for the table minute.
type Minutes struct{ pgsql.Schema }

// The rows are locked in the order of their keys, so that processes that add to the same rows do not deadlock.
const sqlAddMinutes = `INSERT INTO honker.minute AS m (minute, queue, slot, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
SELECT u.minute, u.queue, pg_backend_pid() % 16, u.enqueued, u.claimed, u.acked, u.retried, u.died, u.snoozed, u.wait_ms, u.ran_ms, u.max_wait_ms
FROM unnest($1::timestamptz[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
  $10::bigint[], $11::bigint[]) u (minute, queue, enqueued, claimed, acked, retried, died, snoozed, wait_ms, ran_ms, max_wait_ms)
ORDER BY u.minute, u.queue COLLATE "C"
ON CONFLICT (minute, queue, slot) DO UPDATE SET enqueued = m.enqueued + excluded.enqueued, claimed = m.claimed + excluded.claimed,
  acked = m.acked + excluded.acked, retried = m.retried + excluded.retried, died = m.died + excluded.died,
  snoozed = m.snoozed + excluded.snoozed, wait_ms = m.wait_ms + excluded.wait_ms, ran_ms = m.ran_ms + excluded.ran_ms,
  max_wait_ms = greatest(m.max_wait_ms, excluded.max_wait_ms)`

// Add implements engine.MinuteStore.
func (s Minutes) Add(ctx context.Context, q row.Querier, all []row.Minute) error {
	number := func(of func(row.Minute) int64) []int64 { return column(all, of) }
	_, err := q.ExecContext(ctx, s.SQL(sqlAddMinutes),
		column(all, func(m row.Minute) time.Time { return minuteOf(m.Start) }),
		column(all, func(m row.Minute) string { return m.Queue }),
		number(func(m row.Minute) int64 { return m.Enqueued }),
		number(func(m row.Minute) int64 { return m.Claimed }),
		number(func(m row.Minute) int64 { return m.Acked }),
		number(func(m row.Minute) int64 { return m.Retried }),
		number(func(m row.Minute) int64 { return m.Died }),
		number(func(m row.Minute) int64 { return m.Snoozed }),
		number(func(m row.Minute) int64 { return m.Wait.Milliseconds() }),
		number(func(m row.Minute) int64 { return m.Ran.Milliseconds() }),
		number(func(m row.Minute) int64 { return m.MaxWait.Milliseconds() }))
	return err
}

// minuteOf returns the stored minute that contains t.
func minuteOf(t time.Time) time.Time { return pgsql.Stamp(time.Unix(t.Unix()/60*60, 0)) }

// minuteSums are the sums of the rows of a group.
const minuteSums = `sum(enqueued)::bigint, sum(claimed)::bigint, sum(acked)::bigint, sum(retried)::bigint, sum(died)::bigint, sum(snoozed)::bigint,
  sum(wait_ms)::bigint, sum(ran_ms)::bigint, max(max_wait_ms)`

const (
	sqlMinuteQueues = `SELECT DISTINCT queue FROM honker.minute WHERE minute >= $1 AND queue NOT IN ('` + row.AllQueues + `', '` + row.OtherQueues + `') ORDER BY queue`

	sqlAllMinutes = `SELECT minute, queue, ` + minuteSums + ` FROM honker.minute WHERE minute >= $1 GROUP BY minute, queue ORDER BY minute, queue`

	// The steps are aligned to 1970. The first of them contains $2 and is complete.
	sqlMinuteSteps = `SELECT date_bin($3` + pgsql.Interval + `, minute, 'epoch') AS step, $1, ` + minuteSums + `
FROM honker.minute WHERE queue = $1 AND minute >= date_bin($3` + pgsql.Interval + `, $2, 'epoch') GROUP BY step ORDER BY step`

	sqlMinuteTotals = `SELECT coalesce(sum(claimed), 0)::bigint, coalesce(sum(acked), 0)::bigint, coalesce(sum(retried), 0)::bigint,
  coalesce(sum(died), 0)::bigint, coalesce(sum(wait_ms), 0)::bigint, coalesce(sum(ran_ms), 0)::bigint
FROM honker.minute WHERE queue = $1 AND minute >= $2 AND minute < $3`
)

// Queues implements engine.MinuteStore.
func (s Minutes) Queues(ctx context.Context, q row.Querier, since time.Time) (all []string, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlMinuteQueues), func(r *sql.Rows) error {
		var name string
		err := r.Scan(&name)
		all = append(all, name)
		return err
	}, minuteOf(since))
	return all, err
}

// All implements engine.MinuteStore.
func (s Minutes) All(ctx context.Context, q row.Querier, since time.Time) ([]row.Minute, error) {
	return readMinutes(ctx, q, s.SQL(sqlAllMinutes), minuteOf(since))
}

// List implements engine.MinuteStore.
func (s Minutes) List(ctx context.Context, q row.Querier, queue string, since time.Time, step time.Duration) ([]row.Minute, error) {
	step = max(step, time.Minute)
	return readMinutes(ctx, q, s.SQL(sqlMinuteSteps), queue, minuteOf(since), step.Microseconds())
}

// readMinutes returns the minutes or steps that a query returns.
func readMinutes(ctx context.Context, q row.Querier, query string, args ...any) (all []row.Minute, err error) {
	err = pgsql.Each(ctx, q, query, func(r *sql.Rows) error {
		var m row.Minute
		var start sql.NullTime
		var wait, ran, most int64
		err := r.Scan(&start, &m.Queue, &m.Enqueued, &m.Claimed, &m.Acked, &m.Retried, &m.Died, &m.Snoozed, &wait, &ran, &most)
		m.Start = pgsql.Instant(start)
		m.Wait, m.Ran, m.MaxWait = row.Milliseconds(wait), row.Milliseconds(ran), row.Milliseconds(most)
		all = append(all, m)
		return err
	}, args...)
	return all, err
}

// Sums implements engine.MinuteStore.
func (s Minutes) Sums(ctx context.Context, q row.Querier, queue string, since, before time.Time) (m row.Minute, err error) {
	var wait, ran int64
	_, err = pgsql.One(ctx, q, s.SQL(sqlMinuteTotals), []any{queue, minuteOf(since), minuteOf(before)}, &m.Claimed, &m.Acked, &m.Retried, &m.Died, &wait, &ran)
	m.Wait, m.Ran = row.Milliseconds(wait), row.Milliseconds(ran)
	return m, err
}

const (
	sqlOldMinutes = `SELECT 1::bigint WHERE EXISTS (SELECT FROM honker.minute WHERE minute < $1)`

	sqlTrimMinutes = `DELETE FROM honker.minute WHERE minute < least($1, (SELECT min(minute) FROM honker.minute) + $2 * interval '1 minute')`
)

// Trim implements engine.MinuteStore.
func (s Minutes) Trim(ctx context.Context, q row.Querier, minute int64, span int) (int, error) {
	return pgsql.Affected(ctx, q, s.SQL(sqlTrimMinutes), time.Unix(minute*60, 0), span)
}

// trimmedMinutes is the number of minutes that a transaction of the sweep deletes.
const trimmedMinutes = 30

// Sweep returns the sweep of old counts. It finds the ID 1 if there are any.
func (s Minutes) Sweep() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, _ int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOldMinutes), minuteOf(at))
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, _ []int64, at time.Time, _ int) (row.Swept, error) {
			n, err := s.Trim(ctx, q, at.Unix()/60, trimmedMinutes)
			return row.Swept{N: n, More: n > 0}, err
		},
	}
}
