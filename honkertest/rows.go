package honkertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/honker-go/honker"
)

// ours maps each honker table that a handler may change to its job ID column, which is used to
// exclude the job's own rows. Other tables, such as those for locks and statistics, are not
// compared.
var ours = map[string]string{
	"_honker_live":             "id",
	"_honker_dead":             "id",
	"_honkerx_job":             "job_id",
	"_honker_stream":           "0",
	"_honkerx_relay_messages":  "0",
	"_honker_stream_consumers": "0",
}

// contents returns the rows of all tables, except for honker's internal tables and the job's own
// rows.
func contents(t testing.TB, db *honker.DB, job int64) (lines []string) {
	t.Helper()
	var tables []string
	err := each(t.Context(), db.SQL(), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`,
		func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			tables = append(tables, name)
			return err
		})
	for _, table := range tables {
		where := ""
		if strings.HasPrefix(table, "_honker") {
			id, counts := ours[table]
			if !counts {
				continue
			}
			where = fmt.Sprintf(" WHERE %s <> %d", id, job)
		}
		rows, rowsErr := tableRows(t.Context(), db.SQL(), table, where)
		lines, err = append(lines, rows...), errors.Join(err, rowsErr)
	}
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return lines
}

// tableRows returns a table's rows with their column names, sorted.
func tableRows(ctx context.Context, on honker.Tx, table, where string) (lines []string, err error) {
	var columns []string
	err = each(ctx, on, `SELECT * FROM "`+strings.ReplaceAll(table, `"`, `""`)+`"`+where, func(rows *sql.Rows) (err error) {
		if columns == nil {
			if columns, err = rows.Columns(); err != nil {
				return err
			}
		}
		cells := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		line := "table " + table + ":"
		for i, cell := range cells {
			line += " " + columns[i] + "=" + cellText(cell)
		}
		lines = append(lines, line)
		return nil
	})
	slices.Sort(lines)
	return lines, err
}

func cellText(cell any) string {
	switch v := cell.(type) {
	case nil:
		return "NULL"
	case string:
		return strconv.Quote(v)
	case []byte:
		return fmt.Sprintf("x'%x'", v)
	case time.Time: // the driver converts columns declared as times
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(cell)
}

// lineDiff returns the lines that appear only in before or only in after, or "" if there are none.
func lineDiff(before, after []string) string {
	if slices.Equal(before, after) {
		return ""
	}
	counts := make(map[string]int)
	for _, line := range after {
		counts[line]++
	}
	var lines []string
	for _, line := range before {
		if counts[line]--; counts[line] < 0 {
			lines = append(lines, "-"+line)
		}
	}
	for _, line := range after {
		if counts[line] > 0 {
			counts[line]--
			lines = append(lines, "+"+line)
		}
	}
	if len(lines) == 0 {
		return "the same lines in another order"
	}
	return strings.Join(lines, "\n")
}
