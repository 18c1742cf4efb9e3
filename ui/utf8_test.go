package ui_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// Pages are valid even if other programs have written names that are BLOBs or invalid UTF-8. Such names have no links or
// verbs, and all other links work.
func TestPages_NamesWithoutText(t *testing.T) {
	testkit.FileOnly(t)
	db, h := open(t, &ui.Options{Authorize: ui.AllowAll, Enqueue: true})
	something(t, db)
	for _, name := range []string{`CAST(x'6dff' AS TEXT)`, `x'ff00'`, `CAST(x'6100' AS TEXT)`, `x'626c6f62'`} {
		testkit.Exec(t, db, `INSERT INTO _honker_live (queue, payload, run_at) VALUES (`+name+`, '1', 0)`)
		testkit.Exec(t, db, `INSERT INTO _honker_dead (id, queue, payload, last_error, died_at, created_at, priority, run_at, max_attempts, attempts)
SELECT 1000 + max(id), `+name+`, '1', `+name+`, unixepoch(), unixepoch(), 0, 0, 3, 3 FROM _honker_live`)
		testkit.Exec(t, db, `INSERT INTO _honker_stream (topic, key, payload, created_at) VALUES (`+name+`, `+name+`, '1', 1)`)
	}
	_, err := honker.NewQueue[int](db, "plain", nil).Enqueue(context.Background(), 1)
	require.NoError(t, err)
	pages := crawl(t, h)
	for target, page := range pages {
		require.True(t, utf8.ValidString(page), target)
		require.NotContains(t, page, "%FF", target)
		require.NotContains(t, page, "%00", target)
		require.NotContains(t, page, "%EF%BF%BD", target)
		require.False(t, strings.Contains(page, "name=\"queue\" value=\"m\ufffd"), target)
	}
	require.Contains(t, pages[""], "m\ufffd", "it is shown")
	require.Contains(t, pages, "queue?name=plain")
	dead, err := testkit.Rows(db.SQL(), `SELECT id FROM _honker_dead WHERE typeof(queue) = 'text' AND instr(CAST(queue AS BLOB), x'ff') > 0`)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	for _, id := range dead {
		require.Equal(t, http.StatusSeeOther, post(h, "/discard", "id", id).Code, "a job has an id, whatever its queue is called")
		require.Equal(t, http.StatusNotFound, get(h, "/job?id="+id).Code)
	}
	w := get(h, "/jobs", "Honker-Fragment", "1")
	require.Equal(t, http.StatusOK, w.Code)
	require.True(t, utf8.ValidString(w.Body.String()))
}
