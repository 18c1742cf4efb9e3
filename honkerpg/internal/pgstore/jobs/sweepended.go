package jobs

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/streams"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// ended is a table of ended jobs that a queue's retention trims, in the order of their ends.
type ended struct {
	pgsql.Schema
	table, at string // the table and its column with the time of the end
	keep      string // a condition on a row, r, that is kept
	of        func(row.QueueRetention) row.Retention
	none      bool // a queue without a bound keeps no jobs
}

// SweepDone returns the sweep of the done jobs beyond their queues' retention.
func (s Jobs) SweepDone() engine.Sweep {
	return ended{Schema: s.Schema, table: "done", at: "done_at", keep: "false", of: func(r row.QueueRetention) row.Retention { return r.Done }, none: true}.sweep()
}

// SweepDead returns the sweep of the dead jobs beyond their queues' retention. Dead jobs that
// others wait for are kept, and so are members of batches, which would never be done otherwise.
func (s Jobs) SweepDead() engine.Sweep {
	return ended{Schema: s.Schema, table: "dead", at: "died_at", keep: "EXISTS (SELECT FROM honker.edge e WHERE e.parent = r.id AND e.parent <> 0)",
		of: func(r row.QueueRetention) row.Retention { return r.Dead }}.sweep()
}

func (t ended) sweep() engine.Sweep {
	over := ` FROM honker.` + t.table + ` r WHERE r.queue = $1 AND (r.` + t.at + `, r.id) <= ($2, $3) AND NOT ` + t.keep
	find := t.SQL(`SELECT r.id` + over + ` ORDER BY r.` + t.at + `, r.id LIMIT $4`)
	take := t.SQL(`WITH gone AS (DELETE` + over + ` AND r.id = ANY ($4::bigint[]) RETURNING r.id),
  attempts AS (DELETE FROM honker.attempt a USING gone g WHERE a.job_id = g.id),
  links AS (DELETE FROM honker.edge e USING gone g WHERE e.waiter = g.id)
SELECT count(*) FROM gone`)
	return engine.Sweep{
		Of:    "queue",
		Parts: t.parts,
		Find: func(ctx context.Context, q row.Querier, part row.Part, _ time.Time, limit int) ([]int64, error) {
			at, id := through(part.Through)
			return pgsql.IDs(ctx, q, find, pgsql.Replan, part.Name, at, id, limit)
		},
		Take: func(ctx context.Context, q row.Querier, part row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
			at, id := through(part.Through)
			var swept row.Swept
			_, err := pgsql.One(ctx, q, take, []any{pgsql.Replan, part.Name, at, id, pgsql.List(ids)}, &swept.N)
			return swept, err
		},
	}
}

// through returns a cutoff as a stored time and ID.
func through(c row.Cutoff) (at time.Time, id int64) {
	if c == row.Everything {
		return pgsql.Stamp(time.Date(1<<20, 1, 1, 0, 0, 0, 0, time.UTC)), math.MaxInt64
	}
	if c.At.IsZero() && c.ID == 0 {
		return pgsql.Stamp(time.Date(-1<<20, 1, 1, 0, 0, 0, 0, time.UTC)), math.MinInt64
	}
	return pgsql.Stamp(c.At), c.ID
}

// parts returns a part for each queue that has rows and may have to trim them at a time.
func (t ended) parts(ctx context.Context, q row.Querier, at time.Time) (parts []row.Part, err error) {
	all, err := streams.Retentions{Schema: t.Schema}.Trimmed(ctx, q, t.none)
	for _, r := range all {
		p := row.Part{Name: r.Queue, Through: row.Everything}
		if keep := t.of(r); err == nil && (keep != row.Retention{} || !t.none) {
			p.Through, err = t.cutoff(ctx, q, r.Queue, keep, at)
		}
		parts = append(parts, p)
	}
	return parts, err
}

// cutoff returns the newest row of a queue that r does not keep at a time.
func (t ended) cutoff(ctx context.Context, q row.Querier, queue string, r row.Retention, at time.Time) (c row.Cutoff, err error) {
	if r.MaxAge > 0 {
		c = row.Cutoff{At: at.Add(-r.MaxAge - time.Microsecond), ID: math.MaxInt64}
	}
	if r.MaxCount == 0 {
		return c, nil
	}
	var rank sql.NullTime
	var id int64
	found, err := pgsql.One(ctx, q, t.SQL(`SELECT r.`+t.at+`, r.id FROM honker.`+t.table+` r WHERE r.queue = $1
ORDER BY r.`+t.at+` DESC, r.id DESC LIMIT 1 OFFSET $2`), []any{pgsql.Replan, queue, r.MaxCount}, &rank, &id)
	if found && (c.At.IsZero() || rank.Time.After(c.At)) {
		c = row.Cutoff{At: rank.Time, ID: id}
	}
	return c, err
}
