// Package seal encrypts job payloads in the database file. Its [honker.Codec] encrypts and authenticates them with
// AES-256-GCM. Every payload is stored with its key's ID, so keys can be rotated while jobs wait.
//
//	codec, err := seal.New(seal.Keys{Current: "2026-11", Ring: map[string][]byte{"2026-11": key}}, nil)
//	…
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Codec: codec})
//
// A sealed payload is a JSON object. k is the key ID, z is 1 if the payload was compressed, and c is the base64
// encoding of a 12-byte nonce, the ciphertext and a 16-byte tag:
//
//	{"$seal":{"k":"2026-11","z":1,"c":"…"}}
//
// The queue name is authenticated together with the payload. Decode fails if a payload was altered or moved to
// another queue. Moving a payload to another job of the same queue is not detected, because a job is sealed before
// it has an ID. A payload's length is visible in the file. With Options.Compress, the length also shows how
// repetitive it is.
//
// docs/guide/encryption.md lists what is sealed and what isn't, and describes key rotation.
package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/honker-go/honker"
)

// Keys holds a codec's encryption keys.
type Keys struct {
	// Current is the ID of the key in Ring that seals new payloads. The ID is stored unencrypted with each payload.
	// It consists of up to 64 ASCII letters, digits and the characters . _ : / -
	Current string
	// Ring maps IDs to keys. A key must be 32 random bytes; it must not be a password. Payloads sealed with any key
	// in Ring can be opened. A key should seal at most 2³² payloads: nonces are random, and a repeated nonce would
	// reveal both payloads.
	Ring map[string][]byte
}

// Options configures a codec. The zero value of a field selects its default.
type Options struct {
	// Strict rejects payloads that are not sealed, and their jobs become dead letters. This includes jobs enqueued by
	// other programs, by SQL functions, or before the codec was in use. By default such payloads are returned
	// unchanged, so any program that can write the file can add jobs.
	Strict bool
	// Compress compresses payloads of 128 bytes or more before encryption. Do not set it if a payload may contain both
	// a secret and text chosen by an attacker. The stored length shows how much of the secret the text repeats, which
	// lets an attacker guess the secret piece by piece. All codecs can open compressed payloads.
	Compress bool
	// MaxPayload is the maximum size in bytes of an unsealed payload; default 1 MiB. It should be equal to
	// honker.Options.MaxPayload.
	MaxPayload int
}

// ErrKey is returned for a payload whose key is not in the ring. The job is retried, so it can still run in a
// process that has the key.
var ErrKey = errors.New("key is not in the ring")

// New returns a codec that uses a copy of keys. A nil opts selects the defaults. New returns honker.ErrInvalid if
// Current is not in the ring, if an ID is malformed, or if a key is not 32 bytes long.
func New(keys Keys, opts *Options) (honker.Codec, error) {
	c := &codec{current: keys.Current, ring: make(map[string]cipher.AEAD)}
	if opts != nil {
		c.Options = *opts
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = 1 << 20
	}
	if err := c.check(keys); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	for id, key := range keys.Ring {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("seal: key %q: %w", id, err)
		}
		if c.ring[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("seal: key %q: %w", id, err)
		}
	}
	return c, nil
}

// codec implements honker.Codec. It is immutable and safe for concurrent use.
type codec struct {
	Options
	current string
	ring    map[string]cipher.AEAD
}

const keyBytes = 32

func (c *codec) check(keys Keys) error {
	var errs []error
	if c.MaxPayload < 0 {
		errs = append(errs, fmt.Errorf("%w: negative MaxPayload %d", honker.ErrInvalid, c.MaxPayload))
	}
	if _, ok := keys.Ring[keys.Current]; !ok {
		errs = append(errs, fmt.Errorf("%w: the current key %q is not among the %d keys of the ring", honker.ErrInvalid, keys.Current, len(keys.Ring)))
	}
	for _, id := range slices.Sorted(maps.Keys(keys.Ring)) {
		if !isID(id) {
			errs = append(errs, fmt.Errorf("%w: key id %q is malformed", honker.ErrInvalid, id))
		}
		if n := len(keys.Ring[id]); n != keyBytes {
			errs = append(errs, fmt.Errorf("%w: key %q has %d bytes; it must have %d", honker.ErrInvalid, id, n, keyBytes))
		}
	}
	return errors.Join(errs...)
}

const maxID = 64

// isID reports whether id is safe in JSON, in logs and on a terminal without escaping.
func isID(id string) bool {
	outside := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-", r)
	}
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, outside)
}

// Encode implements honker.Codec.
func (c *codec) Encode(_ context.Context, queue string, payload json.RawMessage) (json.RawMessage, error) {
	if len(payload) > c.MaxPayload {
		return nil, fmt.Errorf("%w: seal: the payload has %d bytes; the maximum is %d (seal.Options.MaxPayload)", honker.ErrInvalid, len(payload), c.MaxPayload)
	}
	s := sealed{Key: c.current}
	text := []byte(payload)
	if c.Compress {
		if small, ok := compress(text); ok {
			text, s.Compressed = small, 1
		}
	}
	s.Text = c.ring[s.Key].Seal(nil, nil, text, s.bound(queue))
	return json.Marshal(envelope{&s})
}

// Decode implements honker.Codec.
func (c *codec) Decode(_ context.Context, queue string, stored json.RawMessage) (json.RawMessage, error) {
	s, err := parse(stored)
	switch {
	case err != nil:
		return nil, honker.Reject(fmt.Errorf("seal: %w", err))
	case s == nil && c.Strict:
		return nil, honker.Reject(errors.New("seal: the payload is not sealed, as Strict requires"))
	case s == nil:
		return stored, nil
	}
	key := c.ring[s.Key]
	if key == nil {
		return nil, fmt.Errorf("seal: the payload is sealed with key %q: %w", s.Key, ErrKey)
	}
	text, err := key.Open(nil, nil, s.Text, s.bound(queue))
	if err != nil {
		// The job is not rejected, because another process may have a different key under this ID.
		return nil, fmt.Errorf("seal: the payload cannot be opened with key %q for queue %q: it was altered, it was sealed for another queue, or another key has this id", s.Key, queue)
	}
	if s.Compressed == 1 {
		text, err = decompress(text, c.MaxPayload)
	} else if len(text) > c.MaxPayload {
		err = errTooLarge
	}
	if err != nil {
		return nil, honker.Reject(fmt.Errorf("seal: %w; the maximum is %d bytes", err, c.MaxPayload))
	}
	return text, nil
}

// envelope is a sealed payload.
type envelope struct {
	Seal *sealed `json:"$seal"`
}

type sealed struct {
	Key        string `json:"k"`
	Compressed int    `json:"z,omitempty"`
	Text       []byte `json:"c"`
}

// bound returns the additional data that is authenticated with the ciphertext. Its encoding is unambiguous
// because only the last part, the queue name, may contain a NUL.
func (s *sealed) bound(queue string) []byte {
	return []byte("honker seal 1\x00" + s.Key + "\x00" + strconv.Itoa(s.Compressed) + "\x00" + queue)
}

var errMalformed = errors.New("the sealed payload is malformed")

// parse parses a sealed payload. It returns nil if stored is not sealed.
func parse(stored json.RawMessage) (*sealed, error) {
	if !looksSealed(string(stored)) {
		return nil, nil
	}
	var e envelope
	d := json.NewDecoder(strings.NewReader(string(stored)))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if e.Seal == nil || d.More() || !isID(e.Seal.Key) || e.Seal.Compressed < 0 || e.Seal.Compressed > 1 {
		return nil, errMalformed
	}
	return e.Seal, nil
}

// looksSealed reports whether text starts like an object with $seal as its first key. Whitespace is skipped,
// because other programs may have reformatted the JSON.
func looksSealed(text string) bool {
	const space = " \t\r\n"
	for _, token := range []string{"{", `"$seal"`, ":"} {
		var found bool
		if text, found = strings.CutPrefix(strings.TrimLeft(text, space), token); !found {
			return false
		}
	}
	return true
}

// KeyOf returns the ID of the key that sealed a stored payload, such as JobInfo.Payload, and reports whether the
// payload is sealed. KeyOf does not decrypt and needs no keys. For a malformed sealed payload it returns "", true.
func KeyOf(stored json.RawMessage) (id string, isSealed bool) {
	s, err := parse(stored)
	if s == nil {
		return "", err != nil
	}
	return s.Key, true
}
