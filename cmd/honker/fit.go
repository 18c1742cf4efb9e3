package main

import (
	"slices"
	"strings"
)

// grid is a table for people.
type grid struct {
	header []string
	rows   [][]cell
	quiet  bool // without the header
}

// narrowest is the width to which a column of text can be cut. Times and states are not cut.
const narrowest = 12

// fits reports whether tables are fitted to the terminal.
func (a *app) fits() bool { return a.outTerm && a.width > 0 && !a.wide }

func (g grid) head() []cell {
	head := make([]cell, len(g.header))
	for i, name := range g.header {
		head[i] = cell{human: strings.ToUpper(name), right: len(g.rows) > 0 && g.rows[0][i].right, style: dim}
	}
	return head
}

// widths returns the width of each column.
func (g grid) widths() []int {
	widths := make([]int, len(g.header))
	if !g.quiet {
		for i, c := range g.head() {
			widths[i] = cells(c.human)
		}
	}
	for _, row := range g.rows {
		for i, c := range row {
			widths[i] = max(widths[i], cells(c.human))
		}
	}
	return widths
}

// fitted returns the table in at most width cells, if its columns allow. Unless the columns were chosen, columns without
// values are left out first, and then the spare columns as far as necessary. Columns of text are cut, the widest first.
// left names the spare columns that are left out.
func (g grid) fitted(width int, chosen, spare []string) (fitted grid, left []string) {
	for _, row := range g.rows {
		for i := range row {
			row[i].human = shortened(row[i].human, width)
		}
	}
	if g.total() <= width {
		return g, nil
	}
	if chosen != nil {
		spare = nil
	} else {
		g = g.without(g.empty())
	}
	spare = slices.DeleteFunc(slices.Clone(spare), func(name string) bool { return !slices.Contains(g.header, name) })
	most := g.most(width)
	for most < narrowest && len(left) < len(spare) {
		left = spare[:len(left)+1]
		g = g.without(left)
		most = g.most(width)
	}
	for _, row := range g.rows {
		for i, c := range row {
			if !c.right {
				row[i].human = cut(c.human, max(most, narrowest))
			}
		}
	}
	return g, left
}

// total returns the width of the table.
func (g grid) total() int {
	sum := gap * (len(g.header) - 1)
	for _, w := range g.widths() {
		sum += w
	}
	return sum
}

// most returns the width to which the columns of text must be cut so that the table fits.
func (g grid) most(width int) int {
	widths := g.widths()
	most := slices.Max(widths)
	for over := g.total() - width; over > 0 && most > 0; most-- {
		for i := range widths {
			if widths[i] == most && !g.rows[0][i].right {
				widths[i]--
				over--
			}
		}
	}
	return most
}

// empty returns the columns without values, except the first.
func (g grid) empty() (names []string) {
	for i, name := range g.header {
		if i > 0 && !slices.ContainsFunc(g.rows, func(row []cell) bool { return row[i].human != "" && row[i].human != "-" }) {
			names = append(names, name)
		}
	}
	return names
}

// without returns the table without the columns named.
func (g grid) without(names []string) grid {
	out := grid{quiet: g.quiet, rows: make([][]cell, len(g.rows))}
	for i, name := range g.header {
		if slices.Contains(names, name) {
			continue
		}
		out.header = append(out.header, name)
		for r, row := range g.rows {
			out.rows[r] = append(out.rows[r], row[i])
		}
	}
	return out
}

// shortened cuts s to width cells. Combining marks take no cells, so their number is limited too.
func shortened(s string, width int) string {
	if len(s) <= width {
		return s
	}
	if runes := []rune(s); len(runes) > 8*width {
		s = string(runes[:8*width]) + "…"
	}
	return cut(s, width)
}
