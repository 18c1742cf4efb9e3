package testkit

import (
	"fmt"
	"slices"
	"testing"
)

// ChildLedger is a ledger for a child, which dies when it cannot note. Without a path
// nothing is noted.
func ChildLedger(path string) (note func(what any, number int64)) {
	if path == "" {
		return func(any, int64) {}
	}
	l, err := OpenLedger(path)
	Must(err)
	return func(what any, number int64) { Must(l.Note(what, number)) }
}

// Noted reads the ledgers that match pattern. It returns the numbers noted with what,
// sorted, and how many of the ledgers have any.
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
