// Package seal encrypts the payloads of jobs in the file. It has a [honker.Codec]: payloads are encrypted and authenticated with AES-256-GCM. Each has the id of its key with it, so keys can
// change while jobs wait.
//
//	codec, err := seal.New(seal.Keys{Current: "2026-11", Ring: map[string][]byte{"2026-11": key}}, nil)
//	…
//	db, err := honker.Open(ctx, "app.db", &honker.Options{Codec: codec})
//
// A sealed payload is JSON text, in which k is the id of the key, z is 1 if it was compressed, and c is the base64
// of a nonce of 12 bytes, the ciphertext and a tag of 16 bytes:
//
//	{"$seal":{"k":"2026-11","z":1,"c":"…"}}
//
// The queue is authenticated with it: a payload that is put into another queue, or altered, is not opened. It can be
// put into another job of the same queue, since a job has no id before it is in the file. The length of a payload can be
// seen, and with Options.Compress also how repetitive it is.
//
// docs/guide/encryption.md has a table of what is sealed and what is not, and how to change keys.
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

// Keys are the keys that seal and open.
type Keys struct {
	// Current is the id in Ring of the key that seals. It stands in the file beside each payload: up to 64 letters, digits
	// and any of . _ : / - in ASCII.
	Current string
	// Ring are the keys by their ids: 32 random bytes each, and no passwords. All of them open. A key
	// seals 2³² payloads at most: its nonces are random, and two alike would give both away.
	Ring map[string][]byte
}

// Options of a codec. The zero value of a field means its default.
type Options struct {
	// Strict refuses payloads that are not sealed: jobs of other programs and of SQL functions, and those from before. They
	// go to the dead letters. By default they pass through as they are, so whatever can write the file can add some.
	Strict bool
	// Compress makes payloads of 128 bytes and more smaller before they are encrypted. It is safe only for payloads without a text from
	// outside beside a secret: the length in the file then tells how much of the secret that text repeats, so a secret can be guessed piece by
	// piece. Every codec opens compressed payloads.
	Compress bool
	// MaxPayload is the largest payload in bytes before it is sealed and after it is opened; default 1 MiB, as that of
	// honker.Options. Set both to the same.
	MaxPayload int
}

// ErrKey is the error of a payload that was sealed with a key that is not in the ring. The job waits for its
// next attempt, so another process, or this one with the key, can run it.
var ErrKey = errors.New("key is not in the ring")

// New returns a codec. Keys are copied. A ring without Current, a bad id, and a key that has not
// 32 bytes are honker.ErrInvalid. nil opts means defaults.
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

// codec implements honker.Codec. It is not changed once it is made.
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
		errs = append(errs, fmt.Errorf("%w: the current key %q is not in the ring of %d", honker.ErrInvalid, keys.Current, len(keys.Ring)))
	}
	for _, id := range slices.Sorted(maps.Keys(keys.Ring)) {
		if !isID(id) {
			errs = append(errs, fmt.Errorf("%w: id of a key %q", honker.ErrInvalid, id))
		}
		if n := len(keys.Ring[id]); n != keyBytes {
			errs = append(errs, fmt.Errorf("%w: key %q has %d bytes, not %d", honker.ErrInvalid, id, n, keyBytes))
		}
	}
	return errors.Join(errs...)
}

const maxID = 64

// isID reports that id can stand in JSON, in logs and on a terminal as it is.
func isID(id string) bool {
	outside := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-", r)
	}
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, outside)
}

// Encode implements honker.Codec.
func (c *codec) Encode(_ context.Context, queue string, payload json.RawMessage) (json.RawMessage, error) {
	if len(payload) > c.MaxPayload {
		return nil, fmt.Errorf("%w: seal: payload of %d bytes, at most %d (seal.Options.MaxPayload)", honker.ErrInvalid, len(payload), c.MaxPayload)
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
		return nil, honker.Reject(errors.New("seal: the payload is not sealed, and Strict refuses it"))
	case s == nil:
		return stored, nil
	}
	key := c.ring[s.Key]
	if key == nil {
		return nil, fmt.Errorf("seal: the payload is sealed with key %q: %w", s.Key, ErrKey)
	}
	text, err := key.Open(nil, nil, s.Text, s.bound(queue))
	if err != nil {
		return nil, fmt.Errorf("seal: the payload is not what was sealed with key %q for queue %q: altered, of another queue, or another key has that id", s.Key, queue)
	}
	if s.Compressed == 1 {
		text, err = decompress(text, c.MaxPayload)
	} else if len(text) > c.MaxPayload {
		err = errTooLarge
	}
	if err != nil {
		return nil, honker.Reject(fmt.Errorf("seal: %w, at most %d bytes", err, c.MaxPayload))
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

// bound is what is authenticated beside the text. No part but the last can have a NUL.
func (s *sealed) bound(queue string) []byte {
	return []byte("honker seal 1\x00" + s.Key + "\x00" + strconv.Itoa(s.Compressed) + "\x00" + queue)
}

var errMalformed = errors.New("the payload looks sealed and is malformed")

// parse reads a sealed payload: nil for one that is not sealed.
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

// looksSealed reports an object with $seal as its first name. What JSON is written anew by other programs
// may have space in between.
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

// KeyOf returns the id of the key that a stored payload, such as that of a JobInfo, was sealed with, and whether
// it is sealed. It opens nothing and needs no keys. A malformed one counts as sealed, with an empty id.
func KeyOf(stored json.RawMessage) (id string, isSealed bool) {
	s, err := parse(stored)
	if s == nil {
		return "", err != nil
	}
	return s.Key, true
}
