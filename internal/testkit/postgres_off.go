//go:build !(honkerpg && unix)

package testkit

// stopServer does nothing: the tests run on files.
func stopServer() error { return nil }
