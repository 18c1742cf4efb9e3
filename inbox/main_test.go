package inbox_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/inbox"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/internal/webhook"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// The base64 encodings of 24 a's and of 24 b's.
const (
	secretA = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"
	secretB = "whsec_YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJi"
)

// newInbox returns an inbox with the options o. By default the source is "shop" and the secret is
// secretA.
func newInbox(t testing.TB, db *honker.DB, o inbox.Options) *inbox.Inbox {
	t.Helper()
	if o.Source == "" {
		o.Source = "shop"
	}
	if o.Secrets == nil {
		o.Secrets = []string{secretA}
	}
	in, err := inbox.New(db, &o)
	require.NoError(t, err)
	return in
}

// signed returns the headers of a message sent at the given time.
func signed(t testing.TB, secret, id, payload string, at time.Time) http.Header {
	t.Helper()
	keys, err := webhook.ParseKeys(secret)
	require.NoError(t, err)
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	keys.Sign(header, id, at, []byte(payload))
	return header
}

// request returns a request with a message sent now.
func request(t testing.TB, secret, id, payload string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(payload)))
	r.Header = signed(t, secret, id, payload, time.Now())
	return r
}

// answer returns h's response to r.
func answer(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// deliver sends a message to h and returns the status.
func deliver(t testing.TB, h http.Handler, id, payload string) int {
	t.Helper()
	return answer(h, request(t, secretA, id, payload)).StatusCode
}

// text returns the body of a response.
func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// rows returns the number of recorded IDs, or 0 if the table doesn't exist.
func rows(t testing.TB, db *honker.DB) int64 {
	t.Helper()
	if testkit.QueryInt(t, db.SQL(), testkit.CountInboxes) == 0 {
		return 0
	}
	return testkit.QueryInt(t, db.SQL(), testkit.CountReceived)
}
