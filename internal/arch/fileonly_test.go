package arch_test

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// portable lists the directories of the black-box tests that are to run against a second database.
// Tests about the file are marked in them. Packages such as tests/faults are about files as a whole.
var portable = []string{".", "admin", "dispatch", "flow", "honkertest", "inbox", "relay", "seal", "task", "tests/model", "tests/process", "tests/torture", "ui"}

// fileText matches texts that only the file understands: SQL on honker's tables, a PRAGMA, and SQL on
// SQLite's tables. The envelope "__honker_task__" of a task is JSON.
var fileText = regexp.MustCompile(`(^|[^_])_honkerx?_|PRAGMA|sqlite_`)

// markFaults reports tests that have such a text in their own body and no mark, and marks that are not
// the first statement of a test.
func markFaults(s source) (faults []string) {
	if !s.test || !slices.Contains(portable, path.Dir(s.path)) {
		return nil
	}
	marks := map[*ast.SelectorExpr]bool{}
	for _, f := range s.tests() {
		if mark := markOf(f); mark != nil {
			marks[mark] = true
		} else if holds(f) {
			faults = append(faults, f.Name.Name+" is about the file and must begin with testkit.FileOnly(t)")
		}
	}
	return append(faults, s.uses(map[string][]string{module + "/internal/testkit": {"FileOnly"}}, marks)...)
}

// sharedTables are the tables that testkit finds by these names on both databases.
var sharedTables = regexp.MustCompile(`_honker(_live|_dead|_results|_stream|_stream_consumers|x_done|x_attempts|x_after|x_audit|x_workers|x_minutes)\b`)

// onFile are calls whose arguments may be about the file: testkit.Either has a counterpart for a server, and a bubble
// uses a file.
var onFile = []string{"Either", "Bubble", "LoggedBubble", "inBubble", "inQueue"}

// holds reports whether a test has a text that only the file understands, outside of calls that allow it.
func holds(test *ast.FuncDecl) (found bool) {
	ast.Inspect(test, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch f := n.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			return !slices.Contains(onFile, name)
		case *ast.BasicLit:
			found = found || fileText.MatchString(sharedTables.ReplaceAllString(n.Value, ""))
		}
		return !found
	})
	return found
}

// tests returns the test functions of s.
func (s source) tests() (tests []*ast.FuncDecl) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && testName.MatchString(f.Name.Name) && f.Name.Name != "TestMain" {
			tests = append(tests, f)
		}
	}
	return tests
}

var testName = regexp.MustCompile(`^Test(\P{Ll}|$)`)

// markOf returns the call of testkit.FileOnly with which a test begins, or nil.
func markOf(f *ast.FuncDecl) *ast.SelectorExpr {
	if f.Body == nil || len(f.Body.List) == 0 {
		return nil
	}
	first, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return nil
	}
	call, ok := first.X.(*ast.CallExpr)
	if !ok {
		return nil
	}
	mark, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || mark.Sel.Name != "FileOnly" {
		return nil
	}
	if of, ok := mark.X.(*ast.Ident); !ok || of.Name != "testkit" {
		return nil
	}
	return mark
}

const markedFile = "testdata/fileonly.golden"

// The marked tests are listed in a golden file, so that each new mark appears in a review.
func TestFileOnly_List(t *testing.T) {
	var list []string
	all, marked := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		if !s.test || !slices.Contains(portable, dir) {
			continue
		}
		name := shown(strings.TrimPrefix(dir, "."))
		for _, f := range s.tests() {
			all[name]++
			if markOf(f) != nil {
				marked[name]++
				list = append(list, name+" "+f.Name.Name)
			}
		}
	}
	require.Len(t, all, len(portable), "the walk has missed tests")
	r := new(report)
	r.total("tests about the file", "%6d of %d", sumOf(marked), sumOf(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r.total("    "+name, "%6d of %d", marked[name], all[name])
	}
	t.Log(r)
	slices.Sort(list)
	text := strings.Join(list, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(markedFile, []byte(text), 0o644))
	}
	want, err := os.ReadFile(markedFile)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "the marks have changed: go test ./internal/arch -run FileOnly -update")
}
