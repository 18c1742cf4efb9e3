package store

import (
	"context"
	"database/sql"
	"math"
)

// Limits are the statements on the limits of queues, columns of _honkerx_queues.
type Limits struct{}

// QueueLimits hold for a queue, in all processes. 0 is no bound.
type QueueLimits struct {
	Running int64 // jobs that run at a time
	PerKey  int64 // jobs of one key that do
	InOrder bool  // jobs of a key run one at a time, as they were enqueued
	Rate    StartRate
	KeyRate StartRate // of each key
}

// StartRate is how many jobs may start: N in PerMS, Burst of them at once. The zero StartRate is no bound.
type StartRate struct{ N, PerMS, Burst int64 }

// By primary key.
const (
	limitColumns = `running, per_key, in_order, rate_n, rate_per_ms, rate_burst, key_rate_n, key_rate_per_ms, key_rate_burst`
	sqlGetLimits = `SELECT ` + limitColumns + ` FROM _honkerx_queues WHERE queue = ?1`
	sqlAllLimits = `SELECT ` + limitColumns + `, queue FROM _honkerx_queues
WHERE coalesce(running, per_key, in_order, rate_n, key_rate_n) IS NOT NULL`

	// A rate that changes begins anew.
	sqlSetLimits = `INSERT INTO _honkerx_queues (queue, running, per_key, in_order, rate_n, rate_per_ms, rate_burst,
  key_rate_n, key_rate_per_ms, key_rate_burst, rate_tat_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, iif(?5 IS NULL, NULL, 0))
ON CONFLICT (queue) DO UPDATE SET running = excluded.running, per_key = excluded.per_key, in_order = excluded.in_order,
  rate_n = excluded.rate_n, rate_per_ms = excluded.rate_per_ms, rate_burst = excluded.rate_burst,
  key_rate_n = excluded.key_rate_n, key_rate_per_ms = excluded.key_rate_per_ms, key_rate_burst = excluded.key_rate_burst,
  rate_tat_ms = iif(rate_n IS excluded.rate_n AND rate_per_ms IS excluded.rate_per_ms AND rate_burst IS excluded.rate_burst,
    rate_tat_ms, excluded.rate_tat_ms)`
)

// By _honkerx_job_key, of the jobs of a queue that have a key.
const (
	// Of each key that has some, the first so many of those that are held.
	sqlLetGo = letGoSlots + ` WHERE job_id IN (
  SELECT job_id FROM (
    SELECT job_id, row_number() OVER (PARTITION BY key ORDER BY priority DESC, run_at, job_id) AS place
    FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key IS NOT NULL AND slot = 2)
  WHERE place <= ?2 + 0)`

	ofWaiting = ` FROM _honkerx_job INDEXED BY _honkerx_job_key WHERE queue = ?1 AND key IS NOT NULL AND wait & 1`

	sqlDueWaiting = `UPDATE _honker_live SET run_at = ?2
WHERE state = 'pending' AND run_at > ?2 AND id IN (SELECT job_id` + ofWaiting + `)`
	sqlNoWait     = `UPDATE _honkerx_job SET wait = NULL WHERE job_id IN (SELECT job_id` + ofWaiting + `)`
	sqlForgetTats = `UPDATE _honkerx_keys SET tat_ms = NULL, next_ms = NULL WHERE queue = ?1`
	sqlDropKeys   = `DELETE FROM _honkerx_keys WHERE queue = ?1 AND paused_ms IS NULL AND tat_ms IS NULL`
)

// Get returns the limits of queue.
func (Limits) Get(ctx context.Context, q Querier, queue string) (l QueueLimits, err error) {
	var inOrder number
	_, err = one(ctx, q, sqlGetLimits, []any{queue}, l.into(&inOrder)...)
	l.InOrder = inOrder == 1
	return l, err
}

// All returns the limits of the queues that have some.
func (Limits) All(ctx context.Context, q Querier) (map[string]QueueLimits, error) {
	all := make(map[string]QueueLimits)
	err := each(ctx, q, sqlAllLimits, func(rows *sql.Rows) error {
		var l QueueLimits
		var inOrder number
		var queue string
		err := rows.Scan(append(l.into(&inOrder), &queue)...)
		l.InOrder = inOrder == 1
		all[queue] = l
		return err
	})
	return all, err
}

// into are what limitColumns are scanned into.
func (l *QueueLimits) into(inOrder *number) []any {
	return []any{(*number)(&l.Running), (*number)(&l.PerKey), inOrder,
		(*number)(&l.Rate.N), (*number)(&l.Rate.PerMS), (*number)(&l.Rate.Burst),
		(*number)(&l.KeyRate.N), (*number)(&l.KeyRate.PerMS), (*number)(&l.KeyRate.Burst)}
}

// Set replaces the limits of queue. Those that are the same already write nothing: changed is false.
// Where there is more room than before it lets jobs go that are held.
func (ls Limits) Set(ctx context.Context, q Querier, queue string, l QueueLimits, now int64) (changed bool, err error) {
	was, err := ls.Get(ctx, q, queue)
	if err != nil || was == l {
		return false, err
	}
	n, err := affected(ctx, q, sqlSetLimits, queue, nullable(l.Running), nullable(l.PerKey), flag(l.InOrder),
		nullable(l.Rate.N), nullable(l.Rate.PerMS), nullable(l.Rate.Burst),
		nullable(l.KeyRate.N), nullable(l.KeyRate.PerMS), nullable(l.KeyRate.Burst))
	if err == nil && n == 0 {
		err = ErrNotInserted
	}
	if err != nil {
		return false, err
	}
	if err := letGo(ctx, q, queue, was, l); err != nil {
		return false, err
	}
	if was.KeyRate != l.KeyRate {
		if err := forgetStarts(ctx, q, queue, now); err != nil {
			return false, err
		}
	}
	return true, fitTriggers(ctx, q)
}

// letGo lets jobs go for which there is room now, before the triggers go that give them their state.
// More of them than there is room for are held again by claims.
func letGo(ctx context.Context, q Querier, queue string, was, is QueueLimits) error {
	var perKey int64
	switch {
	case was.InOrder != is.InOrder, was.PerKey > 0 && is.PerKey == 0:
		perKey = math.MaxInt64
	case was.PerKey > 0 && is.PerKey > was.PerKey:
		perKey = is.PerKey - was.PerKey
	default:
		return nil
	}
	_, err := q.ExecContext(ctx, sqlLetGo, queue, perKey)
	return err
}

// forgetStarts makes those jobs of queue due for which the rate of their key has reserved a start, and
// lets the rate begin anew.
func forgetStarts(ctx context.Context, q Querier, queue string, now int64) error {
	if _, err := q.ExecContext(ctx, sqlDueWaiting, queue, now); err != nil {
		return err
	}
	for _, query := range []string{sqlNoWait, sqlForgetTats, sqlDropKeys} {
		if _, err := q.ExecContext(ctx, query, queue); err != nil {
			return err
		}
	}
	return nil
}

// flag is NULL for false.
func flag(is bool) any {
	if is {
		return 1
	}
	return nil
}

// limited and keyedQueue are conditions that a queue has limits at all, and any on keys. queue is an
// SQL expression.
func limited(queue string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + ` AND ` + hasLimits + `)`
}

func keyedQueue(queue string) string {
	return `EXISTS (SELECT 1 FROM _honkerx_queues WHERE queue = ` + queue + ` AND ` + hasKeyLimits + `)`
}

const hasLimits = `coalesce(running, per_key, in_order, rate_n, key_rate_n, keys_paused) IS NOT NULL`

const hasKeyLimits = `coalesce(per_key, in_order, key_rate_n, keys_paused) IS NOT NULL`

// room is what the limits of a queue leave to a claim.
type room struct {
	queue   string
	jobs    int64   // that may start; noBound
	full    bool    // as many run as may
	startMS float64 // where there is none: the next start by the rate; 0 where the rate has room
	keyed   bool    // there are limits on keys
	perKey  int64   // jobs of one key at a time; 0 where there is no bound, or they run in order, for which the gate alone is enough
	timed   bool    // some limit needs the time
}

const noBound = math.MaxInt64

// By primary key. The jobs that run are counted by the index of their deadlines.
var sqlRoom = `SELECT ` + hasKeyLimits + `, coalesce(rate_n, key_rate_n, keys_paused) IS NOT NULL,
  iif(running IS NULL, NULL, max(0, running - ` + running + `)), ` + interval + `, rate_burst, rate_tat_ms,
  iif(in_order = 1, 0, ifnull(per_key, 0))
FROM _honkerx_queues AS q WHERE queue = ?1`

// roomOf reads what the limits of queue leave at nowMS.
func roomOf(ctx context.Context, q Querier, queue string, nowMS int64) (r room, err error) {
	r.queue, r.jobs = queue, noBound
	var free sql.NullInt64
	var every, tat sql.NullFloat64
	var burst number
	_, err = one(ctx, q, sqlRoom, []any{queue}, &r.keyed, &r.timed, &free, &every, &burst, &tat, &r.perKey)
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

// startsAt is how many jobs may start at now by a rate of one in every, with burst at once, of which
// the starts are spent until tat; and when the next may, where it is none. It is the arithmetic of
// the trigger _honkerx_gate.
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

// startSlack is how much early a start may be, in milliseconds: times are whole ones.
const startSlack = 0.5

// bound is n, negative for no bound, or what there is room for.
func (r room) bound(n int) int {
	if n >= 0 && int64(n) <= r.jobs || r.jobs == noBound {
		return n
	}
	return int(r.jobs)
}
