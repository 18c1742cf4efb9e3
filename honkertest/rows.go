package honkertest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/internal/engine"
)

// tables describes the tables of a database.
type tables struct {
	schema     string                 // of honker's tables; "" for a file
	live, dead string                 // as statements name them
	list       string                 // selects the schemas and names of all tables
	time       func(t time.Time) any  // t as columns have it
	isOurs     func(name string) bool // whether a table of the schema is honker's

	// compared maps each table of honker's that a handler may change to its job ID column, which is used
	// to exclude the job's own rows. Other tables of honker's, such as the tables of locks and statistics, are
	// not compared.
	compared map[string]string
}

var fileTables = tables{
	live: "_honker_live", dead: "_honker_dead",
	list:   `SELECT '', name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`,
	time:   func(t time.Time) any { return t.Unix() },
	isOurs: func(name string) bool { return strings.HasPrefix(name, "_honker") },
	compared: map[string]string{
		"_honker_live":             "id",
		"_honker_dead":             "id",
		"_honkerx_job":             "job_id",
		"_honker_stream":           "0",
		"_honkerx_relay_messages":  "0",
		"_honker_stream_consumers": "0",
	},
}

var serverTables = tables{
	list: `SELECT table_schema, table_name FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2`,
	time:   func(t time.Time) any { return t },
	isOurs: func(name string) bool { return slices.Contains(onServer, name) },
	compared: map[string]string{
		"job":           "id",
		"dead":          "id",
		"event":         "0",
		"relay_message": "0",
		"consumer":      "0",
	},
}

// onServer are honker's tables on a server. The application may have tables in the same schema.
var onServer = strings.Fields(`meta job side dead done attempt result uniq edge batch token queue key starts place listed schedule lock rate worker minute audit process
event message deleted pending consumer retention grp grp_turn member delivery relay_queue relay_message relay_pending relay_partition relay_dead
received flow_run flow_step flow_signal sent_job sent_copy actor move move_topic move_reader move_family move_partition`)

// tablesOf returns the tables of db's database.
func tablesOf(ctx context.Context, db *honker.DB) (tables, error) {
	e := engine.Of(db)
	if e.Stores.Servers == nil {
		return fileTables, nil
	}
	names := serverTables
	err := e.Read(ctx, func(ctx context.Context, q engine.Querier) error {
		server, err := e.Stores.Servers.DescribeServer(ctx, q)
		names.schema = server.Schema
		return err
	})
	names.live, names.dead = quoted(names.schema, "job"), quoted(names.schema, "dead")
	return names, err
}

// quoted returns a table's name for a statement. schema is "" for a file.
func quoted(schema, table string) string {
	quote := func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	if schema == "" {
		return quote(table)
	}
	return quote(schema) + "." + quote(table)
}

// contents returns the rows of all tables, except for honker's internal tables and the job's own
// rows.
func contents(t testing.TB, db *honker.DB, job int64) []string {
	t.Helper()
	lines, err := readContents(t.Context(), db, job)
	if err != nil {
		t.Fatalf("honkertest: %v", err)
	}
	return lines
}

func readContents(ctx context.Context, db *honker.DB, job int64) (lines []string, err error) {
	names, err := tablesOf(ctx, db)
	if err != nil {
		return nil, err
	}
	type table struct{ schema, name string }
	var all []table
	err = each(ctx, db.SQL(), names.list, func(rows *sql.Rows) error {
		var is table
		err := rows.Scan(&is.schema, &is.name)
		all = append(all, is)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, is := range all {
		where := ""
		if is.schema == names.schema && names.isOurs(is.name) {
			id, compared := names.compared[is.name]
			if !compared {
				continue
			}
			where = fmt.Sprintf(" WHERE %s <> %d", id, job)
		}
		found, err := tableRows(ctx, db.SQL(), is.schema, is.name, where)
		if err != nil {
			return nil, err
		}
		lines = append(lines, found...)
	}
	return lines, nil
}

// tableRows returns a table's rows with their column names, sorted. schema is "" for a file.
func tableRows(ctx context.Context, on honker.Tx, schema, table, where string) (lines []string, err error) {
	var columns []string
	err = each(ctx, on, `SELECT * FROM `+quoted(schema, table)+where, func(rows *sql.Rows) (err error) {
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
