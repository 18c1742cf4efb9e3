package jobs

import (
	"context"
	"strings"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// trigger holds a trigger's name and the statement that creates it.
type trigger struct{ name, create string }

// triggersOf returns the triggers created by statements. Each must begin with CREATE TRIGGER IF NOT
// EXISTS.
func triggersOf(statements []string) (all []trigger) {
	for _, create := range statements {
		all = append(all, trigger{strings.Fields(create)[5], create})
	}
	return all
}

const sqlHasTrigger = `SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1`

// triggerExists reports whether the file has a trigger called name.
func triggerExists(ctx context.Context, q row.Querier, name string) (bool, error) {
	var x int
	return rows.One(ctx, q, sqlHasTrigger, []any{name}, &x)
}

// ensureTriggers creates triggers unless the trigger called name exists. Its existence implies that of
// the others.
func ensureTriggers(ctx context.Context, q row.Querier, name string, create ...string) error {
	found, err := triggerExists(ctx, q, name)
	if err != nil || found {
		return err
	}
	return rows.ExecAll(ctx, q, create)
}
