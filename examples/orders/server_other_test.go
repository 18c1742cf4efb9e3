//go:build !unix

package main

import "testing"

// newDatabase skips the test, because no server can be started here.
func newDatabase(t *testing.T) string {
	t.Helper()
	t.Skip("the tests start PostgreSQL on a Unix socket")
	return ""
}

func stopServer() error { return nil }
