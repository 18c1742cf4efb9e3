package testkit

import (
	"fmt"
	"slices"
	"testing"
)

// ChildLedger opens a ledger for a child process. The process exits if a note can't be written. If path is empty,
// note does nothing.
func ChildLedger(path string) (note func(what any, number int64)) {
	if path == "" {
		return func(any, int64) {}
	}
	l, err := OpenLedger(path)
	Must(err)
	return func(what any, number int64) { Must(l.Note(what, number)) }
}

// Noted reads the ledgers that match pattern. It returns the sorted numbers noted for what, and the number of ledgers
// that contain any.
func Noted(t testing.TB, pattern string, what any) (numbers []int64, ledgers int) {
	t.Helper()
	all, err := ReadLedgers(pattern)
	must(t, err)
	for _, entries := range all {
		before := len(numbers)
		for _, e := range entries {
			if e.What == fmt.Sprint(what) {
				numbers = append(numbers, e.Number)
			}
		}
		if len(numbers) > before {
			ledgers++
		}
	}
	slices.Sort(numbers)
	return numbers, ledgers
}
