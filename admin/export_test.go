package admin

import (
	"errors"
	"testing"

	"github.com/honker-go/honker/internal/engine"
)

// Tests must not report problems of the disk they run on.
func init() {
	diskOf = func(*engine.Engine) (int64, int64, error) { return 0, 0, errors.ErrUnsupported }
}

// SetDisk sets the result of diskOf until the end of the test.
func SetDisk(t *testing.T, free, size int64, err error) {
	was := diskOf
	diskOf = func(*engine.Engine) (int64, int64, error) { return free, size, err }
	t.Cleanup(func() { diskOf = was })
}
