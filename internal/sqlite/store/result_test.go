package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
)

func saveResult(t *testing.T, q row.Querier, id int64, value string, now, expires int64) {
	t.Helper()
	require.NoError(t, jobs.Results{}.SaveUntil(ctx, q, id, value, now, expires))
}

// A result can be read until the second at which it expires.
func TestResultRows_Expiry(t *testing.T) {
	tx := begin(t, openFresh(t))
	saveResult(t, tx, 1, `{"ok":true}`, 10, 20)
	saveResult(t, tx, 2, `null`, 10, 0)
	for _, c := range []struct {
		id, now int64
		want    string
		found   bool
	}{{1, 10, `{"ok":true}`, true}, {1, 19, `{"ok":true}`, true}, {1, 20, "", false}, {2, 1 << 40, "null", true}, {3, 10, "", false}} {
		value, found, err := jobs.Results{}.Get(ctx, tx, c.id, c.now)
		require.NoError(t, err)
		require.Equal(t, c.found, found, "%+v", c)
		require.Equal(t, c.want, value, "%+v", c)
	}
}

// A result of SQL NULL, written by another binding, counts as missing. A JSON null is a result.
func TestResultRows_Null(t *testing.T) {
	tx := begin(t, openFresh(t))
	exec(t, tx, `INSERT INTO _honker_results (job_id, value) VALUES (1, NULL)`)
	_, found, err := jobs.Results{}.Get(ctx, tx, 1, 10)
	require.NoError(t, err)
	require.False(t, found)
}

// A second result replaces the first, including its expiry.
func TestResultRows_Replaced(t *testing.T) {
	tx := begin(t, openFresh(t))
	saveResult(t, tx, 1, "1", 10, 20)
	saveResult(t, tx, 1, "2", 30, 0)
	require.Equal(t, []string{"1|2|10|NULL"}, lines(t, tx, `SELECT * FROM _honker_results`), "created_at stays the first one's")
}

func fate(t *testing.T, q row.Querier, id, now int64) row.Fate {
	t.Helper()
	f, err := jobs.Results{}.Fate(ctx, q, id, time.Unix(now, 0))
	require.NoError(t, err)
	return f
}

// Fate follows a job to its end.
func TestResultRows_Fate(t *testing.T) {
	tx := begin(t, openFresh(t))
	require.Equal(t, row.Fate{}, fate(t, tx, 1, 10), "the id was never given")
	_, err := jobs.Jobs{}.InsertMany(ctx, tx, newJob, []string{"1", "2", "3"})
	require.NoError(t, err)
	require.Equal(t, row.Fate{Live: true, Known: true}, fate(t, tx, 1, 10))

	_, _, err = claim(tx, "a", "w", 3, 10, 20)
	require.NoError(t, err)
	saveResult(t, tx, 1, `"done"`, 10, 40)
	_, err = jobs.Jobs{}.Ack(ctx, tx, row.Claim{ID: 1, Worker: "w", Attempt: 1}, 11)
	require.NoError(t, err)
	require.Equal(t, row.Fate{Result: `"done"`, HasResult: true, Known: true}, fate(t, tx, 1, 39))
	require.Equal(t, row.Fate{Known: true}, fate(t, tx, 1, 40), "the result has expired")

	_, err = jobs.Jobs{}.DeadLetter(ctx, tx, row.Claim{ID: 2, Worker: "w", Attempt: 1}, "no", 12)
	require.NoError(t, err)
	require.Equal(t, row.Fate{Dead: true, LastError: "no", DiedAt: row.Instant(12), Attempts: 1, Known: true}, fate(t, tx, 2, 13))

	_, err = jobs.Jobs{}.Cancel(ctx, tx, "a", 3, time.Unix(0, 0))
	require.NoError(t, err)
	require.Equal(t, row.Fate{Known: true}, fate(t, tx, 3, 13))
	require.False(t, fate(t, tx, 4, 13).Known)
}

// Decided returns the jobs that have a result or are no longer live.
func TestResultRows_Decided(t *testing.T) {
	tx := begin(t, openFresh(t))
	_, err := jobs.Jobs{}.InsertMany(ctx, tx, newJob, []string{"1", "2", "3", "4", "5"})
	require.NoError(t, err)
	decided := func() []int64 {
		ids, err := jobs.Results{}.Decided(ctx, tx, []int64{6, 5, 4, 3, 2, 1})
		require.NoError(t, err)
		return ids
	}
	require.Empty(t, decided())
	_, _, err = claim(tx, "a", "w", 3, 10, 20)
	require.NoError(t, err)
	require.Empty(t, decided(), "in flight")

	saveResult(t, tx, 5, "1", 10, 0) // before its ack
	_, err = jobs.Jobs{}.Ack(ctx, tx, row.Claim{ID: 1, Worker: "w", Attempt: 1}, 11)
	require.NoError(t, err)
	_, err = jobs.Jobs{}.DeadLetter(ctx, tx, row.Claim{ID: 2, Worker: "w", Attempt: 1}, "no", 11)
	require.NoError(t, err)
	_, err = jobs.Jobs{}.Cancel(ctx, tx, "a", 4, time.Unix(0, 0))
	require.NoError(t, err)
	require.ElementsMatch(t, []int64{1, 2, 4, 5}, decided())

	ids, err := jobs.Results{}.Decided(ctx, tx, nil)
	require.NoError(t, err)
	require.Empty(t, ids)
}
