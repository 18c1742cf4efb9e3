package rows

// Statements returns the statements that the store packages share.
func Statements() []Statement {
	return []Statement{
		Hot("sqlTakeWriteLock", sqlTakeWriteLock),
		Hot("sqlForeignTriggers", sqlForeignTriggers),
		Hot("sqlHasColumn", sqlHasColumn),
	}
}
