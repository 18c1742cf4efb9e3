package store_test

import (
	"database/sql"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/jobs"
	"github.com/honker-go/honker/internal/sqlite/store/notify"
)

// Where triggers and this package's statements share a statement or condition, the text is the same in both, even
// though the triggers are written out in .sql files.
func TestTriggers_ShareStatements(t *testing.T) {
	triggers := withTriggers(t, openFresh(t))
	var unhold, next, edge string
	for _, s := range allStatements() {
		switch s.Name {
		case "sqlUnhold":
			unhold = s.SQL
		case "sqlNextOfKeyOf":
			next = s.SQL
		case "sqlAfterBatches":
			_, edge, _ = strings.Cut(s.SQL, "w.value, ")
			edge, _, _ = strings.Cut(edge, ", ?3 FROM")
		}
	}
	state := func(batch, ifDead string) string {
		return strings.NewReplacer("a.value", batch, "?3", ifDead).Replace(edge)
	}
	for _, c := range []struct{ trigger, part string }{
		{"_honkerx_after_done", strings.Replace(unhold, "?1", "NEW.waiter", 1)},
		{"_honkerx_key_slot", strings.Replace(unhold, "?1", "iif(NEW.slot = 0, NEW.job_id, NULL)", 1)},
		{"_honkerx_unique_gone", strings.Replace(unhold, "?1", "(SELECT job_id FROM _honkerx_unique WHERE queue = OLD.queue AND key = OLD.unique_key)", 1)},
		{"_honkerx_after_again", strings.Replace(next, "?1", "NEW.waiter", 1)},
		{"_honkerx_key_later", strings.Replace(next, "?1", "NEW.id", 1)},
		{"_honkerx_after_member", state("NEW.batch", "0")},
		{"_honkerx_after_member", state("NEW.batch", "if_dead")},
		{"_honkerx_after_sealed", state("NEW.id", "0")},
		{"_honkerx_after_sealed", state("NEW.id", "if_dead")},
	} {
		require.NotEmpty(t, c.part, c.trigger)
		require.Contains(t, triggers[c.trigger], c.part, c.trigger)
	}
}

// All triggers read the clock the same way.
func TestTriggers_OneClock(t *testing.T) {
	triggers := withTriggers(t, openFresh(t))
	clock := regexp.MustCompile(`CAST\(.*?julianday.*? AS INTEGER\)`)
	want := clock.FindString(triggers["_honkerx_gate"])
	require.NotEmpty(t, want)
	for _, name := range slices.Sorted(maps.Keys(triggers)) {
		body := triggers[name]
		require.Equal(t, strings.Count(body, "'now'"), strings.Count(body, want), name)
	}
}

// withTriggers adds to db every trigger that the library creates on demand, and returns all
// triggers by name.
func withTriggers(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	withDispatch(t, db)
	db.SetMaxOpenConns(1) // temporary triggers belong to a connection
	placed, err := jobs.Jobs{}.InsertUnique(ctx, db, jobs.NewJob{Queue: "a", MaxAttempts: 3}, `1`, jobs.Unique{Key: "k", Started: true})
	require.NoError(t, err)
	require.NoError(t, jobs.Jobs{}.AddAttempts(ctx, db, []row.Attempt{{Job: placed.ID, N: 1}}))
	require.NoError(t, jobs.Jobs{}.AddLinks(ctx, db, &row.Links{}, []int64{placed.ID}))
	rate := row.StartRate{N: 1, Per: time.Second, Burst: 1}
	_, err = jobs.Limits{}.Set(ctx, db, "a", row.QueueLimits{Running: 1, PerKey: 1, Rate: rate, KeyRate: rate})
	require.NoError(t, err)
	for _, statement := range notify.LegacyMessages {
		exec(t, db, statement)
	}
	all := make(map[string]string)
	for _, schema := range []string{"sqlite_schema", "sqlite_temp_schema"} {
		for _, name := range lines(t, db, `SELECT name FROM `+schema+` WHERE type = 'trigger'`) {
			all[name] = value(t, db, `SELECT sql FROM `+schema+` WHERE name = ?1`, name)
		}
	}
	return all
}
