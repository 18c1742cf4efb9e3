//go:build unix

package admin

import (
	"io/fs"
	"syscall"
)

// sameGroup reports that two files belong to one group.
func sameGroup(a, b fs.FileInfo) bool {
	of, known := a.Sys().(*syscall.Stat_t)
	other, both := b.Sys().(*syscall.Stat_t)
	return known && both && of.Gid == other.Gid
}
