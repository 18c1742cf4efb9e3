package webhook

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test vector of the reference implementation: TestSymmetricWebhookSign in
// libraries/go/webhook_symmetric_test.go of standard-webhooks/standard-webhooks.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorPayload   = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// otherSecret is the base64 encoding of the letter a, repeated 24 times.
const otherSecret = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"

func TestKeys_Sign_IsThatOfTheSpecification(t *testing.T) {
	for _, secret := range []string{vectorSecret, vectorSecret[len(secretPrefix):]} {
		s, err := ParseKeys(secret)
		require.NoError(t, err)
		header := http.Header{}
		s.Sign(header, vectorID, time.Unix(vectorTime, 999), []byte(vectorPayload))
		require.Equal(t, vectorID, header.Get("webhook-id"))
		require.Equal(t, "1614265330", header.Get("webhook-timestamp"))
		require.Equal(t, vectorSignature, header.Get("webhook-signature"))
	}
}

// With several secrets, Sign adds a signature for each.
func TestKeys_Sign_SeveralSecrets(t *testing.T) {
	s, err := ParseKeys(" " + otherSecret + "  " + vectorSecret)
	require.NoError(t, err)
	other, err := ParseKeys(otherSecret)
	require.NoError(t, err)
	first := other.signatures(vectorID, "1614265330", []byte(vectorPayload))[0]
	require.NotEqual(t, vectorSignature, first)
	header := http.Header{}
	s.Sign(header, vectorID, time.Unix(vectorTime, 0), []byte(vectorPayload))
	require.Equal(t, first+" "+vectorSignature, header.Get("webhook-signature"))
}

// Sign escapes periods in the ID, because they separate the parts of the signed text.
func TestKeys_Sign_IDWithFullStop(t *testing.T) {
	s, err := ParseKeys(vectorSecret)
	require.NoError(t, err)
	header := http.Header{}
	s.Sign(header, "orders.eu/0/1", time.Unix(vectorTime, 0), []byte("{}"))
	require.Equal(t, "orders%2Eeu/0/1", header.Get("webhook-id"))
	require.Equal(t, s.signatures("orders%2Eeu/0/1", "1614265330", []byte("{}"))[0], header.Get("webhook-signature"))
}

func TestKeys_Sign_NoSecret(t *testing.T) {
	s, err := ParseKeys("")
	require.NoError(t, err)
	header := http.Header{}
	s.Sign(header, vectorID, time.Now(), nil)
	require.Empty(t, header)
}

// ParseKeys rejects malformed secrets and does not repeat them in its error.
func TestParseKeys_BadSecret(t *testing.T) {
	for _, secret := range []string{" ", "whsec_", "whsec_!!!!", "whsec_c2hvcnQ=", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", vectorSecret + " whsec_c2hvcnQ="} {
		_, err := ParseKeys(secret)
		require.ErrorIs(t, err, engine.ErrInvalid, "%q", secret)
		require.NotContains(t, err.Error(), "c2hvcnQ")
		require.NotContains(t, err.Error(), "MfKQ9r8G")
	}
}

// signed returns the headers of the vector.
func signed() http.Header {
	header := http.Header{}
	header.Set("webhook-id", vectorID)
	header.Set("webhook-timestamp", strconv.Itoa(vectorTime))
	header.Set("webhook-signature", vectorSignature)
	return header
}

func keysOf(t testing.TB, secrets string) Keys {
	t.Helper()
	k, err := ParseKeys(secrets)
	require.NoError(t, err)
	return k
}

// Verify accepts the vector among signatures by other keys and versions, with any of several keys, and
// at the limits of the tolerance.
func TestKeys_Verify(t *testing.T) {
	now := time.Unix(vectorTime, 0)
	for _, secrets := range []string{vectorSecret, otherSecret + " " + vectorSecret} {
		header := signed()
		header["Webhook-Signature"] = []string{"v1a,AAAA v1,", "v2,AAAA " + vectorSignature}
		for _, at := range []time.Time{now, now.Add(-time.Minute), now.Add(time.Minute)} {
			id, sent, err := keysOf(t, secrets).Verify(header, []byte(vectorPayload), at, time.Minute)
			require.NoError(t, err)
			require.Equal(t, vectorID, id)
			require.True(t, sent.Equal(now))
		}
	}
}

// Verify rejects a request if any signed part was changed or the signature is missing.
func TestKeys_Verify_Refused(t *testing.T) {
	now := time.Unix(vectorTime, 0)
	set := func(key, value string) func(http.Header) { return func(h http.Header) { h.Set(key, value) } }
	for name, c := range map[string]struct {
		change  func(http.Header)
		payload string
		want    error
	}{
		"payload":                {nil, vectorPayload + " ", ErrSignature},
		"id":                     {set("webhook-id", vectorID+"x"), vectorPayload, ErrSignature},
		"timestamp":              {set("webhook-timestamp", "1614265331"), vectorPayload, ErrSignature},
		"timestamp, other text":  {set("webhook-timestamp", "+1614265330"), vectorPayload, ErrSignature},
		"signature":              {set("webhook-signature", "v1,"+strings.Repeat("A", 43)+"="), vectorPayload, ErrSignature},
		"version":                {set("webhook-signature", "v1a"+vectorSignature[2:]), vectorPayload, ErrSignature},
		"no signature":           {func(h http.Header) { h.Del("webhook-signature") }, vectorPayload, ErrSignature},
		"nothing":                {func(h http.Header) { clear(h) }, vectorPayload, ErrSignature},
		"no id":                  {set("webhook-id", ""), vectorPayload, ErrID},
		"long id":                {set("webhook-id", strings.Repeat("x", MaxID+1)), vectorPayload, ErrID},
		"id with a full stop":    {set("webhook-id", "a.b"), vectorPayload, ErrID},
		"id with a control":      {set("webhook-id", "a\x00b"), vectorPayload, ErrID},
		"no timestamp":           {set("webhook-timestamp", ""), vectorPayload, ErrTimestamp},
		"timestamp of a clock":   {set("webhook-timestamp", "2021-02-25T15:02:10Z"), vectorPayload, ErrTimestamp},
		"old":                    {set("webhook-timestamp", "1614265269"), vectorPayload, ErrTimestamp},
		"of the future":          {set("webhook-timestamp", "1614265391"), vectorPayload, ErrTimestamp},
		"the end of time":        {set("webhook-timestamp", strconv.FormatInt(math.MaxInt64, 10)), vectorPayload, ErrTimestamp},
		"the beginning of time":  {set("webhook-timestamp", strconv.FormatInt(math.MinInt64, 10)), vectorPayload, ErrTimestamp},
		"beyond the end of time": {set("webhook-timestamp", "9223372036854775808"), vectorPayload, ErrTimestamp},
	} {
		header := signed()
		if c.change != nil {
			c.change(header)
		}
		id, _, err := keysOf(t, vectorSecret).Verify(header, []byte(c.payload), now, time.Minute)
		require.ErrorIs(t, err, c.want, name)
		require.Empty(t, id, name)
	}
	_, _, err := Keys(nil).Verify(signed(), []byte(vectorPayload), now, time.Minute)
	require.ErrorIs(t, err, ErrSignature, "without a key")
}

// Verify accepts the output of Sign, and rejects any other split of the signed text into ID, time and payload.
func FuzzKeys_Verify(f *testing.F) {
	f.Add("msg_1", int64(vectorTime), []byte("{}"), []byte("1."), "a.1")
	f.Add("orders.eu/0/1", int64(-1), []byte(nil), []byte("x"), "")
	k := keysOf(f, vectorSecret)
	f.Fuzz(func(t *testing.T, id string, at int64, payload, other []byte, otherID string) {
		now := time.Unix(at, 0)
		header := http.Header{}
		k.Sign(header, id, now, payload)
		sent := header.Get("webhook-id")
		got, _, err := k.Verify(header, payload, now, time.Minute)
		if CheckID(sent) != nil {
			require.ErrorIs(t, err, ErrID)
			return
		}
		if year := now.Year(); year < 1 || year > 9999 {
			return // package time isn't exact for such values
		}
		require.NoError(t, err)
		require.Equal(t, sent, got)
		if string(other) != string(payload) {
			_, _, err = k.Verify(header, other, now, time.Minute)
			require.ErrorIs(t, err, ErrSignature)
		}
		if otherID != sent {
			header.Set("webhook-id", otherID)
			_, _, err = k.Verify(header, payload, now, time.Minute)
			require.Error(t, err)
			_, _, err = k.Verify(header, other, now, time.Minute)
			require.Error(t, err)
		}
	})
}
