//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/honker-go/honker/tests/torture"
)

func TestMain(m *testing.M) {
	torture.Main()
	goleak.VerifyTestMain(m)
}

// The report contains the counters, the machine and the versions.
func TestCLI_Torture_Report(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	require.Zero(t, run([]string{"-for", "1s", "-seed", "7", "-only", "faults", "-quiet", "-report", path}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var report torture.Report
	require.NoError(t, json.Unmarshal(text, &report))
	require.EqualValues(t, 7, report.Seed)
	require.Zero(t, report.Failed)
	require.NotEmpty(t, report.Machine["cpus"])
	require.NotEmpty(t, report.Versions["go"])
	require.Len(t, report.Suites, 1)
	require.Positive(t, report.Suites[0].Counters["faults"])
}

// An unknown suite is an error.
func TestCLI_Torture_UnknownSuite(t *testing.T) {
	require.Equal(t, 2, run([]string{"-only", "nonsense", "-quiet"}))
}
