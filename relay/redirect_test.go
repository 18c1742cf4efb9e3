package relay

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedirect_SameEndpoint(t *testing.T) {
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{"http://a.example/x", "http://a.example/y?z", true},
		{"http://a.example", "http://A.Example:80", true},
		{"https://a.example:443", "https://a.example", true},
		{"http://a.example", "https://a.example", true},
		{"http://a.example:8080", "http://a.example:8080/x", true},
		{"https://a.example", "http://a.example", false},
		{"http://a.example", "http://a.example:8080", false},
		{"http://a.example:8080", "https://a.example", false},
		{"http://a.example", "https://a.example:8443", false},
		{"http://a.example", "http://b.example", false},
		{"http://a.example", "http://b.a.example", false},
		{"https://a.example", "ftp://a.example", false},
	} {
		from, err := url.Parse(c.from)
		require.NoError(t, err)
		to, err := url.Parse(c.to)
		require.NoError(t, err)
		require.Equal(t, c.same, sameEndpoint(from, to), "%s to %s", c.from, c.to)
	}
}
