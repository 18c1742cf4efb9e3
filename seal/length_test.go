package seal_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/seal"
)

// Without compression, the stored length depends only on the payload's length. If it also depended on repetition,
// an attacker could guess a secret by placing text next to it.
func TestCodec_Length_TellsNoText(t *testing.T) {
	c := newCodec(t, "a", nil)
	guess := func(text string) int {
		return len(encode(t, c, "mails", `{"secret":"correct horse battery staple","text":"`+text+`"}`))
	}
	wrong := make([]byte, 280)
	for i := range wrong {
		wrong[i] = 'a' + byte(rand.IntN(26))
	}
	require.Equal(t, guess(string(wrong)), guess(strings.Repeat("correct horse battery staple", 10)))
}

// A payload is compressed only if Compress is set. Codecs with and without the option open each other's payloads, and
// payloads stored when compression was the default.
func TestCodec_Compress_ReadByAll(t *testing.T) {
	const before = `{"$seal":{"k":"a","z":1,"c":"5ZtbKYn5FMZiowuIM1AOvRUAaI1pCZ6K/Fe+UlCGTgzh501lqBvPhctTFccL2BsVXobKcW+D0qNJ3w=="}}`
	payload := `"` + strings.Repeat("from before ", 100) + `"`
	plain, small := newCodec(t, "a", nil), newCodec(t, "a", &seal.Options{Compress: true})
	require.Less(t, len(encode(t, small, "mails", payload)), len(payload)/5)
	require.Greater(t, len(encode(t, plain, "mails", payload)), len(payload))
	for _, c := range []struct {
		by     string
		stored json.RawMessage
	}{
		{"an earlier version", json.RawMessage(before)},
		{"one that compresses", encode(t, small, "mails", payload)},
		{"one that does not", encode(t, plain, "mails", payload)},
	} {
		t.Log(c.by)
		requireOpens(t, plain, "mails", c.stored, payload)
		requireOpens(t, small, "mails", c.stored, payload)
	}
}
