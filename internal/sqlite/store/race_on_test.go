//go:build race

package store_test

// The race detector makes SQLite, which is Go code here, about twenty times slower, and finds
// nothing in tables that are used by a single goroutine.
const slower = 20
