package jobs

import (
	"context"
	"database/sql"
	"math"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Limits contains the statements for queue limits, which are columns of _honkerx_queues.
type Limits struct{}

// These statements use the primary key.
const (
	limitColumns = `running, per_key, in_order, rate_n, rate_per_ms, rate_burst, key_rate_n, key_rate_per_ms, key_rate_burst`
	sqlGetLimits = `SELECT ` + limitColumns + ` FROM _honkerx_queues WHERE queue = ?1`
	sqlAllLimits = `SELECT ` + limitColumns + `, queue FROM _honkerx_queues
WHERE coalesce(running, per_key, in_order, rate_n, key_rate_n) IS NOT NULL`

	// A changed rate starts afresh, and ignores the starts counted under the previous rate.
	sqlSetLimits = `INSERT INTO _honkerx_queues (queue, running, per_key, in_order, rate_n, rate_per_ms, rate_burst,
  key_rate_n, key_rate_per_ms, key_rate_burst, rate_tat_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, iif(?5 IS NULL, NULL, 0))
ON CONFLICT (queue) DO UPDATE SET running = excluded.running, per_key = excluded.per_key, in_order = excluded.in_order,
  rate_n = excluded.rate_n, rate_per_ms = excluded.rate_per_ms, rate_burst = excluded.rate_burst,
  key_rate_n = excluded.key_rate_n, key_rate_per_ms = excluded.key_rate_per_ms, key_rate_burst = excluded.key_rate_burst,
  rate_tat_ms = iif(rate_n IS excluded.rate_n AND rate_per_ms IS excluded.rate_per_ms AND rate_burst IS excluded.rate_burst,
    rate_tat_ms, excluded.rate_tat_ms)`
)

// Get returns queue's limits, or the zero value if it has none.
func (Limits) Get(ctx context.Context, q row.Querier, queue string) (l row.QueueLimits, err error) {
	var inOrder rows.Number
	_, err = rows.One(ctx, q, sqlGetLimits, []any{queue}, intoLimits(&l, &inOrder)...)
	l.InOrder = inOrder == 1
	return l, err
}

// All returns the limits of every queue that has limits, by queue.
func (Limits) All(ctx context.Context, q row.Querier) (map[string]row.QueueLimits, error) {
	all := make(map[string]row.QueueLimits)
	err := rows.Each(ctx, q, sqlAllLimits, func(r *sql.Rows) error {
		var l row.QueueLimits
		var inOrder rows.Number
		var queue string
		err := r.Scan(append(intoLimits(&l, &inOrder), &queue)...)
		l.InOrder = inOrder == 1
		all[queue] = l
		return err
	})
	return all, err
}

// intoLimits returns the scan destinations for limitColumns.
func intoLimits(l *row.QueueLimits, inOrder *rows.Number) []any {
	return []any{(*rows.Number)(&l.Running), (*rows.Number)(&l.PerKey), inOrder,
		(*rows.Number)(&l.Rate.N), (*rows.SpanMilli)(&l.Rate.Per), (*rows.Number)(&l.Rate.Burst),
		(*rows.Number)(&l.KeyRate.N), (*rows.SpanMilli)(&l.KeyRate.Per), (*rows.Number)(&l.KeyRate.Burst)}
}

// Set replaces queue's limits. The new limits apply immediately, but jobs still reflect the
// previous limits until FitSome has adjusted them. If the limits do not change, Set writes nothing
// and returns false.
func (ls Limits) Set(ctx context.Context, q row.Querier, queue string, l row.QueueLimits) (changed bool, err error) {
	was, err := ls.Get(ctx, q, queue)
	if err != nil || was == l {
		return false, err
	}
	n, err := rows.Affected(ctx, q, sqlSetLimits, queue, rows.Nullable(l.Running), rows.Nullable(l.PerKey), flag(l.InOrder),
		rows.Nullable(l.Rate.N), rows.Nullable(l.Rate.Per.Milliseconds()), rows.Nullable(l.Rate.Burst),
		rows.Nullable(l.KeyRate.N), rows.Nullable(l.KeyRate.Per.Milliseconds()), rows.Nullable(l.KeyRate.Burst))
	if err == nil && n == 0 {
		err = row.ErrNotInserted
	}
	if err != nil {
		return false, err
	}
	if err := beginFit(ctx, q, queue, was, l); err != nil {
		return false, err
	}
	return true, fitTriggers(ctx, q)
}

// flag returns 1 for true and NULL for false.
func flag(is bool) any {
	if is {
		return 1
	}
	return nil
}

// limited returns the condition that a queue has limits, and keyedQueue the condition that it has
// limits on keys. queue is an SQL expression.
func limited(queue string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + ` AND ` + hasLimits + `)`
}

func keyedQueue(queue string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + ` AND ` + hasKeyLimits + `)`
}

const hasLimits = `coalesce(running, per_key, in_order, rate_n, key_rate_n, keys_paused) IS NOT NULL`

const hasKeyLimits = `coalesce(per_key, in_order, key_rate_n, keys_paused) IS NOT NULL`

// room describes how many jobs a claim may start within a queue's limits.
type room struct {
	queue   string
	jobs    int64       // may start; noBound if unlimited
	full    bool        // the maximum number of jobs is running
	startMS float64     // next start that the rate allows; 0 if it allows a start now
	keyed   bool        // the queue has limits on keys
	perKey  int64       // concurrent jobs per key; 0 if unlimited, or if in order, where the gate alone suffices
	timed   bool        // a limit depends on the time or on a cancelled job's slot
	freeAt  rows.Number // Unix second at which the first cancelled job's slot expires; 0 if there is none
}

const noBound = math.MaxInt64

// sqlRoom uses the primary key. It counts running jobs by the index of their deadlines.
var sqlRoom = `SELECT ` + hasKeyLimits + `, coalesce(rate_n, key_rate_n, keys_paused) IS NOT NULL,
  iif(running IS NULL, NULL, max(0, running - ` + running("?2") + `)), ` + interval + `, rate_burst, rate_tat_ms,
  iif(in_order = 1, 0, ifnull(per_key, 0)), (` + firstPlace("q.queue") + `)
FROM _honkerx_queues AS q WHERE queue = ?1`

// roomOf reads the room that queue's limits leave at nowMS.
func roomOf(ctx context.Context, q row.Querier, queue string, nowMS int64) (r room, err error) {
	r.queue, r.jobs = queue, noBound
	var free sql.NullInt64
	var every, tat sql.NullFloat64
	var burst rows.Number
	_, err = rows.One(ctx, q, sqlRoom, []any{queue, nowMS}, &r.keyed, &r.timed, &free, &every, &burst, &tat, &r.perKey, &r.freeAt)
	r.timed = r.timed || r.freeAt > 0
	if free.Valid {
		r.jobs, r.full = free.Int64, free.Int64 == 0
	}
	if !every.Valid {
		return r, err
	}
	starts, next := startsAt(float64(nowMS), every.Float64, float64(burst), tat.Float64)
	if starts == 0 {
		r.startMS = next
	}
	r.jobs = min(r.jobs, starts)
	return r, err
}

// startsAt returns how many jobs may start at now. The rate allows a job per interval every, and up
// to burst jobs at once. tat is the theoretical arrival time left by earlier starts. If no job may
// start, next is the time of the next start. The trigger _honkerx_gate uses the same arithmetic.
func startsAt(now, every, burst, tat float64) (starts int64, next float64) {
	if tat > now+every*burst+1000 || tat < now {
		return int64(burst), 0
	}
	next = tat - every*(burst-1)
	if next > now+startSlack {
		return 0, next
	}
	return int64((now+startSlack-next)/every) + 1, 0
}

// startSlack is how early a start may be, in milliseconds. Stored times are rounded to whole
// milliseconds.
const startSlack = 0.5

// bound limits n to the room in r. A negative n means no bound.
func (r room) bound(n int) int {
	if n >= 0 && int64(n) <= r.jobs || r.jobs == noBound {
		return n
	}
	return int(r.jobs)
}
