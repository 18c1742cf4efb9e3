package store

import (
	"context"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// The statement changes no row but still takes the write lock.
const sqlTakeWriteLock = `DELETE FROM _honkerx_meta WHERE 0`

// TakeWriteLock turns a deferred transaction into a write transaction before its first read. After
// a read SQLite may refuse the lock because the snapshot is out of date.
func TakeWriteLock(ctx context.Context, q row.Querier) error {
	_, err := q.ExecContext(ctx, sqlTakeWriteLock)
	return err
}

// statements splits ddl at lines that end in ";", except inside the body of a trigger. It is needed
// because drivers differ in how they execute a script.
func statements(ddl string) []string {
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

// execAll runs statements in their order.
func execAll(ctx context.Context, q row.Querier, statements []string) error {
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// trigger is the name of a trigger and the statement that creates it.
type trigger struct{ name, create string }

// triggersOf returns the triggers that statements create. Each begins with CREATE TRIGGER IF NOT EXISTS.
func triggersOf(statements []string) (all []trigger) {
	for _, create := range statements {
		all = append(all, trigger{strings.Fields(create)[5], create})
	}
	return all
}

// hasTrigger returns the condition that the file has the trigger name.
func hasTrigger(name string) string {
	return `EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = '` + name + `')`
}

const sqlHasTrigger = `SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1`

// triggerExists reports whether the file has the trigger name.
func triggerExists(ctx context.Context, q row.Querier, name string) (bool, error) {
	var x int
	return one(ctx, q, sqlHasTrigger, []any{name}, &x)
}

// ensureTriggers creates triggers unless the trigger called name exists, which stands for all of
// them.
func ensureTriggers(ctx context.Context, q row.Querier, name string, create ...string) error {
	found, err := triggerExists(ctx, q, name)
	if err != nil || found {
		return err
	}
	return execAll(ctx, q, create)
}
