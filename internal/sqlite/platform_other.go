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

// links cannot be asked here: one name is what nearly every file has.
func links(fs.FileInfo) uint64 { return 1 }

const canStartWriteback = false

func startWriteback(*os.File) error { return errors.ErrUnsupported }

// filesystemUnder is known on Linux only; elsewhere the caller must know.
func filesystemUnder(string) filesystem { return filesystem{} }

// accessible cannot be asked here: SQLite finds out.
func accessible(string, bool) error { return nil }
