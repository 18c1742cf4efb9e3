package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/honker-go/honker/internal/row"
)

// invariant is a rule and the query for the rows that violate it.
type invariant [2]string

// breaches returns a line for each row that violates one of rules.
func breaches(ctx context.Context, q row.Querier, rules []invariant) (broken []string, err error) {
	for _, i := range rules {
		err := each(ctx, q, i[1], func(rows *sql.Rows) error {
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

// ruleStatements returns the queries of rules, for the tests of query plans.
func ruleStatements(name string, rules []invariant) (all []Statement) {
	for i, rule := range rules {
		all = append(all, cold(fmt.Sprintf("%s[%d]", name, i), rule[1]))
	}
	return all
}
