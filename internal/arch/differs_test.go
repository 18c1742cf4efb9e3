package arch_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	differsFile = "testdata/differs.golden"
	guide       = "docs/guide/postgres.md"
)

// The tests that differ on Postgres are listed in a golden file, with the row of the guide's table that each mark names.
// So a difference is documented before a test may skip over it.
func TestDiffers_List(t *testing.T) {
	rows := guideRows(t)
	var list []string
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		if !s.test || !slices.Contains(portable, dir) {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, row := range differences(f) {
				name := shown(strings.TrimPrefix(dir, ".")) + " " + f.Name.Name
				require.Contains(t, rows, row, "%s names no row of the table in %s", name, guide)
				list = append(list, name+": "+row)
			}
		}
	}
	require.NotEmpty(t, list, "the walk has missed tests")
	slices.Sort(list)
	text := strings.Join(slices.Compact(list), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(differsFile, []byte(text), 0o644))
	}
	want, err := os.ReadFile(differsFile)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "the marks have changed: go test ./internal/arch -run Differs -update")
}

// differences returns the rows that the marks in f name. A mark whose row is not a literal names none.
func differences(f *ast.FuncDecl) (rows []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		mark, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || mark.Sel.Name != "Differs" && mark.Sel.Name != "AsFile" {
			return true
		}
		if of, ok := mark.X.(*ast.Ident); !ok || of.Name != "testkit" || len(call.Args) == 0 {
			return true
		}
		row := ""
		if text, ok := call.Args[len(call.Args)-1].(*ast.BasicLit); ok {
			row, _ = strconv.Unquote(text.Value)
		}
		rows = append(rows, row)
		return true
	})
	return rows
}

var tableRow = regexp.MustCompile(`(?m)^\| ([^|]+) \|`)

// guideRows returns the first cells of the table of differences in the guide, without backticks.
func guideRows(t *testing.T) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, guide))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "## What differs from a file\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range tableRow.FindAllStringSubmatch(table, -1) {
		rows = append(rows, strings.ReplaceAll(row[1], "`", ""))
	}
	return rows
}

// A mark is found wherever it stands, and a mark without a literal names no row.
func TestDiffers_Marks(t *testing.T) {
	for body, want := range map[string][]string{
		`testkit.Differs(t, "times")`: {"times"},
		`t.Run("x", func(t *testing.T) { if !testkit.AsFile("times") { return } })`: {"times"},
		`testkit.AsFile(row)`:          {""},
		`other.Differs(t, "times")`:    nil,
		`testkit.FileOnly(t); want(1)`: nil,
	} {
		s := parse(t, "x_test.go", false, "package x\nfunc TestX(t *testing.T) { "+body+" }")
		var got []string
		for _, f := range s.tests() {
			got = append(got, differences(f)...)
		}
		require.Equal(t, want, got, body)
	}
}
