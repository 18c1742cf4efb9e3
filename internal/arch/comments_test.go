package arch_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// Doc links in the comments of public packages lead to declarations that exist. A list that directly follows
// an indented code block would become part of it.
func TestDocLinksLeadToDeclarations(t *testing.T) {
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		if s.test || inner.MatchString(dir) || s.file.Name.Name == "main" {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(top, s.path), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		packages[dir] = append(packages[dir], file)
	}
	require.Greater(t, len(packages), 8, "the walk has missed the packages")
	links := 0
	for dir, files := range packages {
		p, err := doc.NewFromFiles(fset, files, path.Join("github.com/honker-go/honker", dir))
		require.NoError(t, err)
		for _, text := range docTexts(p) {
			resolved, broken := docLinks(p.Parser().Parse(text))
			links += resolved
			for _, link := range broken {
				t.Errorf("%s: %s leads nowhere, in %.60q", dir, link, text)
			}
		}
	}
	require.Greater(t, links, 300, "the walk has missed the links")
}

func TestBrokenDocLinksAreFound(t *testing.T) {
	var p comment.Parser
	p.LookupSym = func(recv, name string) bool { return recv+name == "QueueWork" || recv+name == "Run" }
	for text, want := range map[string][]string{
		"Use [Run] or [Queue.Work].":                 nil,
		"Use [Lanes], and [Queue.Gone].":             {"[Lanes]", "[Queue.Gone]"},
		"NewQueue[Mail] has a type.":                 nil,
		"It has a list:\n\n  - [Run]\n  - [Gone]\n":  {"[Gone]"},
		"Code:\n\n\tx()\n\nText.\n\n  - [Run]\n":     nil,
		"Code:\n\n\tx()\n\n  - [Run] is in the code": {"- [Run]"},
	} {
		_, broken := docLinks(p.Parse(text))
		require.Equal(t, want, broken, text)
	}
}

// docTexts returns the doc comments of p.
func docTexts(p *doc.Package) []string {
	texts := []string{p.Doc}
	values := func(all []*doc.Value) {
		for _, v := range all {
			texts = append(texts, v.Doc)
		}
	}
	funcs := func(all []*doc.Func) {
		for _, f := range all {
			texts = append(texts, f.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, t := range p.Types {
		texts = append(texts, t.Doc)
		values(t.Consts)
		values(t.Vars)
		funcs(t.Funcs)
		funcs(t.Methods)
	}
	return texts
}

var (
	brokenLink = regexp.MustCompile(`(?:^|[\s(])(\[[\w.]*\b[A-Z]\w*\])`)
	codeLink   = regexp.MustCompile(`(?m)^\s*(- \[\w+(?:\.\w+)*\])`)
)

// docLinks returns the number of links in d and the texts that look like links and are not.
func docLinks(d *comment.Doc) (resolved int, broken []string) {
	ofText := func(all []comment.Text) {
		for _, text := range all {
			switch text := text.(type) {
			case *comment.DocLink:
				resolved++
			case comment.Plain:
				for _, m := range brokenLink.FindAllStringSubmatch(string(text), -1) {
					broken = append(broken, m[1])
				}
			}
		}
	}
	var ofBlocks func([]comment.Block)
	ofBlocks = func(all []comment.Block) {
		for _, block := range all {
			switch block := block.(type) {
			case *comment.Paragraph:
				ofText(block.Text)
			case *comment.List:
				for _, item := range block.Items {
					ofBlocks(item.Content)
				}
			case *comment.Code:
				for _, m := range codeLink.FindAllStringSubmatch(block.Text, -1) {
					broken = append(broken, m[1])
				}
			}
		}
	}
	ofBlocks(d.Content)
	return resolved, broken
}
