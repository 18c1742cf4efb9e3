package main

import "strings"

// feed prints values as they arrive. A feed has no end, so it can't wait until the widths of all rows are known or
// until a JSON document can be closed. Its methods are safe for concurrent use.
type feed[T any] struct {
	list   *list[T]
	widths []int
}

// newFeed returns a feed of v. It rejects the JSON format, because that is a single document.
func newFeed[T any](a *app, v view[T]) (*feed[T], error) {
	if a.shown() == formatJSON {
		return nil, usage("the same with -o jsonl", "the output does not end, so it cannot be a JSON document")
	}
	l, err := newList(a, v)
	return &feed[T]{list: l}, err
}

// add prints value and flushes the output.
func (f *feed[T]) add(value T) error {
	a := f.list.app
	a.printing.Lock()
	defer a.printing.Unlock()
	if a.shown() != formatTable {
		if err := f.list.add(value); err != nil {
			return err
		}
		return a.out.Flush()
	}
	if f.widths == nil {
		if err := f.header(); err != nil {
			return err
		}
	}
	if err := f.row(f.list.view.row(value)); err != nil {
		return err
	}
	return a.out.Flush()
}

func (f *feed[T]) header() error {
	names := f.list.view.header()
	f.widths = make([]int, len(names))
	if f.list.app.quiet {
		return nil
	}
	head := make([]cell, len(names))
	for i, name := range names {
		head[i] = text(strings.ToUpper(name)).in(dim)
	}
	return f.row(head)
}

// row prints a table row. Each column is as wide as its widest value so far.
func (f *feed[T]) row(row []cell) error {
	for i, c := range row {
		row[i].human = clean(strings.ReplaceAll(c.human, "\n", " "))
		if f.list.app.fits() {
			row[i].human = shortened(row[i].human, f.list.app.width)
		}
		f.widths[i] = max(f.widths[i], cells(row[i].human))
	}
	return f.list.app.writeRow(row, f.widths)
}
