package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// pages lists the pages that contain figures, relative to the root of the repository.
var pages = []string{"README.md", "docs/performance.md", "docs/internals/benchmarks.md", "docs/guide/files.md", "docs/guide/pools.md", "docs/guide/workers.md"}

// figures matches templates in HTML comments, which are invisible to readers. A template on a line
// of its own generates the table below it. Any other template generates the number before it.
var figures = regexp.MustCompile(`(?s)<!--(\{\{.*?\}\})-->`)

// Patterns for the number or table that a template replaces.
var (
	numberBefore = regexp.MustCompile(`(?:[0-9](?:[0-9.,]*[0-9])?|\?)$`)
	tableBelow   = regexp.MustCompile(`^(?:\|[^\n]*\n)*`)
)

// updatePages updates the figures in all pages.
func updatePages(root string) error {
	for _, page := range pages {
		path := filepath.Join(root, page)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		updated, err := withFigures(string(text), filepath.Join(root, "bench", "results"))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(path, []byte(updated), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withFigures returns page with the figures from a directory of results.
func withFigures(page, results string) (string, error) {
	f := &folder{path: results, read: map[string]*Results{}}
	funcs := f.funcs()
	var b strings.Builder
	for {
		at := figures.FindStringSubmatchIndex(page)
		if at == nil {
			b.WriteString(page)
			return b.String(), nil
		}
		before, comment, source, after := page[:at[0]], page[at[0]:at[1]], page[at[2]:at[3]], page[at[1]:]
		made, err := execute(source, funcs)
		if err != nil {
			return "", err
		}
		if alone := (before == "" || strings.HasSuffix(before, "\n")) && strings.HasPrefix(after, "\n"); alone {
			after = after[1:]
			b.WriteString(before + comment + "\n")
			if made = strings.TrimSpace(made); made != "" { // a table of a run that exists
				b.WriteString(made + "\n")
			}
			page = after[len(tableBelow.FindString(after)):]
			continue
		}
		number := numberBefore.FindString(before)
		if number == "" {
			return "", fmt.Errorf("%s: there is no number before it", comment)
		}
		b.WriteString(strings.TrimSuffix(before, number) + made + comment)
		page = after
	}
}

func execute(source string, funcs template.FuncMap) (string, error) {
	t, err := template.New("figure").Funcs(funcs).Parse(source)
	if err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, nil); err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	return b.String(), nil
}

// figure is a number that is printed with three significant digits.
type figure float64

func (f figure) String() string { return number(float64(f)) }

// folder loads the results of several runs.
type folder struct {
	path    string
	read    map[string]*Results
	columns []string // columns of the following rows
}

// funcs returns the template functions. A cell is identified by run, suite and case, and optionally
// by contestant and metric. The defaults are honker and the first metric.
func (f *folder) funcs() template.FuncMap {
	of := func(pick func(Cell) float64) func(run, suite, name string, rest ...string) (figure, error) {
		return func(run, suite, name string, rest ...string) (figure, error) {
			c, err := f.cell(run, suite, name, rest)
			return figure(pick(c)), err
		}
	}
	return template.FuncMap{
		"median":   of(func(c Cell) float64 { return c.Median }),
		"ratio":    of(func(c Cell) float64 { return c.Ratio }), // relative to raw
		"least":    of(func(c Cell) float64 { return c.Min }),
		"most":     of(func(c Cell) float64 { return c.Max }),
		"times":    func(a, b figure) figure { return a / b },
		"less":     func(a, b figure) figure { return a - b },
		"percent":  func(a figure) int { return int(a*100 + 0.5) },
		"largest":  func(all ...figure) figure { return slices.Max(all) },
		"round":    func(a figure) int { return int(a + 0.5) },
		"measured": f.measured,
		"table":    f.table,
		"header":   f.header,
		"row":      f.row,
	}
}

// measured reports whether there are results of a run. Figures of a run that is still to come are made if they exist.
func (f *folder) measured(run string) bool {
	_, err := f.results(run)
	return err == nil
}

// header starts a table whose columns are contestants and whose rows may be from several suites.
func (f *folder) header(contestants ...string) string {
	f.columns = contestants
	return "| | " + strings.Join(contestants, " | ") + " |\n|---" + strings.Repeat("|---", len(contestants)) + "|\n"
}

// row returns a row with metrics of a case for each contestant of the header.
func (f *folder) row(label, run, suite, name string, metrics ...string) (string, error) {
	line := "| " + label
	var missing error
	found := false
	for _, contestant := range f.columns {
		var numbers []string
		for _, metric := range metrics {
			c, err := f.cell(run, suite, name, []string{contestant, metric})
			if err != nil {
				numbers, missing = []string{"n/a"}, err
				break
			}
			numbers, found = append(numbers, number(c.Median)), true
		}
		line += " | " + strings.Join(numbers, " / ")
	}
	if !found {
		return "", missing
	}
	return line + " |\n", nil
}

// table returns a table of a metric, with a row per case of a suite and a column per contestant.
func (f *folder) table(run, suite, metric string) (string, error) {
	r, err := f.results(run)
	if err != nil {
		return "", err
	}
	text := summarize(r.of(suite), metric)
	if text == "" {
		return "", fmt.Errorf("no case of %s in %s has the metric %q", suite, run, metric)
	}
	return text, nil
}

func (f *folder) cell(run, suite, name string, rest []string) (Cell, error) {
	r, err := f.results(run)
	if err != nil {
		return Cell{}, err
	}
	contestant, metric := "honker", ""
	if len(rest) > 0 {
		contestant = rest[0]
	}
	if len(rest) > 1 {
		metric = rest[1]
	}
	for _, t := range r.of(suite) {
		if t.title() != name {
			continue
		}
		row := t.row(contestant)
		i := slices.IndexFunc(t.Metrics, func(m Metric) bool { return metric == "" || m.Name == metric || m.title() == metric })
		if row == nil || i < 0 || len(row.Cells) <= i {
			return Cell{}, fmt.Errorf("%s, %s: %s has no %q", run, name, contestant, metric)
		}
		return row.Cells[i], nil
	}
	return Cell{}, fmt.Errorf("%s has no case %q of %s", run, name, suite)
}

func (f *folder) results(run string) (*Results, error) {
	if r := f.read[run]; r != nil {
		return r, nil
	}
	r, err := readResults(filepath.Join(f.path, run, "results.json"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("results of %q", run), err)
	}
	f.read[run] = r
	return r, nil
}
