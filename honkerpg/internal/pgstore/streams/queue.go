package streams

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// A retention without a limit needs no row, but an existing row is changed.
const (
	sqlSetQueue = `INSERT INTO honker.queue AS k (queue, done_count, done_age, dead_count, dead_age)
SELECT $1, $2::bigint, $3` + pgsql.Interval + `, $4::bigint, $5` + pgsql.Interval + `
WHERE num_nonnulls($2::bigint, $4::bigint, $5::bigint) > 0 OR EXISTS (SELECT FROM honker.queue WHERE queue = $1)
ON CONFLICT (queue) DO UPDATE SET done_count = excluded.done_count, done_age = excluded.done_age,
  dead_count = excluded.dead_count, dead_age = excluded.dead_age
WHERE (k.done_count, k.done_age, k.dead_count, k.dead_age)
  IS DISTINCT FROM (excluded.done_count, excluded.done_age, excluded.dead_count, excluded.dead_age)`

	queueColumns = `SELECT queue, coalesce(done_count, 0), coalesce(extract(epoch FROM done_age) * 1000000, 0)::bigint,
  coalesce(dead_count, 0), coalesce(extract(epoch FROM dead_age) * 1000000, 0)::bigint FROM honker.queue k WHERE `
	sqlGetQueue = queueColumns + `queue = $1`

	keepsDead    = `dead_count IS NOT NULL OR dead_age IS NOT NULL`
	hasDone      = `EXISTS (SELECT FROM honker.done d WHERE d.queue = k.queue)`
	sqlTrimsDead = queueColumns + keepsDead + ` ORDER BY queue`
	sqlTrimsDone = queueColumns + hasDone + ` ORDER BY queue`
	sqlTrimmed   = queueColumns + keepsDead + ` OR ` + hasDone + ` ORDER BY queue`
)

// SetQueue implements engine.RetentionStore.
func (s Retentions) SetQueue(ctx context.Context, q row.Querier, r row.QueueRetention) (changed bool, err error) {
	doneCount := sql.NullInt64{Int64: r.Done.MaxCount, Valid: r.Done.Bounded()}
	deadCount := sql.NullInt64{Int64: r.Dead.MaxCount, Valid: r.Dead.MaxCount > 0}
	n, err := pgsql.Affected(ctx, q, s.SQL(sqlSetQueue), r.Queue, doneCount, age(r.Done.MaxAge), deadCount, age(r.Dead.MaxAge))
	return n > 0, err
}

// age returns a span in microseconds, or NULL if there is no bound.
func age(d time.Duration) sql.NullInt64 {
	if d == 0 {
		return sql.NullInt64{}
	}
	return pgsql.Microseconds(&d)
}

// Queues implements engine.RetentionStore.
func (s Retentions) Queues(ctx context.Context, q row.Querier, queue string) ([]row.QueueRetention, error) {
	if queue == "" {
		return s.queues(ctx, q, sqlTrimmed)
	}
	return s.queues(ctx, q, sqlGetQueue, queue)
}

// Trimmed returns the retentions of the queues whose done or dead jobs may have to be trimmed.
func (s Retentions) Trimmed(ctx context.Context, q row.Querier, done bool) ([]row.QueueRetention, error) {
	if done {
		return s.queues(ctx, q, sqlTrimsDone)
	}
	return s.queues(ctx, q, sqlTrimsDead)
}

func (s Retentions) queues(ctx context.Context, q row.Querier, query string, args ...any) (all []row.QueueRetention, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(rs *sql.Rows) error {
		var r row.QueueRetention
		var done, dead int64
		err := rs.Scan(&r.Queue, &r.Done.MaxCount, &done, &r.Dead.MaxCount, &dead)
		r.Done.MaxAge, r.Dead.MaxAge = microseconds(done), microseconds(dead)
		all = append(all, r)
		return err
	}, args...)
	return all, err
}

// microseconds is the inverse of age.
func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
