package ops

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Problems contains the statements that look for problems.
type Problems struct{ pgsql.Schema }

// sqlLapsedSince reads the index of claims up to the first that another worker could take over.
const sqlLapsedSince = `SELECT lease_until FROM honker.job
WHERE queue = $1 AND state = 1 AND lease_until < $2 AND attempts < max_attempts AND (expires_at IS NULL OR expires_at > $2)
ORDER BY lease_until LIMIT 1`

// LapsedSince implements engine.ProblemStore.
func (s Problems) LapsedSince(ctx context.Context, q row.Querier, queue string, now time.Time) (time.Time, error) {
	var since sql.NullTime
	_, err := pgsql.One(ctx, q, s.SQL(sqlLapsedSince), []any{queue, pgsql.Stamp(now)}, &since)
	return pgsql.Instant(since), err
}

// sqlErrors reads up to $4 entries from the indexes of dead and of waiting jobs, the latter for each of the first five
// priorities and on both sides of now.
const sqlErrors = `WITH RECURSIVE p(n, i) AS (
  (SELECT j.priority, 1 FROM honker.job j WHERE j.queue = $1 AND j.state = 0 ORDER BY j.priority DESC LIMIT 1) UNION ALL
  SELECT (SELECT j.priority FROM honker.job j WHERE j.queue = $1 AND j.state = 0 AND j.priority < p.n ORDER BY j.priority DESC LIMIT 1), p.i + 1
  FROM p WHERE p.n IS NOT NULL AND p.i < 5)
(SELECT d.id, d.attempts, coalesce(d.last_error, ''), true FROM honker.dead d WHERE d.queue = $1 AND d.died_at > $2 ORDER BY d.died_at DESC, d.id DESC LIMIT $4)
UNION ALL SELECT x.id, x.attempts, coalesce(x.last_error, ''), false FROM p CROSS JOIN LATERAL (
  (SELECT j.id, j.attempts, j.last_error FROM honker.job j WHERE j.queue = $1 AND j.state = 0 AND j.priority = p.n AND j.run_at > $3 ORDER BY j.run_at, j.id LIMIT $4)
  UNION ALL
  (SELECT j.id, j.attempts, j.last_error FROM honker.job j WHERE j.queue = $1 AND j.state = 0 AND j.priority = p.n AND j.run_at <= $3 ORDER BY j.run_at DESC, j.id DESC LIMIT $4)
  ) x`

// Errors implements engine.ProblemStore.
func (s Problems) Errors(ctx context.Context, q row.Querier, queue string, since time.Time, limit int, now time.Time) (all []row.FailedJob, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlErrors), func(r *sql.Rows) error {
		var f row.FailedJob
		err := r.Scan(&f.ID, &f.Attempts, &f.Error, &f.Dead)
		if f.Error != "" {
			all = append(all, f)
		}
		return err
	}, queue, pgsql.Stamp(since), pgsql.Stamp(now), limit)
	return all, err
}

const (
	sqlDeadMembers = `SELECT queue, n, waiter, member, since FROM honker.dead_members()`
	sqlHeldFree    = `SELECT queue, key, n, first, per_key, in_order FROM honker.held_free($1)`
	sqlDiedSince   = `SELECT queue, n, first FROM honker.died_since($1)`
	sqlBehind      = `SELECT kind, name, topic, oldest, acked, unseen FROM honker.behind($1, $2)`
	sqlBlocked     = `SELECT by, query, n, since FROM honker.blocked($1)`
	sqlSnapshots   = `SELECT holder, query, since, dead FROM honker.old_snapshots($1)`
	sqlUnvacuumed  = `SELECT coalesce(off, false), since, dead FROM honker.unvacuumed($1)`

	sqlKeyPauses = `SELECT queue, key, paused_at, coalesce(reason, ''), coalesce(who, '') FROM honker.key
WHERE paused_at <= $1 AND paused_until IS NULL ORDER BY queue, key LIMIT 100`
	sqlLate         = `SELECT name, next_at FROM honker.schedule WHERE enabled AND next_at < $1 ORDER BY next_at LIMIT 100`
	sqlSkippedFires = `SELECT name, queue, last_skip FROM honker.schedule
WHERE enabled AND last_skip > coalesce(last_fire, '-infinity') ORDER BY name LIMIT 100`
	sqlNewest = `SELECT greatest((SELECT created_at FROM honker.job ORDER BY id DESC LIMIT 1),
  (SELECT created_at FROM honker.event ORDER BY "offset" DESC LIMIT 1))`
)

// Problems implements engine.ProblemStore. The time of a consumer's last save is never unknown.
func (s Problems) Problems(ctx context.Context, q row.Querier, ages row.ProblemAges, now time.Time) (t row.Troubles, err error) {
	before := func(d time.Duration) time.Time { return pgsql.Stamp(now.Add(-d)) }
	for _, look := range []func() error{
		func() (err error) { t.DeadMembers, err = s.deadMembers(ctx, q); return err },
		func() (err error) { t.HeldFree, err = s.heldFree(ctx, q, pgsql.Stamp(now)); return err },
		func() (err error) { t.Deaths, err = s.diedSince(ctx, q, before(ages.Death)); return err },
		func() (err error) { t.KeyPauses, err = s.keyPauses(ctx, q, before(ages.Pause)); return err },
		func() (err error) { t.Late, err = s.late(ctx, q, before(ages.Late)); return err },
		func() (err error) { t.Skips, err = s.skippedFires(ctx, q); return err },
		func() (err error) {
			t.Behind, err = s.behind(ctx, q, before(ages.Unseen), pgsql.Stamp(now))
			return err
		},
		func() (err error) { t.Blocked, err = s.blocked(ctx, q, pgsql.Stamp(now)); return err },
		func() (err error) { t.Snapshots, err = s.snapshots(ctx, q, pgsql.Stamp(now)); return err },
		func() (err error) { t.Unvacuumed, err = s.unvacuumed(ctx, q, pgsql.Stamp(now)); return err },
		func() (err error) { t.Standbys, err = s.standbys(ctx, q); return err },
		func() error { return s.load(ctx, q, &t) },
		func() error {
			var newest sql.NullTime
			_, err := pgsql.One(ctx, q, s.SQL(sqlNewest), nil, &newest)
			t.Newest = pgsql.Instant(newest)
			return err
		},
	} {
		if err := look(); err != nil {
			return row.Troubles{}, err
		}
	}
	if len(t.Snapshots) > 0 && t.Unvacuumed != nil && !t.Unvacuumed.Off {
		t.Unvacuumed = nil // a vacuum would have no effect
	}
	return t, nil
}

// mostCounted is the highest exact count. The functions stop just above it.
const mostCounted = 10_000

func boundedCount(n int64) row.Count { return row.Count{N: min(n, mostCounted), More: n > mostCounted} }

func (s Problems) deadMembers(ctx context.Context, q row.Querier) (all []row.DeadMembers, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlDeadMembers), func(r *sql.Rows) error {
		var d row.DeadMembers
		var since sql.NullTime
		err := r.Scan(&d.Queue, &d.N, &d.Waiter, &d.Member, &since)
		d.Since = pgsql.Instant(since)
		all = append(all, d)
		return err
	})
	return all, err
}

func (s Problems) heldFree(ctx context.Context, q row.Querier, now time.Time) (all []row.HeldKey, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlHeldFree), func(r *sql.Rows) error {
		var k row.HeldKey
		err := r.Scan(&k.Queue, &k.Key, &k.N, &k.First, &k.PerKey, &k.InOrder)
		all = append(all, k)
		return err
	}, now)
	return all, err
}

func (s Problems) diedSince(ctx context.Context, q row.Querier, since time.Time) (all []row.QueueDeaths, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlDiedSince), func(r *sql.Rows) error {
		var d row.QueueDeaths
		var n int64
		var first sql.NullTime
		err := r.Scan(&d.Queue, &n, &first)
		d.N, d.First = boundedCount(n), pgsql.Instant(first)
		all = append(all, d)
		return err
	}, since)
	return all, err
}

func (s Problems) keyPauses(ctx context.Context, q row.Querier, before time.Time) (all []row.OldPause, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlKeyPauses), func(r *sql.Rows) error {
		var p row.OldPause
		var since sql.NullTime
		err := r.Scan(&p.Queue, &p.Key, &since, &p.Reason, &p.By)
		p.Since = pgsql.Instant(since)
		all = append(all, p)
		return err
	}, before)
	return all, err
}

func (s Problems) late(ctx context.Context, q row.Querier, before time.Time) (all []row.Late, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlLate), func(r *sql.Rows) error {
		var l row.Late
		var at sql.NullTime
		err := r.Scan(&l.Name, &at)
		l.At = pgsql.Instant(at)
		all = append(all, l)
		return err
	}, before)
	return all, err
}

func (s Problems) skippedFires(ctx context.Context, q row.Querier) (all []row.SkippedFire, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlSkippedFires), func(r *sql.Rows) error {
		var f row.SkippedFire
		var at sql.NullTime
		err := r.Scan(&f.Name, &f.Queue, &at)
		f.At = pgsql.Instant(at)
		all = append(all, f)
		return err
	})
	return all, err
}

func (s Problems) behind(ctx context.Context, q row.Querier, before, now time.Time) (all []row.Behind, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlBehind), func(r *sql.Rows) error {
		var b row.Behind
		var n int64
		var oldest, acked sql.NullTime
		err := r.Scan(&b.Kind, &b.Name, &b.Topic, &oldest, &acked, &n)
		b.Oldest, b.Acked, b.Unseen = pgsql.Instant(oldest), pgsql.Instant(acked), boundedCount(n)
		all = append(all, b)
		return err
	}, before, now)
	return all, err
}

func (s Problems) blocked(ctx context.Context, q row.Querier, now time.Time) (all []row.Blocked, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlBlocked), func(r *sql.Rows) error {
		var b row.Blocked
		var since sql.NullTime
		err := r.Scan(&b.By, &b.Query, &b.N, &since)
		b.Since = pgsql.Instant(since)
		all = append(all, b)
		return err
	}, now)
	return all, err
}

func (s Problems) snapshots(ctx context.Context, q row.Querier, now time.Time) (all []row.Snapshot, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlSnapshots), func(r *sql.Rows) error {
		var x row.Snapshot
		var since sql.NullTime
		err := r.Scan(&x.Of, &x.Query, &since, &x.Dead)
		x.Since = pgsql.Instant(since)
		all = append(all, x)
		return err
	}, now)
	return all, err
}

func (s Problems) unvacuumed(ctx context.Context, q row.Querier, now time.Time) (*row.Unvacuumed, error) {
	var v row.Unvacuumed
	var since sql.NullTime
	found, err := pgsql.One(ctx, q, s.SQL(sqlUnvacuumed), []any{now}, &v.Off, &since, &v.Dead)
	if err != nil || !found {
		return nil, err
	}
	v.Since = pgsql.Instant(since)
	return &v, nil
}

const sqlRetains = `SELECT (SELECT count(*) FROM honker.retention),
  (SELECT count(*) FROM honker.queue WHERE coalesce(done_count, dead_count, extract(epoch FROM dead_age)::bigint) IS NOT NULL)`

// Retains implements engine.ProblemStore.
func (s Problems) Retains(ctx context.Context, q row.Querier) (topics, queues int64, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlRetains), nil, &topics, &queues)
	return topics, queues, err
}
