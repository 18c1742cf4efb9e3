//go:build unix

package pgbackend_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgbackend"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/lists"
	"github.com/honker-go/honker/honkerpg/internal/pgstore/pgsql"
	"github.com/honker-go/honker/honkerpg/internal/pgtest"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// operated is a backend whose jobs are written by SQL, in any state.
type operated struct {
	*pgbackend.Backend
	lists.Operators
}

// noon is the time at which these tests call the stores.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func operate(t *testing.T) operated {
	schema := pgsql.Schema(pgtest.Schema(t))
	return operated{open(t, schema, nil), lists.Operators{Schema: schema}}
}

// exec runs a statement in which $1 is noon.
func (o operated) exec(t *testing.T, query string) {
	t.Helper()
	o.write(t, func(ctx context.Context, q engine.Querier) error {
		_, err := q.ExecContext(ctx, o.SQL(strings.ReplaceAll(query, "$1", "$1::timestamptz")), noon)
		return err
	})
}

func (o operated) write(t *testing.T, f func(ctx context.Context, q engine.Querier) error) {
	t.Helper()
	require.NoError(t, o.Write(t.Context(), engine.OpFunc(func(ctx context.Context, q engine.Querier, _ time.Time) error { return f(ctx, q) })))
}

func (o operated) read(t *testing.T, f func(ctx context.Context, q engine.Querier) error) {
	t.Helper()
	require.NoError(t, o.Read(t.Context(), true, f))
}

// phasesDDL writes a job in each phase to the queue a, and jobs at the bounds of the phases to the queue b.
const phasesDDL = `INSERT INTO honker.job (id, queue, payload, state, run_at, created_at, lease_until, expires_at, attempts, max_attempts)
SELECT x.id, x.queue, '{}', x.state, $1 + x.due * interval '1 second', $1, $1 + x.lease * interval '1 second', $1 + x.expires * interval '1 second', x.attempts, 3
FROM (VALUES
  (1, 'a', 0, -5, NULL, NULL, 0), (2, 'a', 0, 5, NULL, NULL, 0), (3, 'a', 1, -5, 5, NULL, 1), (4, 'a', 1, -5, -5, NULL, 1), (5, 'a', 2, -5, NULL, NULL, 0),
  (6, 'a', 3, -5, NULL, NULL, 0), (7, 'a', 0, -5, NULL, -1, 0), (8, 'a', 0, 5, NULL, -1, 0), (9, 'a', 0, -5, NULL, NULL, 3), (10, 'a', 1, -5, -5, NULL, 3),
  (11, 'a', 1, -5, -5, -1, 1),
  (12, 'b', 0, 0, NULL, NULL, 0), (13, 'b', 1, -5, 0, NULL, 3), (14, 'b', 0, 5, NULL, NULL, 3), (15, 'b', 0, -5, NULL, 0, 0), (16, 'b', 3, -5, NULL, -1, 3)
) x (id, queue, state, due, lease, expires, attempts)`

// Counts and the phases of a selection agree with the phase that a job has by row.Job.
func TestOperatorsCountPhases(t *testing.T) {
	o := operate(t)
	o.exec(t, phasesDDL)
	one, two := row.Count{N: 1}, row.Count{N: 2}
	o.read(t, func(ctx context.Context, q engine.Querier) error {
		got, cost, err := o.Counts(ctx, q, row.JobSelect{}, 9, noon)
		require.Positive(t, cost)
		require.Equal(t, map[string]row.QueueCounts{
			"a": {Ready: one, Scheduled: one, Running: one, Lapsed: one, Held: two, Expired: row.Count{N: 5}},
			"b": {Ready: one, Scheduled: one, Running: one, Held: one, Expired: one},
		}, got)
		return err
	})
	o.read(t, func(ctx context.Context, q engine.Querier) error {
		got, _, err := o.Counts(ctx, q, row.JobSelect{Queues: []string{"a", "a"}, Phases: []row.Phase{row.PhaseExpired, row.PhaseReady}}, 2, noon)
		require.Equal(t, map[string]row.QueueCounts{"a": {Ready: one, Expired: row.Count{N: 2, More: true}}}, got)
		return err
	})
}

// Heads passes over jobs that cannot run. Behind a thousand of them, it reports a bound.
func TestOperatorsHeads(t *testing.T) {
	o := operate(t)
	o.exec(t, phasesDDL)
	o.exec(t, `INSERT INTO honker.dead (id, queue, payload, run_at, created_at, died_at, priority, attempts, max_attempts) VALUES (20, 'c', '{}', $1, $1, $1, 0, 3, 3)`)
	o.exec(t, `INSERT INTO honker.job (id, queue, payload, run_at, created_at, priority, attempts) SELECT 1000 + n, 'd', '{}', $1 - interval '1 hour', $1, 1, 3 FROM generate_series(1, 1000) n`)
	o.exec(t, `INSERT INTO honker.job (id, queue, payload, run_at, created_at, priority) VALUES (30, 'd', '{}', $1 - interval '1 minute', $1, 1), (31, 'd', '{}', $1 - interval '1 second', $1, 0)`)
	o.read(t, func(ctx context.Context, q engine.Querier) error {
		names, err := o.Queues(ctx, q)
		require.ElementsMatch(t, []string{"a", "b", "d"}, names)
		require.NoError(t, err)
		heads, err := o.Heads(ctx, q, nil, noon)
		for i := range heads {
			for _, at := range []*time.Time{&heads[i].Ready, &heads[i].Behind, &heads[i].NextAt} {
				if !at.IsZero() {
					*at = at.UTC()
				}
			}
		}
		require.Equal(t, []row.QueueHead{
			{Queue: "a", Ready: noon.Add(-5 * time.Second), NextAt: noon.Add(5 * time.Second)},
			{Queue: "b", Ready: noon},
			{Queue: "c"},
			{Queue: "d", Ready: noon.Add(-time.Second), Behind: noon.Add(-time.Hour)},
		}, heads)
		return err
	})
}

// Attempts are listed in order, with times in microseconds.
func TestOperatorsAttempts(t *testing.T) {
	o := operate(t)
	o.exec(t, `INSERT INTO honker.attempt (job_id, attempt, worker, start_at, ran, error, log)
VALUES (1, 2, 'w', $1, interval '1 day 7 microseconds', 'no', NULL), (1, 1, 'v', $1, interval '0', NULL, 'log'), (2, 1, 'w', $1, interval '0', NULL, NULL)`)
	o.read(t, func(ctx context.Context, q engine.Querier) error {
		all, err := o.Attempts(ctx, q, 1)
		require.Len(t, all, 2)
		require.Equal(t, row.Attempt{Job: 1, N: 1, Worker: "v", Start: all[0].Start, Log: "log"}, all[0])
		require.Equal(t, row.Attempt{Job: 1, N: 2, Worker: "w", Start: all[1].Start, Ran: 24*time.Hour + 7*time.Microsecond, Error: "no"}, all[1])
		require.True(t, all[1].Start.Equal(noon))
		return err
	})
}
