package ui_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// An operator can start a round of maintenance if no process is maintaining the file. The round is recorded in the
// audit log.
func TestFile_Maintain(t *testing.T) {
	db, _ := open(t, nil)
	ctx := context.Background()
	h := dashboard(t, db, &ui.Options{Authorize: ui.AllowAll, By: func(*http.Request) string { return "anna" }})
	require.Contains(t, get(h, "/file").Body.String(), "Maintain now")
	w := post(h, "/maintain", "back", "file")
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	require.Contains(t, get(h, "/"+w.Header().Get("Location")).Body.String(), "Maintenance finished.")
	entries, err := admin.Audit(ctx, db, nil)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "maintain by anna", entries[0].Verb+" by "+entries[0].Actor)
	require.Nil(t, entries[0].Filter)

	undo := ui.ActFor(time.Nanosecond)
	w = post(h, "/maintain", "back", "file")
	undo()
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "Its changes so far are kept")
}

// If a process is maintaining the file, the page doesn't offer to run maintenance, and a request to do so is
// refused.
func TestFile_Maintained(t *testing.T) {
	db, h := open(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- db.Maintain(ctx, &honker.MaintainOptions{Every: time.Hour}) }()
	require.Eventually(t, func() bool { return post(h, "/maintain").Code == http.StatusConflict }, testkit.Timeout, 10*time.Millisecond)
	require.NotContains(t, get(h, "/file").Body.String(), "Maintain now")
	cancel()
	require.NoError(t, <-ended)
}
