package jobs

import (
	"context"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

const sqlInsertAll = `SELECT honker.insert_all($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7)`

// InsertAll implements engine.Inserter.
func (s Jobs) InsertAll(ctx context.Context, q row.Querier, all []*row.Insert, now time.Time) (out [][]int64, err error) {
	var queues, payloads []string
	var priorities, most []int64
	var due []time.Time
	var expiries []*time.Time
	for _, in := range all {
		runAt, expires := insertTimes(in, now)
		for _, payload := range in.Payloads {
			queues, payloads = append(queues, in.Queue), append(payloads, payload)
			priorities, most = append(priorities, in.Priority), append(most, in.MaxAttempts)
			due, expiries = append(due, pgsql.StampUp(runAt)), append(expiries, pgsql.OrNull(expires.Time, expires.Valid))
		}
	}
	ids, err := pgsql.IDs(ctx, q, s.SQL(sqlInsertAll), queues, payloads, priorities, most, due, expiries, pgsql.Stamp(now))
	if pgsql.Dropped(err) {
		err = row.ErrNotInserted
	}
	if err != nil {
		return nil, err
	}
	out = make([][]int64, len(all))
	for i, in := range all {
		out[i], ids = ids[:len(in.Payloads)], ids[len(in.Payloads):]
	}
	return out, nil
}
