package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

// A stored time outside the range of time.Time is shown as the first or last possible time, which preserves the order
// of stored times.
func TestInstant_Bounds(t *testing.T) {
	require.Zero(t, row.Instant(0))
	require.Zero(t, row.InstantMS(0))
	require.EqualValues(t, 1700000000, row.Instant(1700000000).Unix())
	require.EqualValues(t, int64(1700000000123), row.InstantMS(1700000000123).UnixMilli())
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1023, 9223371974719179008, 253402300799999} {
		require.True(t, row.Instant(n).Equal(last), "%d", n)
		require.True(t, row.InstantMS(n).Equal(last), "%d", n)
	}
	for _, n := range []int64{math.MinInt64, math.MinInt64 + 1, -62135596800000} {
		require.Equal(t, 1, row.Instant(n).UTC().Year(), "%d", n)
		require.False(t, row.InstantMS(n).IsZero(), "the zero time would mean none")
		require.False(t, row.Instant(n).IsZero())
	}
}

// Jobs whose times are outside the range of time.Time are claimed in the order of their stored times, from a
// single queue and from several. An explanation gives their position in the same order.
func TestJobs_Claim_TimesOutOfRange(t *testing.T) {
	for name, claim := range map[string]func(q row.Querier) ([]*row.Job, []row.Death, error){
		"queue": func(q row.Querier) ([]*row.Job, []row.Death, error) {
			return jobs.Jobs{}.ClaimAt(ctx, q, "a", "w", 9, 5000, 9)
		},
		"queues": func(q row.Querier) ([]*row.Job, []row.Death, error) {
			return jobs.Jobs{}.ClaimLanes(ctx, q, row.InOneOrder("b", "a"), "w", 9, 5000, 9)
		},
	} {
		tx := begin(t, openFresh(t))
		exec(t, tx, `INSERT INTO _honker_live (id, queue, payload, run_at) VALUES
  (1, 'a', '1', 1), (2, 'a', '1', 0), (3, 'a', '1', -62135596800), (4, 'a', '1', -7000000000000), (5, 'a', '1', -9223372036854775808)`)
		all, err := jobs.Jobs{}.Explain(ctx, tx, []int64{4}, row.ExplainRequest{MaxAhead: 9, MaxJobs: 9}, time.Unix(5, 0))
		require.NoError(t, err, name)
		require.EqualValues(t, 1, all[0].Forecast.Ahead.N, name)
		got, _, err := claim(tx)
		require.NoError(t, err, name)
		require.Equal(t, []int64{5, 4, 3, 2, 1}, idsOf(got, jobID), name)
		require.Zero(t, got[3].RunAt, name)
		require.Equal(t, 1, got[0].RunAt.UTC().Year(), name)
	}
}

// Retention by count compares the stored times, even if they are outside the range of time.Time.
func TestKept_Cutoff_TimesOutOfRange(t *testing.T) {
	for _, at := range []int64{math.MinInt64, -62135596800, -1, 0, 253402300800, 9223372036854775, math.MaxInt64 - 1} {
		tx := begin(t, openFresh(t))
		exec(t, tx, `INSERT INTO _honker_dead (id, queue, payload, died_at) VALUES (1, 'a', '1', ?1), (2, 'a', '1', ?1), (3, 'a', '1', ?1 + 1)`, at)
		exec(t, tx, `INSERT INTO _honkerx_done (job_id, queue, payload, priority, run_at, attempts, max_attempts, created_at, done_ms)
  SELECT id, queue, '1', 0, 0, 1, 3, 0, died_at FROM _honker_dead`)
		for _, k := range []struct {
			jobs.Kept
			find func(part row.Part) ([]int64, error)
		}{
			{jobs.KeptDead, func(part row.Part) ([]int64, error) { return jobs.SweepDead.Find(ctx, tx, part, time.Time{}, 9) }},
			{jobs.KeptDone, func(part row.Part) ([]int64, error) { return jobs.SweepDone.Find(ctx, tx, part, time.Time{}, 9) }},
		} {
			c, err := k.Cutoff(ctx, tx, "a", row.Retention{MaxCount: 2}, 35)
			require.NoError(t, err, at)
			ids, err := k.find(row.Part{Name: "a", Through: c})
			require.NoError(t, err, at)
			require.Equal(t, []int64{1}, ids, at)
			ids, err = k.find(row.Part{Name: "a", Through: row.Everything})
			require.NoError(t, err, at)
			require.Equal(t, []int64{1, 2, 3}, ids, at)
			ids, err = k.find(row.Part{Name: "a"})
			require.NoError(t, err, at)
			require.Empty(t, ids, at)
		}
	}
}

// A claim whose deadline is unlimited or not a number doesn't make a group ready, and isn't reported as a time at
// which an event returns.
func TestGroups_States_ForeignDeadlines(t *testing.T) {
	for deadline, next := range map[string]int64{
		"2000": 2001, "2000.0": 2001, "9223372036854775807": 0, "9223372036854775806": 0, "'never'": 0, "x'00'": 0,
		"1e300": math.MaxInt64 - 1022,
	} {
		tx := begin(t, openFresh(t))
		exec(t, tx, `INSERT INTO _honkerx_group_claims (group_id, offset, state, holder, token, deadline_ms, attempts)
			VALUES (1, 1, 0, 'm', 1, `+deadline+`, 1)`)
		states, err := streams.Groups{}.States(ctx, tx, []int64{1}, time.UnixMilli(1000))
		require.NoError(t, err, deadline)
		require.Equal(t, []row.GroupState{{ID: 1, Next: row.InstantMS(next)}}, states, deadline)
	}
}
