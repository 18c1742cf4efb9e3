package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// Files are the statements about the file as a whole.
type Files struct{}

// FileState is what SQLite and honker say of the file, and the settings of the connection.
type FileState struct {
	SQLite              string // version of the library
	Schema              int64  // of our own part; 0: unknown
	Journal             string
	Synchronous         int64
	PageSize            int64
	Pages, FreePages    int64
	ApplicationID, User int64
	Tables              []TableState
}

// TableState is a table of honker's.
type TableState struct {
	Name string
	Rows int64 // as many as were counted
	More bool  // there are others
}

const sqlFileState = `SELECT sqlite_version(), (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous),
  (SELECT page_size FROM pragma_page_size), (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count),
  (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
  (SELECT value FROM _honkerx_meta WHERE key = 'schema_version')`

// The application may have tables of its own.
const sqlHonkerTables = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_honker*' ORDER BY name`

// Describe reads all that there is to say. It counts rows of each table up to most.
func (Files) Describe(ctx context.Context, q Querier, most int) (f FileState, err error) {
	var schema sql.NullString
	_, err = one(ctx, q, sqlFileState, nil, &f.SQLite, &f.Journal, &f.Synchronous, &f.PageSize, &f.Pages, &f.FreePages,
		&f.ApplicationID, &f.User, &schema)
	if err != nil {
		return f, err
	}
	f.Schema, _ = strconv.ParseInt(schema.String, 10, 64)
	names, err := texts(ctx, q, sqlHonkerTables)
	if err != nil {
		return f, err
	}
	for _, name := range names {
		t := TableState{Name: name}
		if _, err := one(ctx, q, countRows(name), []any{most + 1}, &t.Rows); err != nil {
			return f, err
		}
		if t.Rows > int64(most) {
			t.Rows, t.More = int64(most), true
		}
		f.Tables = append(f.Tables, t)
	}
	return f, nil
}

// countRows counts up to ?1 rows of a table, by its smallest index.
func countRows(table string) string {
	return `SELECT count(*) FROM (SELECT 1 FROM "` + strings.ReplaceAll(table, `"`, `""`) + `" LIMIT ?1 + 0)`
}

// Definition is a statement that has made a table, or an index or trigger of one.
type Definition struct {
	Table, Name, Kind, SQL string
}

// Triggers of honker's stand on its own tables. A table comes before what is on it.
const sqlDefinitions = `SELECT tbl_name, name, type, sql FROM sqlite_schema WHERE tbl_name GLOB '_honker*' AND sql IS NOT NULL
ORDER BY tbl_name, type != 'table', type, name`

// Definitions are those of honker's tables, and of what the application has put on them.
func (Files) Definitions(ctx context.Context, q Querier) (all []Definition, err error) {
	err = each(ctx, q, sqlDefinitions, func(rows *sql.Rows) error {
		var d Definition
		err := rows.Scan(&d.Table, &d.Name, &d.Kind, &d.SQL)
		all = append(all, d)
		return err
	})
	return all, err
}
