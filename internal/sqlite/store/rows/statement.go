package rows

// Statement is a statement that a package runs. Packages list their statements for the query plan tests.
type Statement struct {
	Name, SQL string
	Cold      bool // not run for each job; may scan a whole table
}

// Hot returns a statement that is run for each job. Its plan must not scan a table.
func Hot(name, sql string) Statement { return Statement{Name: name, SQL: sql} }

// Cold returns a statement whose plan may scan a table.
func Cold(name, sql string) Statement { return Statement{Name: name, SQL: sql, Cold: true} }
