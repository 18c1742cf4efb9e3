package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// Limits contains the statements for limits of queues, which are columns of the table queue.
type Limits struct{ pgsql.Schema }

const (
	limitColumns = `coalesce(running, 0), coalesce(per_key, 0), in_order,
  coalesce(rate_n, 0), coalesce((extract(epoch FROM rate_per) * 1000)::bigint, 0), coalesce(rate_burst, 0),
  coalesce(key_rate_n, 0), coalesce((extract(epoch FROM key_rate_per) * 1000)::bigint, 0), coalesce(key_rate_burst, 0)`

	sqlLimits    = `SELECT ` + limitColumns + ` FROM honker.queue WHERE queue = $1`
	sqlAllLimits = `SELECT ` + limitColumns + `, queue FROM honker.queue WHERE in_order OR coalesce(running, per_key, rate_n, key_rate_n) IS NOT NULL`

	// A changed rate starts afresh. Jobs must be fitted if the old limits may have held some that the new ones would not.
	sqlSetLimits = `INSERT INTO honker.queue AS k (queue, running, per_key, in_order, rate_n, rate_per, rate_burst, key_rate_n, key_rate_per, key_rate_burst)
VALUES ($1, nullif($2::bigint, 0), nullif($3::bigint, 0), $4, nullif($5::bigint, 0), nullif($6::bigint, 0) * interval '1 millisecond', nullif($7::bigint, 0),
  nullif($8::bigint, 0), nullif($9::bigint, 0) * interval '1 millisecond', nullif($10::bigint, 0))
ON CONFLICT (queue) DO UPDATE SET running = excluded.running, per_key = excluded.per_key, in_order = excluded.in_order,
  rate_n = excluded.rate_n, rate_per = excluded.rate_per, rate_burst = excluded.rate_burst,
  key_rate_n = excluded.key_rate_n, key_rate_per = excluded.key_rate_per, key_rate_burst = excluded.key_rate_burst,
  rate_turn = k.rate_turn + ((k.rate_n, k.rate_per, k.rate_burst) IS DISTINCT FROM (excluded.rate_n, excluded.rate_per, excluded.rate_burst))::int,
  key_rate_turn = k.key_rate_turn + ((k.key_rate_n, k.key_rate_per, k.key_rate_burst)
    IS DISTINCT FROM (excluded.key_rate_n, excluded.key_rate_per, excluded.key_rate_burst))::int,
  fit_key = CASE WHEN k.in_order <> excluded.in_order OR k.per_key IS NOT NULL AND coalesce(excluded.per_key > k.per_key, true)
    OR k.key_rate_n IS NOT NULL AND (k.key_rate_n, k.key_rate_per, k.key_rate_burst)
      IS DISTINCT FROM (excluded.key_rate_n, excluded.key_rate_per, excluded.key_rate_burst) THEN '' ELSE k.fit_key END`
)

// All implements engine.LimitStore.
func (s Limits) All(ctx context.Context, q row.Querier) (map[string]row.QueueLimits, error) {
	all := make(map[string]row.QueueLimits)
	err := pgsql.Each(ctx, q, s.SQL(sqlAllLimits), func(r *sql.Rows) error {
		var f limitFields
		var queue string
		err := r.Scan(append(f.dest(), &queue)...)
		all[queue] = f.limits()
		return err
	})
	return all, err
}

// Get implements engine.LimitStore.
func (s Limits) Get(ctx context.Context, q row.Querier, queue string) (row.QueueLimits, error) {
	var f limitFields
	_, err := pgsql.One(ctx, q, s.SQL(sqlLimits), []any{queue}, f.dest()...)
	return f.limits(), err
}

// limitFields are the columns of limits.
type limitFields struct {
	l            row.QueueLimits
	per, keysPer int64 // milliseconds
}

func (f *limitFields) dest() []any {
	return []any{&f.l.Running, &f.l.PerKey, &f.l.InOrder, &f.l.Rate.N, &f.per, &f.l.Rate.Burst, &f.l.KeyRate.N, &f.keysPer, &f.l.KeyRate.Burst}
}

func (f *limitFields) limits() row.QueueLimits {
	f.l.Rate.Per, f.l.KeyRate.Per = time.Duration(f.per)*time.Millisecond, time.Duration(f.keysPer)*time.Millisecond
	return f.l
}

const sqlCountPlaces = `SELECT count(*) FROM honker.place WHERE queue = $1 AND until_at > $2`

// Places implements engine.LimitStore.
func (s Limits) Places(ctx context.Context, q row.Querier, queue string, now time.Time) (n int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlCountPlaces), []any{queue, pgsql.Stamp(now)}, &n)
	return n, err
}

// Set implements engine.LimitStore.
func (s Limits) Set(ctx context.Context, q row.Querier, queue string, l row.QueueLimits) (changed bool, err error) {
	was, err := s.Get(ctx, q, queue)
	if err != nil || was == l {
		return false, err
	}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSetLimits), queue, l.Running, l.PerKey, l.InOrder, l.Rate.N, l.Rate.Per.Milliseconds(), l.Rate.Burst,
		l.KeyRate.N, l.KeyRate.Per.Milliseconds(), l.KeyRate.Burst)
	if err == nil && n == 0 {
		err = row.ErrNotInserted
	}
	return err == nil, err
}

const (
	sqlFitting = `SELECT queue FROM honker.queue WHERE fit_key IS NOT NULL ORDER BY queue`
	sqlIsFit   = `SELECT 1 FROM honker.queue WHERE queue = $1 AND fit_key IS NOT NULL`
	sqlFit     = `SELECT honker.fit_alone($1, $2, $3)`
)

// mostFitted bounds the jobs that a transaction fits, because claims wait for it.
const mostFitted = 256

// SweepFits returns the sweep of the jobs that limits hold which are gone. It finds the ID 1 if a queue may have any. In
// an application's transaction it does nothing: claims with the old limits may be under way until the commit. The next
// claim then fits the jobs.
func (s Limits) SweepFits() engine.Sweep {
	return engine.Sweep{
		Of: "queue",
		Parts: func(ctx context.Context, q row.Querier, _ time.Time) (parts []row.Part, err error) {
			names, err := pgsql.Texts(ctx, q, s.SQL(sqlFitting))
			for _, name := range names {
				parts = append(parts, row.Part{Name: name})
			}
			return parts, err
		},
		Find: func(ctx context.Context, q row.Querier, part row.Part, _ time.Time, _ int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlIsFit), part.Name)
		},
		Take: func(ctx context.Context, q row.Querier, part row.Part, _ []int64, at time.Time, limit int) (out row.Swept, err error) {
			if _, ok := q.(pgsql.Session); !ok {
				return out, nil
			}
			_, err = pgsql.One(ctx, q, s.SQL(sqlFit), []any{part.Name, pgsql.Stamp(at), min(limit, mostFitted)}, &out.More)
			return out, err
		},
	}
}

// The sweep of the slots of cancelled jobs leaves a token for each key, so that its held jobs may go.
const (
	sqlOverPlaces = `SELECT job_id FROM honker.place WHERE until_at <= $1 ORDER BY job_id LIMIT $2`
	sqlDropPlaces = `WITH gone AS (DELETE FROM honker.place p WHERE p.job_id = ANY (ARRAY(SELECT l.job_id FROM honker.place l
    WHERE l.job_id = ANY ($2::bigint[]) AND l.until_at <= $1 LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING p.queue, p.key),
  t AS (INSERT INTO honker.token (queue, key) SELECT DISTINCT g.queue, g.key FROM gone g WHERE g.key IS NOT NULL)
SELECT count(*) FROM gone`
)

// SweepPlaces returns the sweep of the slots of cancelled jobs.
func (s Limits) SweepPlaces() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOverPlaces), pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (out row.Swept, err error) {
			_, err = pgsql.One(ctx, q, s.SQL(sqlDropPlaces), []any{pgsql.Stamp(at), pgsql.List(ids), limit}, &out.N)
			out.More = limit < len(ids)
			return out, err
		},
	}
}
