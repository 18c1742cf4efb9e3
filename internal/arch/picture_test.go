package arch_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/doc"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw the packages in docs/internals/architecture.md again, and write testdata")

const (
	mapPage   = "docs/internals/architecture.md"
	mapBegins = "<!-- packages, drawn by: go test ./internal/arch -run Picture -update -->\n"
	mapEnds   = "<!-- end of packages -->\n"
	mapWidth  = 98 // of the text between the borders of the picture
	mapLines  = 60 // a longer picture needs coarser units
)

// bands are the parts of the picture, from top to bottom.
var bands = []string{
	helpers: "tests, benchmarks and examples",
	modules: "modules and commands",
	onRoot:  "packages on the root",
	root:    "the root",
	middle:  "the engine, and the packages around it",
	bottom:  "the line: everything below it knows SQLite",
}

const (
	helpers = iota
	modules
	onRoot
	root
	middle
	bottom
)

// wholes describes the directories that are drawn as a whole and have no package comment.
var wholes = map[string]string{
	"bench":    "honker beside other queues, and the benchmarks of its parts",
	"examples": "programs for readers of the guide",
	"honkerpg": "keeps honker's tables in a PostgreSQL database",
	"tests":    "tests that span several nouns or processes, models and torture",
}

// unit is a package of the root module, or a directory that the picture shows as a whole.
type unit struct {
	does    string // from the package comment
	imports []string
	module  bool // a nested module
	arrows  bool // imports packages from below the line
}

type graph map[string]*unit

// graphOf reads the units of the repository and their imports.
func graphOf(t *testing.T) graph {
	g, all := graph{}, sources(t)
	var nested []string
	for _, f := range repository(t) {
		if dir := path.Dir(f); path.Base(f) == "go.mod" && dir != "." {
			nested = append(nested, dir)
		}
	}
	crossing := arrows(all)
	for _, s := range all {
		if s.test {
			continue
		}
		name := unitOf(path.Dir(s.path), nested)
		if g[name] == nil {
			g[name] = &unit{does: wholes[name], module: slices.Contains(nested, name), arrows: crossing[name] != nil}
		}
		if s.file.Doc != nil && unitPath(name) == path.Dir(s.path) && g[name].does == "" {
			g[name].does = sentence(s.file.Doc.Text())
		}
		for _, dir := range s.ours() {
			g.add(name, unitOf(dir, nested))
		}
	}
	return g
}

func (g graph) add(from, to string) {
	if from != to && !slices.Contains(g[from].imports, to) {
		g[from].imports = append(g[from].imports, to)
		slices.Sort(g[from].imports)
	}
}

// unitOf returns the name of the unit that dir belongs to.
func unitOf(dir string, nested []string) string {
	if first, _, _ := strings.Cut(dir, "/"); wholes[first] != "" {
		return first
	}
	for _, m := range nested {
		if dir == m || strings.HasPrefix(dir, m+"/") {
			return m
		}
	}
	return strings.TrimPrefix(dir, ".")
}

func unitPath(name string) string { return path.Clean(name) }

var opening = regexp.MustCompile(`^(Package|Command) \S+ `)

// sentence returns the first sentence of a package comment, without the name of the package.
func sentence(comment string) string {
	text := opening.ReplaceAllString(new(doc.Package).Synopsis(comment), "")
	return strings.TrimSuffix(text, ".")
}

// band returns the part of the picture that a unit belongs to.
func (g graph) band(name string) int {
	switch {
	case below(name):
		return bottom
	case name == "":
		return root
	case helps.MatchString(name), strings.HasPrefix(name, "internal/") && !g.shipped(name):
		return helpers
	case g[name].module:
		return modules
	case g.reaches(name, ""):
		return onRoot
	default:
		return middle
	}
}

// shipped reports whether a unit that is not a helper imports name.
func (g graph) shipped(name string) bool {
	for other, u := range g {
		if !helps.MatchString(other) && slices.Contains(u.imports, name) {
			return true
		}
	}
	return false
}

func (g graph) reaches(from, to string) bool {
	return slices.ContainsFunc(g[from].imports, func(next string) bool { return next == to || g.reaches(next, to) })
}

// rows returns the names of a band. A unit is above all units of the band that it imports.
func (g graph) rows(band int) [][]string {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if g.band(name) == band {
			d := g.depth(name)
			for len(rows) <= d {
				rows = append(rows, nil)
			}
			rows[d] = append(rows[d], name)
		}
	}
	slices.Reverse(rows)
	return rows
}

// depth returns the length of the longest path from name through its band.
func (g graph) depth(name string) (d int) {
	for _, next := range g[name].imports {
		if g.band(next) == g.band(name) {
			d = max(d, 1+g.depth(next))
		}
	}
	return d
}

// short returns the name of a unit in the picture and the table.
func short(name string) string { return strings.TrimPrefix(shown(name), "internal/") }

// picture draws the units in bands and rows.
func (g graph) picture() string {
	var b strings.Builder
	corner := "┌┐"
	for band, title := range bands {
		rows := g.rows(band)
		if len(rows) == 0 {
			continue
		}
		if band == bottom {
			border(&b, "╞╡", "═", title, g.crossing())
		} else {
			border(&b, corner, "─", title, "")
		}
		corner = "├┤"
		for _, row := range rows {
			for _, line := range wrapped(g.labels(row)) {
				free := mapWidth - utf8.RuneCountInString(line)
				fmt.Fprintf(&b, "│%*s%s%*s│\n", free/2, "", line, free-free/2, "")
			}
		}
	}
	border(&b, "└┘", "─", "", "")
	return b.String()
}

// crossing counts the packages that import others across the line.
func (g graph) crossing() string {
	n := 0
	for _, u := range g {
		if u.arrows {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("* still imports from below: %d", n)
}

// border writes a line with a text at each end.
func border(b *strings.Builder, ends, stroke, left, right string) {
	for _, text := range []*string{&left, &right} {
		if *text != "" {
			*text = " " + *text + " "
		}
	}
	corners := []rune(ends)
	between := mapWidth - 2 - utf8.RuneCountInString(left+right)
	fmt.Fprintf(b, "%c%s%s%s%s%s%c\n", corners[0], stroke, left, strings.Repeat(stroke, between), right, stroke, corners[1])
}

// labels returns the short names of a row. Packages of one parent are written in braces.
func (g graph) labels(row []string) (labels []string) {
	families := map[string][]string{}
	for _, name := range row {
		families[path.Dir(short(name))] = append(families[path.Dir(short(name))], name)
	}
	for _, name := range row {
		parent := path.Dir(short(name))
		family := families[parent]
		if parent == "." || len(family) < 3 {
			labels = append(labels, g.label(name, short(name)))
			continue
		}
		if name == family[0] {
			var inside []string
			for _, child := range family {
				inside = append(inside, g.label(child, path.Base(child)))
			}
			labels = append(labels, parent+"/{"+strings.Join(inside, " ")+"}")
		}
	}
	return labels
}

func (g graph) label(name, text string) string {
	if g[name].arrows {
		text += "*"
	}
	return text
}

// wrapped joins labels to lines that fit into the picture.
func wrapped(labels []string) (lines []string) {
	const between = "    "
	for _, label := range labels {
		if n := len(lines) - 1; n >= 0 && utf8.RuneCountInString(lines[n]+between+label) < mapWidth-2 {
			lines[n] += between + label
			continue
		}
		lines = append(lines, label)
	}
	return lines
}

// table lists the units in the order of the picture.
func (g graph) table() string {
	var b strings.Builder
	b.WriteString("| package | purpose | imports |\n|---|---|---|\n")
	for band := range bands {
		for _, row := range g.rows(band) {
			for _, name := range row {
				var imports []string
				for _, to := range g[name].imports {
					text := "`" + short(to) + "`"
					if below(to) && !below(name) {
						text = "**" + text + "**"
					}
					imports = append(imports, text)
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", shown(name), g[name].does, cmp.Or(strings.Join(imports, ", "), "–"))
			}
		}
	}
	return b.String()
}

// TestPicture_IsOfTheImports checks that the picture and the table of the architecture page agree
// with the imports and the package comments.
func TestPicture_IsOfTheImports(t *testing.T) {
	g := graphOf(t)
	for name, u := range g {
		require.NotEmpty(t, u.does, "%s needs a package comment, or a line in wholes", shown(name))
	}
	g.checkPicture(t)
	file := filepath.Join(top, mapPage)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(text), mapBegins)
	drawn, after, ends := strings.Cut(rest, mapEnds)
	require.True(t, begins && ends, "%s must have the lines %q and %q", mapPage, mapBegins, mapEnds)
	want := "\n```text\n" + g.picture() + "```\n\n" + g.table() + "\n"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+mapBegins+want+mapEnds+after), 0o644))
		return
	}
	require.Equal(t, want, drawn, "%s differs from the imports: go test ./internal/arch -run Picture -update", mapPage)
}

// checkPicture checks that the picture has equally long lines, is not too long, and shows each
// import within a band as a step down.
func (g graph) checkPicture(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(g.picture()), "\n")
	require.LessOrEqual(t, len(lines), mapLines)
	for _, line := range lines {
		require.Equal(t, mapWidth+2, utf8.RuneCountInString(line), line)
	}
	for band := range bands {
		above := map[string]bool{}
		for _, row := range g.rows(band) {
			for _, name := range row {
				above[name] = true
			}
			for _, name := range row {
				for _, to := range g[name].imports {
					down := g.band(to) >= band || band == bottom && g.band(to) == middle
					require.True(t, down && !above[to], "%s imports %s, which is not below it in the picture", name, to)
				}
			}
		}
	}
}

// The picture adapts to packages inside internal/sqlite: stores of one level are drawn together, and
// the picture stays short.
func TestPicture_OfStoresByNoun(t *testing.T) {
	g := graph{"": {}}
	store := "internal/sqlite/store/"
	edges := [][]string{
		{"internal/row"}, {"internal/wake", "internal/row"}, {"internal/engine", "internal/row", "internal/wake"},
		{"observe", "internal/row"}, {"internal/storetest", "internal/engine"}, {"internal/sqlite", "internal/engine"},
		{"internal/sqlite/watch", "internal/sqlite"}, {store + "rows", "internal/sqlite"},
		{"internal/sqlite/backend", store + "jobs", store + "schema", "internal/sqlite/watch"},
		{"", "internal/engine", "internal/sqlite/backend", "observe"}, {"admin", "", "internal/engine"},
		{"cmd/honker", "", "admin"},
	}
	for _, noun := range []string{"dispatches", "jobs", "locks", "notify", "ops", "relays", "schedules", "schema", "streams"} {
		edges = append(edges, []string{store + noun, store + "rows", "internal/row"})
	}
	for _, e := range edges {
		g[e[0]] = &unit{module: e[0] == "cmd/honker"}
		for _, to := range e[1:] {
			g.add(e[0], to)
		}
	}
	g.checkPicture(t)
	drawn := g.picture()
	for _, part := range []string{
		"│ +storetest +│\n├─ modules and commands ─+┤\n│ +cmd/honker +│\n├─ packages on the root ─+┤\n│ +admin +│\n",
		"│ +engine +│\n│ +wake +observe +│\n│ +row +│\n╞",
		"│ +sqlite/backend +│\n│ +sqlite/store/\\{dispatches jobs locks notify ops relays schedules schema streams\\} +│\n",
		"│ +sqlite/store/rows +sqlite/watch +│\n│ +sqlite +│\n└",
	} {
		require.Regexp(t, part, drawn)
	}
	g["admin"].arrows = true
	require.Contains(t, g.picture(), " * still imports from below: 1 ")
}
