//go:build !unix

package admin

import "io/fs"

// sameGroup always returns true because this system has no group permissions.
func sameGroup(_, _ fs.FileInfo) bool { return true }
