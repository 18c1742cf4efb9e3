package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/honker-go/honker/internal/sqlite"
)

// insertSizes are the row counts of the prepared INSERT statements. A multi-row INSERT
// costs a third of as many single ones, since its cursors stay on the last page. The
// sizes are few, so that each statement stays prepared on its connection.
var insertSizes = []int{256, 32, 4, 1}

// Errors of statements that a trigger of the application has made do nothing.
var (
	// ErrNotInserted reports that the row that was to be inserted is not there.
	ErrNotInserted = fmt.Errorf("not inserted: %w", sqlite.ErrIgnored)
	// ErrStuck reports work that is due and cannot be done, so that to look again at once
	// would be to look for ever.
	ErrStuck = fmt.Errorf("no progress: %w", sqlite.ErrIgnored)
)

// inserts are the statements that append rows to one table, by their number of rows.
// The columns that all rows share come first and are bound once for all rows.
type inserts struct {
	table  string
	shared int // columns that are alike in all rows
	perRow int // columns of which each row has its own value
	sized  map[int]string
}

// newInserts takes the columns in the order of their values.
func newInserts(table, columns string, shared, perRow int) inserts {
	in := inserts{table, shared, perRow, make(map[int]string)}
	for _, n := range insertSizes {
		in.sized[n] = `INSERT INTO ` + table + ` (` + columns + `) VALUES ` + in.values(n)
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

// one appends a row and returns its id.
func (in inserts) one(ctx context.Context, q Querier, args ...any) (int64, error) {
	return inserted(ctx, q, in.sized[1], 1, args...)
}

// run appends count rows in as few statements as it may. row appends the values of row i to
// args. wrote gets the first and the last id of each run of rows with consecutive ids, in the
// order of the rows; what was written before an error stays.
func (in inserts) run(ctx context.Context, q Querier, shared []any, count int, row func(args []any, i int) []any, wrote func(first, last int64)) error {
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
			last, err := inserted(ctx, q, in.sized[n], n, args...)
			if err != nil {
				return err
			}
			wrote(last-int64(n)+1, last)
		}
	}
	return nil
}

// sizes are those of the statements that append count rows. The ids of one statement are
// consecutive, because no other connection can write within it, unless a trigger of the
// application adds rows of its own or drops some: then each row is a statement.
func (in inserts) sizes(ctx context.Context, q Querier, count int) ([]int, error) {
	if count < 2 {
		return insertSizes, nil
	}
	foreign, err := foreignTriggers(ctx, q, in.table)
	if foreign {
		return insertSizes[len(insertSizes)-1:], err
	}
	return insertSizes, err
}

// inserted runs an INSERT of n rows and returns the id of the last. Without a row that would
// be the id of an earlier insert of the connection, so the rows are counted.
func inserted(ctx context.Context, q Querier, query string, n int, args ...any) (last int64, err error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	if rows, err := res.RowsAffected(); err != nil || rows != int64(n) {
		return 0, errors.Join(err, ErrNotInserted)
	}
	return res.LastInsertId()
}

// Names in SQL do not differ by case, hence lower. GLOB, because _ is a wildcard of LIKE.
const sqlForeignTriggers = `SELECT EXISTS (SELECT 1 FROM sqlite_schema
  WHERE type = 'trigger' AND lower(tbl_name) = ?1 AND lower(name) NOT GLOB '_honker*')
OR EXISTS (SELECT 1 FROM sqlite_temp_schema WHERE type = 'trigger' AND lower(tbl_name) = ?1)`

// foreignTriggers tells whether table has a trigger that is not honker's own, also one that
// exists for this connection only. The names of honker's own objects begin with _honker.
func foreignTriggers(ctx context.Context, q Querier, table string) (some bool, err error) {
	_, err = one(ctx, q, sqlForeignTriggers, []any{table}, &some)
	return some, err
}
