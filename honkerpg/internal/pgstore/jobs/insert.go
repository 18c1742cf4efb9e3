// Package jobs contains the statements for jobs and all that concerns them: results, unique keys, links, batches, pauses
// and limits.
package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Jobs contains the statements for the table job.
type Jobs struct{ pgsql.Schema }

const (
	sqlInsert = `INSERT INTO honker.job (queue, payload, priority, max_attempts, run_at, created_at, expires_at, headers)
SELECT $1, u.payload, $3, $4, $5, $6, $7, $8 FROM unnest($2::text[]) WITH ORDINALITY u (payload, ord) ORDER BY u.ord RETURNING id`

	sqlInsertLinked = `SELECT honker.insert_linked($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
	sqlHandOver     = `SELECT id, claimed FROM honker.hand_over($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
)

// Insert implements engine.JobStore.
func (s Jobs) Insert(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (out row.Inserted, err error) {
	if in.Links != nil {
		if err := s.checkLinks(ctx, q, in); err != nil {
			return out, err
		}
	}
	if len(in.Payloads) == 0 {
		return out, nil
	}
	switch {
	case in.Unique != nil:
		out, err = s.insertUnique(ctx, q, in, now)
	case in.Links != nil:
		l := in.Links
		out.IDs, err = pgsql.IDs(ctx, q, s.SQL(sqlInsertLinked), append(newJob(in, now), text(in.Key),
			pgsql.List(l.Jobs), pgsql.List(l.Batches), l.IfDead, l.In)...)
	case in.Key != "":
		out.IDs, err = pgsql.IDs(ctx, q, s.SQL(sqlInsertLinked), append(newJob(in, now), in.Key, []int64{}, []int64{}, false, 0)...)
	case in.Offer != nil:
		out, err = s.handOver(ctx, q, in, now)
	default:
		out.IDs, err = pgsql.IDs(ctx, q, s.SQL(sqlInsert), newJob(in, now)...)
	}
	if pgsql.Dropped(err) || err == nil && len(out.IDs) < len(in.Payloads) {
		err = row.ErrNotInserted
	}
	if err == nil && (in.Links != nil || in.Unique != nil) {
		pgsql.Leave(q, pgsql.Resolve)
	}
	return out, err
}

// newJob returns the parameters with which all inserts begin: the queue, the payloads and the columns that all jobs of an
// insert share.
func newJob(in *row.Insert, now time.Time) []any {
	runAt, expires := insertTimes(in, now)
	return []any{in.Queue, pgsql.List(in.Payloads), in.Priority, in.MaxAttempts, pgsql.StampUp(runAt), pgsql.Stamp(now), expires, text(in.Headers)}
}

// text returns NULL for "".
func text(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// insertTimes returns the time at which jobs may first run, and the time by which they must start.
func insertTimes(in *row.Insert, now time.Time) (runAt time.Time, expires sql.NullTime) {
	switch {
	case in.Delay > 0:
		runAt = now.Add(in.Delay)
	case in.RunAt.After(now):
		runAt = in.RunAt
	default:
		runAt = pgsql.Stamp(now) // not rounded up: the job is due now
	}
	switch {
	case in.ExpiresIn > 0:
		expires = sql.NullTime{Time: pgsql.StampUp(now.Add(in.ExpiresIn)), Valid: true}
	case !in.ExpiresAt.IsZero():
		expires = sql.NullTime{Time: pgsql.StampUp(in.ExpiresAt), Valid: true}
	}
	return runAt, expires
}

// handOver inserts jobs of which the first may already be claimed by the worker of the Offer.
func (s Jobs) handOver(ctx context.Context, q row.Querier, in *row.Insert, now time.Time) (out row.Inserted, err error) {
	runAt, expires := insertTimes(in, now)
	lease := pgsql.StampUp(now.Add(in.Offer.Lease))
	err = pgsql.Each(ctx, q, s.SQL(sqlHandOver), func(r *sql.Rows) error {
		var id int64
		var claimed bool
		if err := r.Scan(&id, &claimed); err != nil {
			return err
		}
		if claimed {
			out.Claimed = append(out.Claimed, &row.Job{
				Fine: true, ID: id, Queue: in.Queue, State: "processing", Payload: in.Payloads[len(out.IDs)], Priority: in.Priority, RunAt: pgsql.Shown(runAt),
				WorkerID: in.Offer.Worker, ClaimExpiresAt: pgsql.Shown(lease), Attempts: 1, MaxAttempts: in.MaxAttempts,
				CreatedAt: pgsql.Shown(pgsql.Stamp(now)), ExpiresAt: pgsql.Instant(expires), Headers: in.Headers,
			})
		}
		out.IDs = append(out.IDs, id)
		return nil
	}, append(newJob(in, now), in.Offer.Worker, in.Offer.N, lease, pgsql.List(in.Offer.Queues))...)
	return out, err
}
