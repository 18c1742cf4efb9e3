package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Ledger is a file in which a process notes events and their numbers, such as job IDs. Tests that kill processes
// compare it with the database. Each note is written in a single call, so it survives if the process is killed.
type Ledger struct{ f *os.File }

// OpenLedger opens the ledger at path for appending, creating it if necessary.
func OpenLedger(path string) (*Ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &Ledger{f}, err
}

// Note appends a line for each number.
func (l *Ledger) Note(what any, numbers ...int64) error {
	var text strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&text, "%v %d\n", what, n)
	}
	_, err := l.f.WriteString(text.String())
	return err
}

// Close closes the file.
func (l *Ledger) Close() error { return l.f.Close() }

// Entry is a note.
type Entry struct {
	What   string
	Number int64
}

// ReadLedger returns the notes of a ledger in order. An incomplete last line is ignored, because it means that the
// writer was killed.
func ReadLedger(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var e Entry
		if _, err := fmt.Sscan(line, &e.What, &e.Number); err != nil {
			return nil, fmt.Errorf("ledger %s: %q: %w", path, line, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// ReadLedgers returns the notes of all ledgers that match pattern, by path.
func ReadLedgers(pattern string) (map[string][]Entry, error) {
	paths, err := filepath.Glob(pattern)
	all := make(map[string][]Entry)
	for _, path := range paths {
		entries, failed := ReadLedger(path)
		all[path], err = entries, errors.Join(err, failed)
	}
	return all, err
}
