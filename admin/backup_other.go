//go:build !unix

package admin

import "io/fs"

// sameGroup always returns true: file permissions have no groups on this system.
func sameGroup(_, _ fs.FileInfo) bool { return true }
