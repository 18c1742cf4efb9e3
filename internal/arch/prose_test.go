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

// proseBudget bounds the pronouns "what" and "one" in 1,000 words of the comments of a package,
// and of a folder of pages. They stand for a noun that the reader has to look for; net/http and
// database/sql have 2 to 3. docs/internals/prose.md has the rules.
const proseBudget = 3.0

// vagueProse are the packages that are over the budget, with the number that they may not exceed.
// A package whose comments were rewritten loses its line.
var vagueProse = map[string]float64{
	".":                                   20.4,
	"./*.md":                              19.1,
	"admin":                               24.5,
	"bench":                               26.7,
	"bench/*.md":                          28.6,
	"bench/micro":                         34.3,
	"bench/results/lanes/*.md":            26.0,
	"bench/results/pool/*.md":             12.3,
	"bench/results/relay-partitions/*.md": 16.7,
	"bench/results/relay/*.md":            10.8,
	"cmd/honker":                          27.9,
	"dispatch":                            20.4,
	"docs/*.md":                           13.6,
	"docs/guide":                          29.3,
	"docs/guide/*.md":                     19.7,
	"docs/internals/*.md":                 24.6,
	"docs/internals/decisions/*.md":       21.2,
	"examples/bridge":                     18.5,
	"examples/dispatch":                   34.1,
	"examples/feed":                       27.2,
	"examples/feed/*.md":                  29.1,
	"examples/orders":                     24.5,
	"examples/orders/*.md":                25.0,
	"examples/orm":                        33.0,
	"examples/relay":                      38.7,
	"examples/tenants":                    37.2,
	"honkerotel":                          29.0,
	"honkerprom":                          27.0,
	"honkertest":                          25.1,
	"inbox":                               10.3,
	"internal/arch":                       33.7,
	"internal/cron":                       21.8,
	"internal/engine":                     19.9,
	"internal/presence":                   36.7,
	"internal/sqlfunc":                    20.5,
	"internal/sqlite":                     21.2,
	"internal/store":                      21.5,
	"internal/testkit":                    28.4,
	"internal/traffic":                    35.2,
	"internal/wake":                       30.3,
	"internal/watch":                      18.8,
	"internal/webhook":                    16.1,
	"internal/worker":                     24.7,
	"relay":                               21.8,
	"relay/jetstream":                     26.8,
	"relay/watermill":                     36.0,
	"seal":                                25.1,
	"task":                                17.6,
	"tests/compat":                        17.8,
	"tests/faults":                        23.8,
	"tests/faultvfs":                      35.7,
	"tests/interop":                       30.1,
	"tests/model":                         30.2,
	"tests/process":                       24.9,
	"tests/torture":                       37.4,
	"ui":                                  26.7,
	"ui/uitest":                           23.1,
}

var (
	vagueWord = regexp.MustCompile(`(?i)\b(what|one)\b`)
	word      = regexp.MustCompile(`[\pL\d][\pL\d'’-]*`)
	fence     = regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	directive = regexp.MustCompile(`^//[a-z]+:`)
)

// prose is the text of a package or of a folder of pages.
type prose struct {
	words, vague int
	worst        []string // its lines with vague words
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

// readProse collects the comments by package and the pages by folder.
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
		if err != nil || d.IsDir() || path.Ext(name) != ".md" || d.Name() == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rel, err := filepath.Rel(top, name)
		of(path.Dir(filepath.ToSlash(rel))+"/*.md").add(rel, fence.ReplaceAllString(string(text), ""))
		return err
	}))
	return all
}

// Comments and pages name the things that they speak of.
func TestProseIsWithinItsBudget(t *testing.T) {
	const enough = 300 // words, below which a single one would be over the budget
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
