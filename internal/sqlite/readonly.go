package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/honker-go/honker/internal/engine"
)

// immutable is the mode for a file that doesn't change. It uses neither locks nor a WAL.
const immutable = "ro&immutable=1"

// readOnly chooses how to read the file at path. To read a file in WAL mode that has no -wal and -shm files, SQLite
// creates them and leaves them behind. If it can't create them, it can't read the file. A file without them is not in
// use by any process, so it is read as immutable for as long as that remains true.
func (c *Connector) readOnly(path string) {
	c.dsn = dsn(path, "ro")
	if !exists(path+"-wal") && !exists(path+"-shm") && c.isWAL(path) {
		c.dsn = dsn(path, immutable)
		c.copied = &copied{path: path, size: c.identity.Info().Size(), changed: c.identity.Info().ModTime()}
	}
}

// isWAL reports whether the file at path, which no process writes to, is in WAL mode. SQLite reads the
// header, because opening and closing the file here could drop this process's locks.
func (c *Connector) isWAL(path string) bool {
	pool, err := sql.Open("sqlite", dsn(path, immutable))
	if err != nil || c.cfg.IsWAL == nil {
		return false
	}
	defer pool.Close()
	wal, err := c.cfg.IsWAL(context.Background(), pool)
	return err == nil && wal // an error will occur again when the file is opened
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copied is a file read without locks, because no process used it when it was opened.
type copied struct {
	path    string
	size    int64
	changed time.Time
}

// check returns engine.ErrDatabaseReplaced if a process has started to write to the file. Data read since then may be
// inconsistent.
func (c *copied) check() error {
	info, err := os.Stat(c.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || info.Size() != c.size || !info.ModTime().Equal(c.changed) || exists(c.path+"-wal") {
		return fmt.Errorf("%w: %s was written to after it was opened read-only", engine.ErrDatabaseReplaced, c.path)
	}
	return nil
}

// Reading runs f, which reads the file. If the file changes before f returns, Reading returns an error, and the
// caller must discard the data.
func (c *Connector) Reading(f func() error) error {
	err := f()
	if c.copied == nil {
		return err
	}
	if changed := c.copied.check(); changed != nil {
		return changed
	}
	return err
}

// explain calls Explain with the connector's path, and adds a case for read-only files.
func (c *Connector) explain(err error) error {
	if c.cfg.ReadOnly && Code(err)&0xff == codeCantOpen && exists(c.Path()+"-wal") {
		return fmt.Errorf("%w: %s has a write-ahead log with commits, and SQLite cannot create the log's index beside it: "+
			"open it once for writing, or copy both files to a writable directory: %w", engine.ErrUnsupported, c.Path(), err)
	}
	return Explain(err, c.Path())
}
