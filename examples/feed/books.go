package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// _honker_stream is part of honker's documented file format and may be queried.
const (
	sqlTraffic = `SELECT path, requests, bytes FROM traffic`
	sqlVisits  = `SELECT coalesce(sum(requests), 0) FROM visits`
	sqlTrouble = `SELECT count(*) FROM _honker_stream WHERE topic = ?1`
)

// sum is the traffic for a path.
type sum struct{ requests, bytes int64 }

// tally is the expected result, computed only from the log.
type tally struct {
	at                 place
	ok, failed, broken int64
	traffic            map[string]sum
}

func readLog(text []byte) *tally {
	t := &tally{traffic: make(map[string]sum)}
	for line := range bytes.Lines(text) {
		t.add(string(line))
	}
	return t
}

func (t *tally) add(line string) {
	t.at.bytes += int64(len(line))
	t.at.lines++
	r, err := parseRequest(strings.TrimRight(line, "\r\n"), t.at.lines)
	if err != nil {
		t.at.malformed++
		return
	}
	was := t.traffic[r.Path]
	t.traffic[r.Path] = sum{was.requests + 1, was.bytes + r.Bytes}
	if !r.failed() {
		t.ok++
		return
	}
	t.failed++
	if r.broken() {
		t.broken++
	}
}

// account compares the work of a consumer with the expected number of events.
type account struct {
	standing
	what       string
	done, want int64
}

// wrong reports whether the numbers do not add up. After a kill, the alarm may have written alerts
// for events that still count as open.
func (a account) wrong() bool {
	sum := a.done + a.dead + a.open()
	return sum < a.want || sum > a.want && (a.open() == 0 || a.name != alarmName)
}

// books holds the results of all consumers, read after they have stopped.
type books struct {
	at       place
	log      *tally
	traffic  map[string]sum
	accounts []account
	doubled  int // alerts written twice
}

func readBooks(ctx context.Context, f *feed) (*books, error) {
	s, err := readStandings(ctx, f)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.log)
	if err != nil {
		return nil, err
	}
	b := &books{at: s.at, log: readLog(text[:min(len(text), int(s.at.bytes))])}
	done, err := b.readDone(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, name := range everybody {
		a := done[name]
		a.standing = s.of(name, a.want)
		b.accounts = append(b.accounts, a)
	}
	return b, nil
}

// readDone reads each consumer's results from the place where the consumer stores them.
func (b *books) readDone(ctx context.Context, f *feed) (map[string]account, error) {
	events := b.log.ok + b.log.failed
	counted, err := b.readTraffic(ctx, f.db.SQL())
	if err != nil {
		return nil, err
	}
	visits, err := readOne(ctx, f.db.SQL(), sqlVisits)
	if err != nil {
		return nil, err
	}
	condensed, err := readOne(ctx, f.db.SQL(), sqlTrouble, f.trouble.Name())
	if err != nil {
		return nil, err
	}
	alerts, err := b.readAlerts(f.alertsPath())
	return map[string]account{
		counterName:   {what: "requests counted", done: counted, want: events},
		alarmName:     {what: "alerts written", done: alerts, want: b.log.broken},
		condenserName: {what: "errors condensed", done: condensed, want: b.log.failed},
		resolversName: {what: "addresses resolved", done: visits, want: events},
	}, err
}

func (b *books) readTraffic(ctx context.Context, db *sql.DB) (requests int64, err error) {
	rows, err := db.QueryContext(ctx, sqlTraffic)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	b.traffic = make(map[string]sum)
	for rows.Next() {
		var path string
		var s sum
		if err := rows.Scan(&path, &s.requests, &s.bytes); err != nil {
			return 0, err
		}
		b.traffic[path] = s
		requests += s.requests
	}
	return requests, rows.Err()
}

func readOne(ctx context.Context, db *sql.DB, query string, args ...any) (n int64, err error) {
	return n, db.QueryRowContext(ctx, query, args...).Scan(&n)
}

func (b *books) readAlerts(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	offsets, err := alerts(text)
	b.doubled = len(offsets) - len(slices.Compact(slices.Sorted(slices.Values(offsets))))
	return int64(len(offsets)), err
}

// open returns the number of events that the consumers still have to handle.
func (b *books) open() (n int64) {
	for _, a := range b.accounts {
		n += a.open()
	}
	return n
}

// err returns nil if the results of all consumers agree with the log.
func (b *books) err() error {
	for _, a := range b.accounts {
		if a.wrong() {
			return fmt.Errorf("the books do not balance: %s: %d %s, %d dead, %d to do, of %d", a.name, a.done, a.what, a.dead, a.open(), a.want)
		}
	}
	switch {
	case b.at != b.log.at:
		return fmt.Errorf("the books do not balance: published %+v, the log has %+v", b.at, b.log.at)
	case b.open() == 0 && !maps.Equal(b.traffic, b.log.traffic):
		return errors.New("the books do not balance: the traffic of a path differs from the log")
	case b.doubled > 0:
		return fmt.Errorf("the books do not balance: %d alerts were written twice", b.doubled)
	}
	return nil
}

// report prints the books and the verdict.
func (b *books) report(w io.Writer) {
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "lines\t%d\n", b.at.lines)
	fmt.Fprintf(table, "  malformed\t%d\n", b.at.malformed)
	fmt.Fprintf(table, "  access:ok\t%d\n", b.log.ok)
	fmt.Fprintf(table, "  access:error\t%d\n", b.log.failed)
	for _, a := range b.accounts {
		fmt.Fprintf(table, "%s\t%d\t%s", a.name, a.done, a.what)
		if a.dead > 0 {
			fmt.Fprintf(table, ", %d dead", a.dead)
		}
		if a.open() > 0 {
			fmt.Fprintf(table, ", %d to do", a.open())
		}
		fmt.Fprintln(table)
	}
	table.Flush()
	fmt.Fprintf(w, "\n%s\n", b.verdict())
}

func (b *books) verdict() string {
	switch {
	case b.err() != nil:
		return "The books do not balance."
	case b.open() > 0:
		return fmt.Sprintf("Interrupted with %d events left to handle. Run again with the same -db to continue.", b.open())
	}
	events, group := b.at.lines-b.at.malformed, b.accounts[len(b.accounts)-1]
	return fmt.Sprintf("The books balance: %d lines = %d events + %d malformed; %d events = %d counted = %d acked + %d dead.",
		b.at.lines, events, b.at.malformed, events, b.sum(), group.done, group.dead)
}

func (b *books) sum() (requests int64) {
	for _, s := range b.traffic {
		requests += s.requests
	}
	return requests
}
