package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/honker-go/honker"
	"github.com/honker-go/honker/admin"
	"github.com/honker-go/honker/honkerpg"
)

// table describes a honker table.
type table struct {
	Name  string
	Rows  honker.Count
	About string
	SQL   string
	Parts []admin.SchemaPart
}

var tableView = view[table]{
	columns: []column[table]{
		{"name", func(t table) cell { return text(t.Name) }},
		{"rows", func(t table) cell { return count(t.Rows) }},
		{"about", func(t table) cell { return text(t.About) }},
	},
	name: func(t table) string { return t.Name },
}

// about describes the purpose of each table. See docs/file-format.md for the details.
var about = map[string]string{
	"_honker_live":             "live jobs: waiting, held, or claimed by a worker",
	"_honker_dead":             "dead letters: jobs that will not run again",
	"_honker_notifications":    "messages sent with notify",
	"_honker_results":          "results of jobs",
	"_honker_stream":           "events of all topics",
	"_honker_stream_consumers": "the offset of each consumer",
	"_honker_scheduler_tasks":  "schedules and their next times",
	"_honker_locks":            "held locks",
	"_honker_rate_limits":      "windows of rate limits",

	"_honkerx_meta":          "the version of the _honkerx_ tables, and the counter of lock tokens",
	"_honkerx_job":           "additional data of live jobs",
	"_honkerx_dead_job":      "additional data of dead jobs",
	"_honkerx_gone":          "additional data of the jobs that ended last",
	"_honkerx_unique":        "unique keys and the jobs that have them",
	"_honkerx_queues":        "settings of queues: pauses, limits, retention",
	"_honkerx_keys":          "keys that are paused or have a rate",
	"_honkerx_done":          "done jobs of queues that retain them",
	"_honkerx_after":         "dependencies between jobs, and members of batches",
	"_honkerx_batches":       "batches of jobs",
	"_honkerx_attempts":      "failed attempts",
	"_honkerx_starts":        "starts of attempts that last",
	"_honkerx_cancelled":     "places in limits that cancelled jobs hold until their handlers have returned",
	"_honkerx_workers":       "running workers and their processes",
	"_honkerx_minutes":       "traffic of each queue per minute",
	"_honkerx_audit":         "changes made by operators",
	"_honkerx_schedules":     "how schedules handle missed times, and their last fires",
	"_honkerx_consumers":     "filters of consumers, and when they were created and last saved",
	"_honkerx_retention":     "retention of topics",
	"_honkerx_groups":        "groups of consumers",
	"_honkerx_group_members": "members of groups",
	"_honkerx_group_claims":  "events that a group has delivered and that are not acked",
}

// families maps name prefixes to descriptions, for tables that packages create on first use.
var families = map[string]string{
	"_honkerx_compacted": "the last event of each topic deleted by retention",
	"_honkerx_flow":      "tables of package flow; see docs/file-format.md",
	"_honkerx_inbox":     "tables of package inbox; see docs/file-format.md",
	"_honkerx_relay":     "tables of a relay; see docs/file-format.md",
	"_honkerx_dispatch":  "tables of package dispatch; see docs/file-format.md",
}

func aboutTable(name string) string {
	if text := about[name]; text != "" {
		return text
	}
	for begins, text := range families {
		if strings.HasPrefix(name, begins) {
			return text
		}
	}
	return ""
}

func (a *app) schema() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema [TABLE]",
		Short: "List honker's tables, or show the SQL of a table",
		Long: `schema lists honker's tables in the file with their purpose and the number of their rows, counted up to 10,000. For a single
table it prints the statements that created the table, its indexes and its triggers. For a server it prints the statements that
make the whole schema, for an administrator to run; it does not connect.`,
		GroupID:           groupFile,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTable,
	}
	a.prints(cmd, tableView)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if a.onServer() {
			return a.printServerSchema()
		}
		return a.look(ctx, func(db *honker.DB) error {
			tables, err := tablesOf(ctx, db)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return a.showTable(tables, args[0])
			}
			return many(a, tableView, tables, "tables")
		})
	})
}

// printServerSchema prints the statements that make the schema of a server.
func (a *app) printServerSchema() error {
	text, err := honkerpg.Schema(a.schemaName())
	if err != nil {
		return err
	}
	_, err = a.out.WriteString(text)
	return err
}

func tablesOf(ctx context.Context, db *honker.DB) ([]table, error) {
	schemas, err := admin.Schema(ctx, db)
	if err != nil {
		return nil, err
	}
	info, err := admin.File(ctx, db)
	if err != nil {
		return nil, err
	}
	rows := map[string]honker.Count{}
	for _, t := range info.Tables {
		rows[t.Name] = t.Rows
	}
	tables := make([]table, len(schemas))
	for i, s := range schemas {
		tables[i] = table{Name: s.Name, Rows: rows[s.Name], About: aboutTable(s.Name), SQL: s.SQL, Parts: s.Parts}
	}
	return tables, nil
}

// showTable prints the plain SQL statements, unless a format was requested.
func (a *app) showTable(tables []table, name string) error {
	for _, t := range tables {
		if t.Name != name {
			continue
		}
		if a.columns != nil || a.format != "" && a.format != formatTable {
			return one(a, tableView, t)
		}
		text := "-- " + t.About + "\n" + t.SQL + ";\n"
		for _, p := range t.Parts {
			text += p.SQL + ";\n"
		}
		_, err := a.out.WriteString(clean(text))
		return err
	}
	return &coded{code: codeNo, err: fmt.Errorf("honker has no table %q", name), try: a.command("schema")}
}

func (a *app) completeTable(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(ctx context.Context, db *honker.DB) (names []string, err error) {
		tables, err := admin.Schema(ctx, db)
		for _, t := range tables {
			names = append(names, t.Name+"\t"+aboutTable(t.Name))
		}
		return names, err
	})
}
