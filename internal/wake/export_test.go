package wake

// SetStatements gives the tests of this package the statements of a store.
func SetStatements(s Statements) { testStatements = s }
