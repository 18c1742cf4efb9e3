package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Ledger opens a file for notes of what happened to which number, say a job's. It is
// the oracle of tests that kill: it lies outside of the database, and each note is one
// write at the end of the file, so it outlives its writer. Without a path nothing is
// noted.
func Ledger(path string) (note func(what any, number int64)) {
	if path == "" {
		return func(any, int64) {}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	Must(err)
	return func(what any, number int64) {
		_, err := fmt.Fprintf(f, "%v %d\n", what, number)
		Must(err)
	}
}

// Noted reads the ledgers that match pattern. It returns the numbers noted with what,
// sorted, and how many of the ledgers have any.
func Noted(t testing.TB, pattern string, what any) (numbers []int64, ledgers int) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	must(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		must(t, err)
		before := len(numbers)
		for line := range strings.Lines(string(text)) {
			var noted string
			var number int64
			_, err := fmt.Sscan(line, &noted, &number)
			must(t, err)
			if noted == fmt.Sprint(what) {
				numbers = append(numbers, number)
			}
		}
		if len(numbers) > before {
			ledgers++
		}
	}
	slices.Sort(numbers)
	return numbers, ledgers
}
