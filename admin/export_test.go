package admin

import (
	"testing"

	"github.com/honker-go/honker/internal/engine"
)

// SetDisk is what the disk has, until the end of the test.
func SetDisk(t *testing.T, free, size int64, err error) {
	was := diskOf
	diskOf = func(*engine.Engine) (int64, int64, error) { return free, size, err }
	t.Cleanup(func() { diskOf = was })
}
