package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// A check runs in the background, and the file's page shows its result.
func TestCheck_Page(t *testing.T) {
	db, h := open(t, nil)
	require.NotContains(t, get(h, "/file").Body.String(), "Sound")
	require.Equal(t, http.StatusSeeOther, post(h, "/check", "back", "file").Code)
	sound := func() bool { return strings.Contains(get(h, "/file").Body.String(), "Sound") }
	require.Eventually(t, sound, testkit.Timeout, 10*time.Millisecond)

	// Violated rules are listed.
	id := bury(t, db, "mails", "1", "x")
	testkit.StoreLive(t, db, 1, func(int64) testkit.StoredJob { return testkit.StoredJob{ID: id, Queue: "mails"} })
	require.Equal(t, http.StatusSeeOther, post(h, "/check").Code)
	require.Eventually(t, func() bool { return strings.Contains(get(h, "/file").Body.String(), "not sound") }, testkit.Timeout, 10*time.Millisecond)
	_, err := queue(db, "mails").Cancel(t.Context(), id)
	require.NoError(t, err)

	h.Close()
	require.Equal(t, http.StatusSeeOther, post(h, "/check").Code, "after Close nothing is begun")
}

// The page of a file that has become much smaller offers to vacuum it, asks first, and works in the background. The audit
// log names the operator.
func TestVacuum_Page(t *testing.T) {
	testkit.FileOnly(t)
	db, _ := open(t, nil)
	h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, By: func(*http.Request) string { return "anna" }})
	page := func() string { return get(h, "/file").Body.String() }
	require.NotContains(t, page(), "Vacuum …")
	_, err := db.SQL().Exec(`CREATE TABLE large (x); INSERT INTO large VALUES (zeroblob(30000000)); DROP TABLE large`)
	require.NoError(t, err)
	require.Contains(t, page(), "Vacuum …")
	require.Contains(t, page(), "Meanwhile it blocks writers")
	before, err := admin.File(t.Context(), db)
	require.NoError(t, err)

	w := post(h, "/vacuum", "back", "file")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "Nothing can be written until that is done")
	w = post(h, "/vacuum", "back", "file", "confirm", "1")
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "file?did=vacuum&n=1", w.Header().Get("Location"))
	require.Eventually(t, func() bool { return strings.Contains(page(), "<dt>Vacuum</dt><dd><time") }, testkit.Timeout, 10*time.Millisecond)
	require.NotContains(t, page(), "Vacuum …")
	after, err := admin.File(t.Context(), db)
	require.NoError(t, err)
	require.Zero(t, after.FreePages)
	require.Less(t, after.Size, before.Size/10)
	entries, err := admin.Audit(t.Context(), db, nil)
	require.NoError(t, err)
	require.Equal(t, "vacuum by anna", entries[0].Verb+" by "+entries[0].Actor)
}
