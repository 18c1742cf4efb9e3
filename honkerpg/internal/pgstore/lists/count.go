// Package lists contains the statements that select, list, count and change jobs for operators.
package lists

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/internal/row"
)

// Operators contains the statements that read and change jobs by conditions.
type Operators struct{ pgsql.Schema }

const (
	sqlQueues   = `SELECT honker.live_queues()`
	sqlCounts   = `SELECT queue, phase, n FROM honker.counts_($1, $2, $3, $4)`
	sqlHeads    = `SELECT queue, ready, behind, due, lapse FROM honker.heads($1, $2)`
	sqlAttempts = `SELECT attempt, worker, start_at, (extract(epoch FROM ran) * 1000000)::bigint, coalesce(error, ''), coalesce(log, '')
FROM honker.attempt WHERE job_id = $1 ORDER BY attempt`
)

// Queues implements engine.OperatorStore.
func (s Operators) Queues(ctx context.Context, q row.Querier) ([]string, error) {
	return pgsql.Texts(ctx, q, s.SQL(sqlQueues))
}

// allPhases are the phases of a selection that names none.
var allPhases = append(slices.Clone(row.StatsPhases), row.PhaseDone)

// costOfSeeks is the cost, in index entries, of the seeks for a row of counts.
const costOfSeeks = 20

// Counts implements engine.OperatorStore.
func (s Operators) Counts(ctx context.Context, q row.Querier, in row.JobSelect, limit int64, now time.Time) (counts map[string]row.QueueCounts, cost int64, err error) {
	phases := in.Phases
	if phases == nil {
		phases = allPhases
	}
	counts = make(map[string]row.QueueCounts)
	err = pgsql.Each(ctx, q, s.SQL(sqlCounts), func(r *sql.Rows) error {
		var queue string
		var phase row.Phase
		var n int64
		if err := r.Scan(&queue, (*string)(&phase), &n); err != nil {
			return err
		}
		cost += n + costOfSeeks
		if n > 0 {
			c := counts[queue]
			add(&c, phase, n, limit)
			counts[queue] = c
		}
		return nil
	}, pgsql.List(distinct(in.Queues)), texts(phases), limit+1, pgsql.Stamp(now))
	return counts, cost, err
}

// add adds n jobs of a phase to c, whose counts stop at limit.
func add(c *row.QueueCounts, phase row.Phase, n, limit int64) {
	of := map[row.Phase]*row.Count{
		row.PhaseReady: &c.Ready, row.PhaseScheduled: &c.Scheduled, row.PhaseRunning: &c.Running, row.PhaseLapsed: &c.Lapsed,
		row.PhaseHeld: &c.Held, row.PhaseExpired: &c.Expired, row.PhaseDead: &c.Dead, row.PhaseDone: &c.Done,
	}[phase]
	n += of.N
	*of = row.Count{N: min(n, limit), More: of.More || n > limit}
}

// distinct returns the sorted names without duplicates.
func distinct(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// texts returns phases as an array of text.
func texts(phases []row.Phase) []string {
	all := make([]string, len(phases))
	for i, p := range phases {
		all[i] = string(p)
	}
	return all
}

// Heads implements engine.OperatorStore.
func (s Operators) Heads(ctx context.Context, q row.Querier, queues []string, now time.Time) ([]row.QueueHead, error) {
	heads := []row.QueueHead{}
	err := pgsql.Each(ctx, q, s.SQL(sqlHeads), func(r *sql.Rows) error {
		var h row.QueueHead
		var ready, behind, due, lapse sql.NullTime
		err := r.Scan(&h.Queue, &ready, &behind, &due, &lapse)
		if lapse.Valid {
			lapse.Time = lapse.Time.Add(time.Microsecond) // the claim is valid through its end
		}
		if !due.Valid || lapse.Valid && lapse.Time.Before(due.Time) {
			due = lapse
		}
		h.Ready, h.Behind, h.NextAt = pgsql.Instant(ready), pgsql.Instant(behind), pgsql.Instant(due)
		heads = append(heads, h)
		return err
	}, pgsql.List(distinct(queues)), pgsql.Stamp(now))
	slices.SortFunc(heads, func(a, b row.QueueHead) int { return strings.Compare(a.Queue, b.Queue) })
	return heads, err
}

// Attempts implements engine.OperatorStore.
func (s Operators) Attempts(ctx context.Context, q row.Querier, id int64) (all []row.Attempt, err error) {
	err = pgsql.Each(ctx, q, s.SQL(sqlAttempts), func(r *sql.Rows) error {
		a := row.Attempt{Job: id}
		var start sql.NullTime
		var ran int64
		err := r.Scan(&a.N, &a.Worker, &start, &ran, &a.Error, &a.Log)
		a.Start, a.Ran = pgsql.Instant(start), time.Duration(ran)*time.Microsecond
		all = append(all, a)
		return err
	}, id)
	return all, err
}
