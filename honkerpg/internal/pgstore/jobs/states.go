package jobs

import (
	"context"
	"database/sql"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlStates = `SELECT u.queue, s.ready, s.next, s.limited, s.start
FROM unnest($1::text[]) WITH ORDINALITY u (queue, ord) CROSS JOIN LATERAL honker.state_of(u.queue, $2, false, $3) s ORDER BY u.ord`

// States implements engine.JobStore.
func (s Jobs) States(ctx context.Context, q row.Querier, queues []string, next bool, now time.Time) (all []row.QueueState, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlStates), func(r *sql.Rows) error {
		var state row.QueueState
		var at, start sql.NullTime
		err := r.Scan(&state.Queue, &state.Ready, &at, &state.Limited, &start)
		state.Next, state.Start = pgsql.Instant(at), pgsql.Instant(start)
		all = append(all, state)
		return err
	}, pgsql.List(queues), next, pgsql.Stamp(now))
	return all, err
}

// NextClaim implements engine.JobStore.
func (s Jobs) NextClaim(ctx context.Context, q row.Querier, queue string, now time.Time) (time.Time, error) {
	var at sql.NullTime
	_, err := pgsql.One(ctx, q, s.SQL(`SELECT honker.next_claim($1, $2)`), []any{queue, pgsql.Stamp(now)}, &at)
	return pgsql.Instant(at), err
}
