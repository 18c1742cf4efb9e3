package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/streams"
)

// A stored time outside the range of time.Time is shown as the first or last possible time, which
// preserves the order of stored times.
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

// A claim whose deadline is unbounded or not a number does not make a group ready, and is not
// reported as a time at which an event returns.
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
