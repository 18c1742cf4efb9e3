//go:build race

package store_test

// The race detector makes SQLite, which is Go code here, about twenty times slower, and has nothing to find in tables
// that only a single goroutine uses.
const slower = 20
