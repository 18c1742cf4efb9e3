package sqlite

import (
	"fmt"
	"io/fs"
)

// Doubts says what may go wrong with the file at path, which is used all the same.
func Doubts(path string, info fs.FileInfo) (all []string) {
	if n := links(info); n > 1 {
		// Each name has a -wal file beside it, and knows nothing of the others'.
		all = append(all, fmt.Sprintf("the file has %d names (hard links): used by another one at the same time, it loses commits", n))
	}
	if name := networkFilesystem(path); name != "" {
		all = append(all, fmt.Sprintf("the file lies on %s: other machines that use it lose commits", name))
	}
	return all
}
