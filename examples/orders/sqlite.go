package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/honker-go/honker"
)

//go:embed schema.sql
var sqliteSchema string

// sqlite keeps orders and jobs in a file. honker's tables are part of its documented file format and may be
// queried: _honker_live contains the waiting and running jobs, and _honker_dead the dead letters.
var sqlite = database{
	open: func(ctx context.Context, c config, o honker.Options) (*honker.DB, error) {
		if err := os.MkdirAll(filepath.Dir(c.file), 0o755); err != nil {
			return nil, err
		}
		return honker.Open(ctx, c.file, &o)
	},
	schema: sqliteSchema,
	books: `SELECT
  (SELECT count(*) FROM orders),
  (SELECT count(*) FROM _honker_live WHERE queue = $1 AND state = 'pending'),
  (SELECT count(*) FROM _honker_live WHERE queue = $1 AND state = 'processing'),
  (SELECT count(*) FROM _honker_dead WHERE queue = $1)`,
	audit: `SELECT id,
  EXISTS (SELECT 1 FROM _honker_live WHERE id = job),
  EXISTS (SELECT 1 FROM _honker_dead WHERE id = job)
FROM orders`,
	constraint: sqliteConstraint,
}

// sqliteError is implemented by the errors of common SQLite drivers.
type sqliteError interface {
	error
	Code() int
}

const constraintCheck = 275 // SQLITE_CONSTRAINT_CHECK

func sqliteConstraint(err error) string {
	if e, ok := errors.AsType[sqliteError](err); !ok || e.Code() != constraintCheck {
		return ""
	}
	_, name, _ := strings.Cut(err.Error(), "CHECK constraint failed: ")
	name, _, _ = strings.Cut(name, " (")
	return name
}
