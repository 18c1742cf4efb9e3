//go:build !linux && !darwin

package sqlite

import "errors"

// Disk is implemented on Linux and macOS only.
func Disk(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
