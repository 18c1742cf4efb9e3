package rows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/row"
)

// insertSizes are the row counts of the prepared INSERT statements. A multi-row INSERT takes a third of the time of
// single-row statements, because its cursors stay on the last page. There are only a few sizes, so that each
// statement stays prepared on its connection.
var insertSizes = []int{256, 32, 4, 1}

// Inserts holds the statements that append rows to a table, by number of rows. The columns shared by all
// rows come first and are bound once.
type Inserts struct {
	table  string
	shared int // number of columns with the same value in all rows
	perRow int // number of columns with a separate value for each row
	sized  map[int]string
}

// NewInserts returns the statements for table. columns lists the shared columns first, in the order of the
// arguments.
func NewInserts(table, columns string, shared, perRow int) Inserts {
	in := Inserts{table, shared, perRow, make(map[int]string)}
	for _, n := range insertSizes {
		in.sized[n] = `INSERT INTO ` + table + ` (` + columns + `) VALUES ` + in.values(n)
	}
	return in
}

// Query returns the statement that inserts n rows; n must be in insertSizes.
func (in Inserts) Query(n int) string { return in.sized[n] }

// Statements lists the statements under name, for the tests of query plans.
func (in Inserts) Statements(name string) (all []Statement) {
	for _, n := range insertSizes {
		all = append(all, Hot(fmt.Sprintf("%s[%d]", name, n), in.sized[n]))
	}
	return all
}

// Mapped returns a copy of in, with edit applied to its statements and its table.
func (in Inserts) Mapped(edit func(string) string) Inserts {
	out := Inserts{edit(in.table), in.shared, in.perRow, make(map[int]string)}
	for n, query := range in.sized {
		out.sized[n] = edit(query)
	}
	return out
}

// values returns the parameters for n rows. Only the shared columns of multiple rows are numbered, because
// the driver treats a numbered parameter as a name and looks it up on each bind. A plain ? gets the number
// after the highest number so far.
func (in Inserts) values(n int) string {
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

// One inserts a single row and returns its ID.
func (in Inserts) One(ctx context.Context, q row.Querier, args ...any) (int64, error) {
	return Inserted(ctx, q, in.sized[1], 1, args...)
}

// Run inserts count rows in as few statements as possible. row appends the values of row i to args. Run calls wrote
// with the first and last ID of each series of rows with consecutive IDs, in row order. Rows written before an error
// remain.
func (in Inserts) Run(ctx context.Context, q row.Querier, shared []any, count int, row func(args []any, i int) []any, wrote func(first, last int64)) error {
	sizes, err := in.sizes(ctx, q, count)
	if err != nil {
		return err
	}
	args := append(make([]any, 0, in.shared+in.perRow*min(count, sizes[0])), shared...)
	done := 0
	for _, n := range sizes {
		for ; count-done >= n; done += n {
			args = args[:in.shared]
			for i := done; i < done+n; i++ {
				args = row(args, i)
			}
			last, err := Inserted(ctx, q, in.sized[n], n, args...)
			if err != nil {
				return err
			}
			wrote(last-int64(n)+1, last)
		}
	}
	return nil
}

// sizes returns the statement sizes for count rows. A single statement normally assigns consecutive IDs, because no
// other connection can write at the same time. One of the application's triggers may break this by inserting or
// dropping rows; each row then gets its own statement.
func (in Inserts) sizes(ctx context.Context, q row.Querier, count int) ([]int, error) {
	if count < 2 {
		return insertSizes, nil
	}
	foreign, err := ForeignTriggers(ctx, q, in.table)
	if foreign {
		return insertSizes[len(insertSizes)-1:], err
	}
	return insertSizes, err
}

// Inserted runs an INSERT of n rows and returns the last row's ID. It checks the number of rows because, if nothing
// was inserted, LastInsertId returns the ID from an earlier insert on the connection.
func Inserted(ctx context.Context, q row.Querier, query string, n int, args ...any) (last int64, err error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	if rows, err := res.RowsAffected(); err != nil || rows != int64(n) {
		return 0, errors.Join(err, row.ErrNotInserted)
	}
	return res.LastInsertId()
}

// SQL names are case-insensitive, hence lower. GLOB is used because _ is a wildcard in LIKE.
const sqlForeignTriggers = `SELECT EXISTS (SELECT 1 FROM sqlite_schema
  WHERE type = 'trigger' AND lower(tbl_name) = ?1 AND lower(name) NOT GLOB '_honker*')
OR EXISTS (SELECT 1 FROM sqlite_temp_schema WHERE type = 'trigger' AND lower(tbl_name) = ?1)`

// ForeignTriggers reports whether table has a trigger other than honker's own, including this connection's
// temporary triggers. The names of honker's objects begin with _honker.
func ForeignTriggers(ctx context.Context, q row.Querier, table string) (some bool, err error) {
	_, err = One(ctx, q, sqlForeignTriggers, []any{table}, &some)
	return some, err
}
