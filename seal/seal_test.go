package seal_test

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/honkertest"
	"github.com/honker-go/honker/internal/testkit"
	"github.com/honker-go/honker/seal"
)

// key returns a 32-byte key derived from a letter.
func key(letter string) []byte { return bytes.Repeat([]byte(letter), 32) }

// keys returns a ring with a key for each letter. The first letter is the current key.
func keys(letters string) seal.Keys {
	k := seal.Keys{Current: letters[:1], Ring: make(map[string][]byte)}
	for _, letter := range letters {
		k.Ring[string(letter)] = key(string(letter))
	}
	return k
}

func newCodec(t testing.TB, letters string, opts *seal.Options) honker.Codec {
	t.Helper()
	c, err := seal.New(keys(letters), opts)
	require.NoError(t, err)
	return c
}

func encode(t testing.TB, c honker.Codec, queue, payload string) json.RawMessage {
	t.Helper()
	stored, err := c.Encode(context.Background(), queue, json.RawMessage(payload))
	require.NoError(t, err)
	return stored
}

// requireOpens fails the test unless c decodes stored, a payload of queue, to payload.
func requireOpens(t testing.TB, c honker.Codec, queue string, stored json.RawMessage, payload string) {
	t.Helper()
	opened, err := c.Decode(context.Background(), queue, stored)
	require.NoError(t, err, "%s", stored)
	require.Equal(t, payload, string(opened))
}

// A sealed payload opens to exactly the original bytes, and its plaintext isn't visible in the stored text. Sealing
// the same payload twice gives different results.
func TestCodec_RoundTrip(t *testing.T) {
	for _, opts := range []*seal.Options{nil, {Strict: true}, {Compress: true}} {
		c := newCodec(t, "a", opts)
		for _, payload := range []string{`null`, `""`, ` {"a" : [1.0, 1e2, "<&> ü"]} `, `{"$seal":1}`, `"` + strings.Repeat("secret ", 1000) + `"`} {
			stored := encode(t, c, "mails", payload)
			require.True(t, json.Valid(stored))
			require.NotContains(t, string(stored), "secret")
			require.NotEqual(t, stored, encode(t, c, "mails", payload))
			requireOpens(t, c, "mails", stored, payload)
			id, sealed := seal.KeyOf(stored)
			require.Equal(t, "a", id)
			require.True(t, sealed)
		}
	}
}

// The stored format is the documented format, because programs in other languages read it.
func TestCodec_Format(t *testing.T) {
	long := `"` + strings.Repeat("x", 1000) + `"`
	for payload, opts := range map[string]*seal.Options{`"short"`: {Compress: true}, long: {Compress: true}, `"` + long[2:]: nil} {
		stored := encode(t, newCodec(t, "a", opts), "mails", payload)
		var e struct {
			Seal struct {
				K, C string
				Z    *int
			} `json:"$seal"`
		}
		require.NoError(t, json.Unmarshal(stored, &e))
		require.True(t, strings.HasPrefix(string(stored), `{"$seal":{"k":"a",`))
		text, err := base64.StdEncoding.DecodeString(e.Seal.C)
		require.NoError(t, err)
		block, err := aes.NewCipher(key("a"))
		require.NoError(t, err)
		gcm, err := cipher.NewGCM(block)
		require.NoError(t, err)
		z := "0"
		if e.Seal.Z != nil {
			z = fmt.Sprint(*e.Seal.Z)
		}
		clear, err := gcm.Open(nil, text[:12], text[12:], []byte("honker seal 1\x00a\x00"+z+"\x00mails"))
		require.NoError(t, err)
		if e.Seal.Z == nil {
			require.Equal(t, payload, string(clear))
			continue
		}
		require.Equal(t, 1, *e.Seal.Z)
		require.True(t, opts.Compress)
		require.Less(t, len(stored), 200, "a thousand letters")
		var b bytes.Buffer
		_, err = b.ReadFrom(flate.NewReader(bytes.NewReader(clear)))
		require.NoError(t, err)
		require.Equal(t, payload, b.String())
	}
}

// Keys can be rotated while jobs wait. A ring with both keys opens all payloads. If a ring lacks the old key, the
// error names its ID.
func TestCodec_KeyChanges(t *testing.T) {
	before, both, after := newCodec(t, "a", nil), newCodec(t, "ba", nil), newCodec(t, "b", nil)
	old, new := encode(t, before, "q", `"x"`), encode(t, both, "q", `"x"`)
	requireOpens(t, both, "q", old, `"x"`)
	requireOpens(t, both, "q", new, `"x"`)
	requireOpens(t, after, "q", new, `"x"`)
	_, err := after.Decode(t.Context(), "q", old)
	require.ErrorIs(t, err, seal.ErrKey)
	require.EqualError(t, err, `seal: the payload is sealed with key "a": key is not in the ring`)
}

// Decode fails if the queue, the key ID, the compression mark or any bit of the ciphertext differs from the
// sealed payload.
func TestCodec_Altered(t *testing.T) {
	compress := &seal.Options{Compress: true}
	c := newCodec(t, "ab", compress)
	ring := keys("ab")
	ring.Ring["b"] = key("a") // the same key under two IDs
	alike, err := seal.New(ring, compress)
	require.NoError(t, err)
	payload := `"` + strings.Repeat("x", 1000) + `"`
	stored := string(encode(t, c, "q", payload))
	for _, altered := range []string{
		strings.Replace(stored, `"k":"a"`, `"k":"b"`, 1),
		strings.Replace(stored, `"z":1,`, ``, 1),
		strings.Replace(stored, `"z":1,`, `"z":0,`, 1),
		strings.Replace(stored, `"c":"`, `"c":"AAAA`, 1),
		`{"$seal":{"k":"a","c":""}}`,
		`{"$seal":{"k":"a"}}`,
	} {
		require.NotEqual(t, stored, altered)
		for _, c := range []honker.Codec{c, alike} {
			_, err := c.Decode(t.Context(), "q", json.RawMessage(altered))
			require.ErrorContains(t, err, "cannot be opened with key", altered)
		}
	}
	for _, queue := range []string{"", "p", "q2", "q\x00"} {
		_, err := c.Decode(t.Context(), queue, json.RawMessage(stored))
		require.ErrorContains(t, err, "another queue")
	}
	spaced := strings.NewReplacer("{", " {\n ", ":", " : ", ",", " ,\t").Replace(stored)
	requireOpens(t, c, "q", json.RawMessage(spaced), payload)
}

// A malformed sealed payload is rejected without a retry.
func TestCodec_Malformed(t *testing.T) {
	c := newCodec(t, "a", nil)
	for _, text := range []string{
		`{"$seal":1}`, `{"$seal":null}`, `{"$seal":{}}`, `{"$seal":{"k":"","c":""}}`, `{"$seal":{"k":"a","z":2,"c":""}}`,
		`{"$seal":{"k":"a","z":-1,"c":""}}`, `{"$seal":{"k":"a\u0000","c":""}}`, `{"$seal":{"k":"a","c":"?"}}`,
		`{"$seal":{"k":"a","c":"","more":1}}`, `{"$seal":{"k":"a","c":""},"more":1}`, `{"$seal":{"k":"a","c":""}} 1`, `{"$seal":`,
	} {
		_, err := c.Decode(t.Context(), "q", json.RawMessage(text))
		require.ErrorContains(t, err, "malformed", text)
		id, sealed := seal.KeyOf(json.RawMessage(text))
		require.True(t, sealed, text)
		require.Empty(t, id)
	}
}

// An unsealed payload is returned unchanged, unless Strict is set.
func TestCodec_Strict(t *testing.T) {
	lax, strict := newCodec(t, "a", nil), newCodec(t, "a", &seal.Options{Strict: true})
	for _, text := range []string{`null`, `{"a":1,"$seal":{}}`, `{"$SEAL":{}}`, `[{"$seal":1}]`, `no JSON`, ``} {
		requireOpens(t, lax, "q", json.RawMessage(text), text)
		_, err := strict.Decode(t.Context(), "q", json.RawMessage(text))
		require.EqualError(t, err, "seal: the payload is not sealed, as Strict requires")
		id, sealed := seal.KeyOf(json.RawMessage(text))
		require.False(t, sealed)
		require.Empty(t, id)
	}
}

// MaxPayload bounds payloads when they are sealed and when they are opened. Decompression stops at the limit.
func TestCodec_MaxPayload(t *testing.T) {
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	_, err := newCodec(t, "a", nil).Encode(t.Context(), "q", json.RawMessage(large))
	require.ErrorIs(t, err, honker.ErrInvalid)
	require.ErrorContains(t, err, "the maximum is 1048576 (seal.Options.MaxPayload)")
	for _, o := range []seal.Options{{MaxPayload: len(large)}, {MaxPayload: len(large), Compress: true}} {
		stored := encode(t, newCodec(t, "a", &o), "q", large)
		requireOpens(t, newCodec(t, "a", &o), "q", stored, large)
		_, err = newCodec(t, "a", nil).Decode(t.Context(), "q", stored)
		require.EqualError(t, err, "seal: the decrypted payload is too large; the maximum is 1048576 bytes")
	}
	bomb := encode(t, newCodec(t, "a", &seal.Options{MaxPayload: 1 << 30, Compress: true}), "q", `"`+strings.Repeat("x", 64<<20)+`"`)
	require.Less(t, len(bomb), 1<<17)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = newCodec(t, "a", nil).Decode(t.Context(), "q", bomb)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "too large")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// New returns an error that names each invalid key. It copies the keys.
func TestNew_BadKeys(t *testing.T) {
	good := key("a")
	for text, k := range map[string]seal.Keys{
		`the current key "" is not among the 0 keys of the ring`:  {},
		`the current key "b" is not among the 1 keys of the ring`: {Current: "b", Ring: map[string][]byte{"a": good}},
		`key "a" has 16 bytes; it must have 32`:                   {Current: "a", Ring: map[string][]byte{"a": good[:16]}},
		`key "b" has 0 bytes; it must have 32`:                    {Current: "a", Ring: map[string][]byte{"a": good, "b": nil}},
		`key id "" is malformed`:                                  {Current: "", Ring: map[string][]byte{"": good}},
		`key id "a b" is malformed`:                               {Current: "a b", Ring: map[string][]byte{"a b": good}},
		`key id "` + strings.Repeat("a", 65) + `" is malformed`:   {Current: "a", Ring: map[string][]byte{"a": good, strings.Repeat("a", 65): good}},
	} {
		c, err := seal.New(k, nil)
		require.ErrorIs(t, err, honker.ErrInvalid, text)
		require.ErrorContains(t, err, text)
		require.Nil(t, c)
	}
	_, err := seal.New(keys("a"), &seal.Options{MaxPayload: -1})
	require.ErrorIs(t, err, honker.ErrInvalid)

	k := keys("a")
	c, err := seal.New(k, nil)
	require.NoError(t, err)
	stored := encode(t, c, "q", `1`)
	clear(k.Ring["a"])
	clear(k.Ring)
	requireOpens(t, newCodec(t, "a", nil), "q", encode(t, c, "q", `1`), `1`)
	requireOpens(t, c, "q", stored, `1`)
}

// If a process doesn't have a job's key, the job waits for a process that does. A payload that was moved to another
// queue with SQL is not opened there.
func TestCodec_InQueue(t *testing.T) {
	ctx := t.Context()
	path := t.TempDir() + "/app.db"
	open := func(letters string) (*honker.DB, *honker.Queue[string]) {
		db := honkertest.OpenFile(t, path, &honker.Options{Codec: newCodec(t, letters, nil)})
		return db, honker.NewQueue[string](db, "jobs", &honker.QueueOptions{Backoff: honker.Constant(0)})
	}
	_, ours := open("ba")
	db, other := open("b")
	id := testkit.Enqueue(t, honker.NewQueue[string](honkertest.OpenFile(t, path, &honker.Options{Codec: newCodec(t, "a", nil)}), "jobs", nil), "secret")
	jobs, err := other.Claim(ctx, "other", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
	info := testkit.GetJob(t, other, id)
	require.Equal(t, honker.StatePending, info.State)
	require.Equal(t, `codec: seal: the payload is sealed with key "a": key is not in the ring`, info.LastError)
	job := testkit.ClaimOne(t, ours)
	require.Equal(t, "secret", job.Args)
	require.NoError(t, job.Retry(ctx, 0, nil))

	testkit.Exec(t, db, testkit.MoveJobs)
	moved := honker.NewQueue[string](db, "moved", &honker.QueueOptions{Backoff: honker.Constant(0)})
	jobs, err = moved.Claim(ctx, "w", 1)
	require.NoError(t, err)
	require.Empty(t, jobs)
	require.Contains(t, testkit.GetJob(t, moved, id).LastError, "key", "it was not opened")
}

// Decode does not panic for any input, and it opens only unmodified sealed payloads.
func FuzzCodec_Decode(f *testing.F) {
	c := newCodec(f, "a", &seal.Options{Compress: true})
	for _, payload := range []string{`1`, `"` + strings.Repeat("x", 300) + `"`} {
		f.Add(payload, []byte(encode(f, c, "q", payload)))
		f.Add(payload, []byte(payload))
	}
	f.Add(`1`, []byte(`{"$seal":{"k":"a","c":"AAAA"}}`))
	f.Fuzz(func(t *testing.T, payload string, stored []byte) {
		opened, err := c.Decode(context.Background(), "q", bytes.Clone(stored))
		_, sealed := seal.KeyOf(stored)
		if err == nil && !sealed && !bytes.Equal(opened, stored) {
			t.Fatalf("%q was not sealed, and became %q", stored, opened)
		}
		made, err := c.Encode(context.Background(), "q", json.RawMessage(payload))
		if err != nil {
			return // larger than MaxPayload
		}
		requireOpens(t, c, "q", made, payload)
		at := rand.IntN(len(made))
		altered := bytes.Clone(made)
		altered[at] ^= 1 << rand.IntN(8)
		if opened, err := c.Decode(context.Background(), "q", altered); err == nil && string(opened) != payload && !bytes.Equal(opened, altered) {
			t.Fatalf("with another bit at %d, %q was opened as %q", at, payload, opened)
		}
	})
}
