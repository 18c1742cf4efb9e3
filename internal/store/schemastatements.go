package store

// SchemaStatements returns the statements of the schema and of [Check], except DDL and PRAGMAs.
func SchemaStatements() []Statement {
	return append([]Statement{
		hot("sqlHasMeta", sqlHasMeta),
		hot("sqlHasTables", sqlHasTables),
		hot("sqlIsWAL", sqlIsWAL),
		hot("sqlVersion", sqlVersion),
		hot("sqlSetVersion", sqlSetVersion),
	}, ruleStatements("invariants", invariants)...)
}
