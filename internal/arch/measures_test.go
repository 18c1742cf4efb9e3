package arch_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMeasures logs how far the packages above the line depend on SQLite, and how large the packages
// are: go test -run TestMeasures -v ./internal/arch. It fails only if a count has missed its subject.
func TestMeasures(t *testing.T) {
	all := sources(t)
	crossing, named := arrows(all), holesOf(all)
	stores, methods := storeInterfaces(all)
	tests, touching := blackBoxTests(all)
	require.NotZero(t, stores, "the walk has missed the interfaces")
	require.NotZero(t, touching, "the walk has missed the tests")

	r := new(report)
	r.total("imports across the line", "%6d in %d packages", count(crossing), len(crossing))
	for _, room := range slices.Sorted(maps.Keys(crossing)) {
		r.part(room, "%s", strings.Join(crossing[room], " "))
	}
	r.total("uses of the store's types above it", "%6d in %d packages", count(named), len(named))
	r.parts(lengths(named))
	r.total("store interfaces above it", "%6d with %d methods", stores, sumOf(methods))
	r.parts(methods)
	r.total("methods of engine.Backend", "%6d", backendMethods(all))
	r.total("black-box test files", "%6d and %d of them name tables or a PRAGMA", sumOf(tests), sumOf(touching))
	for _, room := range largest(touching) {
		r.part(room, "%6d of %d", touching[room], tests[room])
	}
	r.sizes(t, all)
	t.Log(r)
}

// report is a text with totals and their parts by package.
type report struct{ strings.Builder }

func (r *report) total(name, format string, args ...any) {
	fmt.Fprintf(r, "\n%-40s"+format, append([]any{name}, args...)...)
}

func (r *report) part(room, format string, args ...any) {
	r.total("    "+shown(room), format, args...)
}

func (r *report) parts(of map[string]int) {
	for _, room := range largest(of) {
		r.part(room, "%6d", of[room])
	}
}

func lengths(of map[string][]string) map[string]int {
	n := map[string]int{}
	for room, list := range of {
		n[room] = len(list)
	}
	return n
}

func sumOf(of map[string]int) (n int) {
	for _, each := range of {
		n += each
	}
	return n
}

// largest returns the keys by falling counts.
func largest(of map[string]int) []string {
	return slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), strings.Compare(a, b))
	})
}

// storeInterfaces counts the interfaces above the line with a method that takes a Querier, and their
// methods by package. The engine's Backend is not counted.
func storeInterfaces(all []source) (stores int, methods map[string]int) {
	methods = map[string]int{}
	for _, s := range all {
		if !s.neutral() || path.Base(s.path) == "backend.go" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok && slices.ContainsFunc(i.Methods.List, takesQuerier) {
				stores++
				for _, m := range i.Methods.List {
					methods[s.room] += len(m.Names)
				}
			}
			return true
		})
	}
	return stores, methods
}

// backendMethods counts the methods that a database must have besides its stores.
func backendMethods(all []source) (n int) {
	for _, s := range all {
		if s.room == "internal/engine" && !s.test {
			ast.Inspect(s.file, func(node ast.Node) bool {
				if spec, ok := node.(*ast.TypeSpec); ok && spec.Name.Name == "Backend" {
					n += len(spec.Type.(*ast.InterfaceType).Methods.List)
				}
				return true
			})
		}
	}
	return n
}

// takesQuerier reports whether the second parameter of a method, after its ctx, runs statements.
func takesQuerier(method *ast.Field) bool {
	f, ok := method.Type.(*ast.FuncType)
	if !ok || len(f.Params.List) < 2 {
		return false
	}
	switch p := f.Params.List[1].Type.(type) {
	case *ast.Ident:
		return p.Name == "Querier" || p.Name == "Tx"
	case *ast.SelectorExpr:
		return p.Sel.Name == "Querier" || p.Sel.Name == "Tx"
	}
	return false
}

var tablesOrPragma = regexp.MustCompile(`(?i)\b_honker|\bpragma\s`)

// blackBoxTests counts the external test files above the line by package, and those with a text that
// names a table of honker or a PRAGMA.
func blackBoxTests(all []source) (tests, touching map[string]int) {
	tests, touching = map[string]int{}, map[string]int{}
	for _, s := range all {
		if !s.test || below(s.room) || slices.Contains(testRooms, s.room) || !strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		dir := strings.TrimPrefix(path.Dir(s.path), ".")
		tests[dir]++
		if slices.ContainsFunc(s.texts(), tablesOrPragma.MatchString) {
			touching[dir]++
		}
	}
	return tests, touching
}

// sizes adds the files and lines of the largest packages.
func (r *report) sizes(t *testing.T, all []source) {
	files, lines, inTests := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range all {
		text, err := os.ReadFile(filepath.Join(top, s.path))
		require.NoError(t, err)
		dir, n := strings.TrimPrefix(path.Dir(s.path), "."), bytes.Count(text, []byte("\n"))
		if s.test {
			inTests[dir] += n
			continue
		}
		files[dir]++
		lines[dir] += n
	}
	r.total("lines of Go", "%6d and %d of tests", sumOf(lines), sumOf(inTests))
	for _, dir := range largest(lines)[:20] {
		r.part(dir, "%6d in %d files, and %d of tests", lines[dir], files[dir], inTests[dir])
	}
}
