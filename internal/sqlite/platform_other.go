//go:build !unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// Pause blocks for about d.
func Pause(d time.Duration) { time.Sleep(d) }

// links returns 1, because the number is unknown on this platform and hard links are rare.
func links(fs.FileInfo) uint64 { return 1 }

const canStartWriteback = false

func startWriteback(*os.File) error { return errors.ErrUnsupported }

// filesystemUnder is implemented only on Linux. On other platforms it is up to the caller to know the filesystem.
func filesystemUnder(string) filesystem { return filesystem{} }

// accessible can't check anything on this platform. SQLite reports an error instead.
func accessible(string, bool) error { return nil }
