package arch_test

import (
	"cmp"
	"fmt"
	"io/fs"
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

// proseBudget is the maximum number of the pronouns "what" and "one" per 1,000 words of comments in
// a package, or of text in a folder of pages. Both words make the reader look for the noun they
// stand for. The comments of net/http and database/sql have 2 to 3. The rules are in
// docs/internals/prose.md.
const proseBudget = 3.0

// vagueProse lists the packages that exceed proseBudget, with their own limits. Delete the line of a
// package when its comments have been rewritten.
var vagueProse = map[string]float64{
	"docs/internals/*.md": 5.0,
}

var (
	vagueWord = regexp.MustCompile(`(?i)\b(what|one)\b`)
	word      = regexp.MustCompile(`[\pL\d][\pL\d'’-]*`)
	// notProse matches the parts of a page that nobody reads as text: code, HTML comments, which hold
	// the templates of figures, and the addresses of links.
	notProse  = regexp.MustCompile("(?s)```.*?```|`[^`]*`|<!--.*?-->|\\]\\([^)]*\\)")
	directive = regexp.MustCompile(`^//[a-z]+:`)
)

// prose counts the words of a package or of a folder of pages.
type prose struct {
	words, vague int
	worst        []string // lines with vague words
}

func (p *prose) add(where, text string) {
	p.words += len(word.FindAllString(text, -1))
	for line := range strings.SplitSeq(text, "\n") {
		if n := len(vagueWord.FindAllString(line, -1)); n > 0 {
			p.vague += n
			p.worst = append(p.worst, fmt.Sprintf("%d %s: %s", n, where, strings.TrimSpace(line)))
		}
	}
}

func (p *prose) share() float64 { return 1000 * float64(p.vague) / float64(max(p.words, 1)) }

// generatedPages is the folder of the pages that the bench program writes. They consist of figures
// and the names of its cases.
const generatedPages = "bench/results/"

// readProse reads the comments of each package and the pages of each folder, except generated pages.
func readProse(t *testing.T) map[string]*prose {
	all := make(map[string]*prose)
	of := func(dir string) *prose {
		if all[dir] == nil {
			all[dir] = new(prose)
		}
		return all[dir]
	}
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if !directive.MatchString(c.Text) {
					of(path.Dir(s.path)).add(s.path, c.Text)
				}
			}
		}
	}
	require.NoError(t, filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isPage(filepath.ToSlash(name)) || d.Name() == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rel, err := filepath.Rel(top, name)
		rel = filepath.ToSlash(rel)
		if !strings.HasPrefix(rel, generatedPages) {
			of(path.Dir(rel)+"/*.md").add(rel, notProse.ReplaceAllString(string(text), ""))
		}
		return err
	}))
	return all
}

// TestProseIsWithinItsBudget checks the share of vague words in comments and pages.
func TestProseIsWithinItsBudget(t *testing.T) {
	const enough = 300 // fewer words than this would exceed the budget with a single vague word
	all := readProse(t)
	require.Contains(t, all, "docs/guide/*.md", "the walk has missed the guide")
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		p, most := all[dir], cmp.Or(vagueProse[dir], proseBudget)
		if p.words >= enough && p.share() > most {
			slices.SortFunc(p.worst, func(a, b string) int { return strings.Compare(b, a) })
			t.Errorf("%s has %.1f of 1,000 words that are \"what\" or \"one\", and may have %.1f. The worst lines:\n\t%s",
				dir, p.share(), most, strings.Join(p.worst[:min(10, len(p.worst))], "\n\t"))
		}
	}
	for dir := range vagueProse {
		require.Contains(t, all, dir, "vagueProse names a package that is not there")
	}
}
