package main

import (
	"fmt"
	"slices"
	"strings"
)

// format is how a command prints what it has found.
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
		return fmt.Errorf("one of %s", strings.Join(formats, ", "))
	}
	*f = format(text)
	return nil
}

// shown is the format that was asked for, or the one that fits where the output goes.
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

// view is how values of one type are shown. In JSON they have all fields of T.
type view[T any] struct {
	columns []column[T]
	name    func(T) string
}

// column is one of a table, and of values separated by tabs. Its name is that of the field in JSON.
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

// list prints values one after the other, as they are found.
type list[T any] struct {
	app  *app
	view view[T]
	n    int
	rows [][]cell // of a table, which is printed when all widths are known
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
		before := ",\n"
		if l.n == 1 {
			before = "[\n"
		}
		if _, err := w.WriteString(before + "  "); err != nil {
			return err
		}
		text, err := marshal(value, "  ", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
}

func (l *list[T]) tsv(value T) error {
	if l.n == 1 && !l.app.quiet {
		if _, err := fmt.Fprintln(l.app.out, strings.Join(l.view.header(), "\t")); err != nil {
			return err
		}
	}
	return writeTSV(l.app.out, l.view.row(value))
}

// close ends the list. what says of what there was none.
func (l *list[T]) close(what string) error {
	if l.n == 0 {
		l.app.note("no %s", what)
	}
	switch shown := l.app.shown(); {
	case shown == formatTable && l.n > 0:
		return l.app.writeTable(l.view.header(), l.rows)
	case shown == formatTSV && l.n == 0 && !l.app.quiet:
		_, err := fmt.Fprintln(l.app.out, strings.Join(l.view.header(), "\t"))
		return err
	case shown == formatJSON && l.n == 0:
		_, err := l.app.out.WriteString("[]\n")
		return err
	case shown == formatJSON:
		_, err := l.app.out.WriteString("\n]\n")
		return err
	}
	return nil
}

// one prints a single value: a table has a line for each of its columns.
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

// many prints values as a list. what says of what there was none.
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
