//go:build !linux

package sqlite

// networkFilesystem is known on Linux only; elsewhere the caller must know.
func networkFilesystem(string) string { return "" }
