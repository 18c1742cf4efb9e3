package rows

// Statement is a statement that a package runs. The lists of statements are for the tests of query
// plans.
type Statement struct {
	Name, SQL string
	Cold      bool // off the path of jobs; may scan a whole table
}

// Hot returns a statement on the path of jobs. Its plan must not scan a table.
func Hot(name, sql string) Statement { return Statement{Name: name, SQL: sql} }

// Cold returns a statement whose plan may scan a table.
func Cold(name, sql string) Statement { return Statement{Name: name, SQL: sql, Cold: true} }
