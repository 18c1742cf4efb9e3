package ops

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Files contains the statements about the file as a whole.
type Files struct{}

const sqlFileState = `SELECT sqlite_version(), (SELECT journal_mode FROM pragma_journal_mode), (SELECT synchronous FROM pragma_synchronous),
  (SELECT page_size FROM pragma_page_size), (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count),
  (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
  (SELECT value FROM _honkerx_meta WHERE key = 'schema_version')`

// The application may have its own tables in the file.
const sqlHonkerTables = `SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB '_honker*' ORDER BY name`

// Describe returns the file's versions, settings and sizes. It counts no more than most rows in each of honker's
// tables.
func (Files) Describe(ctx context.Context, q row.Querier, most int) (f row.FileState, err error) {
	var schema sql.NullString
	_, err = rows.One(ctx, q, sqlFileState, nil, &f.SQLite, &f.Journal, &f.Synchronous, &f.PageSize, &f.Pages, &f.FreePages,
		&f.ApplicationID, &f.User, &schema)
	if err != nil {
		return f, err
	}
	f.Schema, _ = strconv.ParseInt(schema.String, 10, 64)
	names, err := rows.Texts(ctx, q, sqlHonkerTables)
	if err != nil {
		return f, err
	}
	for _, name := range names {
		t := row.TableState{Name: name}
		if _, err := rows.One(ctx, q, countRows(name), []any{most + 1}, &t.Rows); err != nil {
			return f, err
		}
		if t.Rows > int64(most) {
			t.Rows, t.More = int64(most), true
		}
		f.Tables = append(f.Tables, t)
	}
	return f, nil
}

// countRows returns the query that counts up to ?1 rows in a table. SQLite uses the smallest index.
func countRows(table string) string {
	return `SELECT count(*) FROM (SELECT 1 FROM "` + strings.ReplaceAll(table, `"`, `""`) + `" LIMIT ?1 + 0)`
}

// honker's triggers are defined on its own tables. Each table comes before its indexes and triggers.
const sqlDefinitions = `SELECT tbl_name, name, type, sql FROM sqlite_schema WHERE tbl_name GLOB '_honker*' AND sql IS NOT NULL
ORDER BY tbl_name, type != 'table', type, name`

// Definitions returns the definitions of honker's tables with all indexes and triggers on them, including
// the application's own.
func (Files) Definitions(ctx context.Context, q row.Querier) (all []row.Definition, err error) {
	err = rows.Each(ctx, q, sqlDefinitions, func(r *sql.Rows) error {
		var d row.Definition
		err := r.Scan(&d.Table, &d.Name, &d.Kind, &d.SQL)
		all = append(all, d)
		return err
	})
	return all, err
}
