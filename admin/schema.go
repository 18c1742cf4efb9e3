package admin

import (
	"context"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// TableSchema is a table of honker's, as SQLite has kept it.
type TableSchema struct {
	Name  string
	SQL   string       // the statement that has made it, with the comments that are in it
	Parts []SchemaPart // its indexes and triggers, by name; those of the application too
}

// SchemaPart is an index or a trigger.
type SchemaPart struct {
	Name string
	Kind string // "index" or "trigger"
	SQL  string
}

// Schema returns honker's tables, by name, those of relays and of package dispatch included. It never waits for the
// writer. nil as the DB is honker.ErrInvalid.
func Schema(ctx context.Context, db *honker.DB) ([]TableSchema, error) {
	var tables []TableSchema
	err := read(ctx, db, func(ctx context.Context, q engine.Querier) error {
		rows, err := files.Definitions(ctx, q)
		tables = nil // a read may be done again
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
