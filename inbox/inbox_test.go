package inbox_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/inbox"
)

// New rejects missing and invalid options, and its errors don't contain a secret.
func TestNew_Invalid(t *testing.T) {
	db := honkertest.Open(t, nil)
	good := inbox.Options{Source: "shop", Secrets: []string{secretA}}
	for name, spoil := range map[string]func(o *inbox.Options){
		"no source":          func(o *inbox.Options) { o.Source = "" },
		"source with NUL":    func(o *inbox.Options) { o.Source = "a\x00" },
		"no secret":          func(o *inbox.Options) { o.Secrets = nil },
		"blank secret":       func(o *inbox.Options) { o.Secrets = []string{secretA, " "} },
		"empty secret":       func(o *inbox.Options) { o.Secrets = []string{""} },
		"short secret":       func(o *inbox.Options) { o.Secrets = []string{"whsec_YWFhYWFh"} },
		"secret of no base":  func(o *inbox.Options) { o.Secrets = []string{"whsec_!YWFhYWFh"} },
		"negative tolerance": func(o *inbox.Options) { o.Tolerance = -1 },
		"negative body":      func(o *inbox.Options) { o.MaxBody = -1 },
		"negative retention": func(o *inbox.Options) { o.Retention = -1 },
		"replays":            func(o *inbox.Options) { o.Tolerance, o.Retention = time.Hour, time.Hour },
	} {
		o := good
		spoil(&o)
		in, err := inbox.New(db, &o)
		require.ErrorIs(t, err, honker.ErrInvalid, name)
		require.NotContains(t, err.Error(), "YWFh", name)
		require.Nil(t, in, name)
	}
	_, err := inbox.New(db, nil)
	require.ErrorIs(t, err, honker.ErrInvalid)
	_, err = inbox.New(db, &good)
	require.NoError(t, err)
	require.Zero(t, rows(t, db))
}

// Verify accepts a message signed with any of the secrets and describes the problem otherwise.
func TestInbox_Verify(t *testing.T) {
	in := newInbox(t, honkertest.Open(t, nil), inbox.Options{Secrets: []string{secretA, secretB}, MaxBody: 10})
	now := time.Now()
	for _, secret := range []string{secretA, secretB, "whsec_Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj " + secretB} {
		m, err := in.Verify(signed(t, secret, "shop/hooks/0/1", "{}", now), []byte("{}"))
		require.NoError(t, err)
		require.Equal(t, &inbox.Message{
			Source: "shop", ID: "shop/hooks/0/1", Type: "application/json", SentAt: now.Truncate(time.Second), Payload: []byte("{}"),
		}, m)
	}
	with := func(key, value string) http.Header {
		header := signed(t, secretA, "1", "{}", now)
		header.Set(key, value)
		return header
	}
	for name, c := range map[string]struct {
		header http.Header
		body   string
		want   error
	}{
		"none":         {nil, "{}", inbox.ErrSignature},
		"other secret": {signed(t, "whsec_Y2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj", "1", "{}", now), "{}", inbox.ErrSignature},
		"other body":   {signed(t, secretA, "1", "{}", now), "[]", inbox.ErrSignature},
		"other id":     {with("webhook-id", "2"), "{}", inbox.ErrSignature},
		"empty id":     {with("webhook-id", ""), "{}", inbox.ErrID},
		"long id":      {signed(t, secretA, strings.Repeat("x", 8193), "{}", now), "{}", inbox.ErrID},
		"old":          {signed(t, secretA, "1", "{}", now.Add(-6*time.Minute)), "{}", inbox.ErrTimestamp},
		"early":        {signed(t, secretA, "1", "{}", now.Add(6*time.Minute)), "{}", inbox.ErrTimestamp},
		"large":        {signed(t, secretA, "1", "12345678901", now), "12345678901", inbox.ErrTooLarge},
	} {
		m, err := in.Verify(c.header, []byte(c.body))
		require.ErrorIs(t, err, c.want, name)
		require.Nil(t, m, name)
	}
}

// Verify doesn't panic for any request and accepts only a correct signature.
func FuzzInbox_Verify(f *testing.F) {
	good := signed(f, secretA, "1", "{}", time.Now())
	f.Add(good.Get("webhook-id"), good.Get("webhook-timestamp"), good.Get("webhook-signature"), []byte("{}"))
	f.Add("", "", "", []byte(nil))
	f.Add("a.b", "9223372036854775807", "v1, v1,AA== v2", []byte{0, 255})
	in := newInbox(f, honkertest.Open(f, nil), inbox.Options{})
	f.Fuzz(func(t *testing.T, id, at, signature string, body []byte) {
		header := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}}
		m, err := in.Verify(header, body)
		if err == nil {
			require.Equal(t, id, m.ID)
			right := signed(t, secretA, id, string(body), m.SentAt)
			require.Contains(t, signature, right.Get("webhook-signature"))
			require.LessOrEqual(t, time.Since(m.SentAt).Abs(), 6*time.Minute)
		}
	})
}
