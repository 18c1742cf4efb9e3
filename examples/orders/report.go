package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// progress shows the counts. On a terminal it updates them in place; otherwise it prints a line per
// second.
type progress struct {
	w        io.Writer
	terminal bool
	shown    time.Time
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w), shown: time.Now()}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (p *progress) show(b books, retries int) {
	line := fmt.Sprintf("orders %5d   receipts %5d   waiting %4d   running %3d   retries %4d   dead letters %3d",
		b.orders, b.printed(), b.waiting, b.running, retries, b.dead)
	switch {
	case p.terminal:
		fmt.Fprint(p.w, "\r", line)
	case time.Since(p.shown) >= time.Second:
		fmt.Fprintln(p.w, line)
		p.shown = time.Now()
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}

// report prints the results of a run and whether the books balance.
func report(w io.Writer, t tally, m measured, a *audit, took time.Duration) {
	table := newTable(w)
	reportIntake(table, t, a)
	fmt.Fprintf(table, "receipts\t%d\n", a.receipts)
	fmt.Fprintf(table, "dead letters\t%d\n", a.dead)
	reportWork(table, m, took)
	table.Flush()
	fmt.Fprintf(w, "\n%s\n", verdict(a))
}

// reportWorkers prints the results of a process that only prints receipts.
func reportWorkers(w io.Writer, m measured, took time.Duration) {
	table := newTable(w)
	reportWork(table, m, took)
	table.Flush()
}

func newTable(w io.Writer) *tabwriter.Writer {
	fmt.Fprintln(w)
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
}

func reportIntake(w io.Writer, t tally, a *audit) {
	fmt.Fprintf(w, "orders\t%d\n", a.orders)
	fmt.Fprintf(w, "  stored now\t%d\n", t.stored)
	fmt.Fprintf(w, "  there already\t%d\n", t.known)
	refused := 0
	for _, n := range t.refused {
		refused += n
	}
	fmt.Fprintf(w, "refused\t%d\n", refused)
	for _, reason := range slices.Sorted(maps.Keys(t.refused)) {
		fmt.Fprintf(w, "  %s\t%d\n", reason, t.refused[reason])
	}
}

// reportWork prints the numbers for this process.
func reportWork(w io.Writer, m measured, took time.Duration) {
	fmt.Fprintf(w, "worked off here\t%d\n", m.printed)
	fmt.Fprintf(w, "retries\t%d\n", m.retries)
	if m.waits > 0 {
		fmt.Fprintf(w, "commit to start\tp50 %v, p99 %v\n", m.p50.Round(time.Microsecond), m.p99.Round(time.Microsecond))
	}
	if m.perSecond > 0 {
		fmt.Fprintf(w, "jobs per second\t%.0f (first attempts)\n", m.perSecond)
	}
	fmt.Fprintf(w, "took\t%v\n", took.Round(time.Millisecond))
}

func verdict(a *audit) string {
	switch {
	case a.err() != nil:
		return "The books do not balance."
	case a.open > 0:
		return fmt.Sprintf("Interrupted with %d receipts to go. Run again with the same -db and -out to finish them.", a.open)
	}
	return fmt.Sprintf("The books balance: %d orders = %d receipts + %d dead letters.", a.orders, a.receipts, a.dead)
}
