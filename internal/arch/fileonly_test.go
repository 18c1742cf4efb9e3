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
var portable = []string{".", "admin", "dispatch", "honkertest", "inbox", "relay", "seal", "task", "tests/model"}

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
		own := source{file: &ast.File{Name: s.file.Name, Decls: []ast.Decl{f}}}
		if mark := markOf(f); mark != nil {
			marks[mark] = true
		} else if slices.ContainsFunc(own.texts(), fileText.MatchString) {
			faults = append(faults, f.Name.Name+" is about the file and must begin with testkit.FileOnly(t)")
		}
	}
	return append(faults, s.uses(map[string][]string{module + "/internal/testkit": {"FileOnly"}}, marks)...)
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
