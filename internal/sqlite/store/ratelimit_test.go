package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/sqlite/store/locks"
)

// These statements are equivalent to honker_rate_limit_try.
const (
	honkerRateTry = `INSERT INTO _honker_rate_limits (name, window_start, count) VALUES (?1, (?2 / ?4) * ?4, 1)
ON CONFLICT (name, window_start) DO UPDATE SET count = count + 1 WHERE count < ?3`
	rateRows = `SELECT name, window_start, count FROM _honker_rate_limits ORDER BY 1, 2`
)

// Take counts calls as honker does.
func TestRateRows_AsHonker(t *testing.T) {
	tx := begin(t, openFresh(t))
	r := rand.New(rand.NewPCG(seed(t), 2))
	through := map[bool]int{}
	for step := range 2000 {
		name, now := fmt.Sprint("rate", r.IntN(2)), int64(1000+step/10)
		limit, per := 1+r.IntN(8), 1+r.Int64N(9)
		exec(t, tx, `SAVEPOINT step`)
		want := change(t, tx, honkerRateTry, name, now, limit, per)
		rs := lines(t, tx, rateRows)
		exec(t, tx, `ROLLBACK TO step`)
		got, err := locks.RateLimits{}.Take(ctx, tx, name, time.Unix(now/per*per, 0), limit)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, rs, lines(t, tx, rateRows))
		exec(t, tx, `RELEASE step`)
		through[got]++
	}
	require.Greater(t, through[true], 100)
	require.Greater(t, through[false], 100)
}

// A rejected call isn't counted.
func TestRateRows_RefusedUncounted(t *testing.T) {
	tx := begin(t, openFresh(t))
	for i := range 103 {
		ok, err := locks.RateLimits{}.Take(ctx, tx, "a", time.Unix(10, 0), 3)
		require.NoError(t, err)
		require.Equal(t, i < 3, ok)
	}
	for start, want := range map[int64]int{10: 3, 20: 0} {
		n, err := locks.RateLimits{}.Count(ctx, tx, "a", time.Unix(start, 0))
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}

// Sweep deletes the windows that started before its argument.
func TestRateRows_Sweep(t *testing.T) {
	tx := begin(t, openFresh(t))
	for _, start := range []int64{10, 20, 30} {
		for _, name := range []string{"a", "b"} {
			_, err := locks.RateLimits{}.Take(ctx, tx, name, time.Unix(start, 0), 1)
			require.NoError(t, err)
		}
	}
	n, err := locks.RateLimits{}.Sweep(ctx, tx, 20)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{"a|20|1", "a|30|1", "b|20|1", "b|30|1"}, lines(t, tx, rateRows))
}
