package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A run passes all checks.
func TestTenants_Run(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "tenants.db")
	out := runMain(t, t.Context(), 0, "-db", db)
	require.Regexp(t, `(?m)^   \d+\.\ds  acme: \d+ run, \d+ held, `, out)
	require.Regexp(t, `acme 10 in 10 calls, bolt 10 in 10 calls, crux 10 in 12 calls +ok`, out)
	require.Regexp(t, `job \d+: its key "crux" has been paused since .* slow down: 429 too many requests`, out)
	require.Regexp(t, `job \d+: waits for batch 3`, out)
	require.Regexp(t, `acme 10 and \[0\], bolt 10 and \[0\], crux 10 and \[0\] +ok`, out)
	require.NotContains(t, out, "FAILED")
	require.FileExists(t, db)
	require.Empty(t, runMain(t, t.Context(), 1, "-db", db), "a file that exists is left alone")
}

// A run stops promptly when its context is done.
func TestTenants_Ended(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	out := runMain(t, ctx, 1, "-noisy", "100000")
	require.NotContains(t, out, "check")
}

// A failed check is reported, and the meter counts calls correctly.
func TestTenants_WrongChecks(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	require.ErrorContains(t, printChecks(&w, []check{{"A", "must", "found", true}, {"B", "must", "other", false}}), "scenario B: must, but: other")
	require.Contains(t, w.String(), "FAILED")
	var m meter
	defer m.enter()()
	m.enter()()
	defer m.enter()()
	require.Equal(t, 2, m.most)
	require.Equal(t, 3, m.before(time.Now().Add(time.Second)))
	require.Zero(t, m.before(m.calls[0]))
}

// Invalid flags are rejected with exit code 2.
func TestTenants_Flags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-noisy", "9"}, {"-work", "-1s"}, {"-nonsense"}} {
		require.Empty(t, runMain(t, t.Context(), 2, args...), "%v", args)
	}
}

// runMain calls run in this process and returns its stdout.
func runMain(t *testing.T, ctx context.Context, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, code, run(ctx, args, &stdout, &stderr), "%s%s", &stdout, &stderr)
	if code == 0 {
		fmt.Fprint(t.Output(), stdout.String())
	}
	return stdout.String()
}
