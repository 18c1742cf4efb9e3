// Package pgsql is the common ground of the statements for PostgreSQL: the name of the schema, rows and times, the errors
// of the server, and the session of an op.
package pgsql

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/honker-go/honker/internal/engine"
)

// DefaultSchema is the schema that statements name in their text.
const DefaultSchema Schema = "honker"

// Schema is the name of the PostgreSQL schema that holds honker's tables.
type Schema string

// Check returns ErrInvalid for a name that PostgreSQL would reject, shorten or reserve.
func (s Schema) Check() error {
	if s == "" || len(s) > 63 || strings.ContainsRune(string(s), 0) || strings.HasPrefix(string(s), "pg_") {
		return fmt.Errorf("%w: the schema name %q must have 1 to 63 bytes, and must not begin with pg_", engine.ErrInvalid, string(s))
	}
	return nil
}

// qualified matches the schema in a statement. Statements do not depend on the search path.
var qualified = regexp.MustCompile(`\bhonker\.`)

// rewritten holds the statements for schemas other than DefaultSchema.
var rewritten sync.Map

// SQL returns a statement for s.
func (s Schema) SQL(text string) string {
	if s == DefaultSchema {
		return text
	}
	type key struct {
		schema Schema
		text   string
	}
	if done, ok := rewritten.Load(key{s, text}); ok {
		return done.(string)
	}
	done := qualified.ReplaceAllLiteralString(text, pgx.Identifier{string(s)}.Sanitize()+".")
	rewritten.Store(key{s, text}, done)
	return done
}
