package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Doctor notes the oldest safe version of Litestream if Litestream replicates the file. The note doesn't change the
// output for scripts or the exit code.
func TestDoctor_Litestream_IsNoted(t *testing.T) {
	dir, _, _ := newFile(t)
	p := &person{t: t, env: map[string]string{"HONKER_FILE": filepath.Join(dir, "app.db")}}
	require.Equal(t, 0, p.run("doctor").code)
	require.NotContains(t, p.run("doctor").err, "Litestream")

	require.NoError(t, os.Mkdir(filepath.Join(dir, ".app.db-litestream"), 0o755))
	got := p.run("doctor")
	require.Contains(t, got.err, "Litestream replicates this file: it must be 0.5.17 or newer")
	require.NotContains(t, got.out, "Litestream")
	require.Equal(t, 0, got.code)
}

// Status and doctor tell the size of a large file, and the command that shows its parts.
func TestDoctor_LargeFile(t *testing.T) {
	inFile(t, func(t *testing.T, s *session) {
		const note = "to see where the bytes are: honker sizes\n"
		s.atTerm = true
		require.NotContains(t, s.run("doctor").err, note)
		require.NoError(t, os.Truncate("app.db", largeFile))
		for _, args := range []string{"doctor", "status"} {
			got := s.run(args)
			require.Contains(t, got.err, "the file has 256 MiB, and its log ")
			require.Contains(t, got.err, note)
			require.NotContains(t, s.run(args, "-o", "json").err, note)
		}
		require.Contains(t, s.run("sizes").out, "_honker_live")
	})
}
