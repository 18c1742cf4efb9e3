package store

// RowsStatements returns the statements that the nouns share.
func RowsStatements() []Statement {
	return []Statement{
		hot("sqlTakeWriteLock", sqlTakeWriteLock),
		hot("sqlForeignTriggers", sqlForeignTriggers),
		hot("sqlHasColumn", sqlHasColumn),
	}
}
