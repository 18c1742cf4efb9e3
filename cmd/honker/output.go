package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// format is an output format.
type format string

const (
	formatTable = "table"
	formatTSV   = "tsv"
	formatJSON  = "json"
	formatJSONL = "jsonl"
	formatName  = "name"
)

var formats = []string{formatTable, formatTSV, formatJSON, formatJSONL, formatName}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("must be one of %s", strings.Join(formats, ", "))
	}
	*f = format(text)
	return nil
}

// shown returns the requested format, or the default for a terminal or pipe.
func (a *app) shown() format {
	switch {
	case a.format != "":
		return a.format
	case a.outTerm:
		return formatTable
	default:
		return formatTSV
	}
}

// view describes how values of type T are printed. JSON output always has all fields of T.
type view[T any] struct {
	columns []column[T]
	name    func(T) string
	spare   []string // columns that a narrow terminal does without, the least important first
}

// column is a column in a table or in TSV. It has the same name as the JSON field.
type column[T any] struct {
	name string
	cell func(T) cell
}

func (v view[T]) header() []string {
	names := make([]string, len(v.columns))
	for i, c := range v.columns {
		names[i] = c.name
	}
	return names
}

func (v view[T]) row(value T) []cell {
	row := make([]cell, len(v.columns))
	for i, c := range v.columns {
		row[i] = c.cell(value)
	}
	return row
}

// list prints values as they are found.
type list[T any] struct {
	app  *app
	view view[T]
	n    int
	rows [][]cell // table rows, kept until all widths are known

	field string // for a page: the JSON field that contains the values
	next  string // of a page: the cursor for --after; "" on the last page
}

func newList[T any](a *app, v view[T]) (*list[T], error) {
	v, err := picked(a, v)
	return &list[T]{app: a, view: v}, err
}

func (l *list[T]) add(value T) error {
	l.n++
	switch w := l.app.out; l.app.shown() {
	case formatTable:
		l.rows = append(l.rows, l.view.row(value))
		return nil
	case formatTSV:
		return l.tsv(value)
	case formatName:
		if l.view.name == nil {
			return usage("", "there are no names to print")
		}
		_, err := fmt.Fprintln(w, clean(l.view.name(value)))
		return err
	case formatJSONL:
		return writeJSON(w, value, "")
	default:
		return l.json(value)
	}
}

// json adds value to the JSON document, which is completed by close.
func (l *list[T]) json(value T) error {
	begin, indent, _ := l.document()
	before := ",\n"
	if l.n == 1 {
		before = begin + "\n"
	}
	text, err := marshal(value, indent, "  ")
	if err != nil {
		return err
	}
	_, err = l.app.out.WriteString(before + indent + string(text))
	return err
}

// document returns the text before and after the values of the document, and the indent of each value. A page is
// an object with the cursor of the next page.
func (l *list[T]) document() (begin, indent, end string) {
	if l.field == "" {
		return "[", "  ", "]\n"
	}
	next := "null"
	if l.next != "" {
		next = strconv.Quote(l.next)
	}
	return "{\n  \"" + l.field + "\": [", "    ", "],\n  \"next\": " + next + "\n}\n"
}

func (l *list[T]) tsv(value T) error {
	if l.n == 1 && !l.app.quiet {
		if _, err := fmt.Fprintln(l.app.out, strings.Join(l.view.header(), "\t")); err != nil {
			return err
		}
	}
	return writeTSV(l.app.out, l.view.row(value))
}

// newPage returns a list for a page of results. In JSON it is an object with the values in field.
func newPage[T any](a *app, v view[T], field string) (*list[T], error) {
	l, err := newList(a, v)
	l.field = field
	return l, err
}

// closePage ends the page. If there may be more values, it gives the cursor for the next page, in the field next for
// JSON and on standard error otherwise.
func (l *list[T]) closePage(what, next string) error {
	l.next = next
	if err := l.close(what); err != nil {
		return err
	}
	if next != "" && l.app.shown() != formatJSON {
		l.app.note("there may be more: the same with --after %s", next)
	}
	return nil
}

// close ends the list. The noun what is used in a note if the list is empty.
func (l *list[T]) close(what string) error {
	if l.n == 0 {
		l.app.note("no %s", what)
	}
	switch shown := l.app.shown(); {
	case shown == formatTable && l.n > 0:
		return l.app.writeTable(l.view.header(), l.rows, l.view.spare)
	case shown == formatTSV && l.n == 0 && !l.app.quiet:
		_, err := fmt.Fprintln(l.app.out, strings.Join(l.view.header(), "\t"))
		return err
	case shown == formatJSON:
		begin, indent, end := l.document()
		if l.n > 0 { // in an empty list, both brackets are on the same line
			begin = "\n" + indent[2:]
		}
		_, err := l.app.out.WriteString(begin + end)
		return err
	}
	return nil
}

// one prints a single value. As a table, it has a line for each column.
func one[T any](a *app, v view[T], value T) error {
	switch a.shown() {
	case formatTable:
		v, err := picked(a, v)
		if err != nil {
			return err
		}
		return a.writeFields(v.header(), v.row(value))
	case formatJSON:
		return writeJSON(a.out, value, "  ")
	default:
		return many(a, v, []T{value}, "")
	}
}

// many prints values as a list. The noun what is used in a note if there are none.
func many[T any](a *app, v view[T], values []T, what string) error {
	l, err := newList(a, v)
	if err != nil {
		return err
	}
	for _, value := range values {
		if err := l.add(value); err != nil {
			return err
		}
	}
	return l.close(what)
}
