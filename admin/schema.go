package admin

import (
	"context"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// TableSchema is the definition of a honker table as stored by SQLite.
type TableSchema struct {
	Name  string
	SQL   string       // CREATE statement, including its comments
	Parts []SchemaPart // indexes and triggers sorted by name, including those created by the application
}

// SchemaPart is the definition of an index or a trigger.
type SchemaPart struct {
	Name string
	Kind string // "index" or "trigger"
	SQL  string
}

// Schema returns honker's tables sorted by name, including the tables of packages relay and dispatch. It
// never waits for the writer. It returns honker.ErrInvalid if db is nil, and honker.ErrUnsupported if the database is not
// a file.
func Schema(ctx context.Context, db *honker.DB) ([]TableSchema, error) {
	var tables []TableSchema
	err := read(ctx, db, func(ctx context.Context, q engine.Querier, s *engine.Stores) error {
		rows, err := s.Files.Definitions(ctx, q)
		tables = nil // a read may be retried
		for _, row := range rows {
			if row.Kind == "table" {
				tables = append(tables, TableSchema{Name: row.Name, SQL: row.SQL})
				continue
			}
			if n := len(tables); n > 0 && tables[n-1].Name == row.Table {
				tables[n-1].Parts = append(tables[n-1].Parts, SchemaPart{Name: row.Name, Kind: row.Kind, SQL: row.SQL})
			}
		}
		return err
	})
	return tables, engine.Wrap("schema", "", err)
}
