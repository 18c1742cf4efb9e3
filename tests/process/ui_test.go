package process_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/sqlite"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

// An unused dashboard runs no statements: a day with a job needs as many statements before the
// first visit, and after the last visit, as without a dashboard.
func TestUI_NotLookedAt(t *testing.T) {
	testkit.FileOnly(t) // it counts statements of SQLite in a bubble
	var statements atomic.Int64
	sqlite.Failpoint = func(string) { statements.Add(1) }
	defer func() { sqlite.Failpoint = nil }()
	testkit.Bubble(t, func(t *testing.T, db *honker.DB, _ *testkit.Recorder) {
		q := honker.NewQueue[json.RawMessage](db, "mails", nil)
		day := func() int64 {
			before := statements.Load()
			_, err := q.Enqueue(context.Background(), json.RawMessage("1"))
			require.NoError(t, err)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			return statements.Load() - before
		}
		day() // the first day prepares statements
		alone := day()
		h := ui.New(db, &ui.Options{Authorize: ui.AllowAll})
		defer h.Close()
		require.Equal(t, alone, day(), "before the first look")

		ctx, leave := context.WithCancel(context.Background())
		var stream sync.WaitGroup
		stream.Go(func() { serve(ctx, h, "/events") })
		require.Greater(t, day(), alone, "a page is open")
		before := statements.Load()
		require.Equal(t, http.StatusOK, serve(ctx, h, "/"))
		require.Greater(t, statements.Load(), before, "a page is asked for")
		leave()
		stream.Wait()
		day() // the watcher notices that it is no longer needed
		require.Equal(t, alone, day(), "after the last look")
	})
}

func serve(ctx context.Context, h http.Handler, target string) (status int) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
	return w.Code
}
