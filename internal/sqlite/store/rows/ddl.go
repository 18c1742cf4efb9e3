package rows

import (
	"context"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// sqlTakeWriteLock changes no row but still takes the write lock.
const sqlTakeWriteLock = `DELETE FROM _honkerx_meta WHERE 0`

// TakeWriteLock turns a deferred transaction into a write transaction before its first read. After a
// read SQLite may refuse the lock because the snapshot is out of date.
func TakeWriteLock(ctx context.Context, q row.Querier) error {
	_, err := q.ExecContext(ctx, sqlTakeWriteLock)
	return err
}

// SplitDDL splits ddl at lines that end in ";", except inside the body of a trigger. It is needed
// because drivers differ in how they execute a script.
func SplitDDL(ddl string) []string {
	var out []string
	var b strings.Builder
	inBody := false
	for line := range strings.Lines(ddl) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "--") {
			continue
		}
		b.WriteString(line)
		inBody = text == "BEGIN" || inBody && text != "END;"
		if strings.HasSuffix(text, ";") && !inBody {
			out = append(out, b.String())
			b.Reset()
		}
	}
	return out
}

// ExecAll runs statements in order.
func ExecAll(ctx context.Context, q row.Querier, statements []string) error {
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// HasTrigger returns an SQL condition that tests whether the file has a trigger called name.
func HasTrigger(name string) string {
	return `EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = '` + name + `')`
}

// SplitTables separates CREATE TABLE statements from the rest. An index may use a column that is added to an older
// file only after its tables exist.
func SplitTables(ddl []string) (tables, others []string) {
	for _, statement := range ddl {
		if strings.HasPrefix(statement, "CREATE TABLE") {
			tables = append(tables, statement)
		} else {
			others = append(others, statement)
		}
	}
	return tables, others
}

const sqlHasColumn = `SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2`

// AddColumn adds a column, given with its type, unless the table already has it.
func AddColumn(ctx context.Context, q row.Querier, table, column string) error {
	name, _, _ := strings.Cut(column, " ")
	var x int
	found, err := One(ctx, q, sqlHasColumn, []any{table, name}, &x)
	if err != nil || found {
		return err
	}
	_, err = q.ExecContext(ctx, `ALTER TABLE `+table+` ADD COLUMN `+column)
	if err != nil && strings.Contains(strings.ToLower(err.Error()), "duplicate column") {
		return nil // another binding, which uses no transaction, has just added it
	}
	return err
}
