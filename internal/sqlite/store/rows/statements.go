package rows

// Statements returns the statements that the nouns share.
func Statements() []Statement {
	return []Statement{
		Hot("sqlTakeWriteLock", sqlTakeWriteLock),
		Hot("sqlForeignTriggers", sqlForeignTriggers),
		Hot("sqlHasColumn", sqlHasColumn),
	}
}
