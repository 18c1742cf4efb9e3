//go:build !unix

package admin

import "io/fs"

// sameGroup is for systems where permissions have groups.
func sameGroup(_, _ fs.FileInfo) bool { return true }
