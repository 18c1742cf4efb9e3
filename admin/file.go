package admin

import (
	"context"
	"fmt"
	"os"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/store"
)

// FileInfo is the file as a whole. What it says of SQLite are the settings of a connection of this
// DB; those of other processes may differ.
type FileInfo struct {
	Path          string
	Size          int64  // bytes on the disk
	WAL           int64  // bytes of the write-ahead log; 0: there is none
	PageSize      int64  // bytes
	Pages         int64  // of the database, those that are only in the log included
	FreePages     int64  // of these: SQLite uses them again, and only VACUUM gives them back
	SQLite        string // version of the library
	Schema        int    // version of honker's tables
	JournalMode   string // "wal", "delete" and so on
	Synchronous   string // "off", "normal", "full" or "extra"
	ApplicationID int64  // the application's, as UserVersion
	UserVersion   int64
	Tables        []TableInfo // honker's, by name
}

// TableInfo is a table of honker's.
type TableInfo struct {
	Name string
	Rows honker.Count // up to 10,000
}

// countedRows bounds the rows that File counts of a table.
const countedRows = 10000

// fileStore are the statements about the file.
type fileStore interface {
	Describe(ctx context.Context, q engine.Querier, most int) (row.FileState, error)
	Definitions(ctx context.Context, q engine.Querier) ([]row.Definition, error)
}

var files fileStore = store.Files{}

// File describes the file: its sizes, its settings, and how many rows the tables have, those of
// relays and of package dispatch included. It reads some thousand rows of each table at most, and never
// waits for the writer. nil as the DB is [honker.ErrInvalid].
func File(ctx context.Context, db *honker.DB) (*FileInfo, error) {
	var f row.FileState
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) (err error) {
		f, err = files.Describe(ctx, q, countedRows)
		return err
	})
	if err != nil {
		return nil, engine.Wrap("describe file", "", err)
	}
	path := engine.Of(db).Backend.Name()
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
	return info, nil
}

// synchronous names SQLite's levels.
func synchronous(level int64) string {
	names := []string{"off", "normal", "full", "extra"}
	if level < 0 || level >= int64(len(names)) {
		return fmt.Sprint(level)
	}
	return names[level]
}
