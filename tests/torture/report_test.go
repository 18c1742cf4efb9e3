//go:build unix

package torture_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/honker-go/honker/tests/torture"
)

// A suite with a violation is reported with its seed and ends. Other suites continue.
func TestTorture_Report(t *testing.T) {
	suites := torture.Suites
	defer func() { torture.Suites = suites }()
	var good []uint64
	torture.Suites = []torture.Suite{
		{Name: "bad", Share: 1, Round: func(_ context.Context, r *torture.Round) error {
			r.Add("seen", 1)
			if r.Seed == 12 {
				return errors.New("broken")
			}
			return nil
		}},
		{Name: "good", Share: 1, Round: func(_ context.Context, r *torture.Round) error {
			good = append(good, r.Seed)
			time.Sleep(time.Millisecond)
			return nil
		}},
	}
	dir := t.TempDir()
	report, err := torture.All(context.Background(), torture.Options{For: time.Second, Seed: 10, Cycles: 3, Dir: dir})
	require.NoError(t, err)
	kept, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Contains(t, report.Suites[0].Violation, kept[0])
	require.Equal(t, 1, report.Failed)
	require.Contains(t, report.Suites[0].Violation, "seed 12: broken")
	require.EqualValues(t, 3, report.Suites[0].Counters["seen"])
	require.Empty(t, report.Suites[1].Violation)
	require.EqualValues(t, len(good), report.Suites[1].Counters["rounds"])
	require.Equal(t, good, slices.Compact(slices.Sorted(slices.Values(good))), "no seed twice")
}
