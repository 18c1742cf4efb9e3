package store

import (
	"context"
	"fmt"
	"strings"
)

// insertSizes are the row counts of the prepared INSERT statements. A multi-row INSERT
// costs a third of as many single ones, since its cursors stay on the last page. The
// sizes are few, so that each statement stays prepared on its connection.
var insertSizes = []int{256, 32, 4, 1}

// inserts are the statements that append rows to one table, by their number of rows.
// The columns that all rows share come first and are bound once for all rows.
type inserts struct {
	shared int // columns that are alike in all rows
	perRow int // columns of which each row has its own value
	sized  map[int]string
}

func newInserts(head string, shared, perRow int) inserts {
	in := inserts{shared, perRow, make(map[int]string)}
	for _, n := range insertSizes {
		in.sized[n] = head + in.values(n)
	}
	return in
}

// values is the list of n rows of parameters. Only the shared columns of several rows
// are numbered: the driver treats a number as a name and looks names up each time it
// binds. A bare ? is the number after the highest one so far.
func (in inserts) values(n int) string {
	var row strings.Builder
	for i := range in.shared {
		if n == 1 {
			row.WriteString("?, ")
		} else {
			fmt.Fprintf(&row, "?%d, ", i+1)
		}
	}
	row.WriteString(strings.TrimSuffix(strings.Repeat("?, ", in.perRow), ", "))
	return strings.TrimSuffix(strings.Repeat("("+row.String()+"), ", n), ", ")
}

// run appends count rows in as few statements as the sizes allow. row appends the values
// of row i to args. wrote gets the last id of every n rows. Their ids are consecutive,
// because no other connection can write within a statement.
func (in inserts) run(ctx context.Context, q Querier, shared []any, count int, row func(args []any, i int) []any, wrote func(last int64, n int)) error {
	args := append(make([]any, 0, in.shared+in.perRow*min(count, insertSizes[0])), shared...)
	done := 0
	for _, n := range insertSizes {
		for ; count-done >= n; done += n {
			args = args[:in.shared]
			for i := done; i < done+n; i++ {
				args = row(args, i)
			}
			res, err := q.ExecContext(ctx, in.sized[n], args...)
			if err != nil {
				return err
			}
			last, err := res.LastInsertId()
			if err != nil {
				return err
			}
			wrote(last, n)
		}
	}
	return nil
}
