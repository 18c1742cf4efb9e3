//go:build race

package store_test

// The race detector makes SQLite, which is Go here, twenty times as slow and finds
// nothing in tables that one goroutine works on.
const slower = 20
