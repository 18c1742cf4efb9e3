package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// Backup writes a consistent snapshot of the database to path. It does not block writers, and it works with
// a read-only DB. Backup blocks until the copy is complete or ctx ends.
//
// The copy is written to path + ".part" and moved to path when it is complete and synced. An existing file
// with that temporary name is replaced. Backup returns honker.ErrInvalid if path exists, if db is nil, or if
// path is reserved for a file that accompanies the database. For example, SQLite would read and then delete
// a copy with the write-ahead log's name.
//
// The copy gets the database file's permissions, regardless of the umask. Group permissions are dropped if
// the copy belongs to another group. While the copy is being written, only its owner can read it.
//
// The copy includes free pages (see [Vacuum]). For a pool passed to honker.Attach, Backup uses VACUUM INTO
// instead, which omits free pages and can't be interrupted by ctx.
//
// Backup returns honker.ErrUnsupported if the database is not a file. Use pg_dump then.
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
	file, err := fileOf(e, "back up", "use pg_dump, or a base backup of the server")
	if err != nil {
		return err
	}
	if err := vacant(path); err != nil {
		return err
	}
	if err := foreignTo(file.Path(), path); err != nil {
		return err
	}
	return e.WrapCause(copyTo(ctx, file, path))
}

// vacant returns an error if path already exists or if its directory does not exist.
func vacant(path string) error {
	if path == "" {
		return fmt.Errorf("%w: path must not be empty", honker.ErrInvalid)
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

func copyTo(ctx context.Context, file engine.File, path string) error {
	part, err := filepath.Abs(path + ".part")
	if err != nil {
		return err
	}
	if err := removeAll(part); err != nil {
		return err
	}
	if err := copyPrivately(ctx, file, part); err != nil {
		return errors.Join(err, removeAll(part))
	}
	// os.Rename would replace a file that another process has created since the check.
	if err := os.Link(part, path); errors.Is(err, fs.ErrExist) {
		return errors.Join(fmt.Errorf("%w: %w", honker.ErrInvalid, fs.ErrExist), removeAll(part))
	} else if err == nil {
		return removeAll(part)
	}
	return os.Rename(part, path) // the file system does not support hard links
}

// copyPrivately copies the database to part. SQLite would create part with default permissions, so
// copyPrivately first creates an empty file that only its owner can read. It sets the final permissions
// after the last page has been copied.
func copyPrivately(ctx context.Context, file engine.File, part string) error {
	made, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	if err := file.Backup(ctx, part); err != nil {
		return err
	}
	from, err := os.Stat(file.Path())
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

// besides lists the suffixes of the files that SQLite keeps next to a database, and the suffix of honker's
// wake directory.
var besides = []string{"", "-wal", "-shm", "-journal", "-wake"}

// foreignTo returns an error if the copy or one of its auxiliary files would have the same name as a file
// of source, or if path is inside source's wake directory.
func foreignTo(source, path string) error {
	taken := make(map[string]bool)
	for _, end := range besides {
		taken[resolved(source)+end] = true
	}
	copied := located(path)
	for _, end := range besides {
		if taken[copied+end] || taken[copied+".part"+end] {
			return fmt.Errorf("%w: the name is reserved for a file of %s; choose another name", honker.ErrInvalid, source)
		}
	}
	if taken[filepath.Dir(copied)] {
		return fmt.Errorf("%w: the directory is reserved for %s; choose another directory", honker.ErrInvalid, source)
	}
	return nil
}

// located resolves symbolic links in path's directory. The file itself need not exist.
func located(path string) string {
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// resolved returns path as an absolute path without symbolic links. If path cannot be resolved, it is
// returned unchanged.
func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path
}

// removeAll removes an unfinished copy and the files that SQLite keeps next to it.
func removeAll(part string) error {
	for _, name := range []string{part, part + "-journal", part + "-wal", part + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Vacuum shrinks the database file by rewriting it without its free pages (see [FileInfo.FreePages]). It
// blocks all writers while it runs and temporarily needs as much additional disk space as the database
// occupies. SQLite reuses free pages, so call Vacuum only if most of the data is gone for good.
//
// Vacuum waits for the writer until ctx ends or BusyTimeout has passed, and then up to five seconds for reads of any
// process, which keep the file from shrinking. After a longer read, such as a backup, the file shrinks with a later
// checkpoint. Vacuum returns honker.ErrInvalid if db is nil, and honker.ErrUnsupported if the database is not a file; a
// server has autovacuum. If ctx names an actor, the audit log records the call.
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
	file, err := fileOf(e, "vacuum", "autovacuum removes deleted rows, and VACUUM in psql does so at once")
	if err != nil {
		return err
	}
	if err := file.Vacuum(ctx); err != nil {
		return e.WrapCause(err)
	}
	if audit := e.AuditActor(ctx, "vacuum"); audit != nil {
		if err := e.Write(ctx, "", engine.OpFunc(audit.NoteOne)); err != nil {
			return err
		}
	}
	return e.WrapCause(shrink(ctx, file))
}

// shrinkWait is how long Vacuum waits for reads that keep the file from shrinking.
const shrinkWait = 5 * time.Second

// shrink truncates the file to its pages, by copying the write-ahead log. It returns nil if reads prevent it for
// shrinkWait or until ctx ends.
func shrink(ctx context.Context, file engine.File) error {
	waiting, cancel := context.WithTimeout(ctx, shrinkWait)
	defer cancel()
	for {
		if done, err := file.Shrink(ctx, 0); done || err != nil {
			return err
		}
		if engine.Sleep(waiting, 10*time.Millisecond) != nil {
			return nil
		}
	}
}
