package relay

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker"
)

// signer signs requests as the Standard Webhooks specification 1.0.0 says, with a symmetric
// key, or with several while one replaces the other.
type signer [][]byte

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes of a key, by the specification
)

// newSigner reads the secrets of an endpoint, separated by spaces; none is no signature.
// What it says of a bad one does not repeat it.
func newSigner(secrets string) (signer, error) {
	var keys signer
	for i, text := range strings.Fields(secrets) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
		if err != nil {
			return nil, fmt.Errorf("%w: secret %d is not %q and base64", honker.ErrInvalid, i+1, secretPrefix)
		}
		if len(key) < minSecret {
			return nil, fmt.Errorf("%w: secret %d has %d bytes, at least %d", honker.ErrInvalid, i+1, len(key), minSecret)
		}
		keys = append(keys, key)
	}
	if keys == nil && secrets != "" {
		return nil, fmt.Errorf("%w: the secret is blank", honker.ErrInvalid)
	}
	return keys, nil
}

// sign sets the headers of an attempt at now. An id with a full stop could be read as
// another id and time, so it has none.
func (s signer) sign(header http.Header, id string, now time.Time, payload []byte) {
	if len(s) == 0 {
		return
	}
	id = strings.ReplaceAll(id, ".", "%2E")
	at := strconv.FormatInt(now.Unix(), 10)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", at)
	header.Set("Webhook-Signature", s.signatures(id, at, payload))
}

// signatures has one signature for each key, separated by spaces.
func (s signer) signatures(id, at string, payload []byte) string {
	out := make([]string, len(s))
	for i, key := range s {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(payload)
		out[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(out, " ")
}
