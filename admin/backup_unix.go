//go:build unix

package admin

import (
	"io/fs"
	"syscall"
)

// sameGroup reports whether two files belong to the same group.
func sameGroup(a, b fs.FileInfo) bool {
	of, known := a.Sys().(*syscall.Stat_t)
	other, both := b.Sys().(*syscall.Stat_t)
	return known && both && of.Gid == other.Gid
}
