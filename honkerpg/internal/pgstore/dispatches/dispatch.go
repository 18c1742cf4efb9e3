// Package dispatches contains the statements for jobs sent by package dispatch and for its actors. Triggers of the schema
// follow the jobs.
package dispatches

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Dispatches contains the statements for the tables sent_job, sent_copy and actor.
type Dispatches struct{ pgsql.Schema }

// Lock implements engine.DispatchStore. A transaction can write after it has read, so there is nothing to lock.
func (Dispatches) Lock(context.Context, row.Querier) error { return nil }

const (
	sqlSend = `SELECT honker.send($1, $2, $3, $4, $5, $6)`

	sqlSendCopies = `SELECT honker.send_copies($1, $2::bigint[])`

	sqlOriginal = `SELECT s.job_id, s.queue FROM honker.sent_copy c JOIN honker.sent_job s ON s.job_id = c.sent_id WHERE c.job_id = $1`
)

// Add implements engine.DispatchStore.
func (s Dispatches) Add(ctx context.Context, q row.Querier, sent row.Sent, now time.Time) (added bool, err error) {
	args := []any{sent.ID, sent.Queue, sent.Events, sent.ReplyQueue, sent.ReplyTopic, pgsql.Stamp(now)}
	_, err = pgsql.One(ctx, q, s.SQL(sqlSend), args, &added)
	return added, err
}

// AddTwins implements engine.DispatchStore.
func (s Dispatches) AddTwins(ctx context.Context, q row.Querier, sent int64, twins []int64) error {
	_, err := q.ExecContext(ctx, s.SQL(sqlSendCopies), sent, pgsql.List(twins))
	return err
}

// Original implements engine.DispatchStore.
func (s Dispatches) Original(ctx context.Context, q row.Querier, id int64) (sent int64, queue string, found bool, err error) {
	found, err = pgsql.One(ctx, q, s.SQL(sqlOriginal), []any{id}, &sent, &queue)
	return sent, queue, found, err
}

// sqlStatus finds a job without a result by the last reply in its reply queues, $3 and $4 with its ID. A claimed reply
// can be read until it is acked.
const sqlStatus = `SELECT s.run_id, s.queue, s.sent_at, s.started_at, s.ended_at, s.stop_at IS NOT NULL, s.held_until,
  CASE WHEN j.state = 1 THEN 'processing' WHEN j.id IS NOT NULL THEN 'pending' ELSE '' END,
  coalesce(j.attempts, d.attempts, 0), coalesce(j.worker, ''), coalesce(d.last_error, j.last_error, ''), d.id IS NOT NULL, r.value,
  coalesce(p.queue, ''), p.payload,
  s.run_id = s.job_id AND EXISTS (SELECT FROM honker.sent_copy c WHERE c.sent_id = s.job_id)
FROM honker.sent_job s
LEFT JOIN honker.job j ON j.id = s.run_id
LEFT JOIN honker.dead d ON d.id = s.run_id
LEFT JOIN honker.result r ON r.job_id = s.run_id AND (r.expires_at IS NULL OR r.expires_at > $2)
LEFT JOIN LATERAL (SELECT x.queue, x.payload FROM (
    SELECT w.id, w.queue, w.payload FROM honker.job w WHERE w.queue IN ($3::text || s.run_id, $4::text || s.run_id) AND w.state = 0
    UNION ALL
    SELECT w.id, w.queue, w.payload FROM honker.job w WHERE w.queue IN ($3::text || s.run_id, $4::text || s.run_id) AND w.state = 1) x
  WHERE r.value IS NULL ORDER BY x.id DESC LIMIT 1) p ON true
WHERE s.job_id = $1`

// Status implements engine.DispatchStore.
func (s Dispatches) Status(ctx context.Context, q row.Querier, prefix string, id int64, now time.Time) (out row.DispatchStatus, found bool, err error) {
	var sent, started, ended, held sql.NullTime
	var output, reply sql.NullString
	args := []any{id, pgsql.Stamp(now), prefix + row.DispatchReplyQueue, prefix + row.DispatchLegacyReplyQueue}
	found, err = pgsql.One(ctx, q, s.SQL(sqlStatus), args, &out.RunID, &out.Queue, &sent, &started, &ended, &out.Stopped, &held, &out.State,
		&out.Attempts, &out.Worker, &out.LastError, &out.Dead, &output, &out.Reply.Queue, &reply, &out.Twins)
	out.SentAt, out.StartedAt, out.EndedAt, out.HeldUntil = pgsql.Instant(sent), pgsql.Instant(started), pgsql.Instant(ended), pgsql.Instant(held)
	if output.Valid {
		out.Output = []byte(output.String)
	}
	if reply.Valid {
		out.Reply.Payload, out.Reply.Text = []byte(reply.String), true
	}
	return out, found, err
}

const (
	sqlCopies = `SELECT j.id, j.queue, CASE WHEN j.state = 1 AND j.lease_until >= $2 THEN coalesce(j.worker, '') ELSE '' END
FROM honker.job j WHERE j.id = ANY (ARRAY(SELECT honker.live_copies($1))) ORDER BY j.id`

	sqlStop = `SELECT id, queue, worker FROM honker.stop($1, $2)`

	sqlEndStopped = `SELECT honker.end_stopped($1, $2)`
)

// Copies implements engine.DispatchStore.
func (s Dispatches) Copies(ctx context.Context, q row.Querier, id int64, now time.Time) ([]row.DispatchCopy, error) {
	return s.copies(ctx, q, sqlCopies, id, now)
}

// Stop implements engine.DispatchStore. It waits for claims of the job that are under way.
func (s Dispatches) Stop(ctx context.Context, q row.Querier, id int64, now time.Time) ([]row.DispatchCopy, error) {
	pgsql.Leave(q, pgsql.Number)
	return s.copies(ctx, q, sqlStop, id, now)
}

func (s Dispatches) copies(ctx context.Context, q row.Querier, query string, id int64, now time.Time) (all []row.DispatchCopy, err error) {
	err = pgsql.Each(ctx, q, s.SQL(query), func(r *sql.Rows) error {
		var c row.DispatchCopy
		err := r.Scan(&c.ID, &c.Queue, &c.Worker)
		all = append(all, c)
		return err
	}, id, pgsql.Stamp(now))
	return all, err
}

// EndStopped implements engine.DispatchStore.
func (s Dispatches) EndStopped(ctx context.Context, q row.Querier, id int64, now time.Time) error {
	pgsql.Leave(q, pgsql.Number)
	_, err := q.ExecContext(ctx, s.SQL(sqlEndStopped), id, pgsql.Stamp(now))
	return err
}

// Jobs of a queue, k.queue, that wait or run.
const (
	waiting = ` FROM honker.job j WHERE j.queue = k.queue AND j.state = 0`
	running = ` FROM honker.job j WHERE j.queue = k.queue AND j.state = 1`

	sqlLoads = `SELECT k.queue, (SELECT count(*)` + waiting + `), (SELECT count(*)` + running + `), (SELECT min(j.created_at)` + waiting + `)
FROM unnest($1::text[]) WITH ORDINALITY k (queue, ord) ORDER BY k.ord`

	sqlWaiting = `SELECT k.queue, (SELECT count(*) FROM (SELECT true` + waiting + ` LIMIT 1000) first) FROM unnest($1::text[]) k (queue)`

	sqlRunning = `SELECT w.worker FROM unnest($1::text[]) k (queue) CROSS JOIN LATERAL (SELECT j.worker` + running + ` AND j.worker IS NOT NULL) w`
)

// Loads implements engine.DispatchStore.
func (s Dispatches) Loads(ctx context.Context, q row.Querier, queues []string) (all []row.DispatchLoad, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlLoads), func(r *sql.Rows) error {
		var l row.DispatchLoad
		var oldest sql.NullTime
		err := r.Scan(&l.Queue, &l.Depth, &l.InFlight, &oldest)
		l.Oldest = pgsql.Instant(oldest)
		all = append(all, l)
		return err
	}, pgsql.List(queues))
	return all, err
}

// Occupancy implements engine.DispatchStore.
func (s Dispatches) Occupancy(ctx context.Context, q row.Querier, idle, busy []string) (out row.DispatchOccupancy, err error) {
	out.Waiting = make(map[string]int, len(idle))
	err = pgsql.Each(ctx, q, s.SQL(sqlWaiting), func(r *sql.Rows) error {
		var queue string
		var n int
		err := r.Scan(&queue, &n)
		out.Waiting[queue] = n
		return err
	}, pgsql.List(idle))
	if err != nil {
		return out, err
	}
	err = pgsql.Each(ctx, q, s.SQL(sqlRunning), func(r *sql.Rows) error {
		var worker string
		err := r.Scan(&worker)
		out.Workers = append(out.Workers, worker)
		return err
	}, pgsql.List(busy))
	return out, err
}
