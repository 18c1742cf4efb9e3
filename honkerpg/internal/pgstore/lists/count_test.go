//go:build unix

package lists_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/honkerpg/internal/pgstore"
	"github.com/honker-go/honker/internal/row"
)

// Counts of waiting jobs leave out the ended ones, at any limit: also at one that is below the number of ended jobs. Jobs of
// several priorities add up.
func TestCounts_LeaveOutEndedJobs(t *testing.T) {
	b := open(t)
	add := func(n int, due, expires, attempts string) {
		t.Helper()
		b.exec(t, `INSERT INTO honker.job (queue, payload, priority, run_at, created_at, expires_at, attempts, max_attempts)
SELECT 'q', '1', i % 3, $1::timestamptz + $3::interval, $1, $1::timestamptz + $4::interval, $5::bigint, 3 FROM generate_series(1, $2::bigint) i`,
			start, n, due, nilIfEmpty(expires), attempts)
	}
	add(5, "-1 hour", "", "0")
	add(2, "-1 hour", "1 hour", "2")
	add(4, "-1 hour", "", "3")          // without attempts
	add(3, "-1 hour", "-1 minute", "0") // expired
	add(2, "-1 hour", "-1 minute", "3") // both
	add(6, "1 hour", "", "0")
	add(2, "1 hour", "", "3")
	add(5, "1 hour", "-1 minute", "0")
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for most := int64(1); most < 16; most++ {
		counts, _, err := pgstore.Stores(b.Schema).Operators.Counts(t.Context(), tx, row.JobSelect{Queues: []string{"q"}, Phases: row.StatsPhases}, most, start)
		require.NoError(t, err)
		up := func(n int64) row.Count { return row.Count{N: min(n, most), More: n > most} }
		require.Equal(t, row.QueueCounts{Ready: up(7), Scheduled: up(8), Expired: up(14)}, counts["q"], most)
	}
}

// nilIfEmpty returns NULL for "".
func nilIfEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}
