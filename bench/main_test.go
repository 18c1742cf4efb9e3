package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	asChild()
	postgresSettings = append(postgresSettings, "fsync = off") // numbers do not matter
	code := m.Run()
	if err := stopPostgres(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// TestBench_Suites runs every suite briefly. Each table must have a row per contestant, with
// numbers or the reason why there are none.
func TestBench_Suites(t *testing.T) {
	for _, s := range suites() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains([]string{"idle", "crowd", "pool", "dispatch", "flow", "postgres"}, s.Name) && runtime.GOOS != "linux" {
				t.Skip("only Linux tells what another process costs")
			}
			r := Runner{Rounds: 2, For: time.Millisecond, Scale: 0.001, Bound: 50 * time.Millisecond, Fewest: 1, Hasty: true,
				Dir: t.TempDir(), Progress: io.Discard}
			if s.Name == "postgres" && postgresVersion() == "" {
				t.Skip("PostgreSQL is not installed")
			}
			if slices.Contains([]string{"wake", "crowd", "postgres"}, s.Name) { // River's polls and new databases take seconds
				r.Rounds = 1
			}
			if s.Name == "postgres" { // each turn makes a database
				s.Cases = slices.DeleteFunc(s.Cases, func(c Case) bool { return c.Durability == Asynchronous })
			}
			if s.Name == "crowd" { // its processes are slow to start
				s.Cases = slices.DeleteFunc(s.Cases, func(c Case) bool {
					return !slices.ContainsFunc([]string{"10 idle, 5 ms", "10 queues", "subscribers"}, func(one string) bool { return strings.Contains(c.Name, one) })
				})
			}
			tables, err := r.run(t.Context(), s)
			require.NoError(t, err)
			require.Len(t, tables, len(s.Cases))
			for _, table := range tables {
				checkTable(t, &table, s.contestants(""))
			}
			checkOutput(t, &Results{Header: Header{Machine: thisMachine(), Skipped: absent()}, Tables: tables})
		})
	}
}

func checkTable(t *testing.T, table *Table, contestants []Contestant) {
	require.Len(t, table.Rows, len(contestants))
	for i, c := range contestants {
		row := table.Rows[i]
		require.Equal(t, c.Name, row.Contestant)
		if len(row.Cells) == 0 {
			require.True(t, strings.HasPrefix(row.Note, "n/a: "), "%s: %s: %s", table.Case, c.Name, row.Note)
			continue
		}
		require.Len(t, row.Cells, len(table.Metrics))
		for _, cell := range row.Cells {
			require.LessOrEqual(t, cell.Min, cell.Median)
			require.LessOrEqual(t, cell.Median, cell.Max)
		}
	}
	ours := table.row(honkerName)
	require.NotEmpty(t, ours.Cells, "%s: %s", table.Case, ours.Note)
}

// checkOutput writes, reads and renders the results.
func checkOutput(t *testing.T, r *Results) {
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, r.write(path))
	again, err := readResults(path)
	require.NoError(t, err)
	require.Equal(t, r, again)
	require.NoError(t, render(again, path))
	text, err := os.ReadFile(strings.TrimSuffix(path, "json") + "md")
	require.NoError(t, err)
	for _, table := range r.Tables {
		require.Contains(t, string(text), "### "+table.Suite+": "+table.Case)
	}
	charts, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.svg"))
	require.NoError(t, err)
	require.NotEmpty(t, charts)
	for _, chart := range charts {
		require.Contains(t, string(text), "]("+filepath.Base(chart)+")")
		checkSVG(t, chart)
	}
}

func checkSVG(t *testing.T, path string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	root := ""
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && root == "" {
			root = e.Name.Local
		}
	}
	require.Equal(t, "svg", root)
}

// A cell has the values of all rounds, their median and extremes, and the ratio to the ceiling.
func TestBench_Cell(t *testing.T) {
	c := newCell([]float64{3, 1, 2}, []float64{6, 4, 4})
	require.Equal(t, Cell{Rounds: []float64{3, 1, 2}, Median: 2, Min: 1, Max: 3, Ratio: 0.5}, c)
	require.Zero(t, newCell([]float64{1}, nil).Ratio)
	require.Zero(t, newCell([]float64{1}, []float64{0}).Ratio)
}

// A quantile is the value at its rank in the sorted samples.
func TestBench_Quantile(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	require.Equal(t, 3.0, quantile(v, 0.5))
	require.Equal(t, 5.0, quantile(v, 0.99))
	require.Equal(t, 1.0, quantile(v, 0))
	require.Equal(t, 7.0, quantile([]float64{7}, 0.5))
}

// Numbers are rounded to three significant digits and have thousands separators.
func TestBench_Number(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123: "0.012", 1.234: "1.23", 56.78: "56.8", 999.6: "1,000", 1234567: "1,234,567"} {
		require.Equal(t, want, number(v))
	}
}

// TestBench_Targets checks results that meet the targets and results that miss them.
func TestBench_Targets(t *testing.T) {
	cell := func(v float64) []Cell { return []Cell{newCell([]float64{v}, nil)} }
	work := Table{Suite: "work", Case: "no-op jobs, as many workers as suit each best", Rows: []Row{
		{Contestant: ceilingName, Cells: cell(100)}, {Contestant: honkerName, Cells: cell(90)},
		{Contestant: "River tuned", Cells: cell(6)}, {Contestant: "backlite", Cells: cell(18)},
	}}
	r := &Results{Tables: []Table{work}}
	told, met := targets[0].judge(r)
	require.Equal(t, "15.0 × River tuned ()", told)
	require.True(t, met)
	told, met = targets[1].judge(r)
	require.Equal(t, "5.00 × backlite ()", told)
	require.False(t, met)
	for _, target := range targets[2:] {
		told, met = target.judge(r)
		require.Equal(t, "not measured", told)
		require.False(t, met)
	}
}

// TestBench_Bounds checks that honker is judged by the worst of the selected tables.
func TestBench_Bounds(t *testing.T) {
	table := func(name string, v float64) Table {
		return Table{Suite: "crowd", Case: name, Metrics: []Metric{{"p50", "ms", false}}, Rows: []Row{{Contestant: honkerName, Cells: []Cell{newCell([]float64{v}, nil)}}}}
	}
	r := &Results{Tables: []Table{table("5 idle", 2), table("5 idle, no pauses", 3), table("50 idle", 9)}}
	for bound, want := range map[float64]bool{2.5: false, 3: true} {
		told, met := within("crowd", "5 idle", 0, bound)(r)
		require.Equal(t, "3.00 ms at most (5 idle, no pauses)", told)
		require.Equal(t, want, met, bound)
	}
	for bound, want := range map[float64]bool{2: true, 2.5: false} {
		told, met := reach("crowd", "5 idle", 0, bound)(r)
		require.Equal(t, "2.00 ms at least (5 idle)", told)
		require.Equal(t, want, met, bound)
	}
	_, met := reach("crowd", "7 idle", 0, 0)(r)
	require.False(t, met)
}

// TestBench_Lowest checks that the target is missed if any peer is ahead.
func TestBench_Lowest(t *testing.T) {
	row := func(name string, v float64) Row {
		return Row{Contestant: name, Cells: []Cell{newCell([]float64{v}, nil)}}
	}
	for ours, want := range map[float64]bool{1: true, 2: true, 2.5: false} {
		r := &Results{Tables: []Table{{Suite: "wake", Rows: []Row{row(ceilingName, 0), row(honkerName, ours), row("backlite", 2)}}}}
		_, met := lowest("wake", "", 0)(r)
		require.Equal(t, want, met, ours)
	}
}

// TestBench_Order checks that the order of contestants depends only on the seed.
func TestBench_Order(t *testing.T) {
	r := Runner{Seed: 1}
	c := Case{Name: "a", Durability: Normal}
	require.Equal(t, r.rand("s", c, 0).Perm(100), r.rand("s", c, 0).Perm(100))
	require.NotEqual(t, r.rand("s", c, 0).Perm(100), r.rand("s", c, 1).Perm(100))
	other := Runner{Seed: 2}
	require.NotEqual(t, r.rand("s", c, 0).Perm(100), other.rand("s", c, 0).Perm(100))
}

// Invalid flags are rejected with exit code 2.
func TestBench_Flags(t *testing.T) {
	for _, args := range [][]string{{"-suite", "nosuch"}, {"-rounds", "0"}, {"-scale", "0"}, {"-for", "0s"}, {"more"}, {"-nosuch"}} {
		require.Equal(t, 2, run(t.Context(), args, io.Discard), "%v", args)
	}
	require.Equal(t, 1, run(t.Context(), []string{"-only", "nosuch"}, io.Discard))
	require.Equal(t, 1, run(t.Context(), []string{"-from", filepath.Join(t.TempDir(), "nosuch.json")}, io.Discard))
}

// TestBench_Run runs the program from its flags to its output files, and then renders the results
// again.
func TestBench_Run(t *testing.T) {
	out := filepath.Join(t.TempDir(), "new", "results.json")
	args := []string{"-suite", "enqueue,stream", "-only", "raw,honker", "-for", "1ms", "-rounds", "1", "-scale", "0.001", "-out", out}
	require.Zero(t, run(t.Context(), args, io.Discard))
	first, err := os.ReadFile(strings.TrimSuffix(out, "json") + "md")
	require.NoError(t, err)
	require.Zero(t, run(t.Context(), []string{"-from", out}, io.Discard))
	again, err := os.ReadFile(strings.TrimSuffix(out, "json") + "md")
	require.NoError(t, err)
	require.Equal(t, string(first), string(again))
}

// TestBench_ChildDies checks that a child's reason for not measuring is shown as n/a, and that a
// crash is a failure.
func TestBench_ChildDies(t *testing.T) {
	for says, na := range map[string]bool{"": false, "echo ERROR too slow": true} {
		c, err := newChild(exec.Command("sh", "-c", "echo READY; "+says))
		require.NoError(t, err)
		_, err = c.rest(t.Context(), time.Millisecond)
		require.Error(t, err)
		require.Equal(t, na, errors.Is(err, errNA), "%q: %v", says, err)
		require.NoError(t, c.end())
	}
}
