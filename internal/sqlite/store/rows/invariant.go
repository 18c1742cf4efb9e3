package rows

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker/internal/row"
)

// Invariant is a rule and the query for the rows that violate it.
type Invariant [2]string

// Breaches returns a line for each row that violates any of the rules.
func Breaches(ctx context.Context, q row.Querier, rules []Invariant) (broken []string, err error) {
	for _, i := range rules {
		err := Each(ctx, q, i[1], func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			broken = append(broken, fmt.Sprintf("%s: row %d", i[0], id))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return broken, nil
}

// RuleStatements returns the rules' queries, for the tests of query plans.
func RuleStatements(name string, rules []Invariant) (all []Statement) {
	for i, rule := range rules {
		all = append(all, Cold(fmt.Sprintf("%s[%d]", name, i), rule[1]))
	}
	return all
}
