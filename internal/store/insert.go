package store

import (
	"context"
	"fmt"
	"strings"
)

// A multi-row INSERT costs a third of as many single ones: its cursors stay on the
// last page. Few sizes, so that each stays prepared.
var insertSizes = []int{256, 32, 4, 1}

// inserts are the statements that append payloads, by the number of rows. The columns
// that all rows share are bound once, before the payloads.
type inserts struct {
	shared int
	sized  map[int]string
}

func newInserts(head string, shared int) inserts {
	in := inserts{shared, make(map[int]string)}
	for _, n := range insertSizes {
		in.sized[n] = head + in.rows(n)
	}
	return in
}

// rows numbers what several rows share, and nothing else: a number is a name to the
// driver, which looks at names each time it binds. A bare ? is the next that there is.
func (in inserts) rows(n int) string {
	row := "("
	for i := range in.shared {
		if n == 1 {
			row += "?, "
		} else {
			row += fmt.Sprintf("?%d, ", i+1)
		}
	}
	return strings.TrimSuffix(strings.Repeat(row+"?), ", n), ", ")
}

// run appends a row for each payload. wrote is told the last id of each n rows, whose
// ids follow one another: nobody else writes within a statement.
func (in inserts) run(ctx context.Context, q Querier, shared []any, payloads []string, wrote func(last int64, n int)) error {
	args := append(make([]any, 0, in.shared+min(len(payloads), insertSizes[0])), shared...)
	for _, n := range insertSizes {
		for ; len(payloads) >= n; payloads = payloads[n:] {
			args = args[:in.shared]
			for _, p := range payloads[:n] {
				args = append(args, p)
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
