package schema

import "github.com/honker-go/honker/internal/sqlite/store/rows"

// Statements returns the statements of the schema and of [Check], except DDL and PRAGMAs.
func Statements() []rows.Statement {
	return append([]rows.Statement{
		rows.Hot("sqlHasMeta", sqlHasMeta),
		rows.Hot("sqlHasTables", sqlHasTables),
		rows.Hot("sqlIsWAL", sqlIsWAL),
		rows.Hot("sqlVersion", sqlVersion),
		rows.Hot("sqlSetVersion", sqlSetVersion),
	}, rows.RuleStatements("invariants", invariants)...)
}
