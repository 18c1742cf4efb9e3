package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// args returns the parameters of honker.step about settlements.
func (s *settling) args(worker string, now time.Time) []any {
	acks := make([]int64, len(s.acked))
	busy := make([]bool, len(s.acked))
	for i, t := range s.acked {
		acks[i], busy[i] = t.ID, t.Running
	}
	n := len(s.others)
	ids, nths, outs, rans := make([]int64, n), make([]int64, n), make([]int16, n), make([]int64, n)
	errs, logs, results, news := make([]string, n), make([]string, n), make([]*string, n), make([]*string, n)
	starts, ends := make([]time.Time, n), make([]*time.Time, n)
	slow, running := make([]bool, n), make([]bool, n)
	for i, t := range s.others {
		ids[i], nths[i], outs[i] = t.ID, t.Attempt, int16(codes[t.Outcome])
		errs[i], logs[i], slow[i], running[i] = t.Error, t.Log, t.SlowDown, t.Running
		starts[i], rans[i] = pgsql.Stamp(t.Start), ranOf(t, now).Microseconds()
		if results[i] = t.Result; t.ResultTTL > 0 {
			end := pgsql.StampUp(now.Add(t.ResultTTL))
			ends[i] = &end
		}
		if t.Progress != nil {
			news[i] = new(progressText(*t.Progress))
		}
	}
	return []any{worker, pgsql.Stamp(now), acks, s.nth, ids, nths, outs, pgsql.List(s.runs), errs, results, ends, news, starts, rans, logs,
		slow, running, busy}
}

// ranOf returns how long the attempt that s ends has run.
func ranOf(s *row.Settlement, now time.Time) time.Duration {
	if s.Ran == 0 && !s.Start.IsZero() {
		return max(0, now.Sub(s.Start))
	}
	return s.Ran
}

// progressText returns p as stored.
func progressText(p row.Progress) string {
	text, _ := json.Marshal(p) // an array of numbers and a text
	return string(text)
}

const sqlAckMany = `SELECT coalesce(cardinality(a.gone), 0), a.linked, EXISTS (SELECT FROM honker.queue k WHERE k.queue = $4 AND k.limited)
FROM honker.ack_($1, $2, $3::bigint[], NULL, $4) a`

// AckMany implements engine.JobStore. An ack leaves tokens for the jobs that wait for the acked job, so rest is false.
func (s Jobs) AckMany(ctx context.Context, q row.Querier, a row.AckMany, now time.Time) (n int, rest bool, err error) {
	var linked, limited bool
	_, err = pgsql.One(ctx, q, s.SQL(sqlAckMany), []any{a.Worker, pgsql.Stamp(now), pgsql.List(a.IDs), a.Queue}, &n, &linked, &limited)
	if linked {
		pgsql.Leave(q, pgsql.Resolve)
	}
	if limited {
		pgsql.Leave(q, pgsql.Room)
	}
	pgsql.Leave(q, pgsql.Ended)
	return n, false, err
}

// Postpone implements engine.JobStore. It does nothing, because the sweeps dead-letter jobs, and not the claims.
func (s Jobs) Postpone(context.Context, row.Querier, string, time.Time, time.Time) error { return nil }
