package pgstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/internal/engine"
)

// Servers that honker cannot run on are refused with a sentence that names the way out.
func TestRefuse(t *testing.T) {
	const rc = "read committed"
	require.NoError(t, refuse("PostgreSQL 15.18 (Debian)", 150018, "UTF8", rc))
	for _, c := range []struct {
		version  string
		number   int
		encoding string
		why      string
	}{
		{"CockroachDB CCL v24.1.0", 130000, "UTF8", "CockroachDB"},
		{"PostgreSQL 15.2-YB-2.25.0.0", 150002, "UTF8", "YugabyteDB"},
		{"PostgreSQL 13.9", 130009, "UTF8", "use PostgreSQL 14 or newer"},
		{"PostgreSQL 15.18", 150018, "LATIN1", "ENCODING 'UTF8'"},
	} {
		err := refuse(c.version, c.number, c.encoding, rc)
		require.ErrorIs(t, err, engine.ErrUnsupported)
		require.ErrorContains(t, err, c.why)
	}
}
