package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Packages above the line must not know which database they run on. Packages below it know SQLite.
// docs/internals/decisions/014-the-line-below-the-engine.md gives the reasons.

// belowLine is the directory of the packages that know SQLite.
const belowLine = "internal/sqlite"

// doors lists the files above the line that choose a database, and may therefore import from below.
var doors = []string{"open.go", "attach.go"}

// helps matches directories that are not shipped to users.
var helps = regexp.MustCompile(`(^|/)(tests|bench|examples|docs|tools|uitest)(/|$)`)

func below(dir string) bool {
	return dir == belowLine || strings.HasPrefix(dir, belowLine+"/")
}

// partOf returns the name of a package below the line without its place: store for internal/sqlite/store
// and for internal/sqlite/store/jobs.
func partOf(dir string) string {
	inside := strings.TrimPrefix(strings.TrimPrefix(dir, "internal/"), "sqlite/")
	part, _, _ := strings.Cut(inside, "/")
	return part
}

// mayCross reports whether s may import packages from below the line.
func (s source) mayCross() bool {
	return slices.Contains(doors, s.path) || s.test && s.room == ""
}

// neutral reports whether s must not know a database: it is shipped, and above the line.
func (s source) neutral() bool {
	return !s.test && !below(s.room) && !helps.MatchString(s.path) && !slices.Contains(testRooms, s.room)
}

// ours returns the directories of this repository that s imports.
func (s source) ours() (dirs []string) {
	for _, p := range s.imports() {
		if p == module {
			dirs = append(dirs, "")
		}
		if dir, ok := strings.CutPrefix(p, module+"/"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// arrows returns the imports that cross the line, by package, without those of the doors.
func arrows(all []source) map[string][]string {
	found := map[string][]string{}
	for _, s := range all {
		if !s.neutral() || slices.Contains(doors, s.path) {
			continue
		}
		for _, dir := range s.ours() {
			if part := partOf(dir); below(dir) && !slices.Contains(found[s.room], part) {
				found[s.room] = append(found[s.room], part)
				slices.Sort(found[s.room])
			}
		}
	}
	return found
}

func count[K comparable, V any](of map[K][]V) (n int) {
	for _, list := range of {
		n += len(list)
	}
	return n
}

// shown returns the name of a package for readers.
func shown(room string) string {
	if room == "" {
		return "honker"
	}
	return room
}

// TestLine_NoImportCrosses checks that only the doors import packages from below the line.
func TestLine_NoImportCrosses(t *testing.T) {
	for room, parts := range arrows(sources(t)) {
		t.Errorf("%s imports %s, which knows SQLite: ask the engine instead", shown(room), strings.Join(parts, ", "))
	}
}

// TestLine_StoresAreGiven checks that no package above the line chooses a type of the store.
func TestLine_StoresAreGiven(t *testing.T) {
	for room, uses := range holesOf(sources(t)) {
		t.Errorf("%s names types of the store: take the store from the engine instead\n\t%s", shown(room), strings.Join(uses, "\n\t"))
	}
}

// holesOf returns the uses of the store's types, and of variables of these types, by package above
// the line. Each use reads "file: package.Name".
func holesOf(all []source) map[string][]string {
	names := map[string]map[string]bool{} // by directory
	for _, s := range all {
		if dir := path.Dir(s.path); !s.test && below(dir) && partOf(dir) == "store" {
			if names[dir] == nil {
				names[dir] = map[string]bool{}
			}
			maps.Copy(names[dir], s.storeNames())
		}
	}
	found := map[string][]string{}
	for _, s := range all {
		if !s.neutral() {
			continue
		}
		imports := s.imports()
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && names[strings.TrimPrefix(imports[x.Name], module+"/")][sel.Sel.Name] {
				found[s.room] = append(found[s.room], fmt.Sprintf("%s: %s.%s", s.path, x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return found
}

// storeNames returns the exported types that s declares, without aliases, and its exported variables
// that hold a literal of a type.
func (s source) storeNames() map[string]bool {
	names := map[string]bool{}
	for _, d := range s.file.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names[spec.Name.Name] = spec.Name.IsExported() && !spec.Assign.IsValid()
			case *ast.ValueSpec:
				for i, name := range spec.Names {
					if gen.Tok == token.VAR && i < len(spec.Values) {
						names[name.Name] = name.IsExported() && isLiteralOfType(spec.Values[i])
					}
				}
			}
		}
	}
	return names
}

// isLiteralOfType reports whether e is a composite literal of a named type of its own package.
func isLiteralOfType(e ast.Expr) bool {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return false
	}
	_, named := literal.Type.(*ast.Ident)
	return named
}

// The rules of the line find an import and a type from below it.
func TestLine_FindsBreaks(t *testing.T) {
	for _, dir := range []string{"internal/sqlite/store", "internal/sqlite/store/jobs"} {
		name := path.Base(dir)
		declared := parse(t, dir+"/x.go", false, "package x\ntype Jobs struct{}\ntype Querier = int\ntype kept struct{}\nvar Old = Kind{1}\nvar List = []string{}\nvar Err = f()\n")
		user := parse(t, "internal/cron/x.go", false, "package x\nimport \""+ours+"/"+dir+"\"\n"+
			"var a, b = "+name+".Jobs{}, "+name+".Old\nvar c, q = "+name+".List, "+name+".Querier(1)\nvar e = "+name+".Err\n")
		require.Equal(t, []string{"imports " + ours + "/" + dir}, importFaults(user))
		require.Equal(t, map[string][]string{"internal/cron": {"store"}}, arrows([]source{declared, user}))
		require.Equal(t, map[string][]string{"internal/cron": {"internal/cron/x.go: " + name + ".Jobs", "internal/cron/x.go: " + name + ".Old"}},
			holesOf([]source{declared, user}))
	}
	require.Equal(t, "watch", partOf("internal/sqlite/watch"))
	require.Equal(t, "sqlite", partOf("internal/sqlite"))
	require.False(t, below("internal/storetest"))
	door := parse(t, "open.go", false, "package honker\n"+imports(ours+"/internal/sqlite/backend"))
	require.Empty(t, importFaults(door))
	require.Empty(t, arrows([]source{door}))
}
