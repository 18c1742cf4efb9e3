package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/schema"
)

// Check reports a pause without the trigger that enforces it on other bindings, a trigger without a pause, and
// anything left over from a pause that has ended.
func TestCheck_Pause(t *testing.T) {
	db := openFresh(t)
	const gate = "the trigger of pauses and limits exists if and only if a queue is paused or has limits: row 0"
	for statement, rule := range map[string]string{
		`DROP TRIGGER _honkerx_gate`:                                   gate,
		`DELETE FROM _honkerx_queues`:                                  gate,
		`UPDATE _honkerx_queues SET paused_ms = NULL, until_ms = NULL`: "only a paused queue has the end, reason and author of a pause: row 0",
		`UPDATE _honkerx_queues SET until_ms = 1500`:                   "a pause ends at a whole second: row 0",
	} {
		tx := begin(t, db)
		was, err := jobs.Pauses{}.Set(ctx, tx, "a", "", row.Pause{Since: time.UnixMilli(1), Until: time.Unix(2, 0), Reason: "r"}, time.Unix(1, 0))
		require.NoError(t, err)
		require.False(t, was)
		broken, err := schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Empty(t, broken)
		exec(t, tx, statement)
		broken, err = schema.Check(ctx, tx)
		require.NoError(t, err)
		require.Contains(t, broken, rule, statement)
		require.NoError(t, tx.Rollback())
	}
}

// For a paused queue, NextClaimAt returns the time at which the pause ends if jobs are due by then, or the first
// job's time otherwise.
func TestNextClaimAt_Paused(t *testing.T) {
	for name, c := range map[string]struct{ runAt, until, want int64 }{
		"due":           {1, 20, 20},
		"due meanwhile": {15, 20, 20},
		"later":         {30, 20, 30},
		"no end":        {1, 0, 0},
		"over":          {30, 5, 30},
	} {
		tx := begin(t, openFresh(t))
		_, err := jobs.Jobs{}.InsertOne(ctx, tx, jobs.NewJob{Queue: "a", RunAt: c.runAt, MaxAttempts: 3}, "1")
		require.NoError(t, err)
		_, err = jobs.Pauses{}.Set(ctx, tx, "a", "", row.Pause{Since: time.UnixMilli(1), Until: row.Instant(c.until)}, time.Unix(2, 0))
		require.NoError(t, err)
		next, err := nextClaim(tx, "a", 10)
		require.NoError(t, err)
		require.Equal(t, c.want, next, name)
	}
}
