// Package webhook signs and verifies requests according to the Standard Webhooks specification
// 1.0.0, with symmetric keys. Package relay sends such requests and package inbox receives them.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// The headers of the specification, in the canonical form of net/http.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // minimum key length in bytes, required by the specification

	// MaxID is the maximum length, in bytes, of an ID that Verify accepts. It leaves room for package relay's IDs,
	// even with the longest queue name and a Source of 1 KiB, all of it escaped.
	MaxID = 8192
)

// Errors returned by Verify.
var (
	ErrSignature = errors.New("no signature matches")
	ErrTimestamp = errors.New("the timestamp is outside the tolerance")
	ErrID        = errors.New("the id is invalid")
)

// Keys holds an endpoint's symmetric keys. There may be several while a key is being rotated. If Keys
// is empty, it neither signs nor verifies anything.
type Keys [][]byte

// ParseKeys parses secrets separated by spaces. If secrets is empty it returns no keys. If a secret
// is malformed, it returns ErrInvalid. The error does not contain the secret.
func ParseKeys(secrets string) (Keys, error) {
	var keys Keys
	for i, text := range strings.Fields(secrets) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
		if err != nil {
			return nil, fmt.Errorf("%w: secret %d is not base64, optionally preceded by %q", engine.ErrInvalid, i+1, secretPrefix)
		}
		if len(key) < minSecret {
			return nil, fmt.Errorf("%w: secret %d has %d bytes; the minimum is %d", engine.ErrInvalid, i+1, len(key), minSecret)
		}
		keys = append(keys, key)
	}
	if keys == nil && secrets != "" {
		return nil, fmt.Errorf("%w: the secret is blank", engine.ErrInvalid)
	}
	return keys, nil
}

// Sign sets the headers for an attempt at time now. Without keys it does nothing. Sign replaces periods in id with
// %2E, because the signed text joins ID, time and payload with periods. An unescaped ID could therefore be read as a
// different ID and time.
func (k Keys) Sign(header http.Header, id string, now time.Time, payload []byte) {
	if len(k) == 0 {
		return
	}
	id = strings.ReplaceAll(id, ".", "%2E")
	at := strconv.FormatInt(now.Unix(), 10)
	header.Set(headerID, id)
	header.Set(headerTimestamp, at)
	header.Set(headerSignature, strings.Join(k.signatures(id, at, payload), " "))
}

// signatures returns a signature for each key.
func (k Keys) signatures(id, at string, payload []byte) []string {
	out := make([]string, len(k))
	for i, key := range k {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(payload)
		out[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return out
}

// Verify checks the headers of a request with the given payload, and returns the request's ID and the time of the
// attempt. It returns ErrSignature if no signature matches a key, ErrTimestamp if the attempt's time differs from now
// by more than tolerance, and ErrID if CheckID rejects the ID.
func (k Keys) Verify(header http.Header, payload []byte, now time.Time, tolerance time.Duration) (id string, at time.Time, err error) {
	given := strings.Fields(strings.Join(header.Values(headerSignature), " "))
	if len(given) == 0 {
		return "", at, fmt.Errorf("%w: the request has no signature", ErrSignature)
	}
	id = header.Get(headerID)
	if err := CheckID(id); err != nil {
		return "", at, err
	}
	text := header.Get(headerTimestamp)
	at, err = parseTimestamp(text, now, tolerance)
	if err != nil {
		return "", at, err
	}
	if !k.match(given, id, text, payload) {
		return "", at, fmt.Errorf("%w: checked %d signatures against %d secrets", ErrSignature, len(given), len(k))
	}
	return id, at, nil
}

// match reports whether a signature matches a key. The specification requires a constant-time comparison.
func (k Keys) match(given []string, id, at string, payload []byte) bool {
	for _, want := range k.signatures(id, at, payload) {
		for _, signature := range given {
			if hmac.Equal([]byte(signature), []byte(want)) {
				return true
			}
		}
	}
	return false
}

func parseTimestamp(text string, now time.Time, tolerance time.Duration) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %.32q is not a unix time in seconds", ErrTimestamp, text)
	}
	at := time.Unix(seconds, 0)
	// Sub isn't used because it saturates, and the smallest Duration has no absolute value.
	if at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return time.Time{}, fmt.Errorf("%w: it is not within %v of now", ErrTimestamp, tolerance)
	}
	return at, nil
}

// CheckID returns ErrID if id is empty, is longer than MaxID, or contains a period or any byte that isn't visible
// ASCII. Sign explains why periods aren't allowed.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it is empty", ErrID)
	case len(id) > MaxID:
		return fmt.Errorf("%w: it has %d bytes; the maximum is %d", ErrID, len(id), MaxID)
	}
	for _, b := range []byte(id) {
		if b <= ' ' || b > '~' || b == '.' {
			return fmt.Errorf("%w: it contains the byte %#02x; use visible ASCII without a full stop", ErrID, b)
		}
	}
	return nil
}
