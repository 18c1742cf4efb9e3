//go:build unix

package torture

import (
	"errors"
	"io/fs"
	"os"
)

// keep copies the file at path with its log to path.kept, when err says that something was
// found: the last to close a file puts the log into it and deletes it.
func keep(path string, err *error) {
	if _, there := os.Stat(path + ".kept"); *err == nil || there == nil {
		return
	}
	for _, end := range []string{"", "-wal", "-journal"} {
		text, failed := os.ReadFile(path + end)
		if failed == nil {
			failed = os.WriteFile(path+".kept"+end, text, 0o600)
		}
		if !errors.Is(failed, fs.ErrNotExist) {
			*err = errors.Join(*err, failed)
		}
	}
}
