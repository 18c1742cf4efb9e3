package jobs

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// The function's parameters begin as those of newJob, but with the keys behind the queue.
const (
	sqlPlace = `SELECT p.ord, p.placed, p.result, p.node, p.progress, ` + wasColumns + `
FROM honker.place($1, $9, $2, $3, $4, $5, $6, $7, $8, $10, $11, $12, $13, $14` + pgsql.Interval + `, $15, $16, $17, $18) p`

	wasColumns = `(p.was).id, (p.was).queue, (p.was).state, (p.was).payload, (p.was).priority, (p.was).run_at, (p.was).worker, (p.was).lease_until,
  (p.was).attempts, (p.was).max_attempts, (p.was).created_at, (p.was).expires_at, (p.was).last_error, (p.was).unique_key, (p.was).key,
  (p.was).headers, (p.was).batch`

	sqlReleaseUnique = `SELECT honker.release_unique($1, $2, $3)`
)

// placeResults are the results of honker.place, except the last, a circle.
var placeResults = [...]row.PlaceResult{row.PlacedNew, row.PlacedExisting, row.PlacedReplaced, row.PlacedAgain}

// insertUnique adds the jobs of in whose keys are free. It treats the others as in requests.
func (s Jobs) insertUnique(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (out row.Inserted, err error) {
	var kind int
	if in.Unique.Started {
		kind = 1
	}
	keep := sql.NullTime{Time: pgsql.StampUp(now.Add(in.Unique.Keep)), Valid: in.Unique.Keep > 0}
	var most *time.Duration
	if in.Unique.MaxDelay > 0 {
		most = &in.Unique.MaxDelay
	}
	l := in.Links
	if l == nil {
		l = new(row.Links)
	}
	var circle sql.NullInt64
	err = pgsql.Each(ctx, q, s.SQL(sqlPlace), func(r *sql.Rows) error {
		var p row.Placed
		var ord int64
		var result int
		var j stored
		if err := r.Scan(append([]any{&ord, &p.ID, &result, &circle, &j.progress}, j.live()...)...); err != nil || circle.Valid {
			return err
		}
		p.Result, p.Of = placeResults[result], j.job()
		if p.Result != row.PlacedNew && p.Of.ID == 0 {
			p.Of = row.Job{ID: p.ID, Queue: in.Queue} // it is gone
		}
		out.IDs, out.Places = append(out.IDs, p.ID), append(out.Places, p)
		return nil
	}, append(newJob(in, now), pgsql.List(in.Unique.Keys), text(in.Key), kind, keep, int(in.Unique.Conflict), pgsql.Microseconds(most),
		pgsql.List(l.Jobs), pgsql.List(l.Batches), l.IfDead, l.In)...)
	if err == nil && circle.Valid {
		err = fmt.Errorf("%w: %s already waits for the job with the unique key, and the dependencies must not form a cycle", engine.ErrInvalid, nodeName(circle.Int64))
	}
	return out, err
}

// ReleaseUnique implements engine.JobStore.
func (s Jobs) ReleaseUnique(ctx context.Context, q row.Querier, queue, key string, now time.Time) (held bool, err error) {
	_, err = pgsql.One(ctx, q, s.SQL(sqlReleaseUnique), []any{queue, key, pgsql.Stamp(now)}, &held)
	if err == nil && held {
		pgsql.Leave(q, pgsql.Resolve)
	}
	return held, err
}

// whereKeyIsOver holds for a key that no job holds. honker.drop_keys checks it again.
const whereKeyIsOver = `coalesce(r.until_at <= $1, true) AND NOT EXISTS (SELECT FROM honker.job j WHERE j.id IN (r.job_id, r.next_id))`

const sqlDropKeys = `SELECT honker.drop_keys($1::text[]::tid[], $2)`

// SweepKeys returns the sweep of unique keys that no job holds.
func (s Jobs) SweepKeys() engine.Sweep {
	sweep := s.RowSweep("uniq", whereKeyIsOver)
	sweep.Take = func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, limit int) (out row.Swept, err error) {
		some := ids[:min(len(ids), limit)]
		_, err = pgsql.One(ctx, q, s.SQL(sqlDropKeys), []any{pgsql.Places(some), pgsql.Stamp(at)}, &out.N)
		out.More = len(some) < len(ids)
		return out, err
	}
	return sweep
}
