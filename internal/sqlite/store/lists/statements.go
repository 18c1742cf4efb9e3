// Package lists contains the statements that select, list and count jobs for operators.
package lists

import (
	"fmt"

	"github.com/honker-go/honker/internal/row"
	"github.com/honker-go/honker/internal/sqlite/store/rows"
)

// Lists contains the statements that read jobs by conditions.
type Lists struct{}

// Statements returns the package's statements.
func Statements() (all []rows.Statement) {
	all = []rows.Statement{
		rows.Cold("sqlHeads", sqlHeads),
		rows.Cold("sqlAllHeads", sqlAllHeads),
		rows.Cold("counts", countsQuery(&selection{JobSelect: row.JobSelect{Queues: []string{"q"}}})),
		rows.Cold("all counts", countsQuery(&selection{})),
	}
	phase := []row.Phase{row.PhaseReady, row.PhaseExpired}
	for _, l := range []struct {
		name   string
		s      row.JobSelect
		order  row.Order
		sorted bool
		after  *row.Place
	}{
		{"newest", row.JobSelect{}, row.NewestFirst, false, &row.Place{ID: 1}},
		{"oldest", row.JobSelect{}, row.OldestFirst, false, nil},
		{"ids", row.JobSelect{IDs: []int64{1}, Phases: phase}, row.NewestFirst, false, nil},
		{"sides", row.JobSelect{Key: "k"}, row.NewestFirst, false, nil},
		{"batch", row.JobSelect{Batch: 1}, row.NewestFirst, false, nil},
		{"phases", row.JobSelect{Phases: append(phase, row.PhaseLapsed)}, row.NewestFirst, true, nil},
		{"queue", row.JobSelect{Queues: []string{"q"}}, row.NewestFirst, true, nil},
		{"claims", row.JobSelect{Queues: []string{"q"}}, row.ClaimOrder, false, &row.Place{ID: 1}},
		{"deaths", row.JobSelect{}, row.LastDiedFirst, false, nil},
		{"later deaths", row.JobSelect{Queues: []string{"q"}}, row.LastDiedFirst, false, &row.Place{ID: 1}},
	} {
		for i, a := range selectBranches(&selection{JobSelect: l.s}, l.order, l.sorted, l.after) {
			all = append(all, rows.Cold(fmt.Sprintf("list[%s %d]", l.name, i), a.query))
		}
	}
	s := selection{JobSelect: row.JobSelect{Queues: []string{"q"}, Phases: phase, Unique: "u"}}
	for in := range tables {
		query, _ := loadQuery(&s, row.Table(in), nil)
		all = append(all, rows.Cold(fmt.Sprintf("load[%d]", in), query))
	}
	return all
}
