package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// The file as one that does not change: without locks, and without a log.
const immutable = "ro&immutable=1"

// readOnly chooses how the file at path is read. In WAL mode SQLite makes a log and its index to read a
// file that has none, and leaves them behind; where it may not make them, it does not read. A file without
// them is in use by no process, so it is read as one that does not change, for as long as that is so.
func (c *Connector) readOnly(path string) {
	c.dsn = dsn(path, "ro")
	if !exists(path+"-wal") && !exists(path+"-shm") && c.isWAL(path) {
		c.dsn = dsn(path, immutable)
		c.copied = &copied{path: path, size: c.identity.Info().Size(), changed: c.identity.Info().ModTime()}
	}
}

// isWAL tells whether the file at path, which nothing writes to, is in WAL mode. SQLite reads the header: to
// open the file here, and close it, could drop locks of this process.
func (c *Connector) isWAL(path string) bool {
	pool, err := sql.Open("sqlite", dsn(path, immutable))
	if err != nil || c.cfg.IsWAL == nil {
		return false
	}
	defer pool.Close()
	wal, err := c.cfg.IsWAL(context.Background(), pool)
	return err == nil && wal // to open it will say what is wrong
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// copied is a file that is read without locks, since it was in use by no process when it was opened.
type copied struct {
	path    string
	size    int64
	changed time.Time
}

// check returns ErrReplaced when a process has begun to write to the file. What was read meanwhile may
// be of two states.
func (c *copied) check() error {
	info, err := os.Stat(c.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || info.Size() != c.size || !info.ModTime().Equal(c.changed) || exists(c.path+"-wal") {
		return fmt.Errorf("%w: %s is written to since it was opened to be read only", ErrReplaced, c.path)
	}
	return nil
}

// Reading runs f, which reads. Where the file has changed meanwhile, what it has read does not count.
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

// explain is Explain for the file of the connector.
func (c *Connector) explain(err error) error {
	if c.cfg.ReadOnly && Code(err)&0xff == codeCantOpen && exists(c.Path()+"-wal") {
		return fmt.Errorf("%w: %s has a log that was not written back, and no index of it can be made beside it: "+
			"open it for writing once, or copy both to where files can be made: %w", ErrUnsupported, c.Path(), err)
	}
	return Explain(err, c.Path())
}
