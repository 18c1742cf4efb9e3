package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/honker-go/honker/internal/engine"
)

// resolve converts path to the absolute path of a regular file, and rejects files that cannot be
// shared safely. It creates the file if it does not exist, accessible only to its owner.
//
// It never opens an existing file, because closing any file descriptor for a database drops the POSIX locks that this
// process holds on it.
func resolve(path string, cfg Config) (string, error) {
	if err := refuseName(path); err != nil {
		return "", err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if !cfg.ReadOnly {
		if err := createFile(abs); err != nil {
			return "", err
		}
	}
	// The -wal file is next to the target of the link.
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is %s, not a file", engine.ErrUnsupported, real, kindOf(info))
	}
	if on := filesystemUnder(real); on.refused && !cfg.AnyFilesystem {
		return "", fmt.Errorf("%w: %s is on %s; SQLite's WAL requires a local disk", engine.ErrUnsupported, real, on.name)
	}
	if cfg.ReadOnly {
		return real, mayRead(real)
	}
	return real, checkAccess(real)
}

// mayRead returns an error if SQLite cannot read the file at path.
func mayRead(path string) error {
	if err := accessible(path, false); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// checkAccess returns an error if SQLite cannot write to the file at path or to its WAL, or cannot
// create the WAL. SQLite itself would open such a file read-only, or report only that it cannot
// open it.
func checkAccess(path string) error {
	if err := mayWrite(path); err != nil {
		return err
	}
	for _, beside := range []string{path + "-wal", path + "-shm"} {
		info, err := os.Stat(beside)
		switch {
		case err == nil && !info.Mode().IsRegular():
			return fmt.Errorf("%w: %s is %s, not a file", engine.ErrUnsupported, beside, kindOf(info))
		case err == nil:
			err = mayWrite(beside)
		case errors.Is(err, fs.ErrNotExist):
			err = mayWrite(filepath.Dir(path)) // where the file would be created
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func mayWrite(path string) error {
	err := accessible(path, true)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil // removed since, when another connection was closed
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s is on a read-only filesystem", engine.ErrUnsupported, path)
	case accessible(path, false) == nil:
		return fmt.Errorf("%w: %s is read-only to this process: %w", engine.ErrUnsupported, path, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func refuseName(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%w: empty path", engine.ErrInvalid)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("%w: NUL in path", engine.ErrInvalid)
	case strings.Contains(path, ":memory:"), strings.HasPrefix(path, "file:") && strings.Contains(path, "mode=memory"):
		return fmt.Errorf("%w: an in-memory database cannot be shared or watched; use a file", engine.ErrUnsupported)
	case strings.HasPrefix(path, "file:"):
		return fmt.Errorf("%w: %q is a URI; pass the plain path", engine.ErrInvalid, path)
	}
	return nil
}

// createFile creates path if it does not exist. It opens only files that did not exist before, so
// this process cannot hold a lock on them.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		folder := filepath.Dir(path)
		if _, err := os.Stat(folder); err == nil { // for example in /proc
			return fmt.Errorf("%w: cannot create a file in directory %s", engine.ErrUnsupported, folder)
		}
		return fmt.Errorf("directory %s does not exist: %w", folder, fs.ErrNotExist)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", engine.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "a directory"
	}
	return "a special file"
}

// dsn escapes path so that SQLite opens exactly that file. An unescaped ?, # or % would end or change the name.
// Callers don't use mode rwc, because a deleted file must not reappear as an empty file.
func dsn(path, mode string) string {
	return (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: "mode=" + mode}).String()
}

// Warnings describes risks of the file at path that do not prevent its use.
func Warnings(path string, info fs.FileInfo) (all []string) {
	if n := links(info); n > 1 {
		// Each name has its own -wal file, independent of the others.
		all = append(all, fmt.Sprintf("the file has %d names (hard links): commits are lost if programs use it by different names", n))
	}
	switch on := filesystemUnder(path); {
	case on.refused:
		all = append(all, fmt.Sprintf("the file is on %s: commits are lost if several machines use it", on.name))
	case on.name != "":
		all = append(all, fmt.Sprintf("the file is on %s: use it from a single machine, unless file locks and memory maps work across machines", on.name))
	}
	return all
}

// filesystem describes where a file is stored. The zero value means a local disk, or unknown.
type filesystem struct {
	name    string
	refused bool // locks or mapped memory are known not to reach other machines
}

// MayBeRemote reports whether other machines may write to the file at path. The operating system
// sends no events for such writes.
func MayBeRemote(path string) bool { return filesystemUnder(path).name != "" }
