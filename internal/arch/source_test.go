package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const top = "../.."

// source is a parsed Go file.
type source struct {
	path   string // slash-separated, relative to the root of the repository
	room   string // "" for the root package, "internal/x", "internal/sqlite/x", or the first directory
	test   bool
	nested bool // belongs to a nested module
	file   *ast.File
}

func parse(t *testing.T, name string, nested bool, text any) source {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution|parser.ParseComments)
	require.NoError(t, err)
	return source{path: name, room: roomOf(path.Dir(name)), test: strings.HasSuffix(name, "_test.go"),
		nested: nested, file: file}
}

// roomOf returns the part of dir to which the rules apply. dir is a directory, or an import path
// without the module path.
func roomOf(dir string) string {
	parts := strings.Split(dir, "/")
	switch {
	case dir == "." || dir == "":
		return ""
	case strings.HasPrefix(dir, "internal/sqlite/"):
		return "internal/sqlite/" + parts[2]
	case parts[0] == "internal" && len(parts) > 1:
		return "internal/" + parts[1]
	}
	return parts[0]
}

// sources parses all Go files of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	modules := map[string]bool{}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && ignored(d.Name()) {
				return filepath.SkipDir
			}
			_, missing := os.Stat(filepath.Join(name, "go.mod"))
			modules[rel] = rel != "." && (missing == nil || modules[path.Dir(rel)])
			return nil
		}
		if strings.HasSuffix(rel, ".go") {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			all = append(all, parse(t, rel, modules[path.Dir(rel)], text))
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

func ignored(dir string) bool {
	return dir == "testdata" || dir == "vendor" || strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_")
}

// imports returns the import paths of s by their local names.
func (s source) imports() map[string]string {
	out := make(map[string]string)
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has validated it
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "_" || out[name] != "" {
			name = p
		}
		out[name] = p
	}
	return out
}

// texts returns the string constants of s. A concatenation counts as a single text; its
// non-constant operands are left out.
func (s source) texts() []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			if n.Op != token.ADD {
				return true
			}
			text, rest := sum(n)
			out = append(out, text)
			for _, e := range rest {
				inner := source{file: &ast.File{Name: s.file.Name, Decls: []ast.Decl{wrap(e)}}}
				out = append(out, inner.texts()...)
			}
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				text, _ := strconv.Unquote(n.Value)
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

func wrap(e ast.Expr) ast.Decl {
	return &ast.GenDecl{Tok: token.VAR, Specs: []ast.Spec{&ast.ValueSpec{Values: []ast.Expr{e}}}}
}

// sum concatenates the string literals of e and returns the other operands.
func sum(e ast.Expr) (text string, rest []ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return sum(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, a := sum(e.X)
			right, b := sum(e.Y)
			return left + right, append(a, b...)
		}
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ = strconv.Unquote(e.Value)
		}
		return text, nil
	}
	return " … ", []ast.Expr{e}
}
