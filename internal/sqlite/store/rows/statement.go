package rows

// Statement is a statement that a package runs. The lists of statements are for the tests of query
// plans.
type Statement struct {
	Name, SQL string
	Cold      bool // off the path of jobs; may scan a whole table
}

func Hot(name, sql string) Statement { return Statement{Name: name, SQL: sql} }

func Cold(name, sql string) Statement { return Statement{Name: name, SQL: sql, Cold: true} }
