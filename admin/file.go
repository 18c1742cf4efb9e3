package admin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/disk"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
)

// FileInfo describes the database file. SQLite settings are read from one of this DB's connections;
// other processes may use different settings.
type FileInfo struct {
	Path          string
	Size          int64  // bytes
	WAL           int64  // size of the write-ahead log in bytes; 0 if there is none
	DiskFree      int64  // free bytes of the disk; -1 if unknown
	PageSize      int64  // bytes
	Pages         int64  // database pages, including pages that are only in the log
	FreePages     int64  // unused pages; SQLite reuses them, and only VACUUM returns them to the file system
	SQLite        string // library version
	Schema        int    // honker's schema version
	JournalMode   string // "wal", "delete" and so on
	Synchronous   string // "off", "normal", "full" or "extra"
	ApplicationID int64  // set by the application, like UserVersion
	UserVersion   int64
	Tables        []TableInfo // honker's tables, sorted by name
}

// TableInfo describes a honker table.
type TableInfo struct {
	Name string
	Rows honker.Count // counted up to 10,000
}

// countedRows limits the rows that File counts per table.
const countedRows = 10000

// File returns the file's size and settings and the row counts of honker's tables, including the tables
// of packages relay and dispatch. It counts at most 10,000 rows per table and never waits for the
// writer. It returns [honker.ErrInvalid] if db is nil, and [honker.ErrUnsupported] if the database is not a file; use
// [Database] then.
func File(ctx context.Context, db *honker.DB) (*FileInfo, error) {
	e, err := engineOf(db)
	if err != nil {
		return nil, engine.Wrap("describe file", "", err)
	}
	file, err := fileOf(e, "describe file", "use admin.Database")
	if err != nil {
		return nil, engine.Wrap("describe file", "", err)
	}
	var f row.FileState
	err = e.Read(ctx, func(ctx context.Context, q engine.Querier) (err error) {
		f, err = e.Stores.Files.Describe(ctx, q, countedRows)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("describe file", "", err)
	}
	path := file.Path()
	info := &FileInfo{
		Path: path, Size: f.Pages * f.PageSize, PageSize: f.PageSize, Pages: f.Pages, FreePages: f.FreePages,
		SQLite: f.SQLite, Schema: int(f.Schema), JournalMode: f.Journal, Synchronous: synchronous(f.Synchronous),
		ApplicationID: f.ApplicationID, UserVersion: f.User, Tables: make([]TableInfo, len(f.Tables)),
	}
	for i, t := range f.Tables {
		info.Tables[i] = TableInfo{Name: t.Name, Rows: honker.Count{N: t.Rows, More: t.More}}
	}
	if s, err := os.Stat(path); err == nil {
		info.Size = s.Size()
	}
	if s, err := os.Stat(path + "-wal"); err == nil {
		info.WAL = s.Size()
	}
	info.DiskFree = -1
	if free, _, err := disk.Space(filepath.Dir(path)); err == nil {
		info.DiskFree = free
	}
	return info, nil
}

// synchronous returns the name of a PRAGMA synchronous value.
func synchronous(level int64) string {
	names := []string{"off", "normal", "full", "extra"}
	if level < 0 || level >= int64(len(names)) {
		return fmt.Sprint(level)
	}
	return names[level]
}
