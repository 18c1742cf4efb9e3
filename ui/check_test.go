package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/testkit"
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
	_, err := db.SQL().Exec(`INSERT INTO _honker_live (id, queue, payload) VALUES (?, 'mails', '1')`, id)
	require.NoError(t, err)
	require.Equal(t, http.StatusSeeOther, post(h, "/check").Code)
	require.Eventually(t, func() bool { return strings.Contains(get(h, "/file").Body.String(), "not sound") }, testkit.Timeout, 10*time.Millisecond)
	_, err = db.SQL().Exec(`DELETE FROM _honker_live WHERE id = ?`, id)
	require.NoError(t, err)

	h.Close()
	require.Equal(t, http.StatusSeeOther, post(h, "/check").Code, "after Close nothing is begun")
}
