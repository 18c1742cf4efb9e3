package relay

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
)

// The vector of the specification's own libraries: TestSymmetricWebhookSign in
// libraries/go/webhook_symmetric_test.go of standard-webhooks/standard-webhooks.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorPayload   = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// otherSecret is the base64 of 24 letters a.
const otherSecret = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh"

func TestSigner_Sign_IsThatOfTheSpecification(t *testing.T) {
	for _, secret := range []string{vectorSecret, vectorSecret[len(secretPrefix):]} {
		s, err := newSigner(secret)
		require.NoError(t, err)
		header := http.Header{}
		s.sign(header, vectorID, time.Unix(vectorTime, 999), []byte(vectorPayload))
		require.Equal(t, vectorID, header.Get("webhook-id"))
		require.Equal(t, "1614265330", header.Get("webhook-timestamp"))
		require.Equal(t, vectorSignature, header.Get("webhook-signature"))
	}
}

// While a secret is being replaced there is a signature by each.
func TestSigner_Sign_SeveralSecrets(t *testing.T) {
	s, err := newSigner(" " + otherSecret + "  " + vectorSecret)
	require.NoError(t, err)
	other, err := newSigner(otherSecret)
	require.NoError(t, err)
	first := other.signatures(vectorID, "1614265330", []byte(vectorPayload))
	require.NotEqual(t, vectorSignature, first)
	require.Equal(t, first+" "+vectorSignature, s.signatures(vectorID, "1614265330", []byte(vectorPayload)))
}

// id, time and payload are joined by full stops: an id with one could be read in two ways.
func TestSigner_Sign_IDWithFullStop(t *testing.T) {
	s, err := newSigner(vectorSecret)
	require.NoError(t, err)
	header := http.Header{}
	s.sign(header, "orders.eu/0/1", time.Unix(vectorTime, 0), []byte("{}"))
	require.Equal(t, "orders%2Eeu/0/1", header.Get("webhook-id"))
	require.Equal(t, s.signatures("orders%2Eeu/0/1", "1614265330", []byte("{}")), header.Get("webhook-signature"))
}

func TestSigner_Sign_NoSecret(t *testing.T) {
	s, err := newSigner("")
	require.NoError(t, err)
	header := http.Header{}
	s.sign(header, vectorID, time.Now(), nil)
	require.Empty(t, header)
}

// A secret that is none is refused, and not repeated in the error.
func TestSigner_New_BadSecret(t *testing.T) {
	for _, secret := range []string{" ", "whsec_", "whsec_!!!!", "whsec_c2hvcnQ=", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", vectorSecret + " whsec_c2hvcnQ="} {
		_, err := newSigner(secret)
		require.ErrorIs(t, err, honker.ErrInvalid, "%q", secret)
		require.NotContains(t, err.Error(), "c2hvcnQ")
		require.NotContains(t, err.Error(), "MfKQ9r8G")
	}
}
