package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/ui"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // golden pages have times in UTC
	slog.SetDefault(slog.New(slog.DiscardHandler))
	testkit.Main(m, nil)
}

// open returns a new file and its dashboard. A nil opts allows everything.
func open(t *testing.T, opts *ui.Options) (*honker.DB, *ui.Handler) {
	t.Helper()
	db := honkertest.Open(t, nil)
	return db, dashboard(t, db, opts)
}

func dashboard(t *testing.T, db *honker.DB, opts *ui.Options) *ui.Handler {
	t.Helper()
	if opts == nil {
		opts = &ui.Options{Authorize: ui.AllowAll}
	}
	h := ui.New(db, opts)
	t.Cleanup(h.Close)
	return h
}

func queue(db *honker.DB, name string) *honker.Queue[json.RawMessage] {
	return honker.NewQueue[json.RawMessage](db, name, nil)
}

// bury enqueues a job and dead-letters it with cause as its error.
func bury(t *testing.T, db *honker.DB, name, payload, cause string) int64 {
	t.Helper()
	ctx := context.Background()
	q := queue(db, name)
	id, err := q.Enqueue(ctx, json.RawMessage(payload))
	require.NoError(t, err)
	jobs, err := q.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.NoError(t, jobs[0].Reject(ctx, errors.New(cause)))
	return id
}

// ask sends a request as a browser does from one of the dashboard's pages.
func ask(h http.Handler, method, target string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	return ask(h, http.MethodGet, target, nil, headers...)
}

func post(h http.Handler, target string, pairs ...string) *httptest.ResponseRecorder {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return ask(h, http.MethodPost, target, form)
}
