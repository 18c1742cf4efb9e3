package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Backup copies the file to path, as of one moment, while the application goes on: it holds up no writer, and
// works with a DB that was opened to be read only. It blocks until that is done, and ends with ctx. The copy is
// written under the name path + ".part", and gets its own when it is whole and on the disk; a file that has
// that name from an earlier try is replaced. Where there is a file at path it is honker.ErrInvalid, and so
// is nil as the DB. A name that belongs to the file itself is refused too, such as that of its log, which SQLite would
// read and delete.
//
// The copy has the permissions of the file, whatever the umask; without those of the group where the copy is given
// another group. While it is written only its owner can read it.
//
// The copy has the free pages of the file, too: see [Vacuum]. On a pool of honker.Attach it is made by VACUUM INTO,
// which leaves them out, and which ctx does not end.
func Backup(ctx context.Context, db *honker.DB, path string) error {
	return engine.Wrap("back up", path, backup(ctx, db, path))
}

func backup(ctx context.Context, db *honker.DB, path string) error {
	e, err := engineOf(db)
	if err != nil {
		return err
	}
	if err := e.Usable(ctx, ""); err != nil {
		return err
	}
	if err := vacant(path); err != nil {
		return err
	}
	if err := foreignTo(e.Backend.Name(), path); err != nil {
		return err
	}
	return e.WrapCause(copyTo(ctx, e, path))
}

// vacant refuses a path where there is something.
func vacant(path string) error {
	if path == "" {
		return fmt.Errorf("%w: no path", honker.ErrInvalid)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return err
	}
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %w", honker.ErrInvalid, fs.ErrExist)
}

func copyTo(ctx context.Context, e *engine.Engine, path string) error {
	part, err := filepath.Abs(path + ".part")
	if err != nil {
		return err
	}
	if err := removeAll(part); err != nil {
		return err
	}
	if err := copyPrivately(ctx, e, part); err != nil {
		return errors.Join(err, removeAll(part))
	}
	// No rename: it would replace a file that another process has put there meanwhile.
	if err := os.Link(part, path); errors.Is(err, fs.ErrExist) {
		return errors.Join(fmt.Errorf("%w: %w", honker.ErrInvalid, fs.ErrExist), removeAll(part))
	} else if err == nil {
		return removeAll(part)
	}
	return os.Rename(part, path) // where there are no links
}

// copyPrivately copies the file to part. SQLite would create part with the permissions that the umask leaves, so an
// empty file is there before, which only its owner can read. The permissions of the file come with the last page.
func copyPrivately(ctx context.Context, e *engine.Engine, part string) error {
	made, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	if err := e.Backend.Backup(ctx, part); err != nil {
		return err
	}
	from, err := os.Stat(e.Backend.Name())
	if err != nil {
		return err
	}
	to, err := os.Stat(part)
	if err != nil {
		return err
	}
	mode := from.Mode().Perm()
	if !sameGroup(from, to) {
		mode &^= 0o070
	}
	return os.Chmod(part, mode)
}

// besides are the endings of the files that SQLite keeps beside a database, and of the directory of honker's signals.
var besides = []string{"", "-wal", "-shm", "-journal", "-wake"}

// foreignTo refuses a path where the copy, or a file beside it, would take a name of the file at source, or would lie
// among its signals.
func foreignTo(source, path string) error {
	taken := make(map[string]bool)
	for _, end := range besides {
		taken[resolved(source)+end] = true
	}
	copied := located(path)
	for _, end := range besides {
		if taken[copied+end] || taken[copied+".part"+end] {
			return fmt.Errorf("%w: the name belongs to %s: choose another one", honker.ErrInvalid, source)
		}
	}
	if taken[filepath.Dir(copied)] {
		return fmt.Errorf("%w: the directory belongs to %s: choose another one", honker.ErrInvalid, source)
	}
	return nil
}

// located is path with its directory free of symbolic links; path itself need not exist.
func located(path string) string {
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// resolved is path, absolute and free of symbolic links as far as that can be told.
func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// removeAll removes a copy, and what SQLite keeps beside it while it is written.
func removeAll(part string) error {
	for _, name := range []string{part, part + "-journal", part + "-wal", part + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Vacuum writes the file anew without its free pages, so that it gets smaller; see [FileInfo.FreePages]. It holds up
// all writers for as long as that takes, and needs as much room again on the disk: SQLite uses free pages
// by itself, so it is for a file that has become much smaller for good. It waits for the writer until ctx ends
// or BusyTimeout has passed, and a backup or another long read of any process keeps the file from getting
// smaller until it has ended. nil as the DB is honker.ErrInvalid.
func Vacuum(ctx context.Context, db *honker.DB) error {
	return engine.Wrap("vacuum", "", vacuum(ctx, db))
}

func vacuum(ctx context.Context, db *honker.DB) error {
	e, err := engineOf(db)
	if err != nil {
		return err
	}
	if err := e.UsableToWrite(ctx, ""); err != nil {
		return err
	}
	if err := e.Backend.Vacuum(ctx); err != nil {
		return e.WrapCause(err)
	}
	return e.WrapCause(e.Backend.Shrink(ctx, 0)) // what is in the log is in the file, which gets smaller then
}
