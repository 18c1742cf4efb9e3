package dispatches

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

const (
	whereOver = ` FROM honker.sent_job s WHERE s.ended_at < $1 AND NOT EXISTS (SELECT FROM honker.job j WHERE j.id = s.run_id)`

	sqlOver = `SELECT s.job_id` + whereOver + ` LIMIT $2`

	sqlDropOver = `WITH gone AS (DELETE` + whereOver + ` AND s.job_id = ANY ($2::bigint[]) RETURNING s.job_id),
copies AS (DELETE FROM honker.sent_copy c USING gone g WHERE c.sent_id = g.job_id)
SELECT job_id FROM gone`
)

// SweepSent returns the sweep of the records of sent jobs that have ended.
func (s Dispatches) SweepSent() engine.Sweep {
	return engine.Sweep{
		Find: func(ctx context.Context, q row.Querier, _ row.Part, at time.Time, limit int) ([]int64, error) {
			return pgsql.IDs(ctx, q, s.SQL(sqlOver), pgsql.Stamp(at), limit)
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, at time.Time, _ int) (row.Swept, error) {
			gone, err := pgsql.IDs(ctx, q, s.SQL(sqlDropOver), pgsql.Stamp(at), pgsql.List(ids))
			return row.Swept{N: len(gone)}, err
		},
	}
}

const (
	// sqlOldReplies finds waiting replies in the queues whose names begin with $1 and end with a job ID, unless dispatch
	// knows the job. $2 is the first name after all of these.
	sqlOldReplies = `SELECT j.id FROM honker.job j
WHERE j.state = 0 AND j.queue >= $1 AND j.queue < $2 AND j.created_at < $3 AND substr(j.queue, length($1) + 1) ~ '^[0-9]{1,18}$'
  AND NOT honker.was_sent(substr(j.queue, length($1) + 1)::bigint)
LIMIT $4`

	sqlDropReplies = `DELETE FROM honker.job WHERE id = ANY ($1::bigint[]) AND state = 0`
)

// sqlPrefixes finds the key prefixes in both tables. A prefix is the part of a name before its fixed part. The default
// prefix is among them if dispatch has sent a job, or if the prefix has a reply.
var sqlPrefixes = `SELECT split_part(queue, 'q:work:', 1) AS prefix FROM honker.sent_job WHERE queue LIKE '%q:work:%'
UNION SELECT split_part(key, 'meta:actor:inst:', 1) FROM honker.actor WHERE key LIKE '%meta:actor:inst:%'
UNION SELECT '` + row.DispatchPrefix + `' WHERE EXISTS (SELECT FROM honker.sent_job)
  OR ` + hasReply(row.DispatchReplyQueue) + ` OR ` + hasReply(row.DispatchLegacyReplyQueue) + ` ORDER BY prefix`

// hasReply returns the condition that a job waits in a queue whose name begins with the default prefix and name.
func hasReply(name string) string {
	first, end := replyQueues(row.DispatchPrefix + name)
	return `(SELECT j.id FROM honker.job j WHERE j.state = 0 AND j.queue >= '` + first + `' AND j.queue < '` + end + `' ORDER BY j.queue LIMIT 1) IS NOT NULL`
}

// replyQueues returns the bounds of the names that begin with first, which ends with a colon.
func replyQueues(first string) (from, end string) {
	return first, first[:len(first)-1] + ";" // the character after the colon
}

// SweepReplies returns the sweep of replies that nobody has read, in a part for each key prefix.
func (s Dispatches) SweepReplies() engine.Sweep {
	return engine.Sweep{
		Of: "prefix",
		Parts: func(ctx context.Context, q row.Querier, _ time.Time) (parts []row.Part, err error) {
			names, err := pgsql.Texts(ctx, q, s.SQL(sqlPrefixes))
			for _, name := range names {
				parts = append(parts, row.Part{Name: name})
			}
			return parts, err
		},
		Find: func(ctx context.Context, q row.Querier, part row.Part, at time.Time, limit int) (ids []int64, err error) {
			for _, name := range []string{row.DispatchReplyQueue, row.DispatchLegacyReplyQueue} {
				first, end := replyQueues(part.Name + name)
				some, err := pgsql.IDs(ctx, q, s.SQL(sqlOldReplies), first, end, pgsql.Stamp(at), limit-len(ids))
				if err != nil {
					return nil, err
				}
				ids = append(ids, some...)
			}
			return ids, nil
		},
		Take: func(ctx context.Context, q row.Querier, _ row.Part, ids []int64, _ time.Time, _ int) (row.Swept, error) {
			n, err := pgsql.Affected(ctx, q, s.SQL(sqlDropReplies), pgsql.List(ids))
			return row.Swept{N: n}, err
		},
	}
}

// SweepActors returns the sweep of actors that have expired.
func (s Dispatches) SweepActors() engine.Sweep { return s.RowSweep("actor", `r.expires_at <= $1`) }
