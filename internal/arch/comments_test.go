package arch_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// Doc comments begin with the name that they describe, so that a renamed identifier takes its comment along.
func TestCommentsBeginWithTheirName(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.room == "internal/storetest" || helps.MatchString(path.Dir(s.path)+"/") {
			continue // their comments describe the tests
		}
		for name, doc := range s.docs() {
			if !beginsWith(doc, name) {
				t.Errorf("%s: the comment of %s begins with %q", s.path, name, strings.SplitN(doc, "\n", 2)[0])
			}
		}
	}
}

// docs returns the doc comments of the functions and types of s by name.
func (s source) docs() map[string]string {
	docs := map[string]string{}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			docs[d.Name.Name] = d.Doc.Text()
		case *ast.GenDecl:
			if d.Tok == token.TYPE && len(d.Specs) == 1 {
				docs[d.Specs[0].(*ast.TypeSpec).Name.Name] = d.Doc.Text()
			}
		}
	}
	return docs
}

// beginsWith reports whether doc is empty, or begins with name, perhaps after an article.
func beginsWith(doc, name string) bool {
	for _, article := range []string{"A ", "An ", "The "} {
		if rest, found := strings.CutPrefix(doc, article); found && strings.HasPrefix(rest, name) {
			return true
		}
	}
	return doc == "" || strings.HasPrefix(doc, name) || strings.HasPrefix(doc, "Package ")
}
