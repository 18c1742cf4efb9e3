//go:build unix

package sqlite

import "golang.org/x/sys/unix"

// accessible checks whether this process may read path and, if write is set, write to it.
func accessible(path string, write bool) error {
	mode := uint32(unix.R_OK)
	if write {
		mode |= unix.W_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}
