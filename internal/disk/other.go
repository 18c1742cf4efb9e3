//go:build !linux && !darwin

package disk

import "errors"

func space(string) (free, size int64, err error) { return 0, 0, errors.ErrUnsupported }
