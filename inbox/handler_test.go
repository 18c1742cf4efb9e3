package inbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/internal/testkit"
)

// A repeated delivery gets the same response as the first and has no second effect.
func TestHandler_Once(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[json.RawMessage](db, "orders", nil)
	h := newInbox(t, db, inbox.Options{}).Handler(inbox.Enqueue(q))
	for _, id := range []string{"1", "1", "2", "1", "2"} {
		require.Equal(t, http.StatusNoContent, deliver(t, h, id, `{"order": 7}`))
	}
	jobs := testkit.Claim(t, q, 10)
	require.Len(t, jobs, 2)
	require.JSONEq(t, `{"order": 7}`, string(jobs[0].Args))
	require.EqualValues(t, 2, rows(t, db))
}

// Of several concurrent deliveries of a message, only one has an effect.
func TestHandler_Once_Concurrent(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "orders", nil)
	var seen testkit.Recorder
	var first, again []inbox.Received
	h := newInbox(t, db, inbox.Options{Observer: &inbox.Observer{
		Received:  func(r inbox.Received) { testkit.Record(&seen, &first, r) },
		Duplicate: func(r inbox.Received) { testkit.Record(&seen, &again, r) },
	}}).Handler(inbox.Enqueue(q))
	var all sync.WaitGroup
	statuses := make([]int, 40)
	for i := range statuses {
		r := request(t, secretA, fmt.Sprint(i%4), "1")
		all.Go(func() { statuses[i] = answer(h, r).StatusCode })
	}
	all.Wait()
	for _, status := range statuses {
		require.Equal(t, http.StatusNoContent, status)
	}
	require.Len(t, testkit.Claim(t, q, 40), 4)
	require.Len(t, first, 4)
	require.Len(t, again, 36)
	require.Equal(t, "shop", again[0].Source)
}

// The same ID from another source is a different message.
func TestHandler_Sources(t *testing.T) {
	db := honkertest.Open(t, nil)
	s := honker.NewStream[int](db, "orders", nil)
	for _, source := range []string{"shop", "store", "shop"} {
		h := newInbox(t, db, inbox.Options{Source: source}).Handler(inbox.Publish(s, honker.EventKey(source)))
		require.Equal(t, http.StatusNoContent, deliver(t, h, "1", "7"))
	}
	head, err := s.Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, head)
}

// Each kind of refused request gets its status, changes nothing, and is observed and logged.
func TestHandler_Refused(t *testing.T) {
	log := new(testkit.Log)
	db := honkertest.Open(t, &honker.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	var refused []inbox.Refused
	in := newInbox(t, db, inbox.Options{MaxBody: 100, Observer: &inbox.Observer{Refused: func(r inbox.Refused) { refused = append(refused, r) }}})
	h := in.Handler(func(context.Context, *sql.Tx, *inbox.Message) error { panic("not to be called") })
	post := func(header http.Header, body io.Reader) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.Header = header
		return r
	}
	get := request(t, secretA, "1", "{}")
	get.Method = http.MethodGet
	before := testkit.Dump(t, db.SQL())
	cases := []struct {
		name   string
		r      *http.Request
		status int
		err    error
	}{
		{"unsigned", post(http.Header{}, strings.NewReader("{}")), 401, inbox.ErrSignature},
		{"other secret", request(t, secretB, "1", "{}"), 401, inbox.ErrSignature},
		{"old", post(signed(t, secretA, "1", "{}", time.Now().Add(-time.Hour)), strings.NewReader("{}")), 401, inbox.ErrTimestamp},
		{"no id", request(t, secretA, "", "{}"), 400, inbox.ErrID},
		{"long id", request(t, secretA, strings.Repeat("x", 9000), "{}"), 400, inbox.ErrID},
		{"large", request(t, secretA, "1", strings.Repeat("x", 101)), 413, inbox.ErrTooLarge},
		{"broken off", post(signed(t, secretA, "1", "{}", time.Now()), iotest.ErrReader(io.ErrUnexpectedEOF)), 408, io.ErrUnexpectedEOF},
		{"method", get, 405, nil},
	}
	for _, c := range cases {
		resp := answer(h, c.r)
		require.Equal(t, c.status, resp.StatusCode, c.name)
		require.Equal(t, c.status == 405, resp.Header.Get("Allow") == "POST", c.name)
		last := refused[len(refused)-1]
		require.Equal(t, c.status, last.Status, c.name)
		require.Equal(t, "shop", last.Source, c.name)
		if c.err != nil {
			require.ErrorIs(t, last.Err, c.err, c.name)
		}
	}
	require.Len(t, refused, len(cases))
	require.Equal(t, len(cases), log.Times("a request was refused"))
	require.Equal(t, before, testkit.Dump(t, db.SQL()))
}

// If the handler returns an error or panics, nothing is recorded and the next delivery calls it
// again.
func TestHandler_Error(t *testing.T) {
	db := honkertest.Open(t, nil)
	q := honker.NewQueue[int](db, "orders", nil)
	var err error
	in := newInbox(t, db, inbox.Options{})
	h := in.Handler(func(ctx context.Context, tx *sql.Tx, m *inbox.Message) error {
		_, failed := q.EnqueueTx(ctx, tx, 7)
		require.NoError(t, failed)
		if err != nil && err.Error() == "panic" {
			panic(err)
		}
		return err
	})
	for _, c := range []struct {
		err    error
		status int
		after  string
		text   string
	}{
		{testkit.ErrCause, 500, "", "the message was not handled\n"},
		{honker.Reject(errors.New("no such customer")), 422, "", "no such customer\n"},
		{fmt.Errorf("store: %w", honker.Reject(testkit.ErrCause)), 422, "", testkit.ErrCause.Error() + "\n"},
		{honker.RetryAfter(90*time.Second+1, testkit.ErrCause), 503, "91", "try again later\n"},
		{honker.Snooze(0), 503, "1", "try again later\n"},
		{honker.ErrBusy, 503, "1", "try again later\n"},
	} {
		err = c.err
		resp := answer(h, request(t, secretA, "1", "{}"))
		require.Equal(t, c.status, resp.StatusCode, "%v", c.err)
		require.Equal(t, c.after, resp.Header.Get("Retry-After"), "%v", c.err)
		require.Equal(t, c.text, text(t, resp))
	}
	err = errors.New("panic")
	require.Panics(t, func() { deliver(t, h, "1", "{}") })
	require.Zero(t, rows(t, db))
	require.Empty(t, testkit.Claim(t, q, 1))
	err = nil
	require.Equal(t, http.StatusNoContent, deliver(t, h, "1", "{}"))
	require.Len(t, testkit.Claim(t, q, 2), 1)
	require.Panics(t, func() { in.Handler(nil) })
}

// A payload that can't be decoded is rejected, so the sender moves it to its dead letters.
func TestEnqueue_BadPayload(t *testing.T) {
	db := honkertest.Open(t, nil)
	in := newInbox(t, db, inbox.Options{})
	for _, handler := range []inbox.HandlerFunc{
		inbox.Enqueue(honker.NewQueue[int](db, "orders", nil)), inbox.Publish(honker.NewStream[int](db, "orders", nil)),
		inbox.Enqueue(honker.NewQueue[json.RawMessage](db, "orders", nil)),
	} {
		resp := answer(in.Handler(handler), request(t, secretA, "1", `no number`))
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
		require.Contains(t, text(t, resp), "cannot decode")
	}
	require.Zero(t, rows(t, db))
}

// While the writer is busy, requests get a 503 with Retry-After, and no message is lost.
func TestHandler_Busy(t *testing.T) {
	testkit.FileOnly(t)
	path := filepath.Join(t.TempDir(), "inbox.db")
	db := honkertest.OpenFile(t, path, &honker.Options{BusyTimeout: 10 * time.Millisecond})
	q := honker.NewQueue[int](db, "orders", nil)
	h := newInbox(t, db, inbox.Options{}).Handler(inbox.Enqueue(q))
	release := testkit.HoldWriter(t, path)
	resp := answer(h, request(t, secretA, "1", "1"))
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	release()
	require.Equal(t, http.StatusNoContent, deliver(t, h, "1", "1"))
	require.Len(t, testkit.Claim(t, q, 2), 1)
}

// Messages are refused after Close and on a read-only DB.
func TestHandler_NotWritable(t *testing.T) {
	path, writer := testkit.OpenShared(t)
	for _, o := range []*honker.Options{{ReadOnly: true}, nil} {
		db, err := honker.Open(t.Context(), path, o)
		require.NoError(t, err)
		h := newInbox(t, db, inbox.Options{}).Handler(inbox.Enqueue(honker.NewQueue[int](db, "orders", nil)))
		if o != nil {
			require.Equal(t, http.StatusInternalServerError, deliver(t, h, "1", "1"))
		}
		require.NoError(t, db.Close())
		require.Contains(t, []int{500, 503}, deliver(t, h, "1", "1"))
	}
	require.Zero(t, rows(t, writer))
}
