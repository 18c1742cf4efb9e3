package rows

// SkipScan returns a table expression, called name, with the distinct values of column, which must be an index's
// first column. It takes a single seek for each value, no matter how many rows have it, and ends with a NULL. from is
// the table and a condition.
func SkipScan(name, column, from string) string {
	next := `(SELECT min(` + column + `) FROM ` + from
	return name + `(` + column + `) AS (SELECT ` + next + `) UNION ALL
    SELECT ` + next + ` AND ` + column + ` > s.` + column + `) FROM ` + name + ` AS s WHERE s.` + column + ` IS NOT NULL)`
}
