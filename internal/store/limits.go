package store

import (
	"context"
	"database/sql"
	"math"

	"github.com/honker-go/honker/internal/row"
)

// Limits are the statements on the limits of queues, columns of _honkerx_queues.
type Limits struct{}

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

// Get returns the limits of queue.
func (Limits) Get(ctx context.Context, q Querier, queue string) (l row.QueueLimits, err error) {
	var inOrder number
	_, err = one(ctx, q, sqlGetLimits, []any{queue}, intoLimits(&l, &inOrder)...)
	l.InOrder = inOrder == 1
	return l, err
}

// All returns the limits of the queues that have some.
func (Limits) All(ctx context.Context, q Querier) (map[string]row.QueueLimits, error) {
	all := make(map[string]row.QueueLimits)
	err := each(ctx, q, sqlAllLimits, func(rows *sql.Rows) error {
		var l row.QueueLimits
		var inOrder number
		var queue string
		err := rows.Scan(append(intoLimits(&l, &inOrder), &queue)...)
		l.InOrder = inOrder == 1
		all[queue] = l
		return err
	})
	return all, err
}

// into are what limitColumns are scanned into.
func intoLimits(l *row.QueueLimits, inOrder *number) []any {
	return []any{(*number)(&l.Running), (*number)(&l.PerKey), inOrder,
		(*number)(&l.Rate.N), (*number)(&l.Rate.PerMS), (*number)(&l.Rate.Burst),
		(*number)(&l.KeyRate.N), (*number)(&l.KeyRate.PerMS), (*number)(&l.KeyRate.Burst)}
}

// Set replaces the limits of queue, and they hold from then on. Those that are the same already write nothing: changed
// is false. What jobs have from the limits before is left to FitSome.
func (ls Limits) Set(ctx context.Context, q Querier, queue string, l row.QueueLimits) (changed bool, err error) {
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
	if err := beginFit(ctx, q, queue, was, l); err != nil {
		return false, err
	}
	return true, fitTriggers(ctx, q)
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
	timed   bool    // some limit needs the time, or the place of a cancelled job
	freeAt  number  // the second at which the first of such places ends; 0: there is none
}

const noBound = math.MaxInt64

// By primary key. The jobs that run are counted by the index of their deadlines.
var sqlRoom = `SELECT ` + hasKeyLimits + `, coalesce(rate_n, key_rate_n, keys_paused) IS NOT NULL,
  iif(running IS NULL, NULL, max(0, running - ` + running("?2") + `)), ` + interval + `, rate_burst, rate_tat_ms,
  iif(in_order = 1, 0, ifnull(per_key, 0)), (` + firstPlace("q.queue") + `)
FROM _honkerx_queues AS q WHERE queue = ?1`

// roomOf reads what the limits of queue leave at nowMS.
func roomOf(ctx context.Context, q Querier, queue string, nowMS int64) (r room, err error) {
	r.queue, r.jobs = queue, noBound
	var free sql.NullInt64
	var every, tat sql.NullFloat64
	var burst number
	_, err = one(ctx, q, sqlRoom, []any{queue, nowMS}, &r.keyed, &r.timed, &free, &every, &burst, &tat, &r.perKey, &r.freeAt)
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
