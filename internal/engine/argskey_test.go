package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Arguments' key is computed from their canonical form, which any language can write.
func TestArgsKey(t *testing.T) {
	// printf '%s' '{"a":[1.0,"é<&>"],"b":{"x":null,"y":12345678901234567890}}' | sha256sum
	const canonical = `{"a":[1.0,"é<&>"],"b":{"x":null,"y":12345678901234567890}}`
	want, err := ArgsKey(canonical, nil)
	require.NoError(t, err)
	require.Equal(t, "h:19027884fa9f720e8ab68bf59256d250", want)
	for _, same := range []string{
		` { "b" : {"y":12345678901234567890, "x":null}, "a" : [1.0, "\u00e9\u003c&>"] } `,
	} {
		got, err := ArgsKey(same, nil)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	chosen, err := ArgsKey(`{"c":1,`+strings.TrimPrefix(canonical, "{"), []string{"b", "a", "b"})
	require.NoError(t, err)
	require.Equal(t, want, chosen)
	for _, bad := range []struct{ payload, field string }{{`[1]`, "a"}, {`null`, "a"}, {`{"A":1}`, "a"}, {`{"a":{"b":1}}`, "a.b"}, {`x`, "a"}} {
		_, err := ArgsKey(bad.payload, []string{bad.field})
		require.Error(t, err, bad)
	}
}
