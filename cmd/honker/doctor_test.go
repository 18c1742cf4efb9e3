package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Doctor names the oldest version of Litestream that is safe, beside a file that Litestream replicates. The note is no
// problem: the output for scripts and the exit code stay.
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
