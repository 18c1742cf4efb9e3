package arch_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages must name only files and directories that exist, so that renaming a file includes updating
// the pages.
func TestPagesNameFilesThatExist(t *testing.T) {
	files := repository(t)
	pages := 0
	for _, f := range files {
		if !isPage(f) {
			continue
		}
		pages++
		text, err := os.ReadFile(filepath.Join(top, f))
		require.NoError(t, err)
		for _, fault := range missingFiles(f, string(text), files) {
			t.Errorf("%s %s", f, fault)
		}
	}
	require.Greater(t, pages, 10, "the walk has missed the pages")
}

func TestMissingFilesAreFound(t *testing.T) {
	files := []string{"README.md", "queue.go", "queue_test.go", "docs/sql.md", "docs/decisions/001-x.md", "internal/wake/fifo.go", "tests/go.mod"}
	for _, c := range []struct{ page, text, fault string }{
		{"README.md", "see `crew.go`", "names crew.go"},
		{"README.md", "see `internal/wake/hub.go`", "names internal/wake/hub.go"},
		{"README.md", "see `internal/hub`", "names internal/hub"},
		{"README.md", "see `docs/cards/`", "names docs/cards/"},
		{"README.md", "see [it](docs/gone.md)", "names docs/gone.md"},
		{"docs/sql.md", "see [it](docs/sql.md)", "names docs/sql.md"},
		{"docs/sql.md", "see [it](decisions/001-y.md#why)", "names decisions/001-y.md"},
		{"README.md", "see `stream*_test.go`", "names stream*_test.go"},
		{"README.md", "see `acceptance.md`", "names acceptance.md"},
		{"README.md", "```sh\nrm x\n```\nsee `old.sql`", "names old.sql"},

		{"README.md", "see `queue.go` and `internal/wake/fifo.go` in `internal/wake`, `wake/fifo.go`, or `fifo.go`", ""},
		{"README.md", "see [it](docs/sql.md#top), `docs/decisions/` and `queue*_test.go`", ""},
		{"docs/sql.md", "see [it](decisions/001-x.md), [that](../README.md) and [those](decisions)", ""},
		{"README.md", "`go test ./internal/hub`, `modernc.org/sqlite`, `db.Tx`, `app.db`, `and/or`, [site](https://example.com/x.md), [here](#top)", ""},
		{"README.md", "```go\nfile := `crew.go`\n```", ""},
	} {
		faults := strings.Join(missingFiles(c.page, c.text, files), "\n")
		if c.fault == "" {
			require.Empty(t, faults, c.text)
			continue
		}
		require.Contains(t, faults, c.fault, c.text)
	}
}

// A link to a section must match a heading of the linked page. Headings are renamed more often than
// the links to them.
func TestPagesLinkToHeadingsThatExist(t *testing.T) {
	headings := map[string]map[string]bool{}
	texts := map[string]string{}
	for _, f := range repository(t) {
		if isPage(f) {
			text, err := os.ReadFile(filepath.Join(top, f))
			require.NoError(t, err)
			texts[f] = fenced.ReplaceAllString(string(text), "")
			headings[f] = map[string]bool{}
			for _, m := range heading.FindAllStringSubmatch(texts[f], -1) {
				headings[f][anchor(m[1])] = true
			}
		}
	}
	linksToSections := 0
	for f, text := range texts {
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if section == "" || strings.Contains(target, "://") {
				continue
			}
			page := f
			if target != "" {
				page = path.Join(path.Dir(f), target)
			}
			linksToSections++
			if all, ok := headings[page]; ok && !all[section] {
				t.Errorf("%s links to %s, which has no such heading", f, m[1])
			}
		}
	}
	require.Greater(t, linksToSections, 20, "the walk has missed the links")
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped  = regexp.MustCompile(`[^\pL\pN_ -]`)
	linkedTo = regexp.MustCompile(`\]\([^)]*\)`)
)

// anchor returns the fragment that links to heading.
func anchor(heading string) string {
	text := linkedTo.ReplaceAllString(heading, "")
	return strings.ReplaceAll(strings.ToLower(dropped.ReplaceAllString(strings.TrimSpace(text), "")), " ", "-")
}

var pageNames = regexp.MustCompile(`\bdocs/[\w/.-]*\w`)

// A comment that refers to a page, or to a decision by its number, must name an existing file.
func TestCommentsNamePagesThatExist(t *testing.T) {
	files := repository(t)
	named := 0
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			for _, page := range pageNames.FindAllString(group.Text(), -1) {
				named++
				begins := func(f string) bool { return strings.HasPrefix(f, page) }
				if !slices.ContainsFunc(files, begins) {
					t.Errorf("%s names %s, which does not exist", s.path, page)
				}
			}
		}
	}
	require.Greater(t, named, 5, "the walk has missed the comments")
}

// The package documentation of the root module must name every public package, because users start
// there.
func TestRootNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "doc.go"))
	require.NoError(t, err)
	packages := map[string]bool{"cmd/honker": true}
	for _, s := range sources(t) {
		dir := path.Dir(s.path)
		if !s.test && s.file.Name.Name == path.Base(dir) && !inner.MatchString(dir) {
			packages[dir] = true
		}
	}
	require.Greater(t, len(packages), 8, "the walk has missed the packages")
	for dir := range packages {
		require.Regexp(t, `\b`+dir+`\b`, string(text), "doc.go does not name package %s", dir)
	}
}

// inner matches directories that are not meant for users.
var inner = regexp.MustCompile(`(^|/)(internal|tests|bench|examples|tools|uitest)(/|$)`)

var testNames = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)`")

// Pages cite tests as proof of guarantees. A cited test must exist.
func TestPagesNameTestsThatExist(t *testing.T) {
	funcs := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				funcs[f.Name.Name] = true
			}
		}
	}
	named := 0
	for _, f := range repository(t) {
		if !isPage(f) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, f))
		require.NoError(t, err)
		for _, m := range testNames.FindAllStringSubmatch(string(text), -1) {
			named++
			if !funcs[m[1]] && m[1] != "TestMain" {
				t.Errorf("%s names %s, which does not exist", f, m[1])
			}
		}
	}
	require.Greater(t, named, 50, "the walk has missed the names")
}

// llms is the summary of the documentation for language models, in the format of https://llmstxt.org.
const llms = "llms.txt"

// isPage reports whether f is a page of the documentation.
func isPage(f string) bool { return path.Ext(f) == ".md" || path.Base(f) == llms }

// listed matches an item of a list of links: a link, a colon and a note.
var listed = regexp.MustCompile(`^- \[[^\]]+\]\(([^)\s]+)\): \S`)

// llms.txt lists every page of the guide once. It consists of a title, a summary, text, and sections that
// contain only links with notes.
func TestLLMsListsEveryPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, llms))
	require.NoError(t, err)
	require.Regexp(t, "^# .+\n\n> ", string(text))
	intro, sections, _ := strings.Cut(fenced.ReplaceAllString(string(text), ""), "\n## ")
	require.NotContains(t, intro, "\n#", "the text before the sections has no headings")
	links := map[string]int{}
	for line := range strings.Lines("## " + sections) {
		item := listed.FindStringSubmatch(line)
		if item == nil {
			require.Regexp(t, `^(## .*)?\n$`, line, "a line of a section is a heading or a link with a note")
			continue
		}
		links[item[1]]++
	}
	pages := 0
	for _, f := range repository(t) {
		if guide, name := path.Split(f); isPage(f) && (guide == "docs/" && name != "README.md" || guide == "docs/guide/") {
			pages++
			require.Equal(t, 1, links[f], "links to %s in llms.txt", f)
		}
	}
	require.Greater(t, pages, 20, "the walk has missed the pages")
}

// repository lists all files of the repository as slash-separated paths relative to its root.
func repository(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "out") {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	require.NoError(t, err)
	return files
}

var (
	fenced = regexp.MustCompile("(?s)```.*?```")
	quoted = regexp.MustCompile("`([^`\\s]+)`")
	linked = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// missingFiles returns an error text for each file or directory that a page names and that does not
// exist. Links are relative to the page. A name in backticks may be the end of a path, such as
// wake/fifo.go, and may contain a star.
func missingFiles(page, text string, files []string) (faults []string) {
	text = fenced.ReplaceAllString(text, "")
	for _, m := range linked.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") {
			continue
		}
		if !exists(path.Join(path.Dir(page), target), files) {
			faults = append(faults, "names "+target+", which does not exist")
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if isPath(m[1], files) && !existsSomewhere(m[1], files) {
			faults = append(faults, "names "+m[1]+", which does not exist")
		}
	}
	return faults
}

// isPath reports whether name looks like a file or a directory of the repository.
func isPath(name string, files []string) bool {
	switch path.Ext(name) {
	case ".go", ".md", ".sql":
		return true
	}
	first, _, below := strings.Cut(name, "/")
	return below && slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, first+"/") })
}

func exists(name string, files []string) bool {
	return name == "." || slices.ContainsFunc(files, func(f string) bool {
		return f == name || strings.HasPrefix(f, name+"/")
	})
}

// existsSomewhere reports whether name matches the end of a path or of a directory in files.
func existsSomewhere(name string, files []string) bool {
	pattern := strings.TrimSuffix(name, "/")
	depth := strings.Count(pattern, "/") + 1
	return slices.ContainsFunc(files, func(f string) bool {
		for f != "." {
			parts := strings.Split(f, "/")
			if len(parts) >= depth {
				if ok, _ := path.Match(pattern, strings.Join(parts[len(parts)-depth:], "/")); ok {
					return true
				}
			}
			f = path.Dir(f)
		}
		return false
	})
}
