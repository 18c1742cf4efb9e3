package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlCancel = `SELECT id, queue FROM honker.cancel_($1, $2, $3)`

// Cancel implements engine.JobStore.
func (s Jobs) Cancel(ctx context.Context, q row.Querier, queue string, id int64, now time.Time) (bool, error) {
	gone, err := s.cancel(ctx, q, queue, []int64{id}, now)
	return len(gone) > 0, err
}

// cancel deletes live jobs, in any queue if queue is "", and returns them.
func (s Jobs) cancel(ctx context.Context, q row.Querier, queue string, ids []int64, now time.Time) (gone []row.Change, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlCancel), func(r *sql.Rows) error {
		var c row.Change
		err := r.Scan(&c.ID, &c.Queue)
		gone = append(gone, c)
		return err
	}, queue, pgsql.List(ids), pgsql.Stamp(now))
	if err == nil && len(gone) > 0 {
		err = s.LeaveTokens(ctx, q)
	}
	return gone, err
}

const sqlGone = `SELECT u.id FROM unnest($1::bigint[]) u (id)
WHERE NOT EXISTS (SELECT FROM honker.job WHERE id = u.id) AND NOT EXISTS (SELECT FROM honker.dead WHERE id = u.id)`

// Gone implements engine.JobStore.
func (s Jobs) Gone(ctx context.Context, q row.Querier, ids []int64) ([]int64, error) {
	return pgsql.IDs(ctx, q, s.SQL(sqlGone), pgsql.Replan, pgsql.List(ids))
}
