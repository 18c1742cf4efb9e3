//go:build unix

package torture

import (
	"errors"
	"io/fs"
	"os"

	"github.com/honker-go/honker/internal/testkit"
)

// keep copies the database at path and its log to path.kept if *err is not nil. Otherwise the last
// connection would checkpoint and delete the log when it is closed. A database of a server is dumped.
func keep(path string, err *error) {
	if _, there := os.Stat(path + ".kept"); *err == nil || there == nil {
		return
	}
	if failed := testkit.DumpServer(path, path+".kept"); failed != nil {
		*err = errors.Join(*err, failed)
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
